"""A strategy of your own on one screen: a star. Every publication goes to the hub, the hub sends it to all.

The hub is the node whose id sorts first, or that `[hub] centre` names; every other node is linked with it.
Unlike `pf` it works where the others also know each other: they never use those links. Register it in your
package's pyproject.toml and install it:

    [project.entry-points."brokerweave.strategies"]
    hub = "strategy_hub:Hub"

    $ brokerweave node NODE.toml --strategy hub
    $ brokerweave sim --strategy hub --nodes 5

or, without installing, from the folder of this file:

    $ PYTHONPATH=. brokerweave node NODE.toml --strategy strategy_hub:Hub
"""

from __future__ import annotations

from typing import ClassVar

from brokerweave.plugin import Hop, NetworkShape, Route, Strategy, Traits, option


class Hub(Strategy):
    """A star: every publication goes to the node in the middle, which sends it to all others."""

    name: ClassVar[str] = "hub"
    tree: ClassVar[bool] = False
    traits: ClassVar[Traits] = Traits(NetworkShape.STAR)
    centre = option("", "The id of the node in the middle. Empty: the id that sorts first.")

    def route(self, topic: str, came_from: str | None) -> Route:
        here, neighbours = self.context.node_id, self.context.neighbours()
        centre = self.centre or min((here, *neighbours))
        others = (n for n in neighbours if n != came_from and centre in (here, n))
        return Route(tuple(Hop(n) for n in others), local=True)

    def route_retained(self, topic: str, came_from: str | None) -> Route:
        return self.route(topic, came_from)
