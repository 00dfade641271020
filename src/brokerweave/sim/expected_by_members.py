"""Who must get what if nodes are members of a cluster and are linked on demand: whatever way a message takes.

A subscription is *settled at a node* when its own site knows it, the node was seen to lead to the site (each
hop was asked, as the message would be), and nothing was on its way between nodes that could change this. It
stays settled, whoever dies and whatever membership says, until the subscriber goes, or the node or the site
loses its state. A delivery is expected if the subscription was settled at the publisher's node when that read
the message, or knew its route.

Owns these expectations. Invariant: an expected delivery that did not happen needs a drop with a cause, at
some node. Must not know: strategies, membership.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from brokerweave.mqtt.topics import matches
from brokerweave.sim.client import ModelClient
from brokerweave.sim.expected import RESTARTED, Expected, ExpectedDelivery, ModelSubscription
from brokerweave.sim.promises import Broken
from brokerweave.sim.schedule import TOPICS
from brokerweave.sim.topology import Topology
from brokerweave.sim.ways import Way


class ExpectedByMembers(Expected):
    def __init__(
        self,
        topology: Topology,
        calm: Callable[[], bool],
        way: Callable[[str, str], Way | None],
        knows: Callable[[str, str, str], bool],
        quiet: Callable[[], bool],
        in_time: Callable[[str], bool],
    ) -> None:
        """`way(node, topic)`: where it goes from there; None if the node is down. `knows(site, client,
        filter)`: whether a site knows what its client wants. `quiet`: nothing is on its way between nodes
        that could change a way. `in_time(site)`: no SUBACK there went out because its time was up."""
        super().__init__(topology, lambda *asked: False, calm, lambda node: True)
        self._way = way
        self._knows = knows
        self._quiet = quiet
        self._in_time = in_time
        self._seen: dict[tuple[str, str], Way | None] = {}
        """Ways that were asked for in the present look."""

    def granted(self, client: ModelClient, topic_filter: str, qos: int, barrier: bool) -> None:
        super().granted(client, topic_filter, qos, False)
        self._seen.clear()
        if barrier and self.calm() and self._in_time(client.site):
            for node in self._topology.names:
                if not self._leads_to(node, client, topic_filter, qos, waiting=True):
                    raise Broken(f"SUBACK for {topic_filter} reached {client.name} before {node} knew of it")

    def _leads_to(
        self, node: str, client: ModelClient, topic_filter: str, qos: int, waiting: bool = False
    ) -> bool:
        """Whether a node leads all that a filter matches to a client's site. `waiting`: a way that is not
        known yet will do, since publications wait then."""
        if not self._knows(client.site, client.name, topic_filter):
            return False
        if node == client.site:
            return True
        for topic in TOPICS:
            if matches(topic_filter, topic):
                way = self._find(node, topic)
                may_wait = waiting and (way is None or not way.known)
                if not may_wait and (way is None or way.sites.get(client.site, -1) < qos):
                    return False
        return True

    def _find(self, node: str, topic: str) -> Way | None:
        key = (node, topic)
        if key not in self._seen:
            self._seen[key] = self._way(node, topic)
        return self._seen[key]

    def look(self) -> None:
        if self._quiet():
            self._seen.clear()
            super().look()
        self._seen.clear()

    def _settle(self, subscription: ModelSubscription) -> None:
        settled, asked = subscription.settled, (subscription.topic_filter, subscription.qos)
        for node in self._topology.names:
            if node not in settled and self._leads_to(node, subscription.client, *asked):
                settled.add(node)

    def node_forgot(self, node: str) -> None:
        """What it knew of others is gone; what others know of its own clients may be, too."""
        for subscription in self._subscriptions.values():
            subscription.settled.discard(node)
            if subscription.client.site == node:
                subscription.settled.clear()
        for _, delivery in self.open():
            if delivery.path[-1] == node:
                delivery.allowance = RESTARTED  # should it be lost

    def unlinked(self, one: str, other: str) -> None:
        """No operator changes a link."""

    def published(self, payload: bytes, topic: str, qos: int, node: str, at_home: float = inf) -> None:
        if qos == 0:
            return
        deliveries: dict[str, ExpectedDelivery] = {}
        for (client, topic_filter), subscription in self._subscriptions.items():
            if subscription.qos == 0 or client in deliveries or not matches(topic_filter, topic):
                continue
            site = subscription.client.site
            if site == node and subscription.since > at_home:
                continue
            if node not in subscription.settled or site not in subscription.settled:
                self.unsettled += 1
                continue
            path = (node,) if node == site else (node, site)
            deliveries[client] = ExpectedDelivery(client, topic_filter, subscription.qos, path)
        if deliveries:
            self.promised += len(deliveries)
            self._debts[payload] = list(deliveries.values())

    def passing(
        self, node: str, payload: bytes, hops: Mapping[str, int], local: bool, came: bool = False
    ) -> None:
        """What way it takes is not told: whether it arrived is looked at in the end."""

    def read_again(self, node: str, payload: bytes) -> None:
        if any(delivery.path[0] == node for delivery in self._debts.get(payload, ())):
            super().read_again(node, payload)

    def open_of(self, payload: bytes) -> list[ExpectedDelivery]:
        return [delivery for delivery in super().open_of(payload) if not delivery.allowance]
