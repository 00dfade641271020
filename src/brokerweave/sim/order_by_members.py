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
        if self._facts.publications[later].retain and visits:
            if visits[0].repair:
                return "behind a later one that a site got by comparison"
            if self._facts.best_effort and visits[0].came_from == publication.site:
                return "behind a later one that its keeper got at once, not by the tree"
        why = super()._why(client, publication, last, qos)
        if not why and self._facts.relays and self._was_out_of_reach(client.site, publication):
            return "a node on its way was out of reach while the way changed"
        return why

    def _was_out_of_reach(self, site: str, publication: ModelPublication) -> bool:
        facts, since = self._facts, publication.at
        had = {site, *(node for node, payload in facts.visits if payload == publication.payload)}
        failed = any(link & had for at, link in facts.link_failures if at >= since - 0.1)
        return failed or any(end.at >= since for node in had for end in facts.ends[node])
