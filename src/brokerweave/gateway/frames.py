"""Packet ids and reason codes in whole frames, where decoding all of a packet would be too much.

Invariant: a frame that is too short for what is asked is its sender's fault. Must not know: what they mean.
"""

from __future__ import annotations

from brokerweave.errors import RemoteProtocolError


def frame_id(data: bytes) -> int:
    """The packet id of a frame that begins with it. Raises `RemoteProtocolError`."""
    at = _body(data)
    if len(data) < at + 2:
        raise RemoteProtocolError("a packet ends before its packet identifier")
    return data[at] << 8 | data[at + 1]


def with_id(data: bytes, number: int) -> bytes:
    """The same frame with another id."""
    at = _body(data)
    return data[:at] + number.to_bytes(2, "big") + data[at + 2 :]


def answer_code(data: bytes) -> int:
    """The reason code of an answer."""
    at = _body(data) + 2
    return data[at] if len(data) > at else 0


def disconnect_code(data: bytes) -> int:
    return data[2] if len(data) > 2 else 0


def _body(data: bytes) -> int:
    """Where a whole frame's content begins."""
    at = 1
    while data[at] >= 0x80:
        at += 1
    return at + 1
