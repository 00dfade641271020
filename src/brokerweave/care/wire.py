"""What homes and holders tell each other about clients, in bytes.

Owns the form of each control payload. Invariants: what is written reads back equal (ages to the clock's
precision); anything else raises `RemoteProtocolError`. Must not know: when anything is said.

A payload is a JSON list (u32 length, UTF-8), then the publications that it names by their number, as in
`care.held` with their age.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from brokerweave.care.held import Held, decode_held, encode_held
from brokerweave.care.ids import MessageId
from brokerweave.care.record import Cover, Snapshot, Stream
from brokerweave.errors import RemoteProtocolError

LOG = "$brokerweave/care/log"
LOGGED = "$brokerweave/care/logged"
CLAIM = "$brokerweave/care/claim"
GIVE = "$brokerweave/care/give"
RELEASE = "$brokerweave/care/release"

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class ClientClaim:
    """A client came to whoever says so, with this hold on it (`Hold`)."""

    client: str
    generation: int
    hold: int
    filters: tuple[str, ...] = ()
    """What it wants, if it was elsewhere before."""
    session: int = 0
    planned: bool = False
    """Its connection where this is said lives, and is to drain before the claim is answered."""
    since: int = 0
    """When it was last connected: there, or anywhere if only its record is there."""


@dataclass(frozen=True, slots=True)
class Give:
    """What one who claims a client is told. `kind`: see the constants."""

    client: str
    generation: int
    kind: str
    record: Snapshot | None = None
    names: tuple[tuple[int, bytes, MessageId], ...] = ()
    """Packet id, content and id of what the client published last."""
    home: str = ""
    """Where it came later."""
    ended: int = 0
    """The last generation of a session of it that is known to have ended."""
    in_flight: int | None = None
    """Of a connection that was to drain: publications that were not done."""


ANSWER = "answer"
"""To a claim: all that is known of the client here. What comes later for it is passed on."""
STALE = "stale"
"""To a claim: the client came here, or elsewhere, later; `generation` is that."""
LATE = "late"
"""Something came for it, or changed, since."""
DONE = "done"
"""Nothing comes any more."""


@dataclass(frozen=True, slots=True)
class Release:
    client: str
    generation: int
    unheard: tuple[str, ...] = ()
    """Sites that do not know yet where the client is."""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """Of a home's log. `kind`:

    - "begin": all records follow, each as "record"; `holders` are the home's, in these lives.
    - "record": a client's record, as it is now.
    - "filters": of the same, without what it is to get and has.
    - "add": the client is to get `held`.
    - "has": it has `ids`.
    - "settled": its record is at `version` from now on.
    - "drop": it is no client of the home any more; its session up to `generation` ended, if that is not 0.
    - "heard": the origin `client` in its start `version` knows version `generation` of what the home wants.
    - "unheard": the node `client` may have forgotten that.
    - "gone": the node `client` is not live any more, as the home sees it.
    - "holders": these keep its records.
    - "position": the home waits until the holder has all up to here. What clients have it need not answer.
    """

    kind: str
    client: str = ""
    ids: tuple[MessageId, ...] = ()
    held: Held | None = None
    record: Snapshot | None = None
    version: int = 0
    generation: int = 0
    holders: tuple[tuple[str, int], ...] = ()


def encode_claims(claims: Iterable[ClientClaim]) -> bytes:
    said = [[c.client, c.generation, c.hold, c.filters, c.session, c.planned, c.since] for c in claims]
    return _pack(said, [], 0.0)


def decode_claims(payload: bytes) -> list[ClientClaim]:
    head, _ = _unpack(payload, 0.0)
    with _Reading():
        return [
            ClientClaim(
                str(client),
                int(generation),
                int(hold),
                tuple(map(str, filters)),
                int(session),
                bool(planned),
                int(since),
            )
            for client, generation, hold, filters, session, planned, since in head
        ]
    raise AssertionError


def encode_give(give: Give, now: float) -> bytes:
    bodies: list[Held] = []
    names = [
        [packet_id, base64.b85encode(content).decode(), list(name)] for packet_id, content, name in give.names
    ]
    record = _snapshot(give.record, bodies) if give.record is not None else None
    said = [give.client, give.generation, give.kind, record, names, give.home, give.ended, give.in_flight]
    return _pack(said, bodies, now)


def decode_give(payload: bytes, now: float) -> Give:
    head, bodies = _unpack(payload, now)
    with _Reading():
        client, generation, kind, record, names, home, ended, in_flight = head
        if kind not in (ANSWER, STALE, LATE, DONE):
            raise ValueError(kind)
        told = tuple((int(p), base64.b85decode(c), _id(name)) for p, c, name in names)
        snapshot = _record(record, bodies) if record is not None else None
        left = None if in_flight is None else int(in_flight)
        return Give(str(client), int(generation), kind, snapshot, told, str(home), int(ended), left)
    raise AssertionError


def encode_release(release: Release) -> bytes:
    return _pack([release.client, release.generation, release.unheard], [], 0.0)


def decode_release(payload: bytes) -> Release:
    head, _ = _unpack(payload, 0.0)
    with _Reading():
        client, generation, unheard = head
        return Release(str(client), int(generation), tuple(map(str, unheard)))
    raise AssertionError


def encode_log(life: int, last: int, entries: Iterable[LogEntry], now: float) -> bytes:
    """`last` is the position of the last entry."""
    bodies: list[Held] = []
    said = []
    for each in entries:
        body = -1
        if each.held is not None:
            body = len(bodies)
            bodies.append(each.held)
        record = _snapshot(each.record, bodies) if each.record is not None else None
        ids = [list(one) for one in each.ids]
        said.append([each.kind, each.client, ids, body, record, each.version, each.generation, each.holders])
    return _pack([life, last, said], bodies, now)


def decode_log(payload: bytes, now: float) -> tuple[int, int, list[LogEntry]]:
    head, bodies = _unpack(payload, now)
    with _Reading():
        life, last, said = head
        entries = [
            LogEntry(
                str(kind),
                str(client),
                tuple(map(_id, ids)),
                bodies[body] if body >= 0 else None,
                _record(record, bodies) if record is not None else None,
                int(version),
                int(generation),
                tuple((str(node), int(start)) for node, start in holders),
            )
            for kind, client, ids, body, record, version, generation, holders in said
        ]
        return int(life), int(last), entries
    raise AssertionError


def encode_logged(life: int, last: int) -> bytes:
    return _pack([life, last], [], 0.0)


def decode_logged(payload: bytes) -> tuple[int, int]:
    head, _ = _unpack(payload, 0.0)
    with _Reading():
        life, last = head
        return int(life), int(last)
    raise AssertionError


def _snapshot(record: Snapshot, bodies: list[Held]) -> list[Any]:
    first = len(bodies)
    bodies += record.queue
    return [
        record.client,
        record.generation,
        record.filters,
        first,
        len(record.queue),
        [[sorted(each.filters), _places(each.places)] for each in record.covers],
        [list(one) for one in record.ids],
        base64.b85encode(record.will).decode(),
        record.version,
        record.born,
        record.session,
        _places(record.floor),
    ]


def _record(said: Any, bodies: list[Held]) -> Snapshot:
    client, generation, filters, first, count, covers, ids, will, version, born, session, floor = said
    if not all(f and type(qos) is int and qos in (0, 1, 2) for f, qos in filters.items()):
        raise ValueError("a filter without a QoS")
    if int(first) < 0 or int(count) < 0 or int(first) + int(count) > len(bodies):
        raise ValueError("publications that are cut off")
    return Snapshot(
        str(client),
        int(generation),
        dict(filters),
        bodies[int(first) : int(first) + int(count)],
        [Cover(frozenset(map(str, each)), _ends(places)) for each, places in covers],
        set(map(_id, ids)),
        base64.b85decode(will),
        None if version is None else int(version),
        int(born),
        int(session),
        _ends(floor),
    )


def _places(places: Mapping[Stream, int]) -> list[list[Any]]:
    return [[*stream, last] for stream, last in places.items()]


def _ends(said: Any) -> dict[Stream, int]:
    return {(str(origin), int(epoch), int(lane)): int(last) for origin, epoch, lane, last in said}


def _id(said: Any) -> MessageId:
    origin, epoch, lane, sequence = said
    return MessageId(str(origin), int(epoch), int(lane), int(sequence))


class _Reading:
    """Whatever is wrong with what was read is its sender's fault."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ValueError | TypeError | KeyError | IndexError | AttributeError | OverflowError):
            raise RemoteProtocolError(f"a message about clients cannot be read ({error})") from None


def _pack(head: list[Any], bodies: Iterable[Held], now: float) -> bytes:
    said = json.dumps(head, separators=(",", ":")).encode()
    parts = [_LENGTH.pack(len(said)), said]
    parts += [encode_held(each, max(now - each.born, 0.0)) for each in bodies]
    return b"".join(parts)


def _unpack(payload: bytes, now: float) -> tuple[Any, list[Held]]:
    if len(payload) < _LENGTH.size:
        raise RemoteProtocolError("a message about clients ends too early")
    (length,) = _LENGTH.unpack_from(payload)
    at = _LENGTH.size + length
    try:
        head = json.loads(payload[_LENGTH.size : at])
    except (ValueError, RecursionError):
        raise RemoteProtocolError("a message about clients cannot be read") from None
    bodies = []
    while at < len(payload):
        held, at = decode_held(payload, at)
        bodies.append(replace(held, born=now - max(held.born, 0.0)))
    return head, bodies
