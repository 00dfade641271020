"""Subscribing at a new site to what a client wants already, without the client noticing.

Owns the requests of the gateway, and the retained messages that they bring before MQTT 5. Invariants: the
client sees neither the answers nor retained messages that it has; a retained message that is dropped is
acknowledged; when nothing more can come, nothing is looked at. Must not know: the client's own requests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from brokerweave.gateway.frames import frame_id
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import PacketType, PubAck, PubComp, PubRec, Subscribe, Unsubscribe
from brokerweave.mqtt.publish import publish_head
from brokerweave.mqtt.scanner import Frame

if TYPE_CHECKING:
    from brokerweave.gateway.link import SiteLink

_RETAIN = 1
_NOBODYS = "brokerweave/replay"
"""A filter that nobody has: an UNSUBSCRIBE of it is answered in the order of all that is delivered. PINGREQ
is not, by a node that holds the stream."""


class Replay:
    def __init__(self) -> None:
        self.ids: set[int] = set()
        """Of requests without an answer."""
        self._version = 5
        self._number = 0
        """The id of the first of them."""
        self._asked_round = False
        """An UNSUBSCRIBE is out: what precedes its answer is all that came until then."""
        self._dropped = False
        """A retained message was dropped since."""
        self._releasing: set[int] = set()

    @property
    def looks(self) -> bool:
        return bool(self.ids or self._releasing)

    @property
    def subscribing(self) -> bool:
        """Whether something is yet to be granted."""
        return bool(self.ids) and not self._asked_round

    def begin(self, packets: Iterable[Subscribe], avoid: Collection[int], version: int) -> bytes:
        """What is sent to ask for all of it. `avoid`: packet ids in use."""
        self._version = version
        free = (each for each in range(0xFFFF, 0, -1) if each not in avoid)
        out = b""
        for packet in packets:
            number = next(free)
            self._number = self._number or number
            self.ids.add(number)
            out += codec.encode(replace(packet, packet_id=number), version)
        return out

    def heard(self, link: SiteLink, frame: Frame) -> bytes | None:
        """None: it is for the client. Else it was the gateway's own, and this is what is sent for it."""
        data = frame.data
        if frame.type == PacketType.SUBACK and frame_id(data) in self.ids:
            self.ids.discard(frame_id(data))
            return self._ask_round() if not self.ids and self._version < 5 else b""
        if frame.type == PacketType.UNSUBACK and self._asked_round and frame_id(data) in self.ids:
            self.ids.clear()
            self._asked_round = False
            return self._ask_round() if self._dropped else b""
        if frame.type == PacketType.PUBREL and frame_id(data) in self._releasing:
            self._releasing.discard(frame_id(data))
            return codec.encode(PubComp(frame_id(data)), self._version)
        retained = frame.type == PacketType.PUBLISH and data[0] & _RETAIN
        if retained and self._version < 5 and self.ids:
            return self._drop(data)
        return None

    def _ask_round(self) -> bytes:
        """Retained messages follow a SUBACK, as many at once as may be in flight: there are no more of them
        when none came in a whole round."""
        self._asked_round, self._dropped = True, False
        self.ids.add(self._number)
        return codec.encode(Unsubscribe(self._number, (_NOBODYS,)), self._version)

    def _drop(self, data: bytes) -> bytes:
        self._dropped = True
        head = publish_head(data, self._version)
        if head.qos == 1:
            return codec.encode(PubAck(head.packet_id), self._version)
        if head.qos == 2:
            self._releasing.add(head.packet_id)
            return codec.encode(PubRec(head.packet_id), self._version)
        return b""
