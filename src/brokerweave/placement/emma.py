"""EMMA's policy: Algorithm 1, for whole gateways, by latency groups and connection counts alone.

Two things are added, since the printed algorithm has no line that migrates. The counts follow each move, or
all gateways would go to one site. And a move for balance has to leave the target with less than the origin
had, or a gateway that has more clients than the difference would go back and forth every round.
Must not know: jitter, loss, time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from brokerweave.placement.graph import Graph, GraphGateway, Loads
from brokerweave.placement.latency_groups import group_of, group_text, nearest_group
from brokerweave.placement.policy import Move, PlacementPolicy


class EmmaPolicy(PlacementPolicy):
    def place(self, graph: Graph, gateway: GraphGateway, loads: Loads) -> list[str]:
        means = {name: edge.mean for name, edge in graph.open_edges(gateway).items()}
        return sorted(means, key=lambda name: (group_of(means[name]), loads.amount(name), name))

    def moves(self, graph: Graph, loads: Loads) -> Iterator[Move]:
        for gateway in sorted(graph.gateways.values(), key=lambda each: each.id):
            move = self._move(graph, gateway, loads)
            if move is not None:
                yield move

    def _move(self, graph: Graph, gateway: GraphGateway, loads: Loads) -> Move | None:
        if not gateway.clients:
            return None
        places = Counter(client.site for client in gateway.clients.values())
        current, _ = places.most_common(1)[0]  # line 2
        means = {name: edge.mean for name, edge in graph.open_edges(gateway).items()}
        near = nearest_group(means)  # line 3
        if not near or current not in graph.sites:
            return None
        best = min(near, key=lambda name: (loads.amount(name), name))  # line 4
        if best == current:  # lines 5 to 7
            return None
        if current not in near:
            group = group_text(group_of(means[best]))
            return Move(gateway.id, None, current, best, f"{best} is in {group}, {current} is not")
        delta = self.settings.theta * sum(map(loads.amount, near))  # lines 8 to 13
        fuller, emptier = loads.amount(current), loads.amount(best)
        size = sum(loads.size(client) for client in gateway.clients.values())
        if emptier + delta >= fuller or emptier + size >= fuller:
            return None
        why = f"{current} has {fuller:g} connections and {best} {emptier:g}, in the same latency group"
        return Move(gateway.id, None, current, best, why)
