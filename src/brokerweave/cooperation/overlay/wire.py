"""The control packets of the overlay (MQTT2EdgePeer, Table 2.1).

Owns their bytes. Invariants: what is written reads back equal; other bytes raise `RemoteProtocolError`; no
packet is much longer than `PACKET_BYTES`, so what may be long comes in parts. Must not know: who sends what
when.

On the wire: the payload of a PUBLISH on `TOPIC`, JSON: a list whose first item is the kind.

| thesis | here |
|---|---|
| Sub, UnSub | `Register`, answered by `Registered` |
| SubReq, SubRep | `AskList`, `Listed`; the publication waits at its publisher's node meanwhile |
| NewSub, NewUnSub | `ListChanged`, answered by `Noted` |
| UpSub | `Absent`, for nodes that cannot register again themselves |
| ReSub | `KeeperClaim`: who hears it registers again |
| Pub, PubCW, PubCCW | runs, with or without a plan (`dispatch`) |

`Join`, `TreeJoined`, `Leave` and `Invite` are Scribe's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from brokerweave.plugin import Packet, Publish, RemoteProtocolError

TOPIC = "overlay"
PACKET_BYTES = 60_000
GONE = -1
"""In the place of a QoS: not wanted any more."""
ELSEWHERE = -2
"""The same: wanted, but other keepers know; whoever hears it forgets the entry and tells nobody."""

_written = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Entry:
    """That a node wants a filter at a QoS (`GONE`: no longer). Of two, the one with the higher version is
    right: `life` is another, higher one after each start of the node, `version` grows within it."""

    node: str
    topic_filter: str
    qos: int
    life: int
    version: int

    @property
    def age(self) -> tuple[int, int]:
        return self.life, self.version


@dataclass(frozen=True, slots=True)
class Wish:
    """A filter in a `Register`."""

    topic_filter: str
    qos: int
    first: bool
    """The receiver is the first of its keepers: it tells those who hold lists."""
    retained: bool
    """The sender needs the retained messages under the filter."""


@dataclass(frozen=True, slots=True)
class Register:
    """What the sender wants, as far as it has changed for this keeper. `number` is the version of all: what a
    node said last is right, wherever it said it."""

    number: int
    life: int
    wishes: tuple[Wish, ...]


@dataclass(frozen=True, slots=True)
class Registered:
    """The answer, when all is done that the wishes asked for. `warm`: the keeper has what others keep."""

    number: int
    warm: bool


@dataclass(frozen=True, slots=True)
class AskList:
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Listed:
    """Who registered under a key; `last` of its parts. `warm`: everybody has."""

    key: str
    warm: bool
    last: bool
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class ListChanged:
    number: int
    key: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Noted:
    number: int


@dataclass(frozen=True, slots=True)
class KeeperClaim:
    """The sender is a keeper of the keys on this arc of the ring: tell it what you want of them."""

    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer to a claim, behind all that it asked for: what the sender has not named there since packet
    `since`, it does not want any more, as of `number`."""

    life: int
    start: int
    length: int
    since: int
    number: int


@dataclass(frozen=True, slots=True)
class Absent:
    """What nodes want that are not there to say so."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Join:
    """Scribe: the sender becomes a child of the receiver in a topic's tree. `qos`: the highest behind it."""

    topic: str
    qos: int


@dataclass(frozen=True, slots=True)
class TreeJoined:
    """Scribe: the answer to `Join` or `Invite`, when the sender is in the tree."""

    topic: str


@dataclass(frozen=True, slots=True)
class Leave:
    topic: str


@dataclass(frozen=True, slots=True)
class Invite:
    """Scribe: a root asks a node to join whose filter with wildcards matches the topic."""

    topic: str


Message: TypeAlias = (
    Register
    | Registered
    | AskList
    | Listed
    | ListChanged
    | Noted
    | KeeperClaim
    | Settled
    | Absent
    | Join
    | TreeJoined
    | Leave
    | Invite
)

_ABOUT_TOPICS: dict[str, type[TreeJoined | Leave | Invite]] = {
    "joined": TreeJoined,
    "leave": Leave,
    "invite": Invite,
}
_KINDS = {kind: name for name, kind in _ABOUT_TOPICS.items()}


def encode(message: Message) -> Publish:
    match message:
        case Register(number, life, wishes):
            listed = [[w.topic_filter, w.qos, int(w.first), int(w.retained)] for w in wishes]
            said: list[Any] = ["register", number, life, listed]
        case Registered(number, warm):
            said = ["registered", number, int(warm)]
        case AskList(keys):
            said = ["ask", list(keys)]
        case Listed(key, warm, last, entries):
            said = ["list", key, int(warm), int(last), _plain(entries)]
        case ListChanged(number, key, entries):
            said = ["changed", number, key, _plain(entries)]
        case Noted(number):
            said = ["noted", number]
        case KeeperClaim(start, length):
            said = ["claim", start, length]
        case Settled(life, start, length, since, number):
            said = ["settled", life, start, length, since, number]
        case Absent(entries):
            said = ["absent", _plain(entries)]
        case Join(topic, qos):
            said = ["join", topic, qos]
        case TreeJoined(topic) | Leave(topic) | Invite(topic):
            said = [_KINDS[type(message)], topic]
    return Publish(TOPIC, _written(said).encode())


def decode(packet: Packet) -> Message:
    if not isinstance(packet, Publish) or packet.topic != TOPIC:
        raise RemoteProtocolError(f"the overlay does not speak of {type(packet).__name__}")
    try:
        match json.loads(packet.payload):
            case ["register", int(number), int(life), list(wishes)]:
                return Register(number, life, tuple(_wish(*each) for each in wishes))
            case ["registered", int(number), int(warm)]:
                return Registered(number, bool(warm))
            case ["ask", list(keys)] if all(isinstance(key, str) and key for key in keys):
                return AskList(tuple(keys))
            case ["list", str(key), int(warm), int(last), list(entries)]:
                return Listed(key, bool(warm), bool(last), tuple(_entry(*each) for each in entries))
            case ["changed", int(number), str(key), list(entries)]:
                return ListChanged(number, key, tuple(_entry(*each) for each in entries))
            case ["noted", int(number)]:
                return Noted(number)
            case ["claim", int(start), int(length)]:
                return KeeperClaim(start, length)
            case ["settled", int(life), int(start), int(length), int(since), int(number)]:
                return Settled(life, start, length, since, number)
            case ["absent", list(entries)]:
                return Absent(tuple(_entry(*each) for each in entries))
            case ["join", str(topic), int(qos)] if topic and 0 <= qos <= 2:
                return Join(topic, qos)
            case [str(kind), str(topic)] if kind in _ABOUT_TOPICS and topic:
                return _ABOUT_TOPICS[kind](topic)
    except (ValueError, TypeError) as error:
        raise RemoteProtocolError(f"a packet of the overlay that cannot be read ({error})") from None
    raise RemoteProtocolError("a packet of the overlay of an unknown kind")


def batches(items: Iterable[Any], weight: int = 60) -> Iterator[list[Any]]:
    """What fits into one packet each; at least one batch, which may be empty."""
    batch: list[Any] = []
    size = 0
    for item in items:
        more = weight + len(item.topic_filter)
        if batch and size + more > PACKET_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += more
    yield batch


def _plain(entries: Iterable[Entry]) -> list[list[object]]:
    return [[e.node, e.topic_filter, e.qos, e.life, e.version] for e in entries]


def _entry(node: object, topic_filter: object, qos: object, life: object, version: object) -> Entry:
    if not (isinstance(node, str) and isinstance(topic_filter, str) and node and topic_filter):
        raise ValueError("an entry without a node or filter")
    if not (isinstance(qos, int) and isinstance(life, int) and isinstance(version, int)):
        raise ValueError("an entry without a QoS or version")
    if not GONE <= qos <= 2:
        raise ValueError(f"an entry with QoS {qos}")
    return Entry(node, topic_filter, qos, life, version)


def _wish(topic_filter: object, qos: object, first: object, retained: object) -> Wish:
    if not isinstance(topic_filter, str) or not topic_filter:
        raise ValueError("a wish without a filter")
    if not isinstance(qos, int) or not ELSEWHERE <= qos <= 2:
        raise ValueError("a wish without a QoS")
    return Wish(topic_filter, qos, bool(first), bool(retained))
