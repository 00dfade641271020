"""What nodes tell each other about clients that moved, or may have to, in bytes.

Owns the form of each control payload and its bounds. Invariants: what is written reads back equal (ages to
the clock's precision); anything else raises `RemoteProtocolError`; an encoder that may have much to say
cuts it into payloads of about `PAGE` bytes, and a publication larger than that travels alone. Must not
know: queues, when anything is said.

Big-endian. text: u16 length, UTF-8. name: u8 length, UTF-8. hashes: u16 number, 8 bytes each. ids: u32
number, each name, epoch u64, lane u8, sequence u64. Publications as in `held`, with their age.

- receipts: number, client text, hashes; again and again. A number is a life u64 and a count u64.
- recent: as receipts, without the number: said before, to others.
- got: number, client text, ids; again and again.
- routed: as got, of what the client gets where it is, and is kept for it there: not elsewhere any more.
- unheld: node text, ids; what was to be kept for clients of a node that are not known here.
- kept: nothing; something is kept here for clients of who hears it, which nobody else may know.
- taken: the number up to which receipts and gots were taken.
- ask: round u32, since u64, age f64, client text.
- answer: round u32, last u8, client text, publications up to the end.
- late: since u64, own u8, client text, publications up to the end.
- hand: node name; what is kept for clients of the node that says so, that one is to keep, too.
- given: node name; that one was given all of it.
- handed: node name, client text, dead u8 (1: the node is taken for dead, and nobody asked); again and again
  QoS u8, a publication: kept for the node's client.
- wills: kind u8 (1 told, 2 cleared), client text, node name, since u64; told: version u8, expiry u32, will.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from brokerweave.care.held import Held, decode_held, encode_held
from brokerweave.care.ids import MessageId
from brokerweave.care.wills import PendingWill
from brokerweave.errors import RemoteProtocolError
from brokerweave.mqtt import codec
from brokerweave.mqtt.content import HASH_BYTES
from brokerweave.mqtt.packets import Connect

RECEIPTS = "$brokerweave/failover/receipts"
RECENT = "$brokerweave/failover/recent"
GOT = "$brokerweave/failover/got"
ROUTED = "$brokerweave/failover/routed"
UNHELD = "$brokerweave/failover/unheld"
KEPT = "$brokerweave/failover/kept"
TAKEN = "$brokerweave/failover/taken"
ASK = "$brokerweave/failover/ask"
ANSWER = "$brokerweave/failover/answer"
LATE = "$brokerweave/failover/late"
HAND = "$brokerweave/failover/hand"
GIVEN = "$brokerweave/failover/given"
HANDED = "$brokerweave/failover/handed"
WILLS = "$brokerweave/failover/wills"

PAGE = 64 << 10
MOST_HASHES = 0xFFFF

_TOLD, _CLEARED = 1, 2
_LENGTH = struct.Struct(">H")
_COUNT = struct.Struct(">I")
_ID_TAIL = struct.Struct(">QBQ")
_ASK = struct.Struct(">IQd")
_ANSWER = struct.Struct(">IB")
_SINCE = struct.Struct(">Q")
_LATE = struct.Struct(">QB")
_NUMBER = struct.Struct(">QQ")
_TOLD_TAIL = struct.Struct(">BI")


class Cursor:
    """Reads one value after the other. Raises `RemoteProtocolError` at the end of the data."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at

    @property
    def more(self) -> bool:
        return self.at < len(self.data)

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise RemoteProtocolError("a message about clients that moved ends too early")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        return form.unpack(self.take(form.size))

    def byte(self) -> int:
        return self.take(1)[0]

    def text(self) -> str:
        return self._decode(self.take(int.from_bytes(self.take(2))))

    def name(self) -> str:
        return self._decode(self.take(self.byte()))

    def hashes(self) -> list[bytes]:
        count = int.from_bytes(self.take(2))
        return [self.take(HASH_BYTES) for _ in range(count)]

    def ids(self) -> list[MessageId]:
        (count,) = self.unpack(_COUNT)
        if count * (1 + _ID_TAIL.size) > len(self.data) - self.at:
            raise RemoteProtocolError("a message about clients that moved ends too early")
        return [MessageId(self.name(), *self.unpack(_ID_TAIL)) for _ in range(count)]

    def held(self, now: float) -> Held:
        """Its age counted back from now."""
        held, self.at = decode_held(self.data, self.at)
        return replace(held, born=now - max(held.born, 0.0))

    @staticmethod
    def _decode(data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise RemoteProtocolError("a message about clients that moved is not UTF-8") from None


def encode_text(text: str) -> bytes:
    data = text.encode()
    return _LENGTH.pack(len(data)) + data


def encode_name(name: str) -> bytes:
    data = name.encode()
    return b"%c%b" % (len(data), data)


def encode_ids(ids: Sequence[MessageId]) -> bytes:
    parts = [_COUNT.pack(len(ids))]
    for origin, epoch, lane, sequence in ids:
        parts += (encode_name(origin), _ID_TAIL.pack(epoch, lane, sequence))
    return b"".join(parts)


# Receipts: what clients have. By hash where the broker delivered, by id where the node did.


def encode_number(life: int, number: int) -> bytes:
    """What goes before receipts and gots; alone, how far they were taken."""
    return _NUMBER.pack(life, number)


def decode_number(payload: bytes) -> tuple[int, int, bytes]:
    """The number, and what follows it."""
    cursor = Cursor(payload)
    life, number = cursor.unpack(_NUMBER)
    return life, number, payload[cursor.at :]


def encode_receipts(receipts: Mapping[str, Sequence[bytes]]) -> list[bytes]:
    """One payload, mostly; cut where it becomes too large."""
    parts = []
    for client, hashes in receipts.items():
        name = encode_text(client)
        for at in range(0, len(hashes), 4096):
            some = hashes[at : at + 4096]
            parts.append(b"%b%b%b" % (name, _LENGTH.pack(len(some)), b"".join(some)))
    return list(_pages(parts))


def decode_receipts(payload: bytes) -> list[tuple[str, list[bytes]]]:
    cursor = Cursor(payload)
    receipts = []
    while cursor.more:
        receipts.append((cursor.text(), cursor.hashes()))
    return receipts


def encode_got(got: Mapping[str, Sequence[MessageId]]) -> list[bytes]:
    parts = []
    for client, ids in got.items():
        name = encode_text(client)
        parts += [name + encode_ids(ids[at : at + 1024]) for at in range(0, len(ids), 1024)]
    return list(_pages(parts))


def decode_got(payload: bytes) -> list[tuple[str, list[MessageId]]]:
    cursor = Cursor(payload)
    got = []
    while cursor.more:
        got.append((cursor.text(), cursor.ids()))
    return got


# A client's queue


@dataclass(frozen=True, slots=True)
class Ask:
    """`round` is repeated in the answer; the client is at the asking node since `since`. Of what was kept for
    it there, in an earlier session, nothing is asked for that is younger than `age`, in seconds."""

    round: int
    since: int
    client: str
    age: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """`last`: nothing follows in this round."""

    round: int
    last: bool
    client: str
    held: list[Held]


@dataclass(frozen=True, slots=True)
class Late:
    """`own`: it was kept for the client at the very node that gets this."""

    since: int
    client: str
    held: list[Held]
    own: bool = False


def encode_ask(ask: Ask) -> bytes:
    return _ASK.pack(ask.round, ask.since, ask.age) + encode_text(ask.client)


def decode_ask(payload: bytes) -> Ask:
    cursor = Cursor(payload)
    round, since, age = cursor.unpack(_ASK)
    if not age >= 0.0:
        raise RemoteProtocolError("a question for a client's queue that cannot be read")
    ask = Ask(round, since, cursor.text(), age)
    _end(cursor)
    return ask


def encode_answer(round: int, client: str, held: Iterable[Held], now: float) -> Iterator[bytes]:
    """One payload at least, the last one marked. A generator, so that a long queue need not be there
    twice."""
    name = encode_text(client)
    waiting: bytes | None = None
    for page in _pages(encode_held(one, now - one.born) for one in held):
        if waiting is not None:
            yield b"%b%b%b" % (_ANSWER.pack(round, 0), name, waiting)
        waiting = page
    yield b"%b%b%b" % (_ANSWER.pack(round, 1), name, waiting or b"")


def decode_answer(payload: bytes, now: float) -> Answer:
    cursor = Cursor(payload)
    round, last = cursor.unpack(_ANSWER)
    if last > 1:
        raise RemoteProtocolError("an answer about a client's queue that cannot be read")
    client = cursor.text()
    return Answer(round, bool(last), client, _held(cursor, now))


def encode_late(
    since: int, client: str, held: Iterable[Held], now: float, own: bool = False
) -> Iterator[bytes]:
    head = _LATE.pack(since, own) + encode_text(client)
    for page in _pages(encode_held(one, now - one.born) for one in held):
        yield head + page


def decode_late(payload: bytes, now: float) -> Late:
    cursor = Cursor(payload)
    since, own = cursor.unpack(_LATE)
    client = cursor.text()
    return Late(since, client, _held(cursor, now), bool(own))


# Queues that others are to keep, too


@dataclass(frozen=True, slots=True)
class Handed:
    """Kept for a client of a node, with the QoS that it asked for there."""

    node: str
    client: str
    dead: bool
    """Nobody asked for it: its giver takes the node for dead."""
    kept: list[tuple[int, Held]]


def encode_holder(node: str) -> bytes:
    return encode_name(node)


def decode_holder(payload: bytes) -> str:
    cursor = Cursor(payload)
    node = cursor.name()
    _end(cursor)
    return node


def encode_handed(
    node: str, client: str, dead: bool, kept: Iterable[tuple[int, Held]], now: float
) -> Iterator[bytes]:
    head = encode_name(node) + encode_text(client) + bytes((dead,))
    for page in _pages(b"%c%b" % (qos, encode_held(one, now - one.born)) for qos, one in kept):
        yield head + page


def decode_handed(payload: bytes, now: float) -> Handed:
    cursor = Cursor(payload)
    handed = Handed(cursor.name(), cursor.text(), bool(cursor.byte()), [])
    while cursor.more:
        qos = cursor.byte()
        if qos > 2:
            raise RemoteProtocolError(f"a client cannot have asked for QoS {qos}")
        handed.kept.append((qos, cursor.held(now)))
    return handed


# Wills


@dataclass(frozen=True, slots=True)
class Cleared:
    client: str
    node: str
    since: int


def encode_will(change: PendingWill | Cleared) -> bytes:
    kind = _TOLD if isinstance(change, PendingWill) else _CLEARED
    head = b"%c%b%b%b" % (
        kind,
        encode_text(change.client),
        encode_name(change.node),
        _SINCE.pack(change.since),
    )
    if isinstance(change, Cleared):
        return head
    # CONNECT has a form for wills.
    carrier = Connect("", 5 if change.version == 5 else 4, will=change.will)
    return b"%b%b%b" % (head, _TOLD_TAIL.pack(change.version, change.expiry), codec.encode(carrier, 5))


def decode_will(payload: bytes) -> PendingWill | Cleared:
    cursor = Cursor(payload)
    kind, client, node = cursor.byte(), cursor.text(), cursor.name()
    (since,) = cursor.unpack(_SINCE)
    if kind == _CLEARED:
        _end(cursor)
        return Cleared(client, node, since)
    version, expiry = cursor.unpack(_TOLD_TAIL)
    carrier = codec.decode(payload[cursor.at :], 5)
    if kind != _TOLD or version not in (3, 4, 5) or not isinstance(carrier, Connect) or carrier.will is None:
        raise RemoteProtocolError("a will that cannot be read")
    return PendingWill(client, node, since, version, carrier.will, expiry)


def _pages(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Whole parts, joined up to about `PAGE` bytes."""
    page: list[bytes] = []
    size = 0
    for part in parts:
        if page and size + len(part) > PAGE:
            yield b"".join(page)
            page, size = [], 0
        page.append(part)
        size += len(part)
    if page:
        yield b"".join(page)


def _held(cursor: Cursor, now: float) -> list[Held]:
    held = []
    while cursor.more:
        held.append(cursor.held(now))
    return held


def _end(cursor: Cursor) -> None:
    if cursor.more:
        raise RemoteProtocolError("a message about clients that moved goes on after its end")
