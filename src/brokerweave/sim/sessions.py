"""Sessions that end, and what their clients may expect from then on.

Owns row "session" of docs/guarantees.md: the messages that wait in a session end with it, unless its client
lost it because its site died. Must not know: how a client finds another site.
"""

from __future__ import annotations

from brokerweave.sim.client import ModelClient
from brokerweave.sim.expected import Expected
from brokerweave.sim.expected_in_one_hop import ExpectedInOneHop
from brokerweave.sim.facts import Facts


class SessionRules:
    def __init__(self, facts: Facts, expected: Expected) -> None:
        self._facts = facts
        self._expected = expected

    def over(self, client: str, reason: str) -> None:
        if isinstance(self._expected, ExpectedInOneHop) and self._facts.site_died(client):
            self._expected.orphaned(client)
        else:
            self._expected.session_over(client, reason)

    def disconnected(self, client: ModelClient) -> None:
        if not client.persistent:
            self.over(client.name, "its session ended")
            self._let_go(client)

    def _let_go(self, client: ModelClient) -> None:
        """A client that lost its site had a session elsewhere, which it has ended with its connection before
        it heard SUBACK: what the broker there had for it went with that."""
        facts = self._facts
        for payload, delivery in (
            self._expected.open() if facts.cares and not facts.site_died(client.name) else ()
        ):
            had = delivery.client == client.name and client.site in facts.given_at[client.name, payload]
            if had and not facts.deliveries[client.name, payload]:
                delivery.let_go = "it was in a clean session that ended with its connection"
                facts.allowances[f"lost: {delivery.let_go}"] += 1

    def said_goodbye(self, client: ModelClient) -> None:
        """A session that ends with its connection is over, also before its client heard that it is
        subscribed again where it came back, and where its broker has died, which its node, frozen, has yet to
        see: it may read the good-bye first."""
        facts = self._facts
        if (
            not isinstance(self._expected, ExpectedInOneHop)
            or client.persistent
            or not facts.is_up(client.site)
        ):
            return
        for payload, delivery in self._expected.gave_up(client.name):
            if not facts.deliveries[client.name, payload] and facts.publications[payload].acknowledged:
                facts.allowances[f"lost: {delivery.let_go}"] += 1
