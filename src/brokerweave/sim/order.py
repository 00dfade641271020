"""The order in which a client gets the messages of a publisher on a topic.

Owns row "order" of docs/guarantees.md: if a message arrives after a later one of its publisher, there must be
a reason, and the first reason that holds is counted. Must not know: what arrives twice.
"""

from __future__ import annotations

from brokerweave.mqtt.topics import matches
from brokerweave.node.gates import SETTLE_LIMIT
from brokerweave.sim.client import ModelClient
from brokerweave.sim.expected import Expected
from brokerweave.sim.facts import Facts, ModelPublication
from brokerweave.sim.promises import Broken
from brokerweave.sim.retained import compared


class Order:
    def __init__(self, facts: Facts, expected: Expected) -> None:
        self._facts = facts
        self._expected = expected
        self._last: dict[tuple[str, str, str, int], int] = {}
        self._subscribed: dict[tuple[str, str], float] = {}
        """When a client got a subscription that it did not have, or had at another site."""
        self._granted_at: dict[tuple[str, str], str] = {}

    def granted(self, client: ModelClient, topic_filter: str) -> None:
        """To be told before `expected` is."""
        key = (client.name, topic_filter)
        if (
            topic_filter not in self._expected.filters(client.name)
            or self._granted_at.get(key) != client.site
        ):
            self._subscribed[key] = self._facts.now
        self._granted_at[key] = client.site

    def check(self, client: ModelClient, publication: ModelPublication, qos: int) -> None:
        """A client got a message for the first time."""
        stream = (client.name, publication.client, publication.topic, publication.qos)
        last = self._last.get(stream, 0)
        if publication.number > last:
            self._last[stream] = publication.number
            return
        why = self._why(client, publication, last, qos)
        if not why:
            raise Broken(
                f"{client.name} got {publication.payload!r} on {publication.topic} after number {last}"
            )
        self._facts.allowances[f"order: {why}"] += 1

    def _why(self, client: ModelClient, publication: ModelPublication, last: int, qos: int) -> str:
        """Why it may come after number `last` of its publisher; empty if it may not."""
        facts = self._facts
        if publication.resent and facts.drops[publication.payload]:
            return "its first copy was dropped, its publisher sent it again"
        if compared(facts, client.site, publication):
            return "it came because a site lacked what it was to retain"
        if publication.resent and self._first_by_comparison(client, publication, last):
            return "sent again, behind a later one that a site got by comparison"
        if self._came_in_turn(client.site, publication, last):
            # It is doubled, for a reason that `doubling` knows, or because its publisher sent it again; the
            # first time this client was not there.
            return "its broker had it in its turn, and got it again"
        if self._was_for_nobody(client, publication, last):
            return "nobody wanted it in its turn, and its publisher sent it again to who subscribed since"
        if self._found_at_a_later_start(client.site, publication):
            return "a node was started while its disk failed, and found it when it was started again"
        if any(at >= publication.at for at in facts.rewired):
            return "the wiring changed while it was on its way"
        return self._why_in_cycles(client, publication) if facts.cyclic else ""

    def _why_in_cycles(self, client: ModelClient, publication: ModelPublication) -> str:
        """Where nodes take care of cycles order can break, also in a tree, when links fail in quick
        succession."""
        facts = self._facts
        if facts.links_failed_since(publication.at - SETTLE_LIMIT) > 1:
            return "a second link failed while it was on its way"
        if not facts.links_failed_since(publication.at):
            return ""
        if publication.payload in facts.spilled:
            return "a link failed that had it on disk only"
        if self._subscribed_while_stuck(client, publication):
            return "subscribed while it was stuck at a link that failed"
        return ""

    def _first_by_comparison(self, client: ModelClient, publication: ModelPublication, last: int) -> bool:
        """Whether a site got number `last` of a publisher first because its index lacked it, and has this one
        only as its publisher sent it again."""
        visits = self._facts.visits
        later = visits[client.site, f"{publication.client}:{last}".encode()]
        copies = [visit.key for visit in visits[client.site, publication.payload] if not visit.repair]
        return bool(later) and later[0].repair and publication.keys[0] not in copies

    def _came_in_turn(self, site: str, publication: ModelPublication, last: int) -> bool:
        """Whether the broker has a message twice, and had it before number `last` of its publisher."""
        # From its publisher as from its node: between a client and its broker nodes change nothing (row
        # "transparency").
        heard = self._facts.first_hand if site == publication.site else self._facts.takes
        takes = heard[site, publication.payload]
        later = heard[site, f"{publication.client}:{last}".encode()]
        return len(takes) > 1 and bool(later) and takes[0] <= later[0]

    def _was_for_nobody(self, client: ModelClient, publication: ModelPublication, last: int) -> bool:
        """Whether the publisher's broker had a message in its turn, its node passed it on only as it was sent
        again, at QoS 1 and behind number `last`, and the client subscribed to it meanwhile."""
        visits, site = self._facts.visits, publication.site
        passed_on = visits[site, publication.payload]
        later = visits[site, f"{publication.client}:{last}".encode()]
        if publication.qos != 1 or not (passed_on and later) or passed_on[0].at <= later[0].at:
            return False
        return self._came_in_turn(site, publication, last) and self._subscribed_since(client, publication)

    def _found_at_a_later_start(self, site: str, publication: ModelPublication) -> bool:
        """Whether a broker has a message only since a node, which could not read its pending messages at one
        start, was started once more."""
        facts, payload = self._facts, publication.payload
        first = min(facts.takes[site, payload], default=0.0)
        return any(
            first >= end.restarted > since
            for node, since in facts.unread[payload].items()
            for end in facts.ends[node]
        )

    def _subscribed_while_stuck(self, client: ModelClient, publication: ModelPublication) -> bool:
        """Whether a client's site got a message only as a flood, and the client subscribed to it, by whatever
        filter, after it was published."""
        visits = self._facts.visits[client.site, publication.payload]
        first = [visit for visit in visits if visit.local][:1]
        return any(visit.flood for visit in first) and self._subscribed_since(client, publication)

    def _subscribed_since(self, client: ModelClient, publication: ModelPublication) -> bool:
        """Whether a client subscribed to a message, by whatever filter, after it was published."""
        since = [
            self._subscribed[client.name, topic_filter]
            for topic_filter in self._expected.filters(client.name)
            if matches(topic_filter, publication.topic)
        ]
        return bool(since) and min(since) > publication.at
