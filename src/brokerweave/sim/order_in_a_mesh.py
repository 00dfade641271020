"""The order in which a client of a mesh gets the messages of a publisher on a topic.

Owns the further reasons that exist there: a client that lost its site gets what it missed from a node, and
the rest from a broker; a publisher that lost its site continues elsewhere. Must not know: whether a
redelivery was right (`redelivery`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import inf

from brokerweave.sim.client import ModelClient
from brokerweave.sim.expected import Expected
from brokerweave.sim.facts import Facts, ModelPublication
from brokerweave.sim.order import Order
from brokerweave.sim.redelivery import RedeliveryRules


class OrderInAMesh(Order):
    def __init__(self, facts: Facts, expected: Expected, redelivery: RedeliveryRules) -> None:
        super().__init__(facts, expected)
        self._redelivery = redelivery
        self._came_blind: dict[str, float] = {}
        """By client: until when it was at a site that had not reached all others when it subscribed there."""
        self._waited: defaultdict[bytes, set[str]] = defaultdict(set)
        """The sites that were out of reach when their origin sent them a message."""
        self._kept: defaultdict[bytes, set[str]] = defaultdict(set)
        """The sites that were to keep a message, its origin included."""

    def granted(self, client: ModelClient, topic_filter: str) -> None:
        super().granted(client, topic_filter)
        if not all(self._facts.reaches(client.site, each) for each in self._facts.barriers):
            self._came_blind[client.name] = inf
        elif self._came_blind.get(client.name) == inf:
            self._came_blind[client.name] = self._facts.now

    def forwarded(self, node: str, payload: bytes, to: Iterable[str], keepers: Iterable[str] = ()) -> None:
        self._waited[payload].update(each for each in to if not self._facts.reaches(node, each))
        self._kept[payload].update((node, *keepers))

    def _why(self, client: ModelClient, publication: ModelPublication, last: int, qos: int) -> str:
        later = f"{publication.client}:{last}".encode()
        if set(self._facts.publications[later].sites) != {publication.site}:
            return "its publisher lost its site, and sent the later one elsewhere"
        return (
            self._why_redelivered(client, publication, qos)
            or self._why_behind_redelivered(client, publication, later)
            or self._why_by_its_broker(client, publication, later)
            or super()._why(client, publication, last, qos)
        )

    def _why_redelivered(self, client: ModelClient, publication: ModelPublication, qos: int) -> str:
        """It was given to a client that had missed it, and the later one came in its turn."""
        facts = self._facts
        if not self._redelivery.was_given(client.name, publication.payload):
            return ""
        if facts.drops[publication.payload]:
            return "a full queue dropped it in its turn, and it was redelivered"
        if self._came_blind.get(client.name, 0.0) >= publication.at:
            return "who kept it was out of reach when its subscriber came"
        kept = (publication.site, *self._kept[publication.payload])
        if any(facts.link_failed_since(each, client.site, publication.at) for each in kept):
            return "the link with its origin, or who kept it, failed before its subscriber had it"
        return "at QoS 0 it had been lost, and was redelivered" if qos == 0 else ""

    def _why_behind_redelivered(
        self, client: ModelClient, publication: ModelPublication, later: bytes
    ) -> str:
        """The later one was given to a client that had missed it, and the broker of its site had not got, or
        was not to get, this one."""
        if not self._redelivery.was_given(client.name, later):
            return ""
        if self._facts.drops[later]:
            return "a full queue dropped a later one, which was redelivered before it"
        if any(visit.local for visit in self._facts.visits[client.site, publication.payload]):
            return "it waited for its broker while a later one was redelivered"
        if self._in_forgotten_session(client, publication):
            return "it waited in a session that its node had forgotten while a later one was redelivered"
        return ""

    def _in_forgotten_session(self, client: ModelClient, publication: ModelPublication) -> bool:
        """Whether a broker had it in a client's session when its node had come back without its disk."""
        forgot = any(not end.disk_kept for end in self._facts.ends[client.site][-1:])
        had = client.site in self._facts.given_at[client.name, publication.payload]
        return forgot and had and client.persistent

    def _why_by_its_broker(self, client: ModelClient, publication: ModelPublication, later: bytes) -> str:
        if self._subscribed_since(client, publication) and self._stuck(publication, client.site):
            return "subscribed while it was stuck at a link that failed"
        if self._came_before_its_broker_had(client, publication, later):
            return "its subscriber came before the broker there had it, and had a later one"
        visits = self._facts.visits[client.site, later]
        if self._facts.publications[later].retain and visits and visits[0].repair:
            return "behind a later one that a site got by comparison"
        return ""

    def _came_before_its_broker_had(
        self, client: ModelClient, publication: ModelPublication, later: bytes
    ) -> bool:
        """Whether a client had a later message at another site, before the broker of this one, where it
        subscribed since, had an earlier one."""
        takes = self._facts.takes[client.site, publication.payload]
        since = [at for (name, _), at in self._subscribed.items() if name == client.name]
        came = max(since, default=0.0)
        had = self._redelivery.repeats.got_at(client.name, later)
        return self._subscribed_since(client, publication) and bool(takes) and had < min(came, takes[0])

    def _stuck(self, publication: ModelPublication, site: str) -> bool:
        """Whether a message had to wait for the link from its origin to a site, which failed, or an end of
        which was killed before the other noticed."""
        return site in self._waited[publication.payload] or any(
            visit.at >= failed >= publication.at
            for visit in self._facts.visits[site, publication.payload]
            for failed in self._failed_between(visit.came_from, site)
        )

    def _failed_between(self, one: str | None, other: str) -> list[float]:
        failed = [at for at, link in self._facts.link_failures if link == {one, other}]
        return failed + [
            end.at for node in (one, other) if node is not None for end in self._facts.ends[node]
        ]
