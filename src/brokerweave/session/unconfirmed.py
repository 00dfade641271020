"""A client's publications that wait for the broker, then for the cluster, before the client is acknowledged.

Owns publications that the broker has not acknowledged, the acknowledgements that wait, and the
repeated publications that the node answers in place of the broker. Invariants: acknowledgements keep the
order in which the broker would have sent them, and the node's own come after those of earlier publications
[MQTT-4.6.0-2]; `size` counts everything that is kept. Must not know: how a publication travels, or is
recognised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import PubAck, PubComp, Publish, PubRec, PubRel
from brokerweave.session.hold_points import HeldAck, HeldAcks

if TYPE_CHECKING:
    from brokerweave.session.pair import Pair

_HELD = 256
"""Bytes that a publication takes in memory beside its contents, about."""
_REFUSED = 0x80


class UnconfirmedHost(Protocol):
    def latest_version(self) -> int:
        """Versions of messages to be retained that are given, or come, from now on are higher."""

    def uncertain(self, topic: str, since: int) -> None:
        """The broker may not have taken a message to be retained, or not in the order in which the node heard
        of it: if the topic got a version higher than `since`. -1: in any case."""

    def publishing(self, topic: str) -> None:
        """Something at QoS 1 or 2 is about to go to the broker: others may keep it."""

    def entering(self, pair: Pair, publish: Publish) -> None:
        """The same, with what it says."""

    def write_client(self, pair: Pair, data: bytes) -> None:
        """Send the client a packet of our own, between two of the broker's."""

    def count(self, counter: str, amount: int = 1) -> None: ...


class Unconfirmed:
    __slots__ = (
        "_acks",
        "_awaiting",
        "_completing",
        "_confirm",
        "_exchanges",
        "_host",
        "_pair",
        "_resent",
        "size",
    )

    def __init__(
        self, host: UnconfirmedHost, pair: Pair, confirm: Callable[[Publish, HeldAck], bool]
    ) -> None:
        """`confirm` passes a publication on; False: its acknowledgement waits for `release`."""
        self._host = host
        self._pair = pair
        self._confirm = confirm
        self._acks: HeldAcks | None = None
        self._awaiting: dict[int, tuple[Publish, int]] = {}
        # Each with the latest version that the node knew of any message to be retained.
        self._resent: list[tuple[int, Publish]] = []
        self._exchanges: set[int] | None = None
        self._completing: set[int] = set()
        """QoS 2 publications of this connection that go on until the broker's PUBCOMP."""
        self.size = 0

    def __contains__(self, packet_id: int) -> bool:
        """Whether the broker has yet to answer this one."""
        return packet_id in self._awaiting

    @property
    def in_flight(self) -> int:
        """Publications of which the client has yet to hear more."""
        ids = self._awaiting.keys() | self._completing | (self._exchanges or set())
        return len(ids) + len(self._resent) + (self._acks.pubacks if self._acks is not None else 0)

    def add(self, publish: Publish) -> None:
        """Keep a publication until the broker has acknowledged it."""
        before = self._awaiting.get(publish.packet_id)
        self._awaiting[publish.packet_id] = publish, self._host.latest_version()
        if publish.qos == 2:
            self._completing.add(publish.packet_id)
        self._host.publishing(publish.topic)
        self._host.entering(self._pair, publish)
        self.size += size_of(publish) - (size_of(before[0]) if before else 0)

    def answered(self, packet_id: int, reason_code: int, frame: bytes) -> bool:
        """Pass on what the broker has acknowledged; True if the client must wait for the cluster, too."""
        publish, since = self._awaiting.pop(packet_id, (None, 0))
        ack = self._hold(frame)
        confirmed = True
        if publish is not None:
            self.size -= size_of(publish)
            if reason_code < _REFUSED:
                if publish.retain:
                    self._host.uncertain(publish.topic, since)
                confirmed = self._confirm(publish, ack)
            else:
                self._completing.discard(packet_id)
                self._host.count("refused_publications")
        resent = self._resent_behind(packet_id) if self._resent else ()
        if confirmed:
            released = self._release(ack)
            if released == frame and not resent:
                return False  # nothing waits before it: it stays where it is in the stream
            self._write(released)
        for publish in resent:
            self._answer(publish)
        return True

    def release(self, ack: HeldAck) -> None:
        """The cluster has a publication, or is not waited for any longer: its acknowledgement may go."""
        self._write(self._release(ack))

    def _hold(self, frame: bytes, resent: bool = False) -> HeldAck:
        if self._acks is None:
            self._acks = HeldAcks()
        return self._acks.hold(frame, resent)

    def _release(self, ack: HeldAck) -> bytes:
        return self._acks.release(ack) if self._acks is not None else b""

    def _write(self, released: bytes) -> None:
        if released:
            self._host.write_client(self._pair, released)

    def unanswered(self) -> list[tuple[Publish, int]]:
        """What the broker has not answered, each with the version of `latest_version` at its coming."""
        return list(self._awaiting.values())

    # What the node answers in the broker's stead

    def answer_resent(self, publish: Publish) -> None:
        """Acted on before: the broker does not get it."""
        before = [earlier.packet_id for earlier, _ in self._awaiting.values() if earlier.qos == publish.qos]
        if before:
            self._resent.append((before[-1], publish))
            self.size += size_of(publish)
        else:
            self._answer(publish)

    def _resent_behind(self, packet_id: int) -> list[Publish]:
        """Those whose answers had to wait for this one of the broker's."""
        due = [publish for before, publish in self._resent if before == packet_id]
        self._resent = [waiting for waiting in self._resent if waiting[0] != packet_id]
        self.size -= sum(map(size_of, due))
        return due

    def _answer(self, publish: Publish) -> None:
        answer: PubAck | PubRec = PubAck(publish.packet_id)
        if publish.qos == 2:
            answer = PubRec(publish.packet_id)
            if self._exchanges is None:
                self._exchanges = set()
            self._exchanges.add(publish.packet_id)
        ack = self._hold(codec.encode(answer, self._pair.version), resent=True)
        if self._confirm(publish, ack):
            self.release(ack)

    def completes(self, packet: PubRel) -> bool:
        """Whether that ended an exchange that the broker knows nothing of; the client is answered."""
        if not self._exchanges or packet.packet_id not in self._exchanges:
            self._completing.add(packet.packet_id)
            return False
        self._exchanges.discard(packet.packet_id)
        self._write(codec.encode(PubComp(packet.packet_id), self._pair.version))
        return True

    def completed(self, packet_id: int) -> None:
        """The broker's PUBCOMP is on its way to the client."""
        self._completing.discard(packet_id)


def size_of(packet: Publish | PubRel) -> int:
    """About what a packet takes in memory while it is kept."""
    if isinstance(packet, PubRel):
        return _HELD
    properties = sum(len(str(value)) for _, value in packet.properties)
    return _HELD + len(packet.topic) + len(packet.payload) + properties
