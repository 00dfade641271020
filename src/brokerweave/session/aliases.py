"""The topics behind a client's MQTT 5 topic aliases: links carry whole topics.

Invariant: the topics take at most `limit` bytes. Must not know: who publishes.
"""

from __future__ import annotations

from brokerweave.errors import Refused, RemoteProtocolError
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.properties import Property, get_int


class Aliases:
    __slots__ = ("_bytes", "_limit", "_topics")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0
        self._topics: dict[int, str] = {}

    def topic_of(self, packet: Publish) -> str:
        alias = get_int(packet.properties, Property.TOPIC_ALIAS, 0)
        if not alias:
            return packet.topic
        if packet.topic:
            self._bytes += len(packet.topic) - len(self._topics.get(alias, ""))
            self._topics[alias] = packet.topic
            if self._bytes > self._limit:
                raise Refused("the topics behind aliases are too long to be kept", 0x97)
            return packet.topic
        try:
            return self._topics[alias]
        except KeyError:
            raise RemoteProtocolError(f"topic alias {alias} was never given a topic", 0x82) from None
