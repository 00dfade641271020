"""A strategy of your own on one screen: a star. Every publication goes to the hub, the hub sends it to all.

The hub is the node whose id sorts first; every other node is linked with it. Unlike `pf` it works where the
others also know each other: they never use those links. Register it in your package's pyproject.toml and
install it:

    [project.entry-points."brokerweave.strategies"]
    hub = "strategy_hub:Hub"

    $ brokerweave node NODE.toml --strategy hub
    $ brokerweave sim --strategy hub --nodes 5

or, without installing, from the folder of this file:

    $ PYTHONPATH=. brokerweave node NODE.toml --strategy strategy_hub:Hub
"""

from __future__ import annotations

from typing import ClassVar

from brokerweave.plugin import Hop, NetworkShape, Route, Strategy, Traits


class Hub(Strategy):
    name: ClassVar[str] = "hub"
    traits: ClassVar[Traits] = Traits(NetworkShape.STAR)
    tree: ClassVar[bool] = False

    def route(self, topic: str, came_from: str | None) -> Route:
        neighbours = self.context.neighbours()
        hub = min((self.context.node_id, *neighbours))
        here = hub == self.context.node_id
        hops = tuple(Hop(each) for each in neighbours if each != came_from and (here or each == hub))
        return Route(hops, local=True)

    def route_retained(self, topic: str, came_from: str | None) -> Route:
        return self.route(topic, came_from)
