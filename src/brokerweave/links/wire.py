"""How runs and acknowledgements look in bytes: on a link, and in a journal.

Everything on a link is an MQTT 5 packet. A batch of runs is the payload of a PUBLISH on `BATCH_TOPIC`, a
cumulative acknowledgement that of one on `ACK_TOPIC`; all other packets pass as the codec writes them.
Invariants: what is written reads back equal (ages to the millisecond); any other bytes raise
`RemoteProtocolError`; the cost is per run, not per message, so that the frames inside a blob are not
looked at here. Must not know: lanes, what is acknowledged when.

Batch payload, big-endian: wire version u8, stream sequence of the first run u64, runs u16, then for each
run: origin (u8 length, UTF-8), epoch u64, first u64, count u32, flags u8, stamp u64, age in ms u32, blob
(u32 length). Flags: bit 0 MQTT 5, bits 1-2 `max_qos`, bits 3-4 `cap`, bit 5 `confirm`, bit 6 `flood`,
bit 7 `repair`. Where the highest bit of count is set, `holds` (u8 how many, each u8 length, UTF-8) and
`sender` (packet id u16, 0 for none; client id, u16 length, UTF-8) stand between that head and the blob;
where the next one is set, `plan` (u16 length, bytes) does, behind them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from math import isfinite

from brokerweave.errors import LocalProtocolError, RemoteProtocolError
from brokerweave.links.run import SMALLEST_PUBLISH, Run
from brokerweave.mqtt.codec import decode_varint, encode_varint

WIRE_VERSION = 1
LINK_VERSION = 5
"""Of MQTT, for all packets between nodes."""
BATCH_TOPIC = b"$brokerweave/batch"
ACK_TOPIC = b"$brokerweave/ack"
MAX_RUNS = 0xFFFF
"""Runs in one batch."""

_PLAIN_PUBLISH = 0x30
_MAX_AGE = 0xFFFF_FFFF
_MAX_SEQUENCE = 0x7FFF_FFFF_FFFF_FFFF
MAX_PLAN = 0xFFFF
"""Bytes of a run's plan."""
_MORE = 1 << 31
"""In a run's count: `holds` and `sender` follow its head."""
_PLAN = 1 << 30
"""In a run's count: a plan follows them. No run has so many messages, since its blob's length has 32 bits."""
_SENDER = struct.Struct(">HH")
_BATCH_HEAD = struct.Struct(">BQH")
_RUN_HEAD = struct.Struct(">QQIBQII")
_RECORD_HEAD = struct.Struct(">QQIBQd")
_SEQUENCE = struct.Struct(">Q")
_More = tuple[tuple[str, ...], tuple[str, int] | None, bytes]
_NOTHING_MORE: _More = ((), None, b"")


def encode_batch(first_sequence: int, runs: Sequence[Run], now: float) -> bytes:
    """The whole PUBLISH frame of a batch; `first_sequence` numbers its first run in the lane's stream."""
    parts = [b"", _BATCH_HEAD.pack(WIRE_VERSION, first_sequence, len(runs))]
    for run in runs:
        age = min(max(int((now - run.born) * 1000), 0), _MAX_AGE)
        parts.append(_origin(run))
        marks, more = _more(run)
        numbers = (run.epoch, run.first, run.count | marks, _flags(run), run.stamp, age, len(run.blob))
        parts.append(_RUN_HEAD.pack(*numbers))
        if more:
            parts.append(more)
        parts.append(run.blob)
    return _publish(BATCH_TOPIC, parts)


def decode_batch(payload: bytes | memoryview, now: float) -> tuple[int, list[Run]]:
    """The stream sequence of the first run, and the runs."""
    view = memoryview(payload)
    try:
        version, first_sequence, count = _BATCH_HEAD.unpack_from(view)
        if version != WIRE_VERSION:
            raise RemoteProtocolError(
                f"the neighbour writes batches of version {version}, not {WIRE_VERSION}"
            )
        runs = []
        position = _BATCH_HEAD.size
        for _ in range(count):
            position, origin = _read_origin(view, position)
            epoch, first, messages, flags, stamp, age, length = _RUN_HEAD.unpack_from(view, position)
            position += _RUN_HEAD.size
            more = _NOTHING_MORE
            if messages >= _PLAN:
                position, more = _read_more(view, position, messages)
                messages &= _PLAN - 1
            blob = bytes(view[position : position + length])
            if len(blob) != length:
                raise RemoteProtocolError("a batch ends inside a run")
            position += length
            born = now - age / 1000
            runs.append(_run(origin, epoch, first, messages, flags, stamp, born, blob, more))
    except struct.error:
        raise RemoteProtocolError("a batch ends inside a run") from None
    if position != len(view):
        raise RemoteProtocolError("a batch goes on after its last run")
    if not runs or first_sequence == 0 or first_sequence + count - 1 > _MAX_SEQUENCE:
        raise RemoteProtocolError("a batch without runs, or outside its stream")
    return first_sequence, runs


def encode_ack(sequence: int) -> bytes:
    """The whole PUBLISH frame that says: everything up to `sequence` is taken."""
    return _publish(ACK_TOPIC, [b"", _SEQUENCE.pack(sequence)])


def decode_ack(payload: bytes | memoryview) -> int:
    if len(payload) != _SEQUENCE.size:
        raise RemoteProtocolError("an acknowledgement of the wrong size")
    return int(_SEQUENCE.unpack(payload)[0])


def encode_record(run: Run) -> bytes:
    """A run as a journal keeps it: like on the wire, but with `born`, since ages grow while it lies there."""
    marks, more = _more(run)
    head = _RECORD_HEAD.pack(run.epoch, run.first, run.count | marks, _flags(run), run.stamp, run.born)
    return b"".join((_origin(run), head, more, run.blob))


def decode_record(record: bytes) -> Run:
    view = memoryview(record)
    try:
        position, origin = _read_origin(view, 0)
        epoch, first, count, flags, stamp, born = _RECORD_HEAD.unpack_from(view, position)
        position += _RECORD_HEAD.size
        more = _NOTHING_MORE
        if count >= _PLAN:
            position, more = _read_more(view, position, count)
            count &= _PLAN - 1
    except struct.error:
        raise RemoteProtocolError("a record ends inside its head") from None
    return _run(origin, epoch, first, count, flags, stamp, born, bytes(view[position:]), more)


def open_publish(frame: bytes) -> tuple[bytes, memoryview] | None:
    """Topic and payload of a batch or an acknowledgement, the payload uncopied; None for other frames."""
    start = 1 + decode_varint(frame, 1)[1]
    end = start + 2 + int.from_bytes(frame[start : start + 2])
    topic = frame[start + 2 : end]
    if topic not in (BATCH_TOPIC, ACK_TOPIC):
        return None
    if frame[0] != _PLAIN_PUBLISH or frame[end : end + 1] != b"\x00":
        raise RemoteProtocolError("batches and acknowledgements have QoS 0 and no properties")
    return topic, memoryview(frame)[end + 1 :]


def _publish(topic: bytes, parts: list[bytes]) -> bytes:
    """One join of the frame; `parts[0]` is the place for its head."""
    remaining = 2 + len(topic) + 1 + sum(map(len, parts))
    parts[0] = b"%c%b%b%b\x00" % (_PLAIN_PUBLISH, encode_varint(remaining), len(topic).to_bytes(2), topic)
    return b"".join(parts)


def _origin(run: Run) -> bytes:
    return _node_id(run.origin)


def _node_id(identifier: str) -> bytes:
    name = identifier.encode()
    if not 0 < len(name) <= 0xFF:
        raise LocalProtocolError(f"a node id of {len(name)} bytes; 1 to 255 can be sent")
    return b"%c%b" % (len(name), name)


def _more(run: Run) -> tuple[int, bytes]:
    """What is between a run's head and its blob, mostly nothing; and what its count says of that."""
    marks, more = 0, b""
    if run.holds or run.sender is not None:
        client, packet_id = run.sender or ("", 0)
        name = client.encode()
        holds = b"".join(map(_node_id, run.holds))
        marks = _MORE
        more = b"%c%b%b%b" % (len(run.holds), holds, _SENDER.pack(packet_id, len(name)), name)
    if run.plan:
        marks |= _PLAN
        more += with_length(run.plan)
    return marks, more


def with_length(plan: bytes) -> bytes:
    if len(plan) > MAX_PLAN:
        raise LocalProtocolError(f"a plan of {len(plan)} bytes; {MAX_PLAN} can be sent")
    return len(plan).to_bytes(2) + plan


def _read_more(view: memoryview, position: int, marks: int) -> tuple[int, _More]:
    holds, sender, plan = _NOTHING_MORE
    if marks & _MORE:
        position, holds, sender = _read_sender(view, position)
    if marks & _PLAN:
        start = position + 2
        position = start + int.from_bytes(view[position:start])
        plan = bytes(view[start:position])
        if position > len(view) or not plan:
            raise RemoteProtocolError("a run ends inside its plan")
    return position, (holds, sender, plan)


def _read_sender(view: memoryview, position: int) -> tuple[int, tuple[str, ...], tuple[str, int] | None]:
    if position >= len(view):
        raise RemoteProtocolError("a run ends inside its head")
    count, holds = view[position], []
    position += 1
    for _ in range(count):
        position, name = _read_origin(view, position)
        holds.append(name)
    packet_id, length = _SENDER.unpack_from(view, position)
    position += _SENDER.size
    try:
        client = str(view[position : position + length], "utf-8")
    except UnicodeDecodeError:
        raise RemoteProtocolError("a run whose publisher is not UTF-8") from None
    if position + length > len(view):
        raise RemoteProtocolError("a run ends inside its head")
    return position + length, tuple(holds), (client, packet_id) if packet_id else None


def _read_origin(view: memoryview, position: int) -> tuple[int, str]:
    if position >= len(view):
        raise RemoteProtocolError("a run without its origin")
    end = position + 1 + view[position]
    try:
        origin = str(view[position + 1 : end], "utf-8")
    except UnicodeDecodeError:
        raise RemoteProtocolError("a run whose origin is not UTF-8") from None
    if not origin or end > len(view):
        raise RemoteProtocolError("a run without its origin")
    return end, origin


def _flags(run: Run) -> int:
    marks = run.confirm << 5 | run.flood << 6 | run.repair << 7
    return (run.version == 5) | run.max_qos << 1 | run.cap << 3 | marks


def _run(
    origin: str,
    epoch: int,
    first: int,
    count: int,
    flags: int,
    stamp: int,
    born: float,
    blob: bytes,
    more: _More,
) -> Run:
    max_qos, cap = flags >> 1 & 3, flags >> 3 & 3
    if max_qos == 3 or cap == 3 or not isfinite(born):
        raise RemoteProtocolError(f"a run with unknown flags {flags:#04x} or without a time")
    if not 0 < count <= len(blob) // SMALLEST_PUBLISH or first + count - 1 > _MAX_SEQUENCE:
        raise RemoteProtocolError(f"a run of {count} messages from {first} in {len(blob)} bytes")
    version = 5 if flags & 1 else 4
    marks = bool(flags & 0x20), bool(flags & 0x40), bool(flags & 0x80)
    return Run(origin, epoch, first, count, version, max_qos, cap, born, blob, stamp, *marks, *more)
