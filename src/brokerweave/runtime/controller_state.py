"""What operators asked of a controller, kept over a restart: pins, and which sites are to be empty.

Owns the file. Invariants: it is replaced as a whole, or not at all; one that cannot be read is reported and
put aside, and the controller begins without. Must not know: what follows from it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from brokerweave.errors import Unavailable
from brokerweave.placement.graph import Leaving

NAME = "controller.json"


@dataclass(slots=True)
class OperatorRequests:
    pins: dict[str, str] = field(default_factory=dict)
    leaving: dict[str, str] = field(default_factory=dict)
    """By site: `draining` or `evacuated`."""


class ControllerState:
    def __init__(self, folder: Path | None, warn: Callable[[str], None]) -> None:
        """Raises `Unavailable` if there can be no such folder."""
        self._file = None if folder is None else folder / NAME
        self._warn = warn
        self._written: str | None = None
        if folder is not None:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise Unavailable(f"data_dir {folder} cannot be used: {error.strerror}") from error

    def load(self) -> OperatorRequests:
        if self._file is None or not self._file.exists():
            return OperatorRequests()
        try:
            found = json.loads(self._file.read_text())
            pins, leaving = found["pins"], found["leaving"]
            values = {Leaving.DRAINING.value, Leaving.EVACUATED.value}
            if not all(isinstance(each, str) for each in [*pins.values(), *leaving.values()]):
                raise ValueError
            return OperatorRequests(
                dict(pins), {site: each for site, each in leaving.items() if each in values}
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self._warn(f"{self._file} cannot be read: pins and drained sites are forgotten; it is put aside")
            with contextlib.suppress(OSError):
                self._file.rename(self._file.with_suffix(".damaged"))
            return OperatorRequests()

    def save(self, asked: OperatorRequests) -> None:
        text = json.dumps({"pins": asked.pins, "leaving": asked.leaving}, sort_keys=True)
        if self._file is None or text == self._written:
            return
        fresh = self._file.with_suffix(".new")
        try:
            with fresh.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._file)
            self._written = text
        except OSError as error:
            self._warn(f"{self._file} cannot be written: {error.strerror}")
