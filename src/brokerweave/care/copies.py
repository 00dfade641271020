"""Copies of other homes' records.

Owns them, by home and life. Invariants: a copy is what its home's log says, and what came here from origins
for the home's clients; who claimed a client is told of what comes for it later. Must not know: this node's
own clients, brokers, connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from brokerweave.care.disk import Life, Part, RecordJournal
from brokerweave.care.held import Held
from brokerweave.care.record import Record, RecordTable, Snapshot, Stream, part
from brokerweave.care.wire import LogEntry

MOST_ENDED = 200_000


class Forward(Protocol):
    def __call__(self, to: str, told: Snapshot) -> None:
        """Tell who claimed a client what came for it since."""


@dataclass(slots=True)
class Copy:
    place: RecordTable
    taken: dict[Stream, int]
    """What had come to this node when its home was heard last: what came since may be for other homes."""
    holders: tuple[str, ...] = ()
    to: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Who claimed a client, and with which generation."""
    before: RecordTable | None = None
    """While the home tells all its records anew: what was here before."""


class Copies:
    def __init__(
        self, taken: Mapping[Stream, int], client_bytes: int, disk: RecordJournal, forward: Forward
    ) -> None:
        self.homes: dict[Life, Copy] = {}
        self.ended: dict[str, int] = {}
        """The last generation of sessions that ended, at homes of which this node has copies, or here."""
        self._disk = disk
        self._taken = taken
        self._client_bytes = client_bytes
        self._forward = forward

    def restore(self, part: Part) -> None:
        """What the disk has of an earlier start of this node. It covers what is listed, and no more."""
        if isinstance(part, Held):
            self.came(part.publish.topic, part)
            return
        life, entries, whole = part
        for each in entries:
            if life not in self.homes:
                self.homes[life] = Copy(RecordTable({}, self._client_bytes), {}, each.names)
            if whole:
                self.homes[life].place.drop(each.client)
            self._log(life, each)

    def log(self, life: Life, entries: list[LogEntry]) -> None:
        """What a home says."""
        self._disk.told(life, entries)
        for each in entries:
            self._log(life, each)

    def drop(self, life: Life, client: str) -> None:
        """Somebody else has all that is known here of a client."""
        copy = self.homes[life]
        if copy.place.drop(client) is not None:
            self._disk.told(life, [LogEntry("drop", client)])

    def note_end(self, client: str, generation: int) -> None:
        """A client's session is over."""
        if generation:
            self.ended[client] = max(generation, self.ended.pop(client, 0))
            if len(self.ended) > MOST_ENDED:
                del self.ended[next(iter(self.ended))]

    def _log(self, life: Life, entry: LogEntry) -> None:
        if entry.kind == "begin":
            before = self.homes.get(life)
            to = before.to if before is not None else {}
            place = before.place if before is not None else None
            taken: dict[Stream, int] = {}
            self.homes[life] = Copy(RecordTable(taken, self._client_bytes), taken, entry.names, to, place)
            return
        copy = self.homes.get(life)
        if copy is None:
            return  # it has ended
        place = copy.place
        record = place.records.get(entry.client)
        match entry.kind:
            case "record" if entry.record is not None:
                self._told(copy, entry.record)
            case "filters" if record is not None and entry.record is not None:
                place.unsettle(record)
                self._rename(copy, record, entry.record)
            case "add" if record is not None and entry.held is not None:
                place.add(record, entry.held)
                self._pass_on(copy, record, entry.held)
            case "has" if record is not None:
                for each in entry.ids:
                    place.received(record, each)
                if record.client in copy.to:
                    ids = set(entry.ids)
                    self._tell(copy, record, Snapshot(record.client, record.generation, {}, [], {}, ids))
            case "settled" if record is not None:
                place.settle(record, entry.version)
            case "drop":
                place.drop(entry.client)
                self.note_end(entry.client, entry.generation)
                copy.to.pop(entry.client, None)
            case "heard":
                place.heard[entry.client, entry.version] = entry.generation
            case "holders":
                copy.holders = entry.names
            case "complete":
                copy.before = None
                copy.to = {client: to for client, to in copy.to.items() if client in place.records}
            case "end":
                self.homes.pop(life, None)

    def heard(self, life: Life) -> None:
        """A home has said all that it had to say now."""
        copy = self.homes.get(life)
        if copy is not None:
            copy.taken.update(self._taken)

    def _told(self, copy: Copy, told: Snapshot) -> None:
        record = copy.place.open(told.client)
        if told.born >= record.generation > 0:  # of a session that has ended
            copy.place.drop(told.client)
            record = copy.place.open(told.client)
        learned = copy.place.merge(record, told)
        self._rename(copy, record, told)
        record.version = told.version
        before = copy.before.records.get(told.client) if copy.before is not None else None
        if copy.before is not None and before is not None:
            copy.place.merge(record, copy.before.snapshot(before))
        if copy.to.get(told.client, ("", 0))[1] < told.generation:
            copy.to.pop(told.client, None)
        elif told.client in copy.to and learned:
            self._tell(copy, record, part(record, learned))

    def _rename(self, copy: Copy, record: Record, told: Snapshot) -> None:
        gone = {f: None for f in record.filters if f not in told.filters}
        copy.place.set_filters(record, {**gone, **told.filters})
        record.generation, record.will, record.born = told.generation, told.will, told.born

    def came(self, topic: str, held: Held) -> bool:
        """A publication came to this node. Whether a copy wants it."""
        wanted = False
        for copy in self.homes.values():
            for client in copy.place.matching(topic):
                record = copy.place.records[client]
                wanted = True
                if not copy.place.seen(record, held):
                    copy.place.add(record, held)
                    self._pass_on(copy, record, held)
        return wanted

    def _pass_on(self, copy: Copy, record: Record, held: Held) -> None:
        if record.client in copy.to:
            self._tell(copy, record, Snapshot(record.client, record.generation, {}, [held]))

    def _tell(self, copy: Copy, record: Record, told: Snapshot) -> None:
        self._forward(copy.to[record.client][0], told)

    # Claims

    def of(self, client: str) -> list[tuple[Life, Copy, Record]]:
        """The latest first."""
        found = [
            (life, copy, copy.place.records[client])
            for life, copy in self.homes.items()
            if client in copy.place.records
        ]
        return sorted(found, key=lambda each: -each[2].generation)
