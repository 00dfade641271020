"""Keeping a node's state in real files: the pure keeper, given a folder, the configuration and randomness.

Owns how a note that the disk refuses is taken. Must not know: what is kept, in which order (`node.keeper`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from brokerweave.config import LinksSection
from brokerweave.node import keeper
from brokerweave.runtime.journal import Note
from brokerweave.runtime.storage import Storage


class Keeper(keeper.Keeper):
    def __init__(self, storage: Storage, links: LinksSection, warn: Callable[[str], None]) -> None:
        settings = keeper.KeeperSettings(
            links.window, links.order == "topic", links.outbox_memory, links.outbox_disk
        )
        super().__init__(storage, settings, lambda: secrets.randbits(62) + 1, warn)

    def note(self, note: Note, data: bytes) -> None:
        """Write a note; one that the disk does not take costs a repetition after a crash, no more."""
        try:
            note.write(data)
        except OSError as error:
            if not self.failures:
                self._warn(f"a note could not be written: {error.strerror}")
            self.failures += 1
