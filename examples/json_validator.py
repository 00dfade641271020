"""A listener that is not a strategy: it rejects publications that should be JSON and are not.

Only PUBLISH from clients is asked for, so everything else passes without being looked at. Register it in
your package's pyproject.toml and install it:

    [project.entry-points."brokerweave.listeners"]
    json_validator = "json_validator:JsonValidator"

Other topics than those that end in `/json` are named in the node's configuration:

    [json_validator]
    suffixes = "/json /state"
"""

from __future__ import annotations

import json
from typing import ClassVar

from brokerweave.plugin import Listener, Packet, PacketType, Publish, Reject, Session, Side, option

PAYLOAD_FORMAT_INVALID = 0x99


class JsonValidator(Listener):
    name: ClassVar[str] = "json_validator"
    packets: ClassVar[frozenset[tuple[Side, PacketType]]] = frozenset({(Side.CLIENT, PacketType.PUBLISH)})

    suffixes = option("/json", "Topics that end in one of these carry JSON; spaces between them.")

    def packet_arrived(self, session: Session, packet: Packet) -> Reject | None:
        if not isinstance(packet, Publish) or not packet.topic.endswith(tuple(self.suffixes.split())):
            return None
        if packet.retain and not packet.payload:
            return None  # this is how a retained message is cleared [MQTT-3.3.1-6]
        try:
            json.loads(packet.payload)
        except (ValueError, RecursionError) as error:
            return Reject(PAYLOAD_FORMAT_INVALID, f"payload is not JSON: {error}")
        return None
