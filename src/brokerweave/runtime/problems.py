"""What goes wrong in a node or a gateway: written to its log, and kept for `status`.

Owns the warnings of this start and the count of internal errors. Invariants: no more is kept than somebody
reads, however often it happens; an internal error is said once for each kind, and counted each time; an error
that nobody caught never ends the process. Must not know: who warns, what a task does.
"""

from __future__ import annotations

import logging
from typing import Any

from brokerweave.node.plugins import MOST_KINDS, place_of

MOST_WARNINGS = 100


class Problems:
    def __init__(self, process: str = "node") -> None:
        self._log = logging.getLogger(f"brokerweave.{process}")
        self.warnings: list[str] = []
        self.internal_errors = 0
        self._said: set[tuple[str, str, str]] = set()

    def warn(self, message: str) -> None:
        self._log.warning(message)
        self._remember(message)

    def report(self, message: str, error: BaseException | None) -> None:
        """Say it with all that is known of the error."""
        self._log.error(message, exc_info=error)
        self._remember(message)

    def task_failed(self, task: str, error: BaseException) -> None:
        """A background task raised what it should not; it is restarted."""
        self._internal_error(f"{task} failed", error)

    def loop_failed(self, context: dict[str, Any]) -> None:
        """What nobody caught: in a timer, in a protocol, in a task that nobody waited for."""
        error = context.get("exception")
        if isinstance(error, OSError) and ("transport" in context or "protocol" in context):
            self._log.info("%s: %s", context.get("message"), error)  # a connection's end in an unusual way
        elif isinstance(error, OSError) and "socket" in context:
            self.warn(f"{context.get('message')}: {error}")  # no descriptor is left to accept with
        else:
            self._internal_error(str(context.get("message")), error)

    def _internal_error(self, what: str, error: BaseException | None) -> None:
        self.internal_errors += 1
        kind = (what, type(error).__name__, place_of(error) if error is not None else "")
        if kind not in self._said and len(self._said) < MOST_KINDS:
            self._said.add(kind)
            self.report(f"{what}: {error!r} in {kind[2]}; please report it", error)

    def _remember(self, message: str) -> None:
        if message not in self.warnings and len(self.warnings) < MOST_WARNINGS:
            self.warnings.append(message)
