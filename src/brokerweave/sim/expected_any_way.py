"""Who must get what if the wiring has cycles: a message may take any way, but it must arrive.

A subscription is *settled at a node* as in `expected`, along the tree that all nodes agree on. It then stays
settled, whatever becomes of the tree, until the subscriber goes, operators remove the last working way to it,
or a node loses its state. A delivery is expected if the subscription was settled at the publisher's node when
that read the message.

Owns these expectations. Invariant: an expected delivery that did not happen needs a drop with a cause, at
some node. Must not know: strategies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from brokerweave.mqtt.topics import matches
from brokerweave.node.tree import Tree
from brokerweave.sim.client import ModelClient
from brokerweave.sim.expected import RESTARTED, Expected, ExpectedDelivery, Leads, ModelSubscription
from brokerweave.sim.promises import Broken
from brokerweave.sim.topology import Topology


class ExpectedAnyWay(Expected):
    def __init__(
        self,
        topology: Topology,
        leads: Leads,
        calm: Callable[[], bool],
        firm: Callable[[str], bool],
        tree: Callable[[], Tree | None],
        linked: Callable[[str, str], bool],
    ) -> None:
        """`tree`: what all nodes agree on, if they do; `linked`: whether a link is up at both ends."""
        super().__init__(topology, leads, calm, firm)
        self._tree = tree
        self._linked = linked
        self._unsure: set[tuple[str, str]] = set()
        """Subscriptions of which some node forgot, and that were not known everywhere since."""

    def granted(self, client: ModelClient, topic_filter: str, qos: int, barrier: bool) -> None:
        super().granted(client, topic_filter, qos, False)
        tree = self._tree()
        if barrier and tree is not None and self.calm():
            for node in tree.nodes:
                path = way(tree, node, client.site)
                towards = path[1] if len(path) > 1 else None
                if path and not self._leads(node, towards, client.name, topic_filter, qos, False):
                    raise Broken(f"SUBACK for {topic_filter} reached {client.name} before {node} knew of it")

    def node_forgot(self, node: str) -> None:
        for key, subscription in self._subscriptions.items():
            subscription.settled.clear()
            self._unsure.add(key)

    def unlinked(self, one: str, other: str) -> None:
        """Who removes a link while there is no other way to its far end, at that moment, gives that up."""
        tree = self._tree()
        left = Topology(self._topology.names)
        for a, b in self._topology.edges() if tree is not None else ():
            if {a, b} != {one, other} and self._linked(a, b):
                left.add(a, b)

        def apart(start: str, end: str) -> bool:
            return left.path(start, end) is None

        for subscription in self._subscriptions.values():
            site = subscription.client.site
            subscription.settled -= {node for node in subscription.settled if apart(node, site)}
        self._let_go("neighbour removed", lambda delivery: apart(delivery.path[0], delivery.path[-1]))

    def _settle(self, subscription: ModelSubscription) -> None:
        tree = self._tree()
        if tree is None:
            return
        client, settled, topic_filter = subscription.client, subscription.settled, subscription.topic_filter
        waiting: list[tuple[str, str | None]] = [(client.site, None)]
        seen: set[str] = set()
        while waiting:
            node, nearer = waiting.pop()
            if self._leads(node, nearer, client.name, topic_filter, subscription.qos, True):
                seen.add(node)
                waiting += [(n, node) for n in tree.neighbours(node) if n != nearer]
        settled |= seen
        if len(seen) == len(self._topology.names):
            self._unsure.discard((client.name, topic_filter))

    def published(self, payload: bytes, topic: str, qos: int, node: str, at_home: float = inf) -> None:
        if qos == 0:
            return
        deliveries: dict[str, ExpectedDelivery] = {}
        tree = self._tree()
        for (client, topic_filter), subscription in self._subscriptions.items():
            if subscription.qos == 0 or client in deliveries or not matches(topic_filter, topic):
                continue
            site = subscription.client.site
            if site == node and subscription.since > at_home:
                continue
            if node not in subscription.settled or (client, topic_filter) in self._unsure:
                self.unsettled += 1
                continue
            path = way(tree, node, site) if tree is not None else ()
            deliveries[client] = ExpectedDelivery(
                client, topic_filter, subscription.qos, path or (node, site)
            )
        if deliveries:
            self.promised += len(deliveries)
            self._debts[payload] = list(deliveries.values())

    def passing(
        self, node: str, payload: bytes, hops: Mapping[str, int], local: bool, came: bool = False
    ) -> None:
        for delivery in self._debts.get(payload, ()):
            key = (delivery.client, delivery.topic_filter)
            if key in self._unsure or key not in self._subscriptions:
                delivery.allowance = RESTARTED

    def open_of(self, payload: bytes) -> list[ExpectedDelivery]:
        return [delivery for delivery in super().open_of(payload) if not delivery.allowance]


def way(tree: Tree, start: str, end: str) -> tuple[str, ...]:
    """The nodes from `start` to `end` in a tree, both included; empty if there is no way."""
    waiting: list[tuple[str, ...]] = [(start,)] if start in tree.nodes else []
    while waiting:
        path = waiting.pop()
        if path[-1] == end:
            return path
        waiting += [(*path, following) for following in tree.neighbours(path[-1]) if following not in path]
    return ()
