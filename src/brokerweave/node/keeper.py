"""Keeping a node's state on disk while it runs, and finding it again.

Owns when the daybook begins anew: what is still owed goes to the journals of those who owe it, the state is
saved as a whole, then the daybook is trimmed. Invariants: in that order, so that a crash between any two
writes finds everything either there or here; a disk that fails is said and counted, and stops nothing. Must
not know: files, what the state means, who asks for outboxes.
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
from brokerweave.node.daybook import Daybook
from brokerweave.node.recovery import Recovery

DAYBOOK_BYTES = 16 << 20
"""The daybook begins anew at this size, or at eight times the state's if that is more."""


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
    daybook_bytes: int = DAYBOOK_BYTES


class Keeper:
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
        self.daybook = Daybook()
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
            self._warn(f"the daybook cannot be read, what it has is lost: {error}")
            state = stored
        if recovery.damaged:
            self._warn(f"the daybook: {recovery.damaged} entries could not be understood")
        self.daybook = Daybook(journal, self._warn)
        self.daybook.begin_after(int(state.get("covers", 0)))
        self.daybook.limit = self._bounds.daybook_bytes
        return state

    def outbox(self, name: str, durable: bool) -> Outbox:
        """The outbox of this name, with all that it owed before."""
        stream, memory = self._new_stream(), self._bounds.outbox_memory
        journal = self._storage.journal(name) if durable else None
        if journal is None:
            outbox = self._outbox(stream, None, memory, 0)
            if durable and self.daybook.keeps:
                self._without_journal[name] = outbox
                self.daybook.grown()
            return outbox
        outbox = self._outbox.restored(stream, journal, memory, self._bounds.outbox_disk)
        if self.daybook.keeps:
            self._book(name, outbox, journal)
            for number, run in self._unposted.pop(name, ()):
                outbox.append(run, number)
        return outbox

    def _book(self, name: str, outbox: Outbox, journal: Journal) -> None:
        self.daybook.begin_after(journal.last)
        outbox.booked_as = name
        outbox.next_number = self.daybook.next_number

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
        """Begin the daybook anew. `dump` gives the state, with the entries that it covers.

        False: the disk did not take it; try again after a while.
        """
        if self._storage.temporary:
            return True
        self.daybook.limit = self.daybook.size + self._bounds.daybook_bytes
        try:
            self._give_journals()
            if not all(outbox.settle() for outbox in outboxes):
                raise StorageError("an outbox could not be written")
            state = dump()
            size = self._storage.save_state(state, sync)
        except StorageError as error:
            self.failures += 1
            if not self._failing:
                self._warn(
                    f"the disk does not take the node's state, a crash now may lose or double: {error}"
                )
            self._failing = True
            return False
        self._failing = False
        self.daybook.trim(int(state["covers"]))
        self.daybook.limit = max(self._bounds.daybook_bytes, 8 * size)
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
