"""The edge log as bytes: segment headers, blocks, the runs inside a block, and what in a file is whole.

Owns the format of docs/decisions/0007. Invariants: a block that `scan` calls whole is byte for byte what was
written, for this log and epoch; what lies between whole blocks is never skipped without a word. Must not
know: files, MQTT inside a run.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from brokerweave.errors import BrokerweaveError

VERSION = 1
"""Of the format; in the rows, the schema version."""
LARGEST_BLOCK = 1 << 30
"""Bytes of a body. One packet of the largest size that MQTT has fits."""

_SEGMENT_MAGIC = b"BWSEG01\n"
_SEGMENT_PREFIX = struct.Struct("<8sII")
_SEGMENT_HEAD = struct.Struct("<HQQq16s")
_LONGEST_HEADER = 4096
_BLOCK_MAGIC = b"BWbk"
_BLOCK = struct.Struct("<4sIIIQI")
"""Magic, CRC of what follows, length of the body, rows, first sequence, CRC of the body."""
_BLOCK_TAIL = struct.Struct("<IIQI")
_RUN = struct.Struct("<qIIIHB")
"""Time, rows, bytes of the frames, rows that were resent, bytes of the client id, MQTT version."""
BLOCK_HEAD_BYTES = _BLOCK.size


class Position(NamedTuple):
    """Names a row of one log; positions are in the order in which rows were written."""

    epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.epoch}:{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read EPOCH:SEQUENCE. Raises ValueError."""
        match = re.fullmatch(r"([0-9]{1,19}):([0-9]{1,19})", text)
        if match is None:
            raise ValueError("a position is EPOCH:SEQUENCE, for example 1:500")
        return cls(int(match[1]), int(match[2]))


START = Position(0, 0)
"""Before the first row of any log."""


class DamagedLog(BrokerweaveError):
    """Rows that are not what was written. They are never left out silently."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(str(damage))
        self.damage = damage


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes `offset` to `end` of a segment are no whole blocks; the rows `first` to `last` were there."""

    segment: str
    offset: int
    end: int
    epoch: int
    first: int
    last: int | None
    """None: nothing whole follows that would say."""
    reason: str

    @property
    def rows(self) -> int:
        """As far as it is known."""
        return 0 if self.last is None else max(self.last - self.first + 1, 0)

    def __str__(self) -> str:
        rows = f"rows {self.first} to {self.last}" if self.last is not None else f"rows from {self.first} on"
        return f"{self.segment} is damaged at byte {self.offset}: {self.reason}; {rows} of epoch {self.epoch}"


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    log_id: str
    """32 hexadecimal digits."""
    node: str
    epoch: int
    first: int
    created: int
    """Microseconds since 1970."""

    @property
    def seed(self) -> int:
        """What the checksums of this segment's blocks begin with."""
        return zlib.crc32(self.epoch.to_bytes(8, "little"), zlib.crc32(bytes.fromhex(self.log_id)))


@dataclass(frozen=True, slots=True)
class LogRun:
    """Publications of one client that arrived together: PUBLISH frames, joined, DUP cleared."""

    time: int
    """When the node got them, in microseconds since 1970."""
    client: str
    version: int
    count: int
    blob: bytes
    resent: tuple[int, ...] = ()
    """Which of them the client had marked as resent (DUP), by index."""


@dataclass(frozen=True, slots=True)
class Block:
    """A whole block, and where it lies."""

    offset: int
    epoch: int
    first: int
    rows: int
    body: bytes

    @property
    def last(self) -> int:
        return self.first + self.rows - 1

    @property
    def end(self) -> int:
        return self.offset + BLOCK_HEAD_BYTES + len(self.body)


class Head(NamedTuple):
    """What a block's head says of its body."""

    length: int
    rows: int
    first: int
    checksum: int


def encode_header(header: SegmentHeader) -> bytes:
    head = _SEGMENT_HEAD.pack(
        VERSION, header.epoch, header.first, header.created, bytes.fromhex(header.log_id)
    )
    rest = head + header.node.encode()
    return _SEGMENT_PREFIX.pack(_SEGMENT_MAGIC, len(rest), zlib.crc32(rest)) + rest


def decode_header(data: bytes) -> tuple[SegmentHeader, int]:
    """A segment's header and where its blocks begin. Raises ValueError that says what is wrong."""
    if len(data) < _SEGMENT_PREFIX.size:
        raise ValueError("its header is cut short")
    magic, length, checksum = _SEGMENT_PREFIX.unpack_from(data)
    if magic != _SEGMENT_MAGIC:
        raise ValueError("it does not begin as a segment")
    end = _SEGMENT_PREFIX.size + length
    rest = data[_SEGMENT_PREFIX.size : end]
    if length > _LONGEST_HEADER or len(rest) != length or length < _SEGMENT_HEAD.size:
        raise ValueError("its header is cut short")
    if zlib.crc32(rest) != checksum:
        raise ValueError("its header's checksum is wrong")
    version, epoch, first, created, log_id = _SEGMENT_HEAD.unpack_from(rest)
    if version != VERSION:
        raise ValueError(f"it is of format {version}, and this program reads {VERSION}")
    node = rest[_SEGMENT_HEAD.size :].decode()
    return SegmentHeader(log_id.hex(), node, epoch, first, created), end


def encode_block(seed: int, first: int, rows: int, body: bytes) -> bytes:
    tail = _BLOCK_TAIL.pack(len(body), rows, first, zlib.crc32(body, seed))
    return b"".join((_BLOCK_MAGIC, zlib.crc32(tail, seed).to_bytes(4, "little"), tail, body))


def run_head(time: int, client: bytes, version: int, count: int, size: int, resent: Sequence[int]) -> bytes:
    """What precedes a run's frames, which are `size` bytes."""
    head = _RUN.pack(time, count, size, len(resent), len(client), version) + client
    return head + struct.pack(f"<{len(resent)}I", *resent) if resent else head


def decode_runs(body: bytes) -> Iterator[LogRun]:
    """The runs of a whole block."""
    for time, client, version, count, blob, resent in run_fields(body):
        yield LogRun(time, client.decode(), version, count, blob, resent)


def first_time(body: bytes) -> int:
    """When the first row of a block came."""
    return int(_RUN.unpack_from(body)[0])


def run_fields(body: bytes) -> Iterator[tuple[int, bytes, int, int, bytes, tuple[int, ...]]]:
    """The same as `decode_runs` gives, in the order of `LogRun`'s fields, for readers in a hurry."""
    at, end, head = 0, len(body), _RUN.size
    while at < end:
        time, count, size, marks, client, version = _RUN.unpack_from(body, at)
        at += head
        name = body[at : at + client]
        at += client
        resent: tuple[int, ...] = ()
        if marks:
            resent = struct.unpack_from(f"<{marks}I", body, at)
            at += 4 * marks
        yield time, name, version, count, body[at : at + size], resent
        at += size


def scan(
    segment: str,
    data: bytes,
    header: SegmentHeader,
    base: int,
    expected: int,
    up_to: int | None = None,
) -> Iterator[Block | Damage]:
    """Everything in a segment's bytes from its offset `base` on: whole blocks, and the damage between them.

    `expected` is the first block's first sequence; nothing is read beyond the row `up_to`.
    """
    seed, at = header.seed, 0
    while at < len(data) and (up_to is None or expected <= up_to):
        found = _block(data, at, base, header.epoch, seed)
        if isinstance(found, Block) and found.first == expected:
            yield found
            at, expected = found.end - base, found.last + 1
            continue
        reason = found if isinstance(found, str) else f"row {found.first} where {expected} should be"
        following = found if isinstance(found, Block) else _next_block(data, at + 1, base, header.epoch, seed)
        if following is None:
            yield Damage(segment, base + at, base + len(data), header.epoch, expected, up_to, reason)
            return
        last = following.first - 1
        yield Damage(segment, base + at, following.offset, header.epoch, expected, last, reason)
        at, expected = following.offset - base, following.first


def _block(data: bytes, at: int, base: int, epoch: int, seed: int) -> Block | str:
    """The block at `at`, or why there is none."""
    head = head_at(data, at, seed)
    if isinstance(head, str):
        return head
    body = data[at + _BLOCK.size : at + _BLOCK.size + head.length]
    if len(body) != head.length:
        return "a block is cut short"
    if zlib.crc32(body, seed) != head.checksum:
        return "the checksum of a block is wrong"
    return Block(base + at, epoch, head.first, head.rows, body)


def head_at(data: bytes, at: int, seed: int) -> Head | str:
    """The head of the block at `at`, or why there is none."""
    if at + _BLOCK.size > len(data):
        return "a block is cut short"
    magic, head_sum, length, rows, first, body_sum = _BLOCK.unpack_from(data, at)
    if magic != _BLOCK_MAGIC:
        return "no block begins there"
    if zlib.crc32(data[at + 8 : at + _BLOCK.size], seed) != head_sum or length > LARGEST_BLOCK:
        return "the checksum of a block's head is wrong"
    return Head(length, rows, first, body_sum)


def _next_block(data: bytes, at: int, base: int, epoch: int, seed: int) -> Block | None:
    while (at := data.find(_BLOCK_MAGIC, at)) >= 0:
        found = _block(data, at, base, epoch, seed)
        if isinstance(found, Block):
            return found
        at += 1
    return None
