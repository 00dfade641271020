"""A strategy to compare with: one node sends each publication to every site that wants it.

Owns the star: the member closest to a topic's key is its root, sites register their filters there, and
publishers give it their publications. The thesis's own baseline is nearly this. A filter with wildcards is
registered with every member. Must not know: links, how members are found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import ClassVar

from brokerweave.cooperation.overlay.keys import key_of_filter
from brokerweave.cooperation.overlay.ring import Ring, key_position
from brokerweave.plugin import (
    Context,
    Hop,
    Linking,
    Packet,
    Route,
    Strategy,
    Subscribe,
    Subscription,
    Traits,
    Unsubscribe,
    matches,
)

_ring = lru_cache(64)(Ring)


class Star(Strategy):
    name: ClassVar[str] = "star"
    traits: ClassVar[Traits] = Traits(selective=True)
    linking: ClassVar[Linking] = Linking.ON_DEMAND
    tree: ClassVar[bool] = False
    retained_everywhere: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._mine: dict[str, int] = {}
        self._registered: dict[str, dict[str, int]] = {}
        """By filter, the members that want it, with the QoS."""

    def route(self, topic: str, came_from: str | None) -> Route:
        local = any(matches(each, topic) for each in self._mine)
        root = self._roots(topic)[0]
        if root != self.context.node_id:
            return Route((Hop(root),) if came_from is None else (), local)
        found: dict[str, int] = {}
        for topic_filter, members in self._registered.items():
            if matches(topic_filter, topic):
                for member, qos in members.items():
                    found[member] = max(qos, found.get(member, 0))
        wanted = found.keys() & self.context.members() - {came_from}
        return Route(tuple(Hop(member, found[member]) for member in sorted(wanted)), local)

    def route_retained(self, topic: str, came_from: str | None) -> Route:
        return self.route(topic, came_from)

    def subscribed(self, filters: Mapping[str, int]) -> None:
        self._mine |= filters
        self.context.routes_changed()
        for topic_filter, qos in filters.items():
            self._tell(topic_filter, Subscribe(1, (Subscription(topic_filter, qos),)))

    def unsubscribed(self, filters: Iterable[str]) -> None:
        for topic_filter in filters:
            del self._mine[topic_filter]
            self._tell(topic_filter, Unsubscribe(1, (topic_filter,)))
        self.context.routes_changed()

    def packet_arrived(self, neighbour: str, packet: Packet) -> None:
        if isinstance(packet, Subscribe):
            for each in packet.subscriptions:
                self._registered.setdefault(each.topic_filter, {})[neighbour] = each.qos
        elif isinstance(packet, Unsubscribe):
            for topic_filter in packet.topic_filters:
                self._registered.get(topic_filter, {}).pop(neighbour, None)
        self.context.routes_changed()

    def members_changed(self, live: frozenset[str]) -> None:
        self.subscribed(dict(self._mine))  # roots may be others now

    def neighbour_removed(self, neighbour: str) -> None:
        for members in self._registered.values():
            members.pop(neighbour, None)

    @classmethod
    def tells_interest(cls, packet: Packet) -> bool:
        return isinstance(packet, (Subscribe, Unsubscribe))

    def _roots(self, topic_filter: str) -> tuple[str, ...]:
        ring = _ring(self.context.members())
        if "+" in topic_filter or "#" in topic_filter:
            return ring.members
        return ring.closest(key_position(key_of_filter(topic_filter, 0)), 1)

    def _tell(self, topic_filter: str, packet: Packet) -> None:
        for root in self._roots(topic_filter):
            if root != self.context.node_id:
                self.context.send(root, packet, wait=True)
