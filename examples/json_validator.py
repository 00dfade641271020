"""A listener that is not a strategy: it rejects publications that should be JSON and are not.

Only PUBLISH from clients is asked for, so everything else passes without being looked at. Register it in
your package's pyproject.toml and install it:

    [project.entry-points."brokerweave.listeners"]
    json_validator = "json_validator:JsonValidator"

For other topics, make a subclass with its own `suffixes` and register that.
"""

from __future__ import annotations

import json
from typing import ClassVar

from brokerweave.plugin import Listener, Packet, PacketType, Publish, Reject, Session, Side

PAYLOAD_FORMAT_INVALID = 0x99


class JsonValidator(Listener):
    name: ClassVar[str] = "json_validator"
    packets: ClassVar[frozenset[tuple[Side, PacketType]]] = frozenset({(Side.CLIENT, PacketType.PUBLISH)})

    suffixes: ClassVar[tuple[str, ...]] = ("/json",)

    def packet_arrived(self, session: Session, packet: Packet) -> Reject | None:
        if not isinstance(packet, Publish) or not packet.topic.endswith(self.suffixes):
            return None
        if packet.retain and not packet.payload:
            return None  # this is how a retained message is cleared [MQTT-3.3.1-6]
        try:
            json.loads(packet.payload)
        except (ValueError, RecursionError) as error:
            return Reject(PAYLOAD_FORMAT_INVALID, f"payload is not JSON: {error}")
        return None
