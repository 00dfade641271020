"""The way of a topic through nodes that are linked on demand, found by asking each node on it.

Owns the walk: the publisher's node is asked for the route, and each hop follows the plan that it would get.
Invariant: a node that is down is not asked, and no node twice, but for the first where its strategy
`returns`. Must not know: strategies, messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from brokerweave.plugin import Route

if TYPE_CHECKING:
    from brokerweave.sim.node import SimNode


@dataclass(slots=True)
class Way:
    """Where a topic goes that is published at a node."""

    known: bool = True
    """False: some node on the way does not know yet, and would keep it until it does."""
    whole: bool = True
    """False: some node on the way is down, and has yet to say where it goes from there."""
    sites: dict[str, int] = field(default_factory=dict)
    """Those whose brokers get it, each at the highest QoS that its way carries."""


def find(nodes: Mapping[str, SimNode], start: str, topic: str) -> Way:
    way, asked, waiting = Way(), {start}, deque[tuple[str, Route, int]]()

    def go_on(name: str, route: Route, cap: int) -> None:
        way.known &= route.known
        if route.known:
            waiting.append((name, route, cap))

    go_on(start, nodes[start].core.strategy.route(topic, None), 2)
    while waiting:
        name, route, cap = waiting.popleft()
        for hop in route.hops:
            to, qos = nodes[hop.neighbour], min(cap, hop.qos)
            back = to.name == start and to.options.strategy.returns and f"{start} again" not in asked
            if qos < 0 or (to.name in asked and not back):
                continue
            asked.add(f"{start} again" if back else to.name)
            if not to.up:
                way.whole = False
                continue
            strategy = to.core.strategy
            further = strategy.follow(topic, name, hop.plan) if hop.plan else strategy.route(topic, name)
            if further.known and further.local and to.name != start:
                way.sites[to.name] = qos
            go_on(to.name, further, qos)
    return way
