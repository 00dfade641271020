"""A strategy of your own on one screen: a star. Every publication goes to the hub, the hub sends it to all.

Unlike `pf` it works where the leaves also know each other: they never use those links. Run every node
with it, the one in the middle called `hub`. Register it in your package's pyproject.toml and install it:

    [project.entry-points."brokerweave.strategies"]
    hub = "strategy_hub:Hub"

    $ brokerweave node NODE.toml --strategy hub

or, without installing, from the folder of this file:

    $ PYTHONPATH=. brokerweave node NODE.toml --strategy strategy_hub:Hub
"""

from __future__ import annotations

from typing import ClassVar

from brokerweave.plugin import Hop, Route, Strategy


class Hub(Strategy):
    name: ClassVar[str] = "hub"
    centre: ClassVar[str] = "hub"
    tree: ClassVar[bool] = False

    def route(self, topic: str, came_from: str | None) -> Route:
        at_the_centre = self.context.node_id == self.centre
        hops = tuple(
            Hop(neighbour)
            for neighbour in self.context.neighbours()
            if neighbour != came_from and (at_the_centre or neighbour == self.centre)
        )
        return Route(hops, local=True)

    def route_retained(self, topic: str, came_from: str | None) -> Route:
        return self.route(topic, came_from)
