"""A strategy that links nodes only when it has to: each topic has a home among the members of the cluster.

The home of a topic is the member that comes first for the topic's first level, by a hash; all nodes compute
the same. A node registers its clients' filters at their homes, and gives each publication to its topic's
home, which sends it to the nodes that want it. Links open when one of these names a node, and close when they
are idle. Run every node with it, with [membership] and link_listen. While members come and go a publication
may miss its home.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import ClassVar

from brokerweave.plugin import (
    Context,
    Hop,
    Linking,
    Packet,
    Route,
    Strategy,
    Subscribe,
    Subscription,
    Unsubscribe,
    matches,
)


class Rendezvous(Strategy):
    name: ClassVar[str] = "rendezvous"
    linking: ClassVar[Linking] = Linking.ON_DEMAND
    tree: ClassVar[bool] = False
    retained_everywhere: ClassVar[bool] = False

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.mine: dict[str, int] = {}
        self.registered: dict[str, dict[str, int]] = {}
        """By node, the filters that it registered here, with their QoS."""

    def homes(self, topic_filter: str) -> frozenset[str]:
        """Where the topics under a filter are at home: anywhere, if it leaves the first level open."""
        level, members = topic_filter.split("/")[0], self.context.members()
        if level in ("+", "#"):
            return members
        return frozenset((min(members, key=lambda node: blake2b(f"{level}/{node}".encode()).digest()),))

    def route(self, topic: str, came_from: str | None) -> Route:
        (home,) = self.homes(topic)
        if home != self.context.node_id:
            return Route((Hop(home),) if came_from is None else (), local=True)
        hops = []
        for node, filters in self.registered.items():
            qos = max((qos for name, qos in filters.items() if matches(name, topic)), default=-1)
            if qos >= 0 and node != came_from:
                hops.append(Hop(node, qos))
        return Route(tuple(hops), local=True)

    def route_retained(self, topic: str, came_from: str | None) -> Route:
        return self.route(topic, came_from)

    def subscribed(self, filters: Mapping[str, int]) -> None:
        self.mine |= filters
        for name, qos in filters.items():
            self._tell_homes(name, Subscribe(1, (Subscription(name, qos),)))

    def unsubscribed(self, filters: Iterable[str]) -> None:
        for name in filters:
            del self.mine[name]
            self._tell_homes(name, Unsubscribe(1, (name,)))

    def _tell_homes(self, topic_filter: str, packet: Packet) -> None:
        for home in self.homes(topic_filter) - {self.context.node_id}:
            self.context.send(home, packet, wait=True)

    def packet_arrived(self, neighbour: str, packet: Packet) -> None:
        changes: dict[str, int | None] = {}
        if isinstance(packet, Subscribe):
            changes.update((each.topic_filter, each.qos) for each in packet.subscriptions)
        elif isinstance(packet, Unsubscribe):
            changes.update(dict.fromkeys(packet.topic_filters))
        self.context.keep(neighbour, changes)
        before = self.registered.get(neighbour, {})
        merged = {**before, **changes}
        self.registered[neighbour] = {name: qos for name, qos in merged.items() if qos is not None}
        self.context.routes_changed()
        for name in self.registered[neighbour].keys() - before.keys():
            self.context.send_retained(neighbour, name)

    def members_changed(self, live: frozenset[str]) -> None:
        self.context.routes_changed()
        self.subscribed(dict(self.mine))  # homes may be others now

    def neighbour_recalled(self, neighbour: str, kept: Mapping[str, int]) -> None:
        self.context.keep(neighbour, kept)
        self.registered[neighbour] = dict(kept)

    def neighbour_removed(self, neighbour: str) -> None:
        self.registered.pop(neighbour, None)
