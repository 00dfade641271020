"""Who must get what where every node is linked with every other, and messages take one hop.

Owns how a subscription settles there: at its own site, then at each other node as that node is seen to route
to the site. Must not know: strategies.
"""

from __future__ import annotations

from brokerweave.sim.owed import Owed, Subscription


class OwedInOneHop(Owed):
    def _settle(self, subscription: Subscription) -> None:
        client, settled = subscription.client, subscription.settled
        for node in (client.site, *self._topology.names):
            if node in settled or (node != client.site and client.site not in settled):
                continue
            towards = None if node == client.site else client.site
            asked = (node, towards, client.name, subscription.topic_filter, subscription.qos, True)
            if self._leads(*asked):
                settled.add(node)
