"""The tables of modules in the docs say what the modules' own headers say."""

from __future__ import annotations

from tests.support import module_table
from tests.unit.test_layers import PACKAGE


def test_the_pages_are_what_make_docs_would_write() -> None:
    page = module_table.ARCHITECTURE.read_text()
    assert module_table.architecture(page) == page, "run make docs"
    assert module_table.modules() == module_table.MODULES.read_text(), "run make docs"


def test_every_module_opens_with_what_it_is() -> None:
    silent = [str(path) for path in PACKAGE.rglob("*.py") if not module_table.headline(path)]
    assert silent == []
