"""Who must get what: subscriptions that have settled, and the deliveries that are expected for them.

A subscription is *settled at a node* when that node was seen to route its topics towards the subscriber,
every node between the two was settled before it, and nothing on the way could still change this. It stays
settled until the subscriber goes, the wiring changes, or a node on the way loses its state. A delivery is
expected if the subscription was settled on the whole way when the publisher's node read the message.

Owns these expectations. Invariants: a message that passes a node at which its subscriber is settled goes on
towards the subscriber at once; an expected delivery that did not happen needs a drop with a cause, at the
last node that had the message. Every expectation that is given up is counted by its reason. Must not know:
strategies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

from brokerweave.mqtt.topics import matches
from brokerweave.sim.client import ModelClient
from brokerweave.sim.promises import Broken
from brokerweave.sim.topology import Topology

RESTARTED = "interest not settled on the way (a node there was restarted)"
"""Without its disk, or while it failed: rows "crash" and "failing disk" of docs/guarantees.md."""


@dataclass(slots=True)
class ModelSubscription:
    client: ModelClient
    topic_filter: str
    qos: int
    settled: set[str]
    since: float
    """When its client heard SUBACK."""


@dataclass(slots=True)
class ExpectedDelivery:
    client: str
    topic_filter: str
    qos: int
    path: tuple[str, ...]
    let_go: str = ""
    """Why it is no longer expected."""
    allowance: str = ""
    """Why it may be lost."""


Leads = Callable[[str, str | None, str, str, int, bool], bool]


class Expected:
    def __init__(
        self,
        topology: Topology,
        leads: Leads,
        calm: Callable[[], bool],
        firm: Callable[[str], bool],
    ) -> None:
        """`leads(node, to, client, filter, qos, for_good)`: does `node` route what the filter matches to the
        neighbour `to` (None: to its own broker, for this client), and can nothing on the way change that?
        `firm(node)`: it is not in the middle of a change of the tree."""
        self.calm = calm
        self.allowances: Counter[str] = Counter()
        self.promised = 0
        self.unsettled = 0
        """Messages that a subscriber wanted but was not promised, because it had not settled."""
        self._topology = topology
        self._leads = leads
        self._firm = firm
        self._subscriptions: dict[tuple[str, str], ModelSubscription] = {}
        self._debts: dict[bytes, list[ExpectedDelivery]] = {}

    # Subscriptions

    def granted(self, client: ModelClient, topic_filter: str, qos: int, barrier: bool) -> None:
        """`barrier`: SUBACK promises that every node knows the filter."""
        key = (client.name, topic_filter)
        known = self._subscriptions.get(key)
        if known is None or known.qos != qos:
            now = client.host.world.now
            self._subscriptions[key] = ModelSubscription(client, topic_filter, qos, set(), now)
        if barrier and self.calm():
            for node in self._topology.component(client.site):
                path = self._topology.path(node, client.site) or ()
                towards = path[1] if len(path) > 1 else None
                if not self._leads(node, towards, client.name, topic_filter, qos, False):
                    raise Broken(f"SUBACK for {topic_filter} reached {client.name} before {node} knew of it")

    def filters(self, client: str) -> list[str]:
        return [topic_filter for name, topic_filter in self._subscriptions if name == client]

    def unsubscribed(self, client: str, topic_filter: str) -> None:
        self._subscriptions.pop((client, topic_filter), None)
        self._let_go("it unsubscribed", lambda d: d.client == client and d.topic_filter == topic_filter)

    def session_over(self, client: str, reason: str) -> None:
        gone = [key for key in self._subscriptions if key[0] == client]
        for key in gone:
            del self._subscriptions[key]
        if gone:
            self._let_go(reason, lambda delivery: delivery.client == client)

    def node_forgot(self, node: str) -> None:
        """What it knew of others' interest is gone, and so is what those behind it knew through it."""
        for subscription in self._subscriptions.values():
            self._unsettle(subscription, lambda path: node in path)

    def unlinked(self, one: str, other: str) -> None:
        """Call it before the wiring changes."""

        def crosses(path: tuple[str, ...]) -> bool:
            return one in path and other in path

        for subscription in self._subscriptions.values():
            self._unsettle(subscription, crosses)
        self._let_go("neighbour removed", lambda delivery: crosses(delivery.path))

    def _unsettle(self, subscription: ModelSubscription, gone: Callable[[tuple[str, ...]], bool]) -> None:
        site = subscription.client.site
        for node in list(subscription.settled):
            path = self._topology.path(node, site)
            if path is None or gone(path):
                subscription.settled.discard(node)

    def look(self) -> None:
        """See which subscriptions have settled where."""
        names = self._topology.names
        for subscription in self._subscriptions.values():
            if len(subscription.settled) < len(names):
                self._settle(subscription)

    def _settle(self, subscription: ModelSubscription) -> None:
        """From the subscriber's node outwards: none settles before the one nearer to it."""
        client, settled, topic_filter = subscription.client, subscription.settled, subscription.topic_filter
        waiting: list[tuple[str, str | None]] = [(client.site, None)]
        while waiting:
            node, nearer = waiting.pop()
            if node not in settled:
                if not self._leads(node, nearer, client.name, topic_filter, subscription.qos, True):
                    continue
                settled.add(node)
            waiting += [(n, node) for n in self._topology.neighbours(node) if n != nearer]

    # Messages

    def published(self, payload: bytes, topic: str, qos: int, node: str, at_home: float = inf) -> None:
        """`at_home`: at its own site it is expected by those who were subscribed by then."""
        if qos == 0:
            return
        deliveries: dict[str, ExpectedDelivery] = {}
        for (client, topic_filter), subscription in self._subscriptions.items():
            if subscription.qos == 0 or client in deliveries or not matches(topic_filter, topic):
                continue
            path = self._topology.path(node, subscription.client.site)
            if path == (node,) and subscription.since > at_home:
                continue
            if path is None or not subscription.settled.issuperset(path):
                self.unsettled += 1
                continue
            deliveries[client] = ExpectedDelivery(client, topic_filter, subscription.qos, path)
        if deliveries:
            self.promised += len(deliveries)
            self._debts[payload] = list(deliveries.values())

    def passing(
        self, node: str, payload: bytes, hops: Mapping[str, int], local: bool, came: bool = False
    ) -> None:
        """A node has a message and sends it to these neighbours (each with its QoS) and its broker. `came`:
        it has it from another node."""
        for delivery in self._debts.get(payload, ()):
            if delivery.let_go or node not in delivery.path:
                continue
            place = delivery.path.index(node)
            subscription = self._subscriptions.get((delivery.client, delivery.topic_filter))
            if subscription is None or node not in subscription.settled:
                self._forgive(delivery, RESTARTED)
                continue
            if place == len(delivery.path) - 1:
                goes_on = local or place == 0  # at home the broker has it from its publisher
            else:
                goes_on = hops.get(delivery.path[place + 1], -1) >= min(delivery.qos, 1)
            if not goes_on and self._firm(node):
                raise Broken(
                    f"{node} does not send {payload!r} on towards {delivery.client} ({delivery.topic_filter} "
                    f"at {delivery.path[-1]})"
                )

    def read_again(self, node: str, payload: bytes) -> None:
        """A node reads what it does not know that it has read: it may have forgotten who wants it, too."""
        for delivery in self._debts.get(payload, ()):
            subscription = self._subscriptions.get((delivery.client, delivery.topic_filter))
            if not delivery.let_go and (subscription is None or node not in subscription.settled):
                self._forgive(delivery, RESTARTED)

    def open_of(self, payload: bytes) -> list[ExpectedDelivery]:
        return [delivery for delivery in self._debts.get(payload, ()) if not delivery.let_go]

    def open(self) -> list[tuple[bytes, ExpectedDelivery]]:
        return [
            (payload, d) for payload, deliveries in self._debts.items() for d in deliveries if not d.let_go
        ]

    def _let_go(self, reason: str, which: Callable[[ExpectedDelivery], bool]) -> None:
        for deliveries in self._debts.values():
            for delivery in deliveries:
                if not delivery.let_go and which(delivery):
                    delivery.let_go = reason

    def _forgive(self, delivery: ExpectedDelivery, reason: str) -> None:
        delivery.let_go = reason
        self.allowances[f"lost: {reason}"] += 1
