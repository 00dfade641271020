"""The lanes of links, each with its folder on disk: its pending runs, and how far it took the neighbour's
stream.

Owns which folder is whose, and the note in it. Invariants: a lane whose outbox is durable goes on, after a
restart, where it stood; a neighbour that was removed leaves nothing behind. Must not know: what a lane sends,
when the write-ahead log is emptied.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerweave.links.lane import Lane
from brokerweave.node.checkpointer import Checkpointer
from brokerweave.runtime.journal import Note
from brokerweave.runtime.storage import Storage


class LaneFolders:
    def __init__(
        self, storage: Storage, checkpointer: Checkpointer, acknowledged: Callable[[], bool]
    ) -> None:
        """`acknowledged`: whether new lanes are; without acknowledgements there is nothing to keep."""
        self._storage = storage
        self._checkpointer = checkpointer
        self._acknowledged = acknowledged
        self._notes: dict[tuple[str, int], Note] = {}

    def lane(self, neighbour: str, index: int) -> Lane:
        """A neighbour's lane, as an earlier start left it."""
        acknowledged = self._acknowledged()
        folder = f"lanes/{neighbour}/{index}"
        lane = Lane(self._checkpointer.outbox(folder, acknowledged), acknowledged=acknowledged)
        note = self._storage.note(f"{folder}/taken") if acknowledged else None
        if note is not None:
            self._notes[neighbour, index] = note
            stored = note.read()
            if stored:
                lane.restore(stored)
        return lane

    def note_taken(self, neighbour: str, index: int, lane: Lane) -> None:
        note = self._notes.get((neighbour, index))
        if note is not None:
            self._storage.write_note(note, lane.snapshot())

    def delete(self, neighbour: str) -> None:
        for key in [key for key in self._notes if key[0] == neighbour]:
            del self._notes[key]
        self._storage.delete(f"lanes/{neighbour}")
