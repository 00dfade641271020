"""The order in which a client gets the messages of a publisher on a topic, where nodes are linked on demand.

Owns the further reasons that exist there. Must not know: what way a message took.
"""

from __future__ import annotations

from brokerweave.sim.client import ModelClient
from brokerweave.sim.facts import ModelPublication
from brokerweave.sim.order import Order


class OrderByMembers(Order):
    def _why(self, client: ModelClient, publication: ModelPublication, last: int, qos: int) -> str:
        later = f"{publication.client}:{last}".encode()
        visits = self._facts.visits[client.site, later]
        if self._facts.publications[later].retain and visits and visits[0].repair:
            return "behind a later one that a site got by comparison"
        return super()._why(client, publication, last, qos)
