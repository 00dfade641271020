"""What a home tells the sites that keep copies of its records.

Owns one *stream* of log entries for each holder, and who is a holder. Invariants: a holder is named to other
sites only when it has all records; from then on it gets publications from their origins, and until an origin
has heard of that, from here; entries go out in the order of what happened, and are acknowledged by position.
Must not know: what a holder does with them, brokers, connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from brokerweave.care import wire
from brokerweave.care.held import Held
from brokerweave.care.ids import MessageId
from brokerweave.care.record import Origin, Record, RecordTable, told_of
from brokerweave.care.wire import LogEntry
from brokerweave.plugin import Timer
from brokerweave.plugin.sites import SiteBook

ALWAYS = 1 << 62
"""A version that every origin knows which is this node, and no other does."""
PAGE_ENTRIES = 200
"""Entries in one payload."""
PAGE_BYTES = 256 << 10
"""Of publications in one payload, about: a link takes no packet beyond 64 MiB."""


class LogHost(Protocol):
    def now(self) -> float: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer: ...

    def send_own(self, neighbour: str, topic: str, payload: bytes) -> None: ...


class _HolderStream:
    """To one holder."""

    __slots__ = ("acknowledged", "complete", "entries", "heard", "listed", "position")

    def __init__(self, position: int) -> None:
        self.position = position
        self.acknowledged = 0
        self.complete = 0
        """The position at which the holder has all records; 0: its link was down since."""
        self.listed: int | None = None
        """The version in which this site named it as a holder."""
        self.heard: set[Origin] = set()
        """Origins that send it what they send here."""
        self.entries: list[LogEntry] = []


class HolderStreams:
    _named: tuple[tuple[str, int], ...] = ()

    def __init__(
        self,
        host: LogHost,
        sites: SiteBook,
        own: Origin,
        place: RecordTable,
        keep: Callable[[LogEntry], None],
    ) -> None:
        """`own`: this start of this node. `keep`: as a holder that all origins send to, the disk hears of
        what happens."""
        self._host = host
        self._own = own
        self._keep = keep
        self._sites = sites
        self._place = place
        self._streams: dict[str, _HolderStream] = {}
        self._flushing = False
        self._highest = 0
        """Positions of streams that ended are below: a later stream to the same node goes on from here."""

    @property
    def names(self) -> tuple[str, ...]:
        """Those that other sites are told of."""
        return tuple(sorted(node for node, stream in self._streams.items() if stream.listed is not None))

    @property
    def lives(self) -> tuple[tuple[str, int], ...]:
        """In which lives they do: the next one of a site that lost its disk has nothing."""
        return tuple((node, self._sites.life_of(node)) for node in self.names)

    # Who keeps

    def choose(self) -> None:
        """Sites live, or are linked, that did not or were not before."""
        linked = self._sites.linked()
        for node in [node for node in self._streams if node not in self._sites.live]:
            self._end(node)
        ranked = self._sites.rank(linked)
        complete = [node for node in ranked if node in self._streams and self._streams[node].complete]
        wanted = [*complete, *(node for node in ranked if node not in complete)][: self._sites.copies - 1]
        for node in wanted:
            stream = self._streams.setdefault(node, _HolderStream(self._highest))
            if not stream.complete:
                self._begin(stream)
        if all(self._streams[node].listed is not None for node in wanted):
            for node in [n for n in self._streams if n not in wanted and n in linked]:
                stream = self._end(node)
                self._note(stream, LogEntry("end"))
                self._send(node, stream)
        self._name_them()

    def _end(self, node: str) -> _HolderStream:
        stream = self._streams.pop(node)
        self._highest = max(stream.position + 1, self._highest)
        return stream

    def up(self, node: str) -> None:
        """A neighbour has told what it wants. It may have kept records here before, and not since."""
        self.choose()
        if node not in self._streams:
            payload = wire.encode_log(self._sites.life, 0, [LogEntry("end")], self._host.now())
            self._host.send_own(node, wire.LOG, payload)

    def _name_them(self) -> None:
        if self.lives != self._named:
            if self.names != tuple(node for node, _ in self._named):
                self._sites.hold_at(self.names)
            self._named = self.lives
            self.note(LogEntry("holders", holders=self.lives))

    def down(self, node: str) -> None:
        stream = self._streams.get(node)
        if stream is not None:
            stream.complete = 0
            stream.entries.clear()
            self.choose()

    def _begin(self, stream: _HolderStream) -> None:
        stream.entries.clear()
        stream.heard.clear()  # it may have been started again since
        self._note(stream, LogEntry("begin", holders=self.lives))
        for record in self._place:
            self._note(stream, self._whole(record))
        self._note(stream, LogEntry("complete"))
        stream.complete = stream.position
        if stream.listed is not None:
            stream.listed = ALWAYS  # until it has all records

    def acknowledged(self, node: str, position: int) -> None:
        stream = self._streams.get(node)
        if stream is None:
            return
        stream.acknowledged = max(position, stream.acknowledged)
        if stream.listed in (None, ALWAYS) and stream.complete and stream.acknowledged >= stream.complete:
            stream.listed = self._sites.version
            self._name_them()
            stream.listed = self._sites.announce()
            self._hear(stream, self._own, ALWAYS)
            self.choose()

    # What happens

    def position(self) -> dict[str, int]:
        """To be given to `have` later. Holders are asked to answer, as they do not for what clients have."""
        for stream in self._streams.values():
            if stream.acknowledged < stream.position:
                self._note(stream, LogEntry("position"))
        return {node: stream.position for node, stream in self._streams.items()}

    def has_up_to(self, node: str) -> int:
        """The position that a holder has acknowledged."""
        stream = self._streams.get(node)
        return stream.acknowledged if stream is not None else 0

    def have(self, positions: dict[str, int]) -> bool:
        """Whether all holders in reach have what was noted before."""
        linked = self._sites.linked()
        return all(
            stream.acknowledged >= positions.get(node, 0)
            for node, stream in self._streams.items()
            if node in linked and stream.listed is not None
        )

    def all_have(self, positions: dict[str, int]) -> bool:
        """Whether also those have it that will be holders when they have all records."""
        return all(
            stream.acknowledged >= positions.get(node, 0)
            for node, stream in self._streams.items()
            if stream.complete
        )

    def note(self, entry: LogEntry) -> None:
        self._keep(entry)
        for stream in self._streams.values():
            self._note(stream, entry)

    def whole(self, record: Record) -> None:
        self.note(self._whole(record))

    def filters(self, record: Record) -> None:
        told = told_of(record, filters=record.filters)
        told.will, told.born = record.will, record.born
        self.note(LogEntry("filters", record.client, record=told))

    def _whole(self, record: Record) -> LogEntry:
        return LogEntry("record", record.client, record=self._place.snapshot(record))

    def learned(self, record: Record, held: Held) -> None:
        """Another copy had this for a client."""
        self.note(LogEntry("add", record.client, held=held))

    def add(self, record: Record, held: Held, everybody: bool) -> None:
        """This came for a client: those who do not get it from its origin hear so."""
        origin = held.id.origin, held.id.epoch
        for stream in self._streams.values():
            if everybody or origin not in stream.heard:
                self._note(stream, LogEntry("add", record.client, held=held))

    def add_if_queued(self, record: Record, identifier: MessageId) -> None:
        """Some holders may know it by another name."""
        held = record.queue.get(identifier)
        if held is not None:
            self.learned(record, held)

    def heard(self, origin: Origin, version: int) -> None:
        """An origin knows a version of what this site wants, and all that it sent before is here."""
        for stream in self._streams.values():
            if stream.listed is not None and version >= stream.listed:
                self._hear(stream, origin, version)

    def _hear(self, stream: _HolderStream, origin: Origin, version: int) -> None:
        """What an origin sends here it sends to a holder as well."""
        stream.heard.add(origin)
        self._note(stream, LogEntry("heard", origin[0], version=origin[1], generation=version))

    def unheard(self, node: str) -> None:
        """A node may forget what this site wants, and who its holders are."""
        for stream in self._streams.values():
            stream.heard -= {origin for origin in stream.heard if origin[0] == node}
            self._note(stream, LogEntry("unheard", node))

    def gone(self, node: str) -> None:
        """A node is not live any more, as this site sees it: what it sent to holders may never come here."""
        for stream in self._streams.values():
            self._note(stream, LogEntry("gone", node))

    def _note(self, stream: _HolderStream, entry: LogEntry) -> None:
        if stream.complete or entry.kind in ("begin", "record", "complete", "end"):
            if not stream.entries and not self._flushing:
                self._flushing = True
                self._host.call_later(0, self.flush)
            stream.entries.append(entry)
            stream.position += 1

    def flush(self) -> None:
        self._flushing = False
        for node, stream in self._streams.items():
            self._send(node, stream)

    def _send(self, node: str, stream: _HolderStream) -> None:
        entries, stream.entries = stream.entries, []
        position = stream.position - len(entries)
        for page in _pages(entries):
            position += len(page)
            payload = wire.encode_log(self._sites.life, position, page, self._host.now())
            self._host.send_own(node, wire.LOG, payload)

    def has(self, record: Record, ids: Iterable[MessageId]) -> None:
        self.note(LogEntry("has", record.client, ids=tuple(ids)))


def _pages(entries: Iterable[LogEntry]) -> Iterator[list[LogEntry]]:
    page: list[LogEntry] = []
    size = 0
    for each in entries:
        more = each.held.size if each.held is not None else 0
        more += sum(held.size for held in each.record.queue) if each.record is not None else 0
        if page and (len(page) == PAGE_ENTRIES or size + more > PAGE_BYTES):
            yield page
            page, size = [], 0
        page.append(each)
        size += more
    if page:
        yield page
