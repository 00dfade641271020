"""The few MQTT 3.1.1 packets that the load needs, as bytes.

Written by hand on purpose: the load must not share code with what it measures. Invariant: every PUBLISH of
one load has the same length, so that a reader counts messages by dividing bytes.
"""

from __future__ import annotations

import struct

CONNACK_LENGTH = 4
SUBACK_LENGTH = 5
PUBACK_LENGTH = 4
PINGREQ = b"\xc0\x00"
PINGRESP = b"\xd0\x00"
PUBLISH_QOS0 = 0x30
PUBLISH_QOS1 = 0x32

PAYLOAD = struct.Struct("!IQQ12x")  # client, sequence, monotonic nanoseconds; 32 bytes in all


def connect(client_id: str) -> bytes:
    """Clean session, keep-alive off: an idle or slow client is never thrown out for its silence."""
    return _packet(0x10, b"\x00\x04MQTT\x04\x02\x00\x00" + _string(client_id))


def subscribe(topic: str, qos: int = 0) -> bytes:
    return _packet(0x82, b"\x00\x01" + _string(topic) + bytes((qos,)))


def publish_head(topic: str) -> bytes:
    """What stands before the payload of every PUBLISH on this topic."""
    body = _string(topic) + bytes(PAYLOAD.size)
    return _packet(PUBLISH_QOS0, body)[: -PAYLOAD.size]


def publish_qos1_head(topic: str) -> bytes:
    """What stands before the packet id, which the payload follows, of every QoS 1 PUBLISH on this topic."""
    body = _string(topic) + bytes(2 + PAYLOAD.size)
    return _packet(PUBLISH_QOS1, body)[: -2 - PAYLOAD.size]


def puback(packet_id: bytes) -> bytes:
    return _packet(0x40, packet_id)


def _packet(first: int, body: bytes) -> bytes:
    if len(body) > 127:
        raise ValueError(f"a body of {len(body)} bytes needs a longer length than this tool writes")
    return bytes((first, len(body))) + body


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("!H", len(raw)) + raw
