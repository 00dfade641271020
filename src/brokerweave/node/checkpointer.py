"""Keeping a node's state on disk while it runs, and finding it again.

Owns when a checkpoint empties the write-ahead log: what is still owed goes to the journals of those who owe
it, the state is saved as a whole, then the write-ahead log is trimmed. Invariants: in that order, so that a
crash between any two writes finds everything either there or here; a disk that fails is said and counted, and
stops nothing. Must not know: files, what the state means, who asks for outboxes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakValueDictionary

from brokerweave.errors import BrokerweaveError
from brokerweave.links.journal import Journal, StorageError
from brokerweave.links.outbox import Outbox
from brokerweave.links.run import Run
from brokerweave.links.window import DuplicateWindow
from brokerweave.links.wire import decode_record
from brokerweave.node.recovery import Recovery
from brokerweave.node.write_ahead_log import WriteAheadLog

WAL_BYTES = 16 << 20
"""The write-ahead log begins anew at this size, or at eight times the state's if that is more."""


class NodeStorage(Protocol):
    """`runtime.storage` with real files, or what stands for it in a simulation."""

    @property
    def temporary(self) -> bool:
        """Nobody will read it after this start: it is only for what does not fit into memory."""

    def journal(self, name: str) -> Journal | None:
        """The journal of this name, always the same one; None if it cannot be used."""

    def load_state(self) -> dict[str, Any]:
        """What was saved last; {} if nothing was."""

    def reject_state(self, error: Exception) -> None:
        """What `load_state` gave is damaged: keep it aside."""

    def save_state(self, state: dict[str, Any], sync: bool) -> int:
        """Replace the state as a whole; its size in bytes. Raises `StorageError`."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """As in the configuration."""

    window: int
    ordered: bool
    outbox_memory: int
    outbox_disk: int
    wal_bytes: int = WAL_BYTES


class Checkpointer:
    """`new_stream` gives a number that no outbox had before."""

    def __init__(
        self,
        disk: NodeStorage,
        bounds: Bounds,
        new_stream: Callable[[], int],
        warn: Callable[[str], None],
        outbox: type[Outbox] = Outbox,
    ) -> None:
        self.failures = 0
        """Times that the state could not be saved."""
        self.wal = WriteAheadLog()
        self._storage = disk
        self._bounds = bounds
        self._new_stream = new_stream
        self._warn = warn
        self._outbox = outbox
        self._failing = False
        self._unposted: dict[str, list[tuple[int, Run]]] = {}
        self._without_journal: WeakValueDictionary[str, Outbox] = WeakValueDictionary()

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
            self._warn(f"the write-ahead log cannot be read, its entries are lost: {error}")
            state = stored
        if recovery.damaged:
            self._warn(f"the write-ahead log: {recovery.damaged} entries are damaged and were skipped")
        self.wal = WriteAheadLog(journal, self._warn)
        self.wal.begin_after(int(state.get("covers", 0)))
        self.wal.limit = self._bounds.wal_bytes
        return state

    def outbox(self, name: str, durable: bool) -> Outbox:
        """The outbox of this name, with all that it owed before."""
        stream, memory = self._new_stream(), self._bounds.outbox_memory
        journal = self._storage.journal(name) if durable else None
        if journal is None:
            outbox = self._outbox(stream, None, memory, 0)
            if durable and self.wal.keeps:
                self._without_journal[name] = outbox
                self.wal.grown()
            return outbox
        outbox = self._outbox.restored(stream, journal, memory, self._bounds.outbox_disk)
        if self.wal.keeps:
            self._book(name, outbox, journal)
            for number, run in self._unposted.pop(name, ()):
                outbox.append(run, number)
        return outbox

    def _book(self, name: str, outbox: Outbox, journal: Journal) -> None:
        self.wal.begin_after(journal.last)
        outbox.wal_name = name
        outbox.next_number = self.wal.next_number

    def _give_journals(self) -> None:
        """To outboxes that were made while the disk failed. Raises `StorageError` if it still does."""
        for name, outbox in list(self._without_journal.items()):
            journal = self._storage.journal(name)
            if journal is None:
                raise StorageError(f"journal {name} cannot be used")
            self._book(name, outbox, journal)
            outbox.begin_journal(journal, self._bounds.outbox_disk)
            del self._without_journal[name]

    def checkpoint(self, dump: Callable[[], dict[str, Any]], outboxes: Iterable[Outbox], sync: bool) -> bool:
        """Begin the write-ahead log anew. `dump` gives the state, with the entries that it covers.

        False: the disk did not take it; try again after a while.
        """
        if self._storage.temporary:
            return True
        self.wal.limit = self.wal.size + self._bounds.wal_bytes
        try:
            self._give_journals()
            if not all(outbox.settle() for outbox in outboxes):
                raise StorageError("an outbox could not be written")
            state = dump()
            size = self._storage.save_state(state, sync)
        except StorageError as error:
            self.failures += 1
            if not self._failing:
                self._warn(f"cannot save the node's state, a crash now may lose or double messages: {error}")
            self._failing = True
            return False
        self._failing = False
        self.wal.trim(int(state["covers"]))
        self.wal.limit = max(self._bounds.wal_bytes, 8 * size)
        return True

    def _recovery(self, state: dict[str, Any]) -> Recovery:
        return Recovery(state, DuplicateWindow(self._bounds.window), self._bounds.ordered, self._post)

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
