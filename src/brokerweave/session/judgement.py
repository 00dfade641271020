"""What listeners decide about one pair's packets, and the answer that a client gets for a rejected one.

Owns which packets listeners asked for, and the QoS 2 exchanges that the node completes in place of the
broker. Invariants: a listener sees only what it asked for; the first rejection counts; only packets of
clients can be rejected. Must not know: bytes, routes.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerweave.mqtt.packets import Packet, PubAck, PubComp, Publish, PubRec, PubRel
from brokerweave.plugin import Listener, Reject, Side
from brokerweave.session.handle import SessionHandle


class Judgement:
    __slots__ = ("_failed", "_handles", "_rejected", "listeners")

    def __init__(
        self,
        listeners: tuple[Listener, ...],
        client: SessionHandle,
        broker: SessionHandle,
        failed: Callable[[Listener, Exception], None],
    ) -> None:
        """`failed` hears of a listener that raised; the packet passes as if it had nothing against it."""
        self.listeners = listeners
        self._failed = failed
        self._handles = {Side.CLIENT: client, Side.BROKER: broker}
        self._rejected: set[int] = set()

    def listens(self, side: Side) -> bool:
        return any(s is side for listener in self.listeners for s, _ in listener.packets)

    def asked(self, side: Side, packet_type: int) -> bool:
        return any((side, packet_type) in listener.packets for listener in self.listeners)

    def verdict(self, side: Side, packet: Packet) -> Reject | None:
        """Show a packet to those who asked for it."""
        for listener in self.listeners:
            if (side, packet.type) in listener.packets:
                try:
                    rejection = listener.packet_arrived(self._handles[side], packet)
                except Exception as error:
                    self._failed(listener, error)
                    continue
                if rejection is not None and side is Side.CLIENT:
                    return rejection
        return None

    def answer(self, packet: Publish, rejection: Reject, version: int) -> PubAck | PubRec | None:
        """What the client of a rejected publication is told; None at QoS 0."""
        code = rejection.reason_code if version == 5 else 0
        if packet.qos == 2:
            if code == 0:  # 3.1.1 cannot say no: see the exchange through ourselves
                self._rejected.add(packet.packet_id)
            return PubRec(packet.packet_id, code)
        return PubAck(packet.packet_id, code) if packet.qos else None

    def completes(self, packet: PubRel) -> PubComp | None:
        """The end of an exchange that the broker knows nothing of."""
        if packet.packet_id not in self._rejected:
            return None
        self._rejected.discard(packet.packet_id)
        return PubComp(packet.packet_id)

    def failed(self, side: Side, error: Exception) -> None:
        for listener in self.listeners:
            try:
                listener.receive_failed(self._handles[side], error)
            except Exception as another:
                self._failed(listener, another)
