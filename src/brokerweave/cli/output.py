"""How commands print: help that wraps, and tables that stay whole without a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WIDTH_IN_A_PIPE = 160
"""Wide enough that no column of ours is cut, since a pipe has no width of its own."""


def help_text(text: str) -> str:
    """Help as Typer should get it: a paragraph on one line, so that it wraps to the terminal alone.

    A paragraph that begins with a backspace stays as it is, for examples.
    """
    parts = (part.strip("\n") for part in text.split("\n\n"))
    return "\n\n".join(part if part.startswith("\b") else " ".join(part.split()) for part in parts)


def console() -> Console:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _WIDTH_IN_A_PIPE, highlight=False, markup=False)


def table(*columns: str, title: str | None = None) -> Table:
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def progress(text: str) -> None:
    """Show how far a long command is, in place of what was shown before; only to somebody who looks."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
