"""A publication that is kept for somebody, and how it looks in bytes.

Owns `Held`, its form on links and in journals, and what its expiry does to it. Invariants: what is written
reads back equal; anything else raises `RemoteProtocolError`. Must not know: for whom it is kept.

Big-endian: origin (u8 length, UTF-8), epoch u64, lane u8, sequence u64, MQTT version u8, time f64, frame (u32
length). The time is `born` in a journal and an age on a link, since clocks differ.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from math import isfinite

from brokerweave.care.ids import MessageId
from brokerweave.errors import RemoteProtocolError
from brokerweave.mqtt import codec
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.properties import Property, get_int

OVERHEAD = 1000
"""Bytes that one takes in memory beside topic and payload, about; bounds count them."""

_NUMBERS = struct.Struct(">QBQBdI")


@dataclass(frozen=True, slots=True)
class Held:
    """`publish` has its publisher's QoS, no packet id and no DUP; `version` is its MQTT version, 4 or 5.

    `born` is when it was published, on the clock of the node that has it.
    """

    id: MessageId
    publish: Publish
    version: int
    hash: bytes
    born: float

    @property
    def size(self) -> int:
        """What bounds count for it."""
        publish = self.publish
        return OVERHEAD + len(publish.topic) + len(publish.payload) + 100 * len(publish.properties)


def hold(identifier: MessageId, publish: Publish, version: int, born: float) -> Held:
    """`publish` as it was published, whatever packet id it had."""
    topic, payload = publish.topic, publish.payload
    plain = Publish(topic, payload, publish.qos, publish.retain, properties=publish.properties)
    return Held(identifier, plain, version, content_hash(topic, payload), born)


def aged(held: Held, now: float) -> Held | None:
    """With what is left of its expiry; None if nothing is [MQTT-3.3.2-5]."""
    interval = get_int(held.publish.properties, Property.MESSAGE_EXPIRY_INTERVAL, -1)
    if interval < 0:
        return held
    left = interval - max(int(now - held.born), 0)  # [MQTT-3.3.2-6]
    if left <= 0:
        return None
    properties = tuple(
        (name, left if name is Property.MESSAGE_EXPIRY_INTERVAL else value)
        for name, value in held.publish.properties
    )
    return replace(held, publish=replace(held.publish, properties=properties))


def encode_held(held: Held, time: float) -> bytes:
    publish = held.publish
    if publish.qos:  # it has to have some packet id
        publish = Publish(
            publish.topic, publish.payload, publish.qos, publish.retain, False, 1, publish.properties
        )
    frame = codec.encode(publish, held.version)
    name = held.id.origin.encode()
    numbers = _NUMBERS.pack(held.id.epoch, held.id.lane, held.id.sequence, held.version, time, len(frame))
    return b"%c%b%b%b" % (len(name), name, numbers, frame)


def decode_held(data: bytes, at: int = 0) -> tuple[Held, int]:
    """The one that begins at `at`, its `born` the time as it was written, and where it ends."""
    try:
        start = at + 1 + data[at]
        origin = data[at + 1 : start].decode()
        epoch, lane, sequence, version, time, length = _NUMBERS.unpack_from(data, start)
    except (IndexError, struct.error, UnicodeDecodeError):
        raise RemoteProtocolError("a publication that is kept for a client cannot be read") from None
    start += _NUMBERS.size
    end = start + length
    if end > len(data) or not origin or version not in (4, 5) or not isfinite(time):
        raise RemoteProtocolError("a publication that is kept for a client is cut off")
    publish = codec.decode(data[start:end], version)
    if not isinstance(publish, Publish) or not publish.topic:
        raise RemoteProtocolError("what is kept for a client is no publication")
    return hold(MessageId(origin, epoch, lane, sequence), publish, version, time), end
