"""What nodes of a mesh tell each other of their clients, as bytes.

An *advert* says what changed in a node's table, or (in parts) all of it; `heard` answers it, with the last
sequence that the answering node gave on each lane before it knew; `orphaned` tells a node that was started
who was at a site that is gone; `digest` is said now and then; `pull` asks for all of the table. Invariants:
what is written reads back equal; other bytes raise `RemoteProtocolError`; no packet is much longer than
`PACKET_BYTES`. Must not know: tables, who sends when.

On the wire: the payload of a PUBLISH on `TOPIC`, JSON: a list whose first item is the kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from brokerweave.plugin import Cut, Packet, Publish, RemoteProtocolError

TOPIC = "mesh"
PACKET_BYTES = 60_000

CHANGE, WHOLE, BEGIN, MORE, END = "change", "whole", "begin", "more", "end"
UNKNOWN = -1
"""In the place of a digest."""
GONE, ELSEWHERE = 0, 1
"""In the place of `since`, of a client that a node has no longer: its session is over, or it is at another
node, of which whoever hears this may not have heard yet."""
PARTS = frozenset((CHANGE, WHOLE, BEGIN, MORE, END))

_written = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Told:
    """A client since when, and changes of its filters (None: no longer); no changes at all: it left, and
    `since` says whether for good (`GONE`) or not (`ELSEWHERE`)."""

    client: str
    since: int
    filters: Mapping[str, int | None] | None


@dataclass(frozen=True, slots=True)
class Advert:
    """`version` and `digest` are those of the sender's table when all of this is known; `life` is another
    one after each start of the sender."""

    part: str
    life: int
    version: int
    digest: int
    clients: tuple[Told, ...]


@dataclass(frozen=True, slots=True)
class Heard:
    version: int
    cut: Cut


@dataclass(frozen=True, slots=True)
class Orphaned:
    """Clients that a node had, and that have yet to turn up somewhere: to be remembered for `seconds`."""

    node: str
    seconds: float
    clients: tuple[Told, ...]


@dataclass(frozen=True, slots=True)
class Digest:
    version: int
    digest: int


@dataclass(frozen=True, slots=True)
class Pull:
    pass


Message = Advert | Heard | Orphaned | Digest | Pull


def changes(life: int, version: int, digest: int, told: Iterable[Told]) -> list[Advert]:
    """What follows on `version`; each packet is a version of its own."""
    batches = list(_batches(told))
    last = len(batches)
    return [
        Advert(CHANGE, life, version + number, digest if number == last else UNKNOWN, tuple(batch))
        for number, batch in enumerate(batches, 1)
    ]


def whole(life: int, version: int, digest: int, told: Iterable[Told]) -> Iterator[Advert]:
    """All of a table; where it is empty, one advert without clients."""
    batches = list(_batches(told)) or [[]]
    for number, batch in enumerate(batches, 1):
        part = (
            WHOLE if len(batches) == 1 else BEGIN if number == 1 else END if number == len(batches) else MORE
        )
        yield Advert(part, life, version, digest, tuple(batch))


def orphaned(node: str, seconds: float, told: Iterable[Told]) -> Iterator[Orphaned]:
    for batch in _batches(told):
        yield Orphaned(node, seconds, tuple(batch))


def _batches(told: Iterable[Told]) -> Iterator[list[Told]]:
    batch: list[Told] = []
    size = 0
    for each in told:
        for piece in _pieces(each):
            weight = len(piece.client) + 40 + sum(len(f) + 8 for f in piece.filters or ())
            if batch and size + weight > PACKET_BYTES:
                yield batch
                batch, size = [], 0
            batch.append(piece)
            size += weight
    if batch:
        yield batch


def _pieces(told: Told) -> Iterator[Told]:
    """A client with very many filters, in several pieces."""
    if told.filters is None or sum(map(len, told.filters)) + 8 * len(told.filters) <= PACKET_BYTES:
        yield told
        return
    piece: dict[str, int | None] = {}
    size = 0
    for topic_filter, qos in told.filters.items():
        if piece and size + len(topic_filter) + 8 > PACKET_BYTES:
            yield Told(told.client, told.since, piece)
            piece, size = {}, 0
        piece[topic_filter] = qos
        size += len(topic_filter) + 8
    yield Told(told.client, told.since, piece)


def encode(message: Message) -> Publish:
    match message:
        case Advert(part, life, version, digest, clients):
            said: list[Any] = [part, life, version, digest, _listed(clients)]
        case Heard(version, cut):
            said = ["heard", version, cut.epoch, list(cut.sequences), list(cut.sent)]
        case Orphaned(node, seconds, clients):
            said = ["adrift", node, seconds, _listed(clients)]
        case Digest(version, digest):
            said = ["digest", version, digest]
        case Pull():
            said = ["pull"]
    return Publish(TOPIC, _written(said).encode())


def _listed(clients: Iterable[Told]) -> list[list[object]]:
    return [[each.client, each.since, each.filters] for each in clients]


def decode(packet: Packet) -> Message:
    if not isinstance(packet, Publish) or packet.topic != TOPIC:
        raise RemoteProtocolError(f"a mesh does not speak of {type(packet).__name__}")
    try:
        match json.loads(packet.payload):
            case [str(part), int(life), int(version), int(digest), list(clients)] if part in PARTS:
                return Advert(part, life, version, digest, tuple(_told(*each) for each in clients))
            case ["heard", int(version), int(epoch), list(sequences), list(sent)]:
                return Heard(version, Cut(epoch, tuple(map(int, sequences)), tuple(map(int, sent))))
            case ["adrift", str(node), int(seconds) | float(seconds), list(clients)]:
                return Orphaned(node, seconds, tuple(_told(*each) for each in clients))
            case ["digest", int(version), int(digest)]:
                return Digest(version, digest)
            case ["pull"]:
                return Pull()
    except (ValueError, TypeError) as error:
        raise RemoteProtocolError(f"a mesh packet that cannot be read ({error})") from None
    raise RemoteProtocolError("a mesh packet of an unknown kind")


def _told(client: object, since: object, filters: object) -> Told:
    if not isinstance(client, str) or not isinstance(since, int) or not client:
        raise ValueError("a client without a name or time")
    if filters is None:
        return Told(client, since, None)
    if not isinstance(filters, dict) or not all(f and qos in (None, 0, 1, 2) for f, qos in filters.items()):
        raise ValueError("filters without a QoS")
    return Told(client, since, filters)
