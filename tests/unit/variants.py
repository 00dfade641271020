"""The modules that can be compiled, compiled and not: their tests run over both.

The uncompiled ones are loaded from their sources, and import each other, not the compiled ones.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest import mock

import pytest

from brokerweave.runtime import compiled

SOURCES = Path(__file__).parents[2] / "src"


def _load_uncompiled() -> list[ModuleType]:
    loaded: dict[str, ModuleType] = {}
    for module in compiled.MODULES:
        path = (SOURCES / module.__name__.replace(".", "/")).with_suffix(".py")
        spec = importlib.util.spec_from_file_location(f"uncompiled_{module.__name__}", path)
        assert spec is not None
        assert spec.loader is not None
        fresh = loaded[module.__name__] = importlib.util.module_from_spec(spec)
        with mock.patch.dict(sys.modules, loaded):
            spec.loader.exec_module(fresh)
    return list(loaded.values())


def _all_of(modules: list[ModuleType]) -> SimpleNamespace:
    """What the modules offer, under one name each: they share none."""
    return SimpleNamespace(**{name: value for module in modules for name, value in vars(module).items()})


COMPILED, UNCOMPILED = _all_of(list(compiled.MODULES)), _all_of(_load_uncompiled())
_not_built = pytest.mark.skipif(compiled.state() != "compiled", reason="the extensions are not built here")
BOTH = [
    pytest.param(UNCOMPILED, id="uncompiled"),
    pytest.param(COMPILED, id="compiled", marks=_not_built),
]
