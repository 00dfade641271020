"""Commands that run something or ask it: `NAME FILE` and `NAME --flag` are `NAME run FILE` and so on.

Must not know: what is run.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

RUN = "run"


class CommandGroup(TyperGroup):
    """Anything but a command's name is for `run`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = [RUN, *args]
        return super().parse_args(ctx, args)
