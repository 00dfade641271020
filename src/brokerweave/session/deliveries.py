"""What a broker delivers to one client, and which of it the client has.

Owns the broker's packet ids in flight to the client, and the receipts that were not reported yet. Invariants:
a publication is received when it was written (QoS 0), at PUBACK (QoS 1) or PUBREC (QoS 2), and reported once;
what is held at a hold point is not written yet; a retained copy for a new subscription is no receipt, nor is
a QoS 0 publication that nobody keeps. Must not know: bytes on their way, who wants receipts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from brokerweave.mqtt import codec
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.packets import PacketType, PubAck, PubComp, Publish, PubRec, PubRel, Subscribe
from brokerweave.mqtt.properties import Property
from brokerweave.mqtt.publish import publish_head
from brokerweave.mqtt.topics import matches, shared_filter
from brokerweave.session.aliases import Aliases

Delivery: TypeAlias = tuple[int, bytes | None]
"""A packet id, 0 at QoS 0, and a name (`name_of`); None for what is no receipt."""

_PLAIN = frozenset({b"\x40\x02", b"\x50\x02", b"\x62\x02", b"\x70\x02"})
"""How PUBACK, PUBREC, PUBREL and PUBCOMP begin that only have a packet id."""
_ALIAS = bytes((Property.TOPIC_ALIAS,))
_REFUSED = 0x80
_NO_FILTERS: Mapping[str, int] = {}


def name_of(topic: str | bytes, payload: bytes, stamped: bytes | None) -> bytes:
    """By what a delivery is known: a hash of its content, and its stamp (`mqtt.stamp`) if it has one.

    The hash alone cannot tell two equal publications apart. It is all there is with MQTT 3.1.1, from a broker
    that does not pass user properties, and of what was handed to the broker without a stamp.
    """
    return content_hash(topic, payload) + (stamped or b"")


class Deliveries:
    __slots__ = ("_aliases", "_limit", "as_published", "in_flight", "received", "version")

    def __init__(self, limit: int) -> None:
        """The topics behind the broker's aliases take at most `limit` bytes."""
        self._limit = limit
        self._aliases: Aliases | None = None
        self.version = 4
        self.as_published = False
        """The client subscribed so that live publications keep their retain flag [MQTT-3.3.1-12]."""
        self.in_flight: dict[int, bytes | None] = {}
        """The broker's packet ids that the client has not let go of yet, of what was written to it."""
        self.received: list[bytes] = []
        """Not told yet."""

    def subscribed(self, packet: Subscribe) -> None:
        if any(subscription.retain_as_published for subscription in packet.subscriptions):
            self.as_published = True

    def read(
        self,
        frame: bytes,
        granted: Mapping[str, int] = _NO_FILTERS,
        kept: Callable[[bytes], bool] = lambda topic: True,
        stamped: bytes | None = None,
    ) -> Delivery:
        """What a PUBLISH from the broker will be a receipt of, once it is written and answered. `granted` are
        the client's filters; `kept`: whether somebody may keep what was published on a topic; `stamped`: what
        the stamp said that it came with.

        A broker retains stamps, too. A client that asked to see retain flags as published gets the copy for
        a new subscription under the name of the publication: nobody can tell whether it is that again.
        """
        head = publish_head(frame, self.version)
        topic, payload = head.topic, frame[head.payload_start :]
        if _ALIAS in head.properties:
            packet = codec.decode(frame, 5)
            assert isinstance(packet, Publish)
            if self._aliases is None:
                self._aliases = Aliases(self._limit)
            topic = self._aliases.topic_of(packet).encode()
        if head.retain and not self.as_published:
            return head.packet_id, None  # [MQTT-3.3.1-8], in MQTT 5 [MQTT-3.3.1-13]
        if not head.packet_id and (not kept(topic) or _more_than_once(granted, topic)):
            return 0, None  # it was published so: as a receipt it would take off an equal one that is kept
        return head.packet_id, name_of(topic, payload, stamped)

    def names_topic(self, frame: bytes) -> bool:
        """Whether the client has to see a PUBLISH because it says what an alias stands for."""
        return self.version == 5 and _ALIAS in publish_head(frame, 5).properties

    def written(self, deliveries: Iterable[Delivery]) -> None:
        """These are on their way to the client."""
        for packet_id, content in deliveries:
            if packet_id:
                self.in_flight[packet_id] = content
            elif content is not None:
                self.received.append(content)

    def released(self, packet_id: int) -> None:
        """The broker sends PUBREL: also for what it delivered over an earlier connection."""
        self.in_flight.setdefault(packet_id, None)

    def answered(self, kind: int, packet_id: int, reason_code: int) -> None:
        """A client that refuses a publication has seen it, too."""
        content = self.in_flight.get(packet_id)
        if content is not None and kind != PacketType.PUBCOMP:
            self.received.append(content)
        if kind == PacketType.PUBREC and reason_code < _REFUSED:
            if content is not None:
                self.in_flight[packet_id] = None
        else:
            self.in_flight.pop(packet_id, None)

    def take(self) -> list[bytes]:
        """The receipts since the last time."""
        received, self.received = self.received, []
        return received


def _more_than_once(granted: Mapping[str, int], topic: bytes) -> bool:
    """Whether the client was to get a topic at QoS 1 or 2."""
    qos = granted.values()
    if not granted or not any(qos):
        return False
    if all(qos):
        return True  # spares the matching
    name = topic.decode()
    return any(each and matches(shared_filter(one)[1], name) for one, each in granted.items())


def read_answer(frame: bytes, version: int) -> tuple[int, int]:
    """The packet id and reason code of what answers a PUBLISH, or answers that."""
    if frame[:2] in _PLAIN:
        packet_id = frame[2] << 8 | frame[3]
        if packet_id:
            return packet_id, 0
    packet = codec.decode(frame, version)
    assert isinstance(packet, PubAck | PubRec | PubRel | PubComp)
    return packet.packet_id, packet.reason_code
