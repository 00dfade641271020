"""Commands that run something or ask it: `NAME FILE` and `NAME --flag` are `NAME run FILE` and so on.

Must not know: what is run.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

from typer.core import TyperGroup

from brokerweave.errors import ConfigError

RUN = "run"


class CommandGroup(TyperGroup):
    """Anything but a command's name is for `run`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            self._check_word(args[0] if args else "")
            args = [RUN, *args]
        return super().parse_args(ctx, args)

    def _check_word(self, word: str) -> None:
        """Raises `ConfigError` for what looks like a command and is no file."""
        close = difflib.get_close_matches(word, self.commands, n=1)
        if close and not Path(word).exists():
            raise ConfigError(f"no command and no file is called {word!r}; did you mean {close[0]!r}?")
