"""Strategies that somebody else might write, for the simulator."""

from __future__ import annotations

from typing import ClassVar

from brokerweave.plugin import Hop, NetworkShape, Route, Strategy, Traits


class OneHop(Strategy):
    """Everything to everybody in one hop, and no care for clients that lose their site."""

    name: ClassVar[str] = "one-hop"
    traits: ClassVar[Traits] = Traits(NetworkShape.FULL)

    def route(self, topic: str, came_from: str | None) -> Route:
        hops = () if came_from else tuple(map(Hop, self.context.neighbours()))
        return Route(hops, local=True)

    route_retained = route


class Forgetful(OneHop):
    """Leaves one site out."""

    name: ClassVar[str] = "forgetful"

    def route(self, topic: str, came_from: str | None) -> Route:
        whole = super().route(topic, came_from)
        return Route(whole.hops[1:], local=True)


class Boastful(OneHop):
    """Sends everything everywhere, and says that it does not."""

    name: ClassVar[str] = "boastful"
    traits: ClassVar[Traits] = Traits(NetworkShape.FULL, selective=True)
