"""Keeping a node's state on disk while it runs, and finding it again.

Owns when the daybook begins anew: what is still owed goes to the journals of those who owe it, the state is
saved as a whole, then the daybook is trimmed. Invariants: in that order, so that a crash between any two
writes finds everything either there or here; a disk that fails is said and counted, and stops nothing. Must
not know: what the state means, who asks for outboxes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from typing import Any

from brokerweave.config import LinksSection
from brokerweave.errors import BrokerweaveError
from brokerweave.links.journal import StorageError
from brokerweave.links.outbox import Outbox
from brokerweave.links.run import Run
from brokerweave.links.window import DuplicateWindow
from brokerweave.links.wire import decode_record
from brokerweave.node.daybook import Daybook
from brokerweave.node.recovery import Recovery
from brokerweave.runtime.journal import Note
from brokerweave.runtime.storage import Storage

DAYBOOK_BYTES = 16 << 20
"""The daybook begins anew at this size, or at eight times the state's if that is more."""


class Keeper:
    def __init__(self, storage: Storage, links: LinksSection, warn: Callable[[str], None]) -> None:
        self.failures = 0
        """Times that the state or a note could not be written."""
        self.daybook = Daybook()
        self._storage = storage
        self._links = links
        self._warn = warn
        self._unposted: dict[str, list[tuple[int, Run]]] = {}

    def recover(self) -> dict[str, Any]:
        """The state as it was when the last node here ended, however it did; {} if there was none."""
        stored = self._storage.load_state()
        journal = None if self._storage.temporary else self._storage.journal("daybook")
        if journal is None:
            return stored
        try:
            try:
                recovery = self._recovery(stored)
                state = recovery.replay(journal)
            except StorageError:
                raise
            except BrokerweaveError as error:
                self._storage.reject_state(error)
                recovery = self._recovery({})
                state = recovery.replay(journal)
        except StorageError as error:
            self._warn(f"the daybook cannot be read, what it has is lost: {error}")
            state = stored
        if recovery.damaged:
            self._warn(f"the daybook: {recovery.damaged} entries could not be understood")
        self.daybook = Daybook(journal, self._warn)
        self.daybook.begin_after(int(state.get("covers", 0)))
        self.daybook.limit = DAYBOOK_BYTES
        return state

    def outbox(self, name: str, durable: bool) -> Outbox:
        """The outbox of this name, with all that it owed before."""
        links = self._links
        stream = secrets.randbits(62) + 1
        journal = self._storage.journal(name) if durable else None
        if journal is None:
            return Outbox(stream, None, links.outbox_memory, 0)
        outbox = Outbox.restored(stream, journal, links.outbox_memory, links.outbox_disk)
        if self.daybook.keeps:
            outbox.name = name
            outbox.next_number = self.daybook.next_number
            self.daybook.begin_after(journal.last)
            for number, run in self._unposted.pop(name, ()):
                outbox.append(run, number)
        return outbox

    def note(self, note: Note, data: bytes) -> None:
        """Write a note; one that the disk does not take costs a repetition after a crash, no more."""
        try:
            note.write(data)
        except OSError as error:
            if not self.failures:
                self._warn(f"a note could not be written: {error.strerror}")
            self.failures += 1

    def checkpoint(self, dump: Callable[[], dict[str, Any]], outboxes: Iterable[Outbox], sync: bool) -> None:
        """Begin the daybook anew. `dump` gives the state, with the entries that it covers."""
        if self._storage.temporary:
            return
        self.daybook.limit = self.daybook.size + DAYBOOK_BYTES
        try:
            if not all(outbox.settle() for outbox in outboxes):
                raise StorageError("an outbox could not be written")
            state = dump()
            size = self._storage.save_state(state, sync)
        except StorageError as error:
            self.failures += 1
            self._warn(f"the disk does not take the node's state, a crash now may lose or double: {error}")
            return
        self.daybook.trim(int(state["covers"]))
        self.daybook.limit = max(DAYBOOK_BYTES, 8 * size)

    def _recovery(self, state: dict[str, Any]) -> Recovery:
        window = DuplicateWindow(self._links.window)
        return Recovery(state, window, self._links.order == "topic", self._post)

    def _post(self, name: str, number: int, record: bytes) -> None:
        journal = self._storage.journal(name)
        if journal is not None and number <= journal.last:
            return
        try:
            if journal is None or name in self._unposted:  # a later one would overtake
                raise StorageError("no journal")
            journal.append(number, record)
        except StorageError:
            self._unposted.setdefault(name, []).append((number, decode_record(record)))
