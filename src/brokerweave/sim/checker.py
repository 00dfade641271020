"""The checker: hears of everything that happens to every message, and fails at the first thing that must not
happen.

Owns which facts are recorded, and which rules are checked at each place that a message reaches: the node
where it is published, each node that it passes, each broker that it is injected into, each subscriber.
Invariant: an exception is accepted only by a rule with a reason, and reasons are counted by name
(`Facts.allowances`), so that a test can see how many there were. Must not know: the reasons, how faults are
made.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from brokerweave.links.run import Run
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.publish import publish_head
from brokerweave.node.router import RouteGroup
from brokerweave.sim.client import ModelClient
from brokerweave.sim.doubling import Doubling
from brokerweave.sim.expected import Expected
from brokerweave.sim.expected_by_members import ExpectedByMembers
from brokerweave.sim.facts import Facts, ModelPublication, Visit
from brokerweave.sim.node import SimNode
from brokerweave.sim.order import Order
from brokerweave.sim.order_by_members import OrderByMembers
from brokerweave.sim.outages import Outages
from brokerweave.sim.promises import Broken
from brokerweave.sim.retained import RetainedRules
from brokerweave.sim.sessions import SessionRules
from brokerweave.sim.watching import Key
from brokerweave.sim.wills import WillRules

INJECTOR = "brokerweave-"


class Checker:
    """Implements `Watcher` for nodes and `Observer` for clients."""

    def __init__(self, facts: Facts, expected: Expected) -> None:
        self.facts = facts
        self.expected = expected
        self.outages = Outages(facts, expected)
        self.retained = RetainedRules(facts)
        self._doubling = Doubling(facts)
        self._wills = WillRules(facts)
        self._sessions = SessionRules(expected)
        self._order = Order(facts, expected)
        if isinstance(expected, ExpectedByMembers):
            self._order = OrderByMembers(facts, expected)
        self._reads: dict[bytes, float] = {}
        """When a publication was last read by its node as a new one."""

    # The publisher

    def will_cancelled(self, payload: bytes) -> None:
        self._wills.cancelled(payload)

    def made(self, client: ModelClient, payload: bytes, topic: str, qos: int, retain: bool) -> None:
        facts = self.facts
        if not payload:
            self.retained.deletions.made(client.site, topic, facts.now)
            facts.counts["deletions"] += 1
            return
        name, _, number = payload.decode().replace("!", ":!").partition(":")
        is_will = number.startswith("!")
        facts.publications[payload] = ModelPublication(
            payload, name, int(number.lstrip("!")), client.site, topic, qos, retain, is_will, facts.now
        )
        facts.publications[payload].late_answers = facts.late_answers(client.site)
        facts.counts["wills" if is_will else "publications"] += 1
        if is_will:
            self.sent(client, payload)

    def acknowledged(self, payload: bytes) -> None:
        if not payload:
            return
        facts = self.facts
        facts.publications[payload].acknowledged = True
        if facts.may_be_lost(payload):
            return
        publication = facts.publications[payload]
        if facts.late_answers(publication.site) != publication.late_answers:
            facts.allowances["acknowledged because the time was up"] += 1
            return
        if facts.cluster and self.expected.calm() and not facts.drops[payload]:
            for delivery in self.expected.open_of(payload):
                missing = [node for node in delivery.path if not facts.visits[node, payload]]
                if missing:
                    raise Broken(f"{payload!r} was acknowledged before {missing} had it")

    def sent(self, client: ModelClient, payload: bytes) -> None:
        publication = self.facts.publications.get(payload)
        if publication is not None and client.site not in publication.sites:
            publication.sites.append(client.site)
            if len(publication.sites) == 1:
                publication.site = client.site

    def welcomed(self, client: ModelClient, resumed: bool) -> None: ...

    def resent(self, payload: bytes) -> None:
        if payload:
            self.facts.publications[payload].resent += 1

    def waits(self, node: str, payloads: list[bytes], version: int) -> None:
        self.facts.waiting.update((node, payload) for payload in payloads)
        for payload in payloads:
            self.facts.waited.setdefault((node, payload or version), self.facts.now)

    def passed_origin(self, node: SimNode, payload: bytes) -> None:
        facts = self.facts
        publication = facts.publications.get(payload)
        if not payload or (node.name, payload) in facts.waiting:
            return
        if publication is None or publication.is_will:
            self._wills.said_goodbye(payload)  # the mark behind a DISCONNECT
        elif publication.qos and not self._forwarded_before(publication):
            if facts.cluster:  # it goes on when the broker has acknowledged it
                self.expected.read_again(node.name, payload)
                return
            # It was read and went nowhere: is that right?
            if not facts.visits[node.name, payload]:
                self.expected.published(publication.payload, publication.topic, publication.qos, node.name)
            self.expected.passing(node.name, payload, {}, False)
            self._reads[payload] = facts.now

    def _forwarded_before(self, publication: ModelPublication) -> bool:
        """Whether its node knows that it has forwarded it."""
        facts, site = self.facts, publication.site
        since = facts.starts[site]
        if publication.qos == 2:
            if self._reads.get(publication.payload, 0.0) > since:
                return True  # to nowhere: sent again it is the same message, whoever wants it by now
            # Where a disk failed the node may know it or not, as in `arrived`: if it does not, and it goes
            # nowhere, its first copy is still to be delivered, or has a drop to show.
            lost = [end for end in facts.ends[site] if not facts.keeps_ids(end)]
            since = max((end.at for end in lost if not end.disk_kept or not end.disk_failed), default=0.0)
        return any(visit.at > since for visit in facts.visits[site, publication.payload])

    # The nodes

    def dispatched(
        self, node: str, came_from: str | None, payload: bytes, key: Key, group: RouteGroup, run: Run
    ) -> None:
        facts = self.facts
        facts.waiting.discard((node, payload))
        if not payload:
            if came_from is None and not run.repair:
                topic = publish_head(run.blob, run.version).topic.decode()
                read_at = facts.waited.get((node, run.stamp), facts.now)
                self.retained.deletions.read(node, topic, read_at, run.stamp)
            return
        publication = facts.publications.get(payload)
        if publication is None:
            raise Broken(f"{node} passes on {payload!r}, which nobody published")
        before = facts.visits[node, payload]
        acts = bool(group.hops or group.local or not run.flood)
        if run.repair:
            facts.allowances["retained: sent again to repair an index"] += 1
            before.append(Visit(facts.now, key, came_from, group.local, repair=True))
            return
        if came_from is None:
            self._check_forwarded(node, publication, key, before, run)
        else:
            if key not in publication.keys:
                raise Broken(f"{node} got {payload!r} as {key}, but it was sent as {publication.keys}")
            again = [visit for visit in before if visit.key == key and visit.acted]
            if facts.returns:
                again = [visit for visit in again if visit.came_from is not None]
            if again and acts:
                self._doubling.check_passed_on(node, came_from, publication, again[-1].at, run)
        before.append(Visit(facts.now, key, came_from, group.local, acted=acts, flood=run.flood))
        facts.counts["dispatches"] += 1
        self._settle_deliveries(node, came_from, publication, group, run)

    def _check_forwarded(
        self, node: str, publication: ModelPublication, key: Key, before: list[Visit], run: Run
    ) -> None:
        """A node forwards what its own client published, or left as a will."""
        payload = publication.payload
        self._wills.check_sent(node, payload)
        if node not in publication.sites:
            raise Broken(f"{node} forwards {payload!r}, which was published at {publication.site}")
        publication.keys.append(key)
        before = [visit for visit in before if not visit.repair]
        if before:
            self._doubling.check_forwarded(node, publication, before)

    def _settle_deliveries(
        self, node: str, came_from: str | None, publication: ModelPublication, group: RouteGroup, run: Run
    ) -> None:
        """Which deliveries are expected from now on, and whether a node sends the message towards all of
        them."""
        facts, payload = self.facts, publication.payload
        if came_from is None and len(publication.keys) == 1:
            publication.acknowledged = publication.acknowledged or publication.is_will
            # At home the broker publishes a will. What goes on when the broker has acknowledged it was for
            # those who were subscribed when that had it (its publisher may have sent it again since), as was
            # what waited until its route was known.
            known = facts.cluster and publication.qos == 2 and publication.resent
            waited = (node, payload) in facts.waited
            taken = facts.first_hand[node, payload][:1] if facts.cluster or waited else []
            at_home = -inf if publication.is_will or known else min(taken, default=inf)
            self.expected.published(payload, publication.topic, publication.qos, node, at_home)
        hops = {neighbour: min(run.cap, qos) for neighbour, qos in group.hops}
        self.expected.passing(node, payload, hops, group.local, came_from is not None)

    def bypassed(self, node: str, payload: bytes, key: Key) -> None:
        """Under the name that it had: whoever has had it knows it again."""
        publication = self.facts.publications.get(payload)
        if payload and (publication is None or key not in publication.keys):
            raise Broken(
                f"{node} serves others in a dead relay's place with {payload!r} as {key}, a new name"
            )
        self.facts.counts["bypasses"] += 1
        self.facts.bypassed.add(payload)

    def flooded(self, node: str, view: int, payload: bytes, key: Key) -> None:
        self._doubling.check_flood(node, view, payload, key)
        self.facts.counts["floods"] += 1
        self.expected.passing(node, payload, {}, False)

    def arrived(self, node: str, came_from: str, payloads: list[bytes]) -> None:
        facts = self.facts
        # Where a disk failed the node may know what it had before or not: only what is lost for sure counts.
        lost = [end for end in facts.ends[node] if not facts.keeps_window(end)]
        forgot = max((end.at for end in lost if not end.disk_kept or not end.disk_failed), default=0.0)
        for payload in payloads:
            if (node, payload) in facts.waiting:
                continue
            if not any(visit.at > forgot for visit in facts.visits[node, payload]):
                self.expected.passing(node, payload, {}, False, came=True)

    def dropped(self, node: str, where: str, payloads: list[bytes], cause: str) -> None:
        self.facts.drop(node, where, payloads, cause)

    def spilled(self, payloads: list[bytes]) -> None:
        self.facts.spilled.update(payloads)

    def node_ends(self, node: SimNode, graceful: bool) -> None:
        self.outages.node_ends(node, graceful)

    def node_starts(self, node: SimNode) -> None:
        self.outages.node_starts(node)

    def disk_lost(self, node: SimNode) -> None:
        self.outages.disk_lost(node)

    def wiring_changes(self) -> None:
        self.facts.rewired.append(self.facts.now)

    def link_changed(self, node: str, neighbour: str, up: bool) -> None: ...

    def link_failed(self, node: str, neighbour: str) -> None:
        self.facts.link_failures.append((self.facts.now, frozenset((node, neighbour))))

    def injector_lost(self, node: SimNode) -> None:
        self.facts.injector_losses[node.name].append(self.facts.now)

    def protocol_error(self, node: SimNode, error: str) -> None:
        raise Broken(f"{node.name}: {error}")

    # The brokers

    def took(self, site: str, client_id: str, message: Publish) -> None:
        facts, payload = self.facts, message.payload
        if not client_id.startswith(INJECTOR):
            facts.first_hand[site, payload].append(facts.now)
        elif payload:
            facts.takes[site, payload].append(facts.now)
            facts.counts["injections"] += 1
            self._doubling.check_injected(site, message)

    def broker_lost_state(self, site: str) -> None:
        self.facts.broker_losses[site].append(self.facts.now)

    def passed_on(self, site: str, client_id: str, message: Publish) -> None:
        """By the broker of a site."""
        self.facts.given[client_id, message.payload] += 1
        self.facts.given_at[client_id, message.payload].add(site)

    def session_forgotten(self, client: str) -> None:
        """By its broker."""
        self._sessions.over(client, "its broker forgot its session")

    # The subscriber

    def asking(self, client: ModelClient, filters: Iterable[str]) -> None: ...

    def granted(self, client: ModelClient, topic_filter: str, qos: int) -> None:
        self._order.granted(client, topic_filter)
        self.expected.granted(client, topic_filter, qos, self.facts.barriers[client.site])

    def unsubscribing(self, client: ModelClient, topic_filter: str) -> None:
        self.expected.unsubscribed(client.name, topic_filter)

    def relay_ended(self, client_id: str, persistent: bool) -> None:
        if not persistent:
            self._sessions.over(client_id, "its session ended")

    def disconnected(self, client: ModelClient) -> None:
        self._sessions.disconnected(client)

    def moved(self, client: ModelClient, since: float, will: bytes) -> None:
        self.disconnected(client)

    def said_goodbye(self, client: ModelClient) -> None: ...

    def redelivering(self, node: str, client: str, payloads: list[bytes]) -> None:
        raise Broken(f"{node} gives {payloads} to {client}, though it keeps nothing for clients")

    def delivered(self, client: ModelClient, message: Publish) -> None:
        if message.retain or not message.payload:
            return  # stored at the broker, given to a new subscriber: nobody was promised when
        facts, payload = self.facts, message.payload
        publication = facts.publications.get(payload)
        if publication is None:
            raise Broken(f"{client.name} got {payload!r}, which nobody published")
        key = (client.name, payload)
        first = not facts.deliveries[key]
        facts.deliveries[key] += 1
        facts.counts["deliveries"] += 1
        if not first and message.qos == 1 and message.dup:
            facts.allowances["doubled: QoS 1 redelivered by the broker"] += 1
            facts.given[key] += 1
        if facts.deliveries[key] > facts.given[key]:
            raise Broken(f"{client.name} got {payload!r} more often than its broker passed it on")
        if first and not publication.is_will:  # a will has no place among its client's messages
            self._order.check(client, publication, message.qos)
