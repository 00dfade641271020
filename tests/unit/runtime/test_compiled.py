"""What `--version` and `status` say of the modules that can be compiled."""

from __future__ import annotations

from types import ModuleType

import pytest

from brokerweave.runtime import compiled


def module(file: str) -> ModuleType:
    made = ModuleType("made")
    made.__file__ = file
    return made


@pytest.mark.parametrize(
    ("files", "state"),
    [
        (("a.so", "b.pyd"), "compiled"),
        (("a.py", "b.py"), "uncompiled"),
        (("a.so", "b.py"), "partly compiled"),
    ],
)
def test_all_of_them_count(monkeypatch: pytest.MonkeyPatch, files: tuple[str, ...], state: str) -> None:
    monkeypatch.setattr(compiled, "MODULES", tuple(map(module, files)))
    assert compiled.state() == state
