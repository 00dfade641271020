"""What a client asked for and its broker has not answered yet: SUBSCRIBEs and UNSUBSCRIBEs, by packet id.

Invariants: nothing is kept that is not counted in `size`; a filter counts as the broker's answer says. Must
not know: who subscribes, what follows from a filter.
"""

from __future__ import annotations

from brokerweave.mqtt.packets import SubAck, Subscribe, UnsubAck, Unsubscribe

_REFUSED = 0x80
_HELD = 256
"""Bytes that a packet takes in memory beside its contents, about."""


class Asked:
    __slots__ = ("_packets", "size")

    def __init__(self) -> None:
        self.size = 0
        self._packets: dict[int, tuple[Subscribe | Unsubscribe, int]] = {}

    def add(self, packet: Subscribe | Unsubscribe, size: int) -> None:
        self._answered(packet.packet_id)  # asked again under the same identifier: the last one counts
        self._packets[packet.packet_id] = packet, size + _HELD
        self.size += size + _HELD

    def granted(self, answer: SubAck) -> list[tuple[str, int]]:
        """The filters that the broker granted, each with its QoS."""
        asked = self._answered(answer.packet_id)
        if not isinstance(asked, Subscribe):
            return []
        return [
            (subscription.topic_filter, code)
            for subscription, code in zip(asked.subscriptions, answer.reason_codes, strict=False)
            if code <= 2
        ]

    def withdrawn(self, answer: UnsubAck) -> list[str]:
        """The filters that are gone; 3.1.1 has no word for one that is not."""
        asked = self._answered(answer.packet_id)
        if not isinstance(asked, Unsubscribe):
            return []
        codes = answer.reason_codes or (0,) * len(asked.topic_filters)
        return [f for f, code in zip(asked.topic_filters, codes, strict=False) if code < _REFUSED]

    def _answered(self, packet_id: int) -> Subscribe | Unsubscribe | None:
        packet, size = self._packets.pop(packet_id, (None, 0))
        self.size -= size
        return packet
