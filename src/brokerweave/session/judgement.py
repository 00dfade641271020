"""What listeners say of one pair's packets: they pass, are changed, or are rejected.

Owns which packets listeners asked for, the topics behind aliases where they asked for PUBLISH, and the QoS 2
exchanges that the node sees through itself because it rejected the publication. Invariants: a listener sees
only what it asked for, as the listener before it left it; the first rejection counts; a changed packet keeps
what the other side refers to (type, packet id, QoS, DUP, version), and it can be encoded; what a listener
does wrong changes nothing. Must not know: routes, streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from brokerweave.errors import LocalProtocolError
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Connect, Packet, PacketType, PubAck, PubComp, Publish, PubRec, PubRel
from brokerweave.mqtt.properties import Property, get_int, without
from brokerweave.mqtt.scanner import Frame
from brokerweave.plugin import Listener, Reject, Side
from brokerweave.session.aliases import Aliases
from brokerweave.session.handle import SessionHandle

_REFUSED = 0x80


class Judgement:
    __slots__ = ("_aliases", "_failed", "_handles", "_largest", "_rejected", "asked", "listeners")

    def __init__(
        self,
        listeners: tuple[Listener, ...],
        client: SessionHandle,
        broker: SessionHandle,
        failed: Callable[[Listener, Exception], None],
        largest: int,
        alias_bytes: int,
    ) -> None:
        """`failed` hears of a listener that raised, or whose packet cannot pass. `largest`: bytes of a
        changed packet. `alias_bytes`: of the topics behind one side's aliases."""
        self.listeners = listeners
        self.asked = frozenset[tuple[Side, int]]().union(*(listener.packets for listener in listeners))
        self._failed = failed
        self._handles = {Side.CLIENT: client, Side.BROKER: broker}
        self._largest = largest
        self._aliases = {side: Aliases(alias_bytes) for side in Side}
        self._rejected: set[tuple[Side, int]] = set()

    def wanted(self, side: Side) -> int:
        """The types that listeners named, as a scanner's mask; and PUBREL, for rejected publications."""
        named = {kind for where, kind in self.asked if where is side}
        if PacketType.PUBLISH in named:
            named.add(PacketType.PUBREL)
        return sum(1 << kind for kind in named)

    def judge(self, side: Side, frame: Frame, version: int) -> tuple[Packet, Frame] | tuple[Packet, Reject]:
        """Show a packet to those who asked for it. What passes comes with its frame: the same one if nothing
        was changed."""
        packet = codec.decode(frame.data, version)
        if isinstance(packet, Publish) and get_int(packet.properties, Property.TOPIC_ALIAS, 0):
            # A rejected packet would teach the other side no alias: so none goes there.
            topic = self._aliases[side].topic_of(packet)
            packet = replace(packet, topic=topic, properties=without(packet.properties, Property.TOPIC_ALIAS))
            frame = Frame(frame.type, codec.encode(packet, version), frame.at)
        for listener in self.listeners:
            if (side, packet.type) not in listener.packets:
                continue
            try:
                answer = listener.packet_arrived(self._handles[side], packet)
                if isinstance(answer, Reject):
                    return packet, answer
                if answer is not None and answer != packet:
                    changed = _kept(packet, answer)
                    frame = Frame(frame.type, self._encode(changed, version), frame.at)
                    packet = changed
            except Exception as error:
                self._failed(listener, error)
        return packet, frame

    def _encode(self, packet: Packet, version: int) -> bytes:
        data = codec.encode(packet, version)
        if len(data) > self._largest:
            raise LocalProtocolError(f"a changed {packet.type.name} of {len(data)} bytes is too large")
        return data

    def answer(self, side: Side, packet: Publish, rejection: Reject, version: int) -> PubAck | PubRec | None:
        """What the sender of a rejected publication is told; None at QoS 0."""
        code = rejection.reason_code if version == 5 else 0
        if packet.qos == 2:
            if code < _REFUSED:  # 3.1.1 cannot say no: see the exchange through ourselves
                self._rejected.add((side, packet.packet_id))
            return PubRec(packet.packet_id, code)
        return PubAck(packet.packet_id, code) if packet.qos else None

    def completes(self, side: Side, frame: Frame, version: int) -> PubComp | None:
        """The answer to a PUBREL that ends an exchange of which the other side knows nothing."""
        packet = codec.decode(frame.data, version) if self._rejected else None
        if not isinstance(packet, PubRel) or (side, packet.packet_id) not in self._rejected:
            return None
        self._rejected.discard((side, packet.packet_id))
        return PubComp(packet.packet_id)

    def failed(self, side: Side, error: Exception) -> None:
        for listener in self.listeners:
            try:
                listener.receive_failed(self._handles[side], error)
            except Exception as another:
                self._failed(listener, another)


def _kept(packet: Packet, answer: Packet) -> Packet:
    """The answer, with what of the packet the other side will refer to."""
    if type(answer) is not type(packet):
        raise LocalProtocolError(f"{packet.type.name} cannot become {answer!r}")
    if isinstance(packet, Publish) and isinstance(answer, Publish):
        properties = without(answer.properties, Property.TOPIC_ALIAS)
        return replace(
            answer, qos=packet.qos, dup=packet.dup, packet_id=packet.packet_id, properties=properties
        )
    if isinstance(packet, Connect) and isinstance(answer, Connect):
        return replace(answer, version=packet.version)
    packet_id = getattr(packet, "packet_id", None)
    return answer if packet_id is None else replace(answer, packet_id=packet_id)
