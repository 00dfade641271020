"""What one site wants, and how it says so.

Owns `SiteInterest`, its form on the wire, and `OwnInterest`: what this site wants, by version. Invariants:
each change that is told has a higher version; what one turn changes is told once. Must not know: what others
want, links.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from brokerweave.plugin import Context, Cut, Packet, Publish, RemoteProtocolError

TOPIC = "mesh"
PACKET_BYTES = 32 << 10
"""Of filters in one packet, about."""

Life = tuple[str, int]
"""A site and one of its lives."""
Filters = Mapping[str, int | None]
"""Topic filters and their QoS; None: no longer."""


@dataclass(slots=True)
class SiteInterest:
    """What one life of a site wants."""

    life: int
    version: int = 0
    filters: dict[str, int] = field(default_factory=dict)
    holders: tuple[str, ...] = ()
    """Who keeps copies of its records."""
    adopted: frozenset[Life] = frozenset()
    """Lives of sites whose clients are its clients now."""


class Told(NamedTuple):
    """What a site says of itself: all that it wants (`whole`), or what changed."""

    whole: bool
    life: int
    version: int
    """0: more of it follows."""
    filters: dict[str, int | None]
    holders: tuple[str, ...]
    adopted: frozenset[Life]
    had: tuple[int, ...]
    """The life and the version of who is told, as its sender knew them; or nothing."""


class Heard(NamedTuple):
    """A site knows this version of who is told; up to the cut it did not."""

    version: int
    cut: Cut


def decode(payload: bytes) -> Told | Heard:
    """Raises RemoteProtocolError."""
    try:
        match json.loads(payload):
            case ["heard", int(version), int(epoch), list(sequences), list(sent)]:
                return Heard(version, Cut(epoch, tuple(map(int, sequences)), tuple(map(int, sent))))
            case ["all" | "wants" as kind, int(life), int(version), dict(filters), *rest]:
                holders, adopted, had = rest
                lives = frozenset((str(node), int(each)) for node, each in adopted)
                if not all(f and qos in (None, 0, 1, 2) for f, qos in filters.items()):
                    raise ValueError("filters without a QoS")
                names, known = tuple(map(str, holders)), tuple(map(int, had))
                return Told(kind == "all", life, version, filters, names, lives, known)
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise RemoteProtocolError(f"what a site wants cannot be read ({error})") from None
    raise RemoteProtocolError("a site speaks of something unknown")


def encode_heard(heard: Heard) -> Packet:
    cut = heard.cut
    return Publish(TOPIC, json.dumps(["heard", heard.version, cut.epoch, cut.sequences, cut.sent]).encode())


class OwnInterest:
    def __init__(self, context: Context, tell: Callable[[list[Packet]], None]) -> None:
        """`tell`: called with what changed, for all neighbours."""
        self._context = context
        self._tell_all = tell
        life = int(context.now() * 1_000_000)
        self.told = SiteInterest(life, life)
        self.sessions: dict[str, int] = {}
        """What sessions of clients here want."""
        self.records: dict[str, int] = {}
        """What records here want."""
        self._changes: dict[str, int | None] | None = None
        """What the next flush tells; None: there is none due."""

    @property
    def version(self) -> int:
        return self.told.version

    def session_wants(self, filters: Filters) -> None:
        _update(self.sessions, filters)
        self._changed(filters)

    def record_wants(self, filters: Filters) -> None:
        _update(self.records, filters)
        self._changed(filters)

    def _changed(self, filters: Iterable[str]) -> None:
        for each in filters:
            qos = max(self.sessions.get(each, -1), self.records.get(each, -1))
            if qos != self.told.filters.get(each, -1):
                self.told.filters[each] = qos
                if qos < 0:
                    del self.told.filters[each]
                self.tell({each: qos if qos >= 0 else None})

    def announce(self) -> int:
        """Tell all, changed or not: the version that they will hear."""
        self.tell({})
        return self.version + 1

    def tell(self, changes: Filters) -> None:
        """When this turn is over."""
        if self._changes is None:
            self._changes = {}
            self._context.call_later(0, self.flush)
        self._changes.update(changes)

    def flush(self) -> None:
        if self._changes is None:
            return
        changes, self._changes = self._changes, None
        self.told.version += 1
        self._tell_all(self._packets("wants", changes, ()))

    def whole(self, had: Sequence[int]) -> list[Packet]:
        """All that this site wants, for a neighbour of which this life and version are known."""
        return self._packets("all", self.told.filters, had)

    def _packets(self, kind: str, filters: Filters, had: Sequence[int]) -> list[Packet]:
        """The last one of several has the version."""
        pages: list[dict[str, int | None]] = [{}]
        size = 0
        for each, qos in filters.items():
            if size > PACKET_BYTES:
                pages.append({})
                size = 0
            pages[-1][each] = qos
            size += len(each) + 8
        told, last = self.told, len(pages) - 1
        rest = [list(told.holders), sorted(map(list, told.adopted)), list(had)]
        said = [
            [kind if n == 0 else "wants", told.life, told.version if n == last else 0, page, *rest]
            for n, page in enumerate(pages)
        ]
        return [Publish(TOPIC, json.dumps(each).encode()) for each in said]


def _update(filters: dict[str, int], changes: Filters) -> None:
    for each, qos in changes.items():
        if qos is None:
            filters.pop(each, None)
        else:
            filters[each] = qos
