"""A strategy that knows its routes late, and sends plans with its messages, among all faults."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerweave.cooperation.sf import SubscriptionFlooding
from brokerweave.plugin import NOT_YET, Context, Route
from brokerweave.sim import run as simulation


class Late(SubscriptionFlooding):
    name = "late"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.known: set[str] = set()

    def route(self, topic: str, came_from: str | None) -> Route:
        if topic not in self.known:
            self.context.call_later(0.3, lambda: self._learn(topic))
            return NOT_YET
        route = super().route(topic, came_from)
        hops = tuple(replace(hop, plan=_plan(self.context.node_id, hop.neighbour)) for hop in route.hops)
        return replace(route, hops=hops)

    def follow(self, topic: str, came_from: str, plan: bytes) -> Route:
        assert plan == _plan(came_from, self.context.node_id)
        return self.route(topic, came_from)

    def _learn(self, topic: str) -> None:
        self.known.add(topic)
        self.context.routes_changed([topic])


def _plan(source: str, target: str) -> bytes:
    return f"{source} to {target}".encode()


@pytest.mark.parametrize("seed", range(1, 9))
def test_what_waits_for_its_route_keeps_every_promise(seed: int) -> None:
    outcome = simulation.run(seed, simulation.SimOptions(strategy=f"{__name__}:Late"))
    assert not outcome.problem
    assert outcome.counts["dispatches"] > 100
