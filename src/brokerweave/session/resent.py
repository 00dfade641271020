"""Publications that a client sent again and that were acted on before: the node answers them, not the broker.

Owns those whose answer would come too early, and the QoS 2 exchanges that the broker knows nothing of.
Invariant: answers keep the order of the publications [MQTT-4.6.0-2]. Must not know: how one is recognised.
"""

from __future__ import annotations

from collections.abc import Iterable

from brokerweave.mqtt.packets import PubAck, PubComp, Publish, PubRec, PubRel


class Resent:
    __slots__ = ("_exchanges", "_waiting")

    def __init__(self) -> None:
        self._exchanges: set[int] = set()
        self._waiting: list[tuple[int, Publish]] = []

    def must_wait(self, publish: Publish, unanswered: Iterable[Publish]) -> bool:
        """Keep it for `due` if the broker owes the client answers to some that came before."""
        before = [earlier.packet_id for earlier in unanswered if earlier.qos == publish.qos]
        if before:
            self._waiting.append((before[-1], publish))
        return bool(before)

    def due(self, packet_id: int) -> list[Publish]:
        """The broker has answered this one: those that waited for it."""
        if not self._waiting:
            return []
        due = [publish for before, publish in self._waiting if before == packet_id]
        self._waiting = [waiting for waiting in self._waiting if waiting[0] != packet_id]
        return due

    def answer(self, publish: Publish) -> PubAck | PubRec:
        if publish.qos == 2:
            self._exchanges.add(publish.packet_id)
            return PubRec(publish.packet_id)
        return PubAck(publish.packet_id)

    def completes(self, packet: PubRel) -> PubComp | None:
        """The end of an exchange of the node's own."""
        if packet.packet_id not in self._exchanges:
            return None
        self._exchanges.discard(packet.packet_id)
        return PubComp(packet.packet_id)
