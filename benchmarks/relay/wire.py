"""The few MQTT 3.1.1 packets that the load needs, as bytes.

Written by hand on purpose: the load must not share code with what it measures. Invariant: every PUBLISH of
one load has the same length, so that a reader counts messages by dividing bytes.
"""

from __future__ import annotations

import struct

CONNACK_LENGTH = 4
SUBACK_LENGTH = 5
PINGREQ = b"\xc0\x00"
PINGRESP = b"\xd0\x00"
PUBLISH_QOS0 = 0x30

PAYLOAD = struct.Struct("!IQQ12x")  # client, sequence, monotonic nanoseconds; 32 bytes in all


def connect(client_id: str) -> bytes:
    """Clean session, keep-alive off: an idle or slow client is never thrown out for its silence."""
    return _packet(0x10, b"\x00\x04MQTT\x04\x02\x00\x00" + _string(client_id))


def subscribe(topic: str) -> bytes:
    return _packet(0x82, b"\x00\x01" + _string(topic) + b"\x00")


def publish_head(topic: str) -> bytes:
    """What stands before the payload of every PUBLISH on this topic."""
    body = _string(topic) + bytes(PAYLOAD.size)
    return _packet(PUBLISH_QOS0, body)[: -PAYLOAD.size]


def _packet(first: int, body: bytes) -> bytes:
    if len(body) > 127:
        raise ValueError(f"a body of {len(body)} bytes needs a longer length than this tool writes")
    return bytes((first, len(body))) + body


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("!H", len(raw)) + raw
