"""The packets with which two nodes find out where their retained indexes differ.

*ask*: a number that the answer repeats, a bucket to begin with, and the fingerprints of all buckets. *have*,
the answer: the versions in the buckets that differ, up to about `PAGE` bytes, and the bucket to go on with
(`BUCKETS`: no more). Buckets in which the asker has nothing are left out: it asks in order to know what to
send. Neither side keeps state in between, so either packet may be lost with its link. Must not know: frames,
when to ask.

Big-endian. ask: round u32, first u16, fingerprints u64 * BUCKETS. have: round u32, next u16, number of
buckets u16, buckets u8 each; then for each version: stamp u64, tag u64, topic (u16 length, UTF-8).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from brokerweave.errors import RemoteProtocolError
from brokerweave.node.retained import BUCKETS, RetainedIndex

ASK = "$brokerweave/retained/ask"
HAVE = "$brokerweave/retained/have"

PAGE = 64 << 10

_ASK = struct.Struct(f">IH{BUCKETS}Q")
_HAVE = struct.Struct(">IHH")
_VERSION = struct.Struct(">QQH")


@dataclass(frozen=True, slots=True)
class Have:
    round: int
    next: int
    buckets: tuple[int, ...]
    ranks: dict[str, tuple[int, int]]
    """Topic to version."""


def encode_ask(round: int, first: int, fingerprints: tuple[int, ...]) -> bytes:
    return _ASK.pack(round, first, *fingerprints)


def answer(ask: bytes, index: RetainedIndex) -> bytes:
    """The *have* that answers an *ask*. Raises RemoteProtocolError."""
    try:
        round, first, *theirs = _ASK.unpack(ask)
    except struct.error:
        raise RemoteProtocolError("a question about retained messages of the wrong size") from None
    buckets = bytearray()
    parts: list[bytes] = []
    size = 0
    number, ours = first, index.fingerprints
    while number < BUCKETS and size < PAGE:
        if theirs[number] and theirs[number] != ours[number]:
            buckets.append(number)
            for topic, entry in index.bucket(number).items():
                name = topic.encode()
                parts += _VERSION.pack(*entry.rank, len(name)), name
                size += _VERSION.size + len(name)
        number += 1
    return b"".join((_HAVE.pack(round, number, len(buckets)), buckets, *parts))


def decode_have(payload: bytes) -> Have:
    try:
        round, following, count = _HAVE.unpack_from(payload)
        at = _HAVE.size + count
        ranks = {}
        while at < len(payload):
            stamp, tag, length = _VERSION.unpack_from(payload, at)
            at += _VERSION.size + length
            ranks[payload[at - length : at].decode()] = stamp, tag
    except (struct.error, UnicodeDecodeError):
        raise RemoteProtocolError("an answer about retained messages cannot be read") from None
    if at != len(payload) or following > BUCKETS or count > BUCKETS:
        raise RemoteProtocolError("an answer about retained messages of the wrong size")
    return Have(round, following, tuple(payload[_HAVE.size : _HAVE.size + count]), ranks)
