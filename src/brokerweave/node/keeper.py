"""Keeping a node's state on disk while it runs, and finding it again.

Owns when the daybook begins anew: what is still owed goes to the journals of those who owe it, the state is
saved as a whole, then the daybook is trimmed. Invariants: in that order, so that a crash between any two
writes finds everything either there or here; a disk that fails is said and counted, and stops nothing. Must
not know: what the state means, who asks for outboxes, files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

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


class Storage(Protocol):
    @property
    def temporary(self) -> bool:
        """Whether nothing of it will be found again."""

    def journal(self, name: str) -> Journal | None:
        """None: the disk failed."""

    def load_state(self) -> dict[str, Any]: ...

    def save_state(self, state: dict[str, Any], sync: bool) -> int:
        """Its size in bytes. Raises `StorageError`."""

    def reject_state(self, error: Exception) -> None:
        """What was loaded cannot be understood."""


@dataclass(frozen=True, slots=True)
class KeeperSettings:
    """Units as in the configuration."""

    window: int
    ordered: bool
    outbox_memory: int
    outbox_disk: int
    daybook_bytes: int = DAYBOOK_BYTES


class Keeper:
    def __init__(
        self,
        storage: Storage,
        settings: KeeperSettings,
        new_stream: Callable[[], int],
        warn: Callable[[str], None],
        kind: type[Outbox] = Outbox,
    ) -> None:
        """`new_stream` gives a number that no outbox had before; `kind` is the class of outboxes to make."""
        self.failures = 0
        """Times that the state or a note could not be written."""
        self.daybook = Daybook()
        self._storage = storage
        self._settings = settings
        self._new_stream = new_stream
        self._warn = warn
        self._kind = kind
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
        self.daybook.limit = self._settings.daybook_bytes
        return state

    def outbox(self, name: str, durable: bool) -> Outbox:
        """The outbox of this name, with all that it owed before."""
        settings, stream = self._settings, self._new_stream()
        journal = self._storage.journal(name) if durable else None
        if journal is None:
            return self._kind(stream, None, settings.outbox_memory, 0)
        outbox = self._kind.restored(stream, journal, settings.outbox_memory, settings.outbox_disk)
        if self.daybook.keeps:
            outbox.name = name
            outbox.next_number = self.daybook.next_number
            self.daybook.begin_after(journal.last)
            for number, run in self._unposted.pop(name, ()):
                outbox.append(run, number)
        return outbox

    def checkpoint(self, dump: Callable[[], dict[str, Any]], outboxes: Iterable[Outbox], sync: bool) -> None:
        """Begin the daybook anew. `dump` gives the state, with the entries that it covers."""
        if self._storage.temporary:
            return
        self.daybook.limit = self.daybook.size + self._settings.daybook_bytes
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
        self.daybook.limit = max(self._settings.daybook_bytes, 8 * size)

    def _recovery(self, state: dict[str, Any]) -> Recovery:
        window = DuplicateWindow(self._settings.window)
        return Recovery(state, window, self._settings.ordered, self._post)

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
