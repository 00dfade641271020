"""When a running node makes a checkpoint: saves its state as a whole, and trims the write-ahead log.

Owns the moment, and that dead letters are written down as they come and go. Invariants: never in the turn in
which something was written down, since that is not in its outboxes yet; a disk that failed is asked again
until the node stops. Must not know: what the state is, in which order it is written.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

from brokerweave.links.dead_letters import DeadLetters, plain
from brokerweave.node import state
from brokerweave.node.checkpointer import Checkpointer
from brokerweave.node.core import NodeCore
from brokerweave.runtime.status import outboxes

RETRY_SECONDS = 1.0


class Checkpoints:
    def __init__(
        self, core: NodeCore, checkpointer: Checkpointer, letters: DeadLetters, stopping: Callable[[], bool]
    ) -> None:
        self._core = core
        self._checkpointer = checkpointer
        self._letters = letters
        self._stopping = stopping
        self._due: asyncio.Handle | None = None

    def begin(self) -> None:
        """From here on everything that changes is written down as it does."""
        wal, letters = self._core.wal, self._letters
        letters.added = lambda letter: wal.note("letter", *plain(letter))
        letters.removed = lambda letter_id: wal.note("letter gone", letter_id)
        wal.grown = self._save_soon
        self.save(sync=True)  # this start's epoch, too

    def _save_soon(self) -> None:
        if self._due is None:
            self._due = asyncio.get_running_loop().call_soon(self.save)

    def save(self, sync: bool = False) -> None:
        self._due = None
        self._core.retained.commit()  # what a failing disk did not take before
        dump = functools.partial(state.dump, self._core, self._letters)
        if not self._checkpointer.checkpoint(dump, outboxes(self._core), sync) and not self._stopping():
            self._due = asyncio.get_running_loop().call_later(RETRY_SECONDS, self.save)
