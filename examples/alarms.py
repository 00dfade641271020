"""A listener that changes and publishes: it adds a unit to readings, and repeats the high ones as alarms.

Name it in the node's configuration, and say what it should do where the defaults do not fit:

    [node]
    listeners = ["examples.alarms:Alarms"]

    [alarms]
    limit = 60.0
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from brokerweave.plugin import Listener, Packet, PacketType, Publish, Reject, Session, Side, option


class Alarms(Listener):
    name: ClassVar[str] = "alarms"
    packets: ClassVar[frozenset[tuple[Side, PacketType]]] = frozenset({(Side.CLIENT, PacketType.PUBLISH)})

    suffix = option("/temperature", "Topics that end so carry readings: one number each.")
    unit = option("C", "Is put behind each reading.")
    limit = option(
        80.0, "A reading above it is also published below `alarms/`, at QoS 1.", unit="as `unit` says"
    )

    def packet_arrived(self, session: Session, packet: Packet) -> Packet | Reject | None:
        if not isinstance(packet, Publish) or not packet.topic.endswith(self.suffix):
            return None
        try:
            reading = float(packet.payload)
        except ValueError:
            return None
        if reading > self.limit:
            self.context.publish(Publish(f"alarms/{packet.topic}", packet.payload, qos=1))
        return replace(packet, payload=packet.payload + f" {self.unit}".encode())
