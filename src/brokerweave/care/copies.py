"""Copies of other homes' records.

Owns them, by home and life. Invariants: a copy is what its home's log says, and what came here from origins
for the home's clients; who claimed a client is told of what comes for it later. Must not know: this node's
own clients, brokers, connections.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from brokerweave.care.disk import Came, Life, Part, RecordJournal
from brokerweave.care.held import Held
from brokerweave.care.ids import MessageId
from brokerweave.care.record import Record, RecordTable, Snapshot, Stream, part, told_of
from brokerweave.care.room import Room
from brokerweave.care.wire import LogEntry

MOST_ENDED = 200_000


class Forward(Protocol):
    def __call__(self, to: str, told: Snapshot) -> None:
        """Tell who claimed a client what came for it since."""


@dataclass(slots=True)
class Copy:
    table: RecordTable
    """With what had come to this node when its home was heard last: what came since may be for others."""
    holders: tuple[Life, ...] = ()
    to: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    """Who claimed a client, with which generation, and in which life."""
    before: RecordTable | None = None
    """While the home tells all its records anew: what was here before."""
    gone: set[str] = field(default_factory=set)
    """Nodes that the home took for dead, and has not heard since."""

    def forget_before(self) -> None:
        if self.before is not None:
            self.before.clear()
            self.before = None

    def clear(self) -> None:
        self.table.clear()
        self.forget_before()


class Copies:
    def __init__(self, room: Room, disk: RecordJournal, forward: Forward) -> None:
        self.homes: dict[Life, Copy] = {}
        self.ended: dict[str, int] = {}
        """The last generation of sessions that ended, at homes of which this node has copies, or here."""
        self.dropped = 0
        """Publications of copies that were let go for want of room."""
        self._disk = disk
        self._room = room
        self._forward = forward

    def _table(self) -> RecordTable:
        return RecordTable(self._room, self._count_dropped)

    def _count_dropped(self, record: Record, identifier: MessageId) -> None:
        self.dropped += 1

    def restore(self, part: Part) -> None:
        """What the disk has of an earlier start of this node. It covers what is listed, and no more."""
        if isinstance(part, Came):
            self.came(part.held.topic, part.held, {node for node, _ in self.homes})
            return
        life, entries, whole = part
        for each in entries:
            if life not in self.homes:
                self.homes[life] = Copy(self._table(), each.holders)
            if whole:
                self.homes[life].table.drop(each.client)
            self._log(life, each)

    def log(self, life: Life, entries: list[LogEntry]) -> None:
        """What a home says."""
        self._disk.told(life, entries)
        for each in entries:
            self._log(life, each)

    def drop(self, life: Life, client: str) -> None:
        """Somebody else has all that is known here of a client."""
        copy = self.homes[life]
        if copy.table.drop(client) is not None:
            self._disk.told(life, [LogEntry("drop", client)])

    def end(self, life: Life) -> None:
        """Nothing of this home is kept here any longer."""
        copy = self.homes.pop(life, None)
        if copy is not None:
            copy.clear()

    def note_end(self, client: str, generation: int) -> None:
        """A client's session is over."""
        if generation:
            self.ended[client] = max(generation, self.ended.pop(client, 0))
            if len(self.ended) > MOST_ENDED:
                del self.ended[next(iter(self.ended))]

    def _log(self, life: Life, entry: LogEntry) -> None:
        copy = self.homes.get(life)
        if entry.kind == "begin":
            self._begin(life, entry.holders, copy)
        elif copy is None:
            return  # it has ended
        elif entry.kind == "complete":
            copy.forget_before()
            copy.to = {client: to for client, to in copy.to.items() if client in copy.table.records}
        elif entry.kind == "holders":
            copy.holders = entry.holders
        elif entry.kind == "heard":
            copy.table.hear((entry.client, entry.version), entry.generation)
            copy.gone.discard(entry.client)
        elif entry.kind == "unheard":
            copy.table.unhear(entry.client)
        elif entry.kind == "gone":
            copy.gone.add(entry.client)
        elif entry.kind == "end":
            self.tell_home(life, lambda held: True)  # others have what comes from now on
            self.end(life)
        elif entry.kind == "drop":
            copy.table.drop(entry.client)
            self.note_end(entry.client, entry.generation)
            copy.to.pop(entry.client, None)
        elif entry.kind == "record" and entry.record is not None:
            self._told(copy, entry.record)
        elif entry.client in copy.table.records:
            self._changed(copy, copy.table.records[entry.client], entry)

    def _begin(self, life: Life, holders: tuple[Life, ...], before: Copy | None) -> None:
        """All records follow."""
        if before is None:
            self.homes[life] = Copy(self._table(), holders)
        else:
            before.forget_before()
            self.homes[life] = Copy(self._table(), holders, before.to, before.table, before.gone)

    def _changed(self, copy: Copy, record: Record, entry: LogEntry) -> None:
        table = copy.table
        match entry.kind:
            case "filters" if entry.record is not None:
                table.unsettle(record)
                self._rename(copy, record, entry.record)
            case "add" if entry.held is not None:
                table.add(record, entry.held)
                self._pass_on(copy, record, entry.held)
            case "has":
                for each in entry.ids:
                    table.received(record, each)
                if record.client in copy.to:
                    self._tell(copy, record, told_of(record, had=entry.ids))
            case "settled":
                table.settle(record, entry.version)

    def heard(self, life: Life, taken: Mapping[Stream, int]) -> None:
        """A home has said all that it had to say now, when this had come to this node."""
        copy = self.homes.get(life)
        if copy is not None:
            for stream, last in taken.items():
                copy.table.take(stream, last)

    def _told(self, copy: Copy, told: Snapshot) -> None:
        record = copy.table.open(told.client)
        if told.born >= record.session > 0:  # of a session that has ended
            copy.table.drop(told.client)
            record = copy.table.open(told.client)
        learned = copy.table.merge(record, told)
        self._rename(copy, record, told)
        record.version = told.version
        before = copy.before.records.get(told.client) if copy.before is not None else None
        if copy.before is not None and before is not None:
            copy.table.merge(record, copy.before.snapshot(before))
        if copy.to.get(told.client, ("", 0, 0))[1] < told.generation:
            copy.to.pop(told.client, None)
        elif told.client in copy.to and learned:
            self._tell(copy, record, part(record, learned))

    def _rename(self, copy: Copy, record: Record, told: Snapshot) -> None:
        gone = {f: None for f in record.filters if f not in told.filters}
        copy.table.set_filters(record, {**gone, **told.filters})
        record.generation, record.will = told.generation, told.will
        record.session, record.born = told.session, told.born

    def came(self, topic: str, held: Held, homes: Container[str]) -> bool:
        """A publication came to this node, to be kept for these homes. Whether a copy wants it."""
        wanted = False
        for (node, _), copy in self.homes.items():
            for client in copy.table.matching(topic):
                record = copy.table.records[client]
                wanted = True
                if not copy.table.seen(record, held):
                    copy.table.add(record, held)
                    self._pass_on(copy, record, held)
                if node in homes and held.id in record.queue:
                    record.meant.add(held.id)
        return wanted

    def renamed(self, held: Held, earlier: Held) -> bool:
        """A publication came again, under another name: its home may know only this one, and says if it knows
        the other. Whether a copy has it under this name now."""
        used = False
        for life, copy in self.homes.items():
            for client in copy.table.matching(held.topic):
                record, table = copy.table.records[client], copy.table
                if table.seen(record, held):
                    continue
                if earlier.id in record.queue and earlier.id < held.id:
                    self._has_too(life, copy, record, held.id)
                    table.name(record, held.id, earlier.id)
                    record.meant.discard(earlier.id)
                elif table.has(record, earlier):
                    self._has_too(life, copy, record, held.id)
                elif earlier.id in record.meant or not table.seen(record, earlier):
                    table.forget(record, earlier.id)
                    table.add(record, held)
                    record.meant.add(held.id)
                    self._pass_on(copy, record, held)
                    used = True
        return used

    def _has_too(self, life: Life, copy: Copy, record: Record, other: MessageId) -> None:
        """A name under which the client is to get nothing: it has it under another one, or is to get it so.
        Who claims it, and may know this name only, has to hear so."""
        copy.table.received(record, other)
        self._disk.told(life, [LogEntry("has", record.client, ids=(other,))])
        if record.client in copy.to:
            self._tell(copy, record, told_of(record, had=[other]))

    def _pass_on(self, copy: Copy, record: Record, held: Held) -> None:
        if record.client in copy.to:
            self._tell(copy, record, told_of(record, [held]))

    def tell_home(self, life: Life, gone: Callable[[Held], bool], only: str = "") -> None:
        """What came here for a home's clients from origins that are gone it gets from nobody else."""
        copy = self.homes.get(life)
        for record in copy.table if copy is not None else ():
            if only not in ("", record.client):
                continue
            found = [record.queue[each] for each in sorted(record.meant) if gone(record.queue[each])]
            if found:
                self._forward(life[0], told_of(record, found))

    def _tell(self, copy: Copy, record: Record, told: Snapshot) -> None:
        self._forward(copy.to[record.client][0], told)

    # Claims

    def of(self, client: str) -> list[tuple[Life, Copy, Record]]:
        """The latest first."""
        found = [
            (life, copy, copy.table.records[client])
            for life, copy in self.homes.items()
            if client in copy.table.records
        ]
        return sorted(found, key=lambda each: -each[2].generation)
