"""The default policy: by latency, jitter and loss, and by load among sites that are about as good.

Owns what "better" means. A client moves if in every measurement of the last `hold` seconds the other site's
cost was lower by `margin`, or if its site has more load than another that is as near; never again within
`rest`. Invariants: two sites whose costs stay within a factor of 1 + margin cause no move by quality,
whatever their period, so with the default a swing of 20 % to both sides does not (1.2 / 0.8 = 1.5). Must not
know: pins, drains, pace.
"""

from __future__ import annotations

from collections.abc import Iterator

from brokerweave.placement.graph import Graph, GraphClient, GraphGateway, Loads
from brokerweave.placement.policy import Move, PlacementPolicy

SLACK = 0.001
"""Seconds of cost that make no difference: a loaded machine answers that much later now and then."""


class SteadyPolicy(PlacementPolicy):
    def place(self, graph: Graph, gateway: GraphGateway, loads: Loads) -> list[str]:
        costs = {name: edge.cost for name, edge in graph.open_edges(gateway).items()}
        near = self._near(costs)
        best = sorted(near, key=lambda name: (loads.share_with(name, 1.0), costs[name], name))
        return best + sorted(costs.keys() - near, key=lambda name: (costs[name], name))

    def moves(self, graph: Graph, loads: Loads) -> Iterator[Move]:
        for gateway in sorted(graph.gateways.values(), key=lambda each: each.id):
            if gateway.clients:
                yield from self._moves_of(graph, gateway, loads)

    def _moves_of(self, graph: Graph, gateway: GraphGateway, loads: Loads) -> Iterator[Move]:
        """A site that may be near is waited for until that is sure: the next best would have to be left again
        for it. So sites are compared by their best measurement, and a target by its worst one."""
        hold, rest, now = self.settings.hold, self.settings.rest, graph.now
        edges = graph.open_edges(gateway)
        held = {
            name: costs
            for name, edge in gateway.edges.items()
            if (costs := edge.costs_over(hold, now)) is not None
        }
        best = {name: held[name][0] if name in held else edge.cost for name, edge in edges.items()}
        near = self._near(best) & held.keys()
        highest = {name: held[name][1] for name in near}
        for client in list(gateway.clients.values()):
            if now - client.moved_at < rest or client.site not in held:
                continue
            move = (
                self._balancing(client, near, loads)
                if client.site in near
                else self._improving(client, held[client.site][0], highest, loads)
            )
            if move is not None:
                yield move

    def _near(self, costs: dict[str, float]) -> set[str]:
        """The sites that are about as good as the best one."""
        if not costs:
            return set()
        limit = self._worse(min(costs.values()))
        return {name for name, cost in costs.items() if cost <= limit < float("inf")}

    def _worse(self, cost: float) -> float:
        """Above this another cost is worse, not just different."""
        return cost * (1 + self.settings.margin) + SLACK

    def _improving(
        self, client: GraphClient, now_costs: float, highest: dict[str, float], loads: Loads
    ) -> Move | None:
        """`highest`: of each site that is near, the highest cost while it was held."""
        better = [name for name, cost in highest.items() if now_costs > self._worse(cost)]
        if not better:
            return None
        target = min(better, key=lambda name: (loads.share_with(name, loads.size(client)), name))
        hold, there = self.settings.hold, highest[target]
        why = (
            f"cost {1000 * now_costs:.1f} ms at {client.site}, {1000 * there:.1f} at {target}, for {hold:g} s"
        )
        return Move(client.gateway, client.id, client.site, target, why)

    def _balancing(self, client: GraphClient, near: set[str], loads: Loads) -> Move | None:
        size = loads.size(client)
        target = min(near, key=lambda name: (loads.share_with(name, size), name))
        fuller, emptier = loads.share(client.site), loads.share(target)
        delta = self.settings.theta * sum(map(loads.share, sorted(near)))
        if emptier + delta >= fuller or loads.share_with(target, size) >= fuller or size <= 0:
            return None
        load = self.settings.load.value
        why = f"load ({load}) {fuller:g} at {client.site}, {emptier:g} at {target}, which is as near"
        return Move(client.gateway, client.id, client.site, target, why)
