"""A node's disk: what a kill leaves behind.

Owns journals, notes, injectors' progress, the retained index and the saved state by name, as
`runtime.storage` does with files. Invariants: what was written stays until it is deleted or the disk is lost;
while `failing`, nothing is written or read. Must not know: what is written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from brokerweave.links.journal import MemoryJournal, StorageError
from brokerweave.links.progress import MemoryProgress
from brokerweave.node.retained import MemoryStore
from brokerweave.sim.world import Killed

WAL = "daybook"
HELD = "held"
"""The journal of what a node of a mesh keeps for clients of others."""


class DiskJournal(MemoryJournal):
    def __init__(self, disk: SimDisk) -> None:
        super().__init__()
        self._disk = disk

    def contents(self) -> list[bytes]:
        """Every record, also while the disk fails: for those who look on from outside."""
        return list(self._records.values())

    def _check(self) -> None:
        if self.failing:
            self._disk.refused()
        super()._check()

    def append(self, sequence: int, record: bytes) -> None:
        self._disk.moment()
        super().append(sequence, record)
        self._disk.moment()

    def trim(self, up_to: int) -> None:
        self._disk.moment()
        super().trim(up_to)
        self._disk.moment()


class DiskProgress(MemoryProgress):
    def __init__(self, disk: SimDisk) -> None:
        super().__init__()
        self._disk = disk

    def flush(self) -> None:
        if self._waiting and self._disk.failing:
            self._disk.refused()
            self.crash()  # as the one in real files does
        elif self._waiting:
            self._disk.moment()
            super().flush()
            self._disk.moment()


class DiskStore(MemoryStore):
    """What was not committed is gone with the process."""

    def __init__(self, disk: SimDisk) -> None:
        super().__init__()
        self._disk = disk
        self._committed = dict(self._kept)

    def commit(self) -> None:
        if self._committed == self._kept:
            return
        if self._disk.failing:
            self._disk.refused()
        else:
            self._disk.moment()
            self._committed = dict(self._kept)
            self._disk.moment()

    def crash(self) -> None:
        self._kept = dict(self._committed)


class SimDisk:
    """Implements `node.checkpointer.Storage`."""

    temporary = False

    def __init__(self, kill: Callable[[], None]) -> None:
        self._kill = kill
        self.journals: dict[str, DiskJournal] = {}
        self.notes: dict[str, bytes] = {}
        self.progresses: dict[str, DiskProgress] = {}
        self.retained = DiskStore(self)
        self.broker_was_read = False
        self.failed = False
        """Whether something is missing on it, because it failed."""
        self.ever_failed = False
        """Whether something was missing on it at any time since the node started."""
        self.kill_at_write = 0
        """Counts down before and after each write; where it reaches 0 the process is killed."""
        self._state = b"{}"
        self._failing = False

    @property
    def failing(self) -> bool:
        return self._failing

    @failing.setter
    def failing(self, value: bool) -> None:
        self._failing = value
        for journal in self.journals.values():
            journal.failing = value

    def refused(self) -> None:
        """Something was to be written or read, and was not. A failure that nobody meets takes nothing."""
        self.failed = self.ever_failed = True

    def journal(self, name: str) -> DiskJournal | None:
        """None while the disk fails and it was not opened before."""
        if name not in self.journals and self._failing:
            self.refused()
            return None
        return self.journals.setdefault(name, DiskJournal(self))

    def progress(self, name: str) -> DiskProgress:
        progress = self.progresses.setdefault(name, DiskProgress(self))
        progress.crash()
        return progress

    def note(self, name: str) -> bytes | None:
        return None if self._failing else self.notes.get(name)

    def write_note(self, name: str, data: bytes) -> None:
        if self._failing:
            self.refused()
        else:
            self.moment()
            self.notes[name] = data
            self.moment()

    def load_state(self) -> dict[str, Any]:
        loaded = json.loads(self._state)
        assert isinstance(loaded, dict)
        return loaded

    def save_state(self, state: dict[str, Any], sync: bool) -> int:
        if self._failing:
            self.refused()
            raise StorageError("the disk does not answer")
        data = json.dumps(state).encode()
        self.moment()
        self._state = data
        self.failed = False
        self.moment()
        return len(data)

    def reject_state(self, error: Exception) -> None:
        raise AssertionError(f"a state that this node saved is damaged: {error}")

    def delete(self, folder: str) -> None:
        self.journals = {n: j for n, j in self.journals.items() if not n.startswith(f"{folder}/")}
        self.notes = {n: data for n, data in self.notes.items() if not n.startswith(f"{folder}/")}

    def moment(self) -> None:
        """Before and after each write: the process may be killed here."""
        if self.kill_at_write:
            self.kill_at_write -= 1
            if not self.kill_at_write:
                raise Killed(self._kill)
