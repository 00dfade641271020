"""What a client asked for and its broker has not answered yet: SUBSCRIBEs and UNSUBSCRIBEs, by packet id.

Invariant: nothing is kept that is not counted in `size`. Must not know: what an answer means.
"""

from __future__ import annotations

from brokerweave.mqtt.packets import Subscribe, Unsubscribe

_HELD = 256
"""Bytes that a packet takes in memory beside its contents, about."""


class Asked:
    __slots__ = ("_packets", "size")

    def __init__(self) -> None:
        self.size = 0
        self._packets: dict[int, tuple[Subscribe | Unsubscribe, int]] = {}

    def add(self, packet: Subscribe | Unsubscribe, size: int) -> None:
        self.answered(packet.packet_id)  # asked again under the same identifier: the last one counts
        self._packets[packet.packet_id] = packet, size + _HELD
        self.size += size + _HELD

    def answered(self, packet_id: int) -> Subscribe | Unsubscribe | None:
        packet, size = self._packets.pop(packet_id, (None, 0))
        self.size -= size
        return packet
