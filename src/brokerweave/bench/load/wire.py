"""The few MQTT 3.1.1 packets that the load needs, as bytes.

Written by hand on purpose: the load must not share its packets with what it measures. Must not know: sockets.
"""

from __future__ import annotations

import struct

from brokerweave.bench.folder import HEADER

CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK = 2, 3, 4, 5, 6, 7, 9
NAMES = {CONNACK: "CONNACK", SUBACK: "SUBACK"}

DUP = 0x08


def connect(client_id: str, clean: bool = True) -> bytes:
    """Keep-alive off: an idle or slow client is never thrown out for its silence."""
    flags = b"\x02" if clean else b"\x00"
    return _packet(0x10, b"\x00\x04MQTT\x04" + flags + b"\x00\x00" + _string(client_id))


def subscribe(topic: str, qos: int) -> bytes:
    return _packet(0x82, b"\x00\x01" + _string(topic) + bytes((qos,)))


def publish_head(topic: str, qos: int, payload: int) -> bytes:
    """What stands before the packet id (QoS 1 and 2) or the payload of every PUBLISH on this topic."""
    rest = payload + (2 if qos else 0)
    return _packet(0x30 | qos << 1, _string(topic) + bytes(rest))[:-rest]


def acknowledgement(kind: int, packet_id: bytes) -> bytes:
    return bytes((kind << 4 | (2 if kind == PUBREL else 0), 2)) + packet_id


def padding(payload: int) -> bytes:
    return bytes(payload - HEADER.size)


def _packet(first: int, body: bytes) -> bytes:
    length, left = bytearray(), len(body)
    while True:
        left, low = left >> 7, left & 0x7F
        length.append(low | (0x80 if left else 0))
        if not left:
            return bytes((first,)) + bytes(length) + body


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("!H", len(raw)) + raw
