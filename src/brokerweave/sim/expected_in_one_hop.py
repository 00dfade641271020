"""Who must get what if every node is linked with every other, and messages take one hop.

Owns how a subscription settles there: at its own site, then at each other node when that node is seen to
route to the site. Must not know: strategies.
"""

from __future__ import annotations

from brokerweave.sim.expected import RESTARTED, Expected, ModelSubscription


class ExpectedInOneHop(Expected):
    def node_forgot(self, node: str) -> None:
        super().node_forgot(node)
        for _, delivery in self.open():
            if delivery.path[-1] == node:
                delivery.allowance = RESTARTED  # should it be lost

    def _settle(self, subscription: ModelSubscription) -> None:
        client, settled = subscription.client, subscription.settled
        home, topic_filter = client.site, subscription.topic_filter
        for node in (home, *self._topology.names):
            if node in settled or (node != home and home not in settled):
                continue
            towards = None if node == home else home
            if self._leads(node, towards, client.name, topic_filter, subscription.qos, True):
                settled.add(node)
