"""What a client wants: its subscriptions, as far as they were granted.

Owns them with their options and properties, and the SUBSCRIBE packets that ask for them again. Invariants: a
filter is here from its SUBACK to its UNSUBACK; a request without an answer is kept as it was sent. Must not
know: sites, when something is asked again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from brokerweave.mqtt.packets import SubAck, Subscribe, Subscription, UnsubAck, Unsubscribe
from brokerweave.mqtt.properties import Properties

FILTERS_AT_ONCE = 100
"""In one SUBSCRIBE, so that it stays far below what brokers take."""
_REFUSED = 0x80
_NOT_AGAIN = 2
"""Retain Handling: send no retained messages [MQTT-3.3.1-11]."""


class WantedFilters:
    def __init__(self) -> None:
        self.granted: dict[str, tuple[Subscription, Properties]] = {}
        self.asked: dict[int, Subscribe | Unsubscribe] = {}
        """By packet id: without an answer, in their order."""

    def ask(self, packet: Subscribe | Unsubscribe) -> None:
        self.asked[packet.packet_id] = packet

    def answered(self, answer: SubAck | UnsubAck) -> None:
        request = self.asked.pop(answer.packet_id, None)
        if isinstance(request, Unsubscribe):
            for each in request.topic_filters:
                self.granted.pop(each, None)
        elif isinstance(request, Subscribe):
            for subscription, code in zip(request.subscriptions, answer.reason_codes, strict=False):
                if code < _REFUSED:
                    self.granted.pop(subscription.topic_filter, None)
                    self.granted[subscription.topic_filter] = subscription, request.properties

    def again(self, version: int) -> Iterator[Subscribe]:
        """The packets that ask for all of it anew, as yet without ids."""
        by_properties: dict[Properties, list[Subscription]] = {}
        for subscription, properties in self.granted.values():
            if version == 5:
                subscription = replace(subscription, retain_handling=_NOT_AGAIN)
            by_properties.setdefault(properties, []).append(subscription)
        for properties, subscriptions in by_properties.items():
            for at in range(0, len(subscriptions), FILTERS_AT_ONCE):
                yield Subscribe(0, tuple(subscriptions[at : at + FILTERS_AT_ONCE]), properties)
