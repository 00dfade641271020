"""Writes the tables of modules in the docs from the modules' headers: `python -m tests.support.module_table`.

Owns the form of docs/modules.md and of the table between two marks in docs/architecture.md. Every word about
a module is the first sentence of its docstring; a test compares the pages with it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.unit.test_layers import FILES_ONLY, LAYERS, PACKAGE, PURE, REPLAYABLE, ROOT

BEGIN, END = "<!-- made by `make docs` -->\n", "<!-- end -->\n"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
MODULES = ROOT / "docs" / "modules.md"
_OPENING = """\
# Modules

One line for each module, from its header. *Made by `make docs`.*
"""


def headline(path: Path) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    first = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s+", first)[0].rstrip(".").replace("|", "\\|")


def packages() -> Iterator[Path]:
    """From the top layer down."""
    for layers in reversed(LAYERS):
        yield from (PACKAGE / layer for layer in sorted(layers) if (PACKAGE / layer).is_dir())


def architecture(page: str) -> str:
    """The page with its table made anew."""
    rows = ["| layer | what it is | may do I/O |", "|---|---|---|"]
    for package in packages():
        name = package.name
        reach = "files" if name in FILES_ONLY else "no" if name in PURE | REPLAYABLE else "yes"
        rows.append(f"| `{name}` | {headline(package / '__init__.py')} | {reach} |")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    table = "\n".join(rows)
    return f"{before}{BEGIN}{table}\n{END}{after}"


def modules() -> str:
    """The whole page of modules."""
    parts = [_OPENING]
    for package in packages():
        what = headline(package / "__init__.py")
        parts += [f"## `{package.name}`\n", f"{what}.\n", "| module | header |", "|---|---|"]
        for path in sorted(package.rglob("*.py")):
            place = path.relative_to(package).with_suffix("").as_posix()
            if place != "__init__" and headline(path):
                parts.append(f"| `{place.removesuffix('/__init__')}` | {headline(path)} |")
        parts.append("")
    return "\n".join(parts)


def main() -> None:
    ARCHITECTURE.write_text(architecture(ARCHITECTURE.read_text()))
    MODULES.write_text(modules())


if __name__ == "__main__":
    main()
