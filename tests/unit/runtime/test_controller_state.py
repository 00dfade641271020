from __future__ import annotations

from pathlib import Path

import pytest

from brokerweave.errors import Unavailable
from brokerweave.runtime.controller_state import NAME, ControllerState, OperatorRequests

ASKED = OperatorRequests({"client": "a"}, {"b": "draining", "c": "evacuated"})


def test_what_was_asked_is_there_after_a_restart(tmp_path: Path) -> None:
    warnings: list[str] = []
    folder = tmp_path / "not" / "there"
    state = ControllerState(folder, warnings.append)
    assert state.load() == OperatorRequests()
    state.save(ASKED)
    assert ControllerState(folder, warnings.append).load() == ASKED
    assert warnings == []


@pytest.mark.parametrize(
    "text", ["", "[]", '{"pins": 5, "leaving": {}}', '{"pins": {"a": 5}, "leaving": {}}']
)
def test_a_damaged_file_is_put_aside_with_a_warning(tmp_path: Path, text: str) -> None:
    warnings: list[str] = []
    (tmp_path / NAME).write_text(text)
    state = ControllerState(tmp_path, warnings.append)
    assert state.load() == OperatorRequests()
    assert "pins and drained sites are forgotten" in warnings[0]
    assert [each.suffix for each in tmp_path.iterdir()] == [".damaged"]
    state.save(ASKED)
    assert ControllerState(tmp_path, warnings.append).load() == ASKED


def test_without_a_folder_nothing_is_kept() -> None:
    state = ControllerState(None, print)
    state.save(ASKED)
    assert state.load() == OperatorRequests()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="data_dir"):
        ControllerState(tmp_path / "file" / "folder", print)
