"""Who must get what if every node is linked with every other, and messages take one hop.

Owns how a subscription settles there: at its own site, then at each other node when that node is seen to
route to the site. A subscription whose site died with its session is *orphaned*: until its client has
subscribed again, anywhere, deliveries of what it had not got and of what is published meanwhile are expected,
too. Must not know: strategies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from brokerweave.mqtt.topics import matches
from brokerweave.sim.client import ModelClient
from brokerweave.sim.expected import RESTARTED, Expected, ExpectedDelivery, ModelSubscription


class ExpectedInOneHop(Expected):
    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.spared = ""
        """The site whose subscribers do not expect what is published next, unless they lost their
        sessions."""
        self.called_away: Callable[[str, str, str], bool] = lambda node, site, client: False
        """Whether a node has heard that a client of a site is elsewhere since later, by a clock that is ahead
        maybe: once the site hears it, too, it closes the client's connection, and the client comes again."""
        self._homes: dict[tuple[str, str], str] = {}
        """By client and filter: the site that granted it last."""
        self._former: dict[tuple[str, str], str] = {}
        """The site where a subscription was when it became an orphan, of those that are none any more."""
        self._orphans: set[tuple[str, str]] = set()
        self._loose: set[tuple[bytes, str]] = set()
        """Messages, and clients, whose origins may not have known where the client is."""
        self._unsure: dict[tuple[str, str], set[str]] = {}
        """Nodes that knew it where it was, and have not been seen to know where it is."""

    def granted(self, client: ModelClient, topic_filter: str, qos: int, barrier: bool) -> None:
        key = (client.name, topic_filter)
        before = self._homes.get(key)
        super().granted(client, topic_filter, qos, barrier and before in (None, client.site))
        self._homes[key] = client.site
        if key in self._orphans:
            self._orphans.discard(key)
            self._former[key] = before or ""
            settled = self._subscriptions[key].settled
            self._unsure[key] = settled - {client.site}
            settled.add(client.site)

    def orphaned(self, client: str) -> None:
        """Its session ended because its site died."""
        self._orphans.update(key for key in self._subscriptions if key[0] == client)

    def restarted(self, node: str) -> None:
        """Of clients of its own that lost their sessions with it a node knows nothing: others do."""
        for key in self._orphans:
            if self._homes.get(key) == node:
                self._subscriptions[key].settled.discard(node)
        for key, unsure in self._unsure.items():  # it came back elsewhere before its first site did
            if node in unsure and self._former.get(key) == node and key in self._subscriptions:
                unsure.discard(node)
                self._subscriptions[key].settled.discard(node)

    def unsubscribed(self, client: str, topic_filter: str) -> None:
        super().unsubscribed(client, topic_filter)
        self._orphans.discard((client, topic_filter))

    def gave_up(self, client: str) -> list[tuple[bytes, ExpectedDelivery]]:
        """A client that had lost its site ended its session elsewhere: what it expects no more."""
        orphans = {key for key in self._orphans if key[0] == client}
        gone = [
            (p, delivery)
            for p, delivery in self.open()
            if (delivery.client, delivery.topic_filter) in orphans
        ]
        self._orphans -= orphans
        for key in orphans:
            del self._subscriptions[key]
        for _, delivery in gone:
            delivery.let_go = "its subscriber said good-bye before it was subscribed again"
        return gone

    def session_over(self, client: str, reason: str) -> None:
        gone = {key for key in self._subscriptions if key[0] == client} - self._orphans
        for key in gone:
            del self._subscriptions[key]
        self._let_go(reason, lambda delivery: (delivery.client, delivery.topic_filter) in gone)

    def node_forgot(self, node: str) -> None:
        """What it knew of others' clients is gone; others forget its own, unless those are orphans."""
        for key, subscription in self._subscriptions.items():
            subscription.settled.discard(node)
            self._unsure.get(key, set()).discard(node)
            if self._homes.get(key) == node and key not in self._orphans:
                subscription.settled.clear()
        for _, delivery in self.open():
            if delivery.path[-1] == node and (delivery.client, delivery.topic_filter) not in self._orphans:
                delivery.allowance = RESTARTED  # should it be lost

    def _settle(self, subscription: ModelSubscription) -> None:
        client, settled = subscription.client, subscription.settled
        key = (client.name, subscription.topic_filter)
        home = self._homes.get(key, client.site)
        if key in self._orphans or client.site != home:
            return
        unsure = self._unsure.get(key, set())
        for node in (home, *self._topology.names):
            if (node in settled and node not in unsure) or (node != home and home not in settled):
                continue
            towards = None if node == home else home
            asked = (node, towards, client.name, subscription.topic_filter, subscription.qos, True)
            if self._leads(*asked):
                settled.add(node)
                unsure.discard(node)

    def published(self, payload: bytes, topic: str, qos: int, node: str, at_home: float = inf) -> None:
        spared, self.spared = self.spared, ""
        if qos == 0:
            return
        deliveries: dict[str, ExpectedDelivery] = {}
        for key, subscription in self._subscriptions.items():
            client, topic_filter = key
            if subscription.qos == 0 or client in deliveries or not matches(topic_filter, topic):
                continue
            home = self._homes.get(key, subscription.client.site)
            near = node in (home, subscription.client.site)  # it may not have heard SUBACK yet
            if near and subscription.since > at_home:
                continue
            if home == spared and key not in self._orphans:
                continue
            knows = node in subscription.settled and (home in subscription.settled or key in self._orphans)
            if not knows:
                self.unsettled += 1
                continue
            path = (node,) if node == home else (node, home)
            deliveries[client] = delivery = ExpectedDelivery(client, topic_filter, subscription.qos, path)
            if key in self._orphans:
                delivery.known_to = frozenset(subscription.settled - {home})
            if node in self._unsure.get(key, ()):
                self._loose.add((payload, client))
        if deliveries:
            self.promised += len(deliveries)
            self._debts[payload] = list(deliveries.values())

    def passing(
        self, node: str, payload: bytes, hops: Mapping[str, int], local: bool, came: bool = False
    ) -> None:
        """What is for a client that lost its site, or has moved since, is looked at in the end. What came
        from another node, such as a will that both published, goes no further."""
        moved = []
        for delivery in self._debts.get(payload, ()):
            key = (delivery.client, delivery.topic_filter)
            subscription = self._subscriptions.get(key)
            if subscription is None or delivery.let_go:
                continue
            at = {self._homes[key], subscription.client.site}
            loose = (payload, delivery.client) in self._loose or node in self._unsure.get(key, ())
            elsewhere = at != {delivery.path[-1]} or (came and delivery.path[-1] != node)
            called_away = self.called_away(node, delivery.path[-1], delivery.client)
            if key in self._orphans or elsewhere or loose or called_away:
                moved.append(delivery)
        checked = [delivery for delivery in self._debts.get(payload, ()) if delivery not in moved]
        if checked:
            every, self._debts[payload] = self._debts[payload], checked
            try:
                super().passing(node, payload, hops, local, came)
            finally:
                self._debts[payload] = every

    def sent_again(self, node: str, payload: bytes) -> None:
        """To another site, and nobody had it before: clients of that one which lost their sessions with it,
        and have not subscribed again, do not expect what is published there."""
        for delivery in self._debts.get(payload, ()):
            if (
                not delivery.let_go
                and delivery.path[-1] == node
                and (delivery.client, delivery.topic_filter) in self._orphans
            ):
                self._forgive(
                    delivery, "sent again to its subscriber's site, before that was subscribed again"
                )

    def read_again(self, node: str, payload: bytes) -> None:
        if any(delivery.path[0] == node for delivery in self._debts.get(payload, ())):
            super().read_again(node, payload)

    def open_of(self, payload: bytes) -> list[ExpectedDelivery]:
        """Without those whose clients lost their site: they may come back anywhere."""
        return [
            delivery
            for delivery in super().open_of(payload)
            if (key := (delivery.client, delivery.topic_filter)) not in self._orphans
            and self._homes.get(key) == delivery.path[-1]
            and (payload, delivery.client) not in self._loose
        ]
