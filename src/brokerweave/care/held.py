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
from brokerweave.mqtt.publish import publish_head

OVERHEAD = 1000
"""Bytes that one takes in memory beside topic and payload, about; bounds count them."""

_NUMBERS = struct.Struct(">QBQBdI")


@dataclass(slots=True)
class Held:
    """A PUBLISH as it came, with whatever packet id and DUP; `version` is its MQTT version, 4 or 5. Nobody
    changes it: it is not frozen, since that takes time for each message.

    `born` is when it was published, on the clock of the node that has it.
    """

    id: MessageId
    topic: str
    frame: bytes
    version: int
    hash: bytes
    born: float

    @property
    def publish(self) -> Publish:
        """With its publisher's QoS, no packet id and no DUP."""
        packet = codec.decode(self.frame, self.version)
        assert isinstance(packet, Publish)
        return replace(packet, packet_id=0, dup=False)

    @property
    def size(self) -> int:
        """What bounds count for it."""
        return OVERHEAD + len(self.frame)


def hold(identifier: MessageId, frame: bytes, version: int, born: float) -> Held:
    """Raises RemoteProtocolError if it is no PUBLISH, or a damaged one."""
    head = publish_head(frame, version)
    if head.properties:
        codec.decode(frame, version)
    try:
        topic = head.topic.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("a topic that is not UTF-8") from None
    return Held(
        identifier, topic, frame, version, content_hash(head.topic, frame[head.payload_start :]), born
    )


def aged(held: Held, now: float) -> Publish | None:
    """With what is left of its expiry; None if nothing is [MQTT-3.3.2-5]."""
    publish = held.publish
    interval = get_int(publish.properties, Property.MESSAGE_EXPIRY_INTERVAL, -1)
    if interval < 0:
        return publish
    left = interval - max(int(now - held.born), 0)  # [MQTT-3.3.2-6]
    if left <= 0:
        return None
    properties = tuple(
        (name, left if name is Property.MESSAGE_EXPIRY_INTERVAL else value)
        for name, value in publish.properties
    )
    return replace(publish, properties=properties)


def encode_held(held: Held, time: float) -> bytes:
    frame, name = held.frame, held.id.origin.encode()
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
    return hold(MessageId(origin, epoch, lane, sequence), data[start:end], version, time), end
