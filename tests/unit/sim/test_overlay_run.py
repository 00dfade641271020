"""Overlay runs: what a node's bytes and a site's latency are, links on demand, deaths."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest

from brokerweave.errors import ConfigError
from brokerweave.plugin import Hop, Linking, Route, Strategy, Traits
from brokerweave.sim.overlay_node import OverlayNode
from brokerweave.sim.overlay_run import OverlayOptions, OverlayResult, OverlayRun

STAR = "brokerweave.bench.overlay.star:Star"
EVERYBODY = f"{__name__}:ToEverybody"
CHAIN = f"{__name__}:InAChain"


class ToEverybody(Strategy):
    """Each publication to every other member."""

    name: ClassVar[str] = "to everybody"
    traits: ClassVar[Traits] = Traits()
    linking: ClassVar[Linking] = Linking.ON_DEMAND
    tree: ClassVar[bool] = False
    retained_everywhere: ClassVar[bool] = False

    def members_changed(self, live: frozenset[str]) -> None:
        self.context.routes_changed()

    def route(self, topic: str, came_from: str | None) -> Route:
        others = sorted(self.context.members() - {self.context.node_id})
        return Route(() if came_from else tuple(map(Hop, others)), local=True)


class InAChain(ToEverybody):
    """From one member to the next, by a plan that names those that are left."""

    name: ClassVar[str] = "in a chain"

    def subscribed(self, filters: Mapping[str, int]) -> None: ...

    def route(self, topic: str, came_from: str | None) -> Route:
        return self._next(sorted(self.context.members() - {self.context.node_id}))

    def follow(self, topic: str, came_from: str, plan: bytes) -> Route:
        return self._next(plan.decode().split())

    def _next(self, left: list[str]) -> Route:
        hops = (Hop(left[0], plan=" ".join(left[1:]).encode() or b" "),) if left else ()
        return Route(hops, local=True)


def run(**options: object) -> OverlayResult:
    return made(**options).result


def made(**options: object) -> OverlayRun:
    small = {
        "nodes": 6,
        "subscribers": 6,
        "publishers": 1,
        "topics": 1,
        "strategy": EVERYBODY,
        "seconds": 1.0,
    }
    done = OverlayRun(OverlayOptions(**{**small, **options}))  # type: ignore[arg-type]
    done.run()
    return done


@pytest.mark.parametrize("strategy", [EVERYBODY, CHAIN, STAR])
def test_each_site_gets_each_publication_once(strategy: str) -> None:
    result = run(strategy=strategy, publishers=3, topics=2)
    assert (result.published, result.deliveries) == (12, 3 * 2 * 5)
    assert (result.missed, result.doubled, result.failures) == (0, 0, 0)
    assert len(result.bytes) == len(result.latencies) == 6


def test_the_same_options_give_the_same_run_and_another_seed_another() -> None:
    assert run(seed=3) == run(seed=3)
    assert run(seed=3) != run(seed=4)


def test_sites_moments_and_delays_are_those_of_the_seed_whatever_the_strategy() -> None:
    one, other = made(strategy=EVERYBODY, subscribers=3), made(strategy=STAR, subscribers=3)
    assert (one.subscribed, one.publishing) == (other.subscribed, other.publishing)
    assert one.network.delay("s1n0", "s1n4") == other.network.delay("s1n4", "s1n0")


def test_latency_is_the_delay_and_the_time_in_the_uplink_before_it() -> None:
    """Five copies leave one after another: the site that is served last waits for four others."""
    delay, uplink = 0.005, 8e6
    result = run(delays=(delay, delay), uplink=uplink, payload=100_000)
    first, last = min(result.latencies), max(result.latencies)
    assert first == pytest.approx(delay + 0.1, rel=0.01)
    assert last == pytest.approx(delay + 0.5, rel=0.01)
    quick = run(delays=(delay, delay), uplink=1e15)
    assert quick.latencies == pytest.approx([delay] * 5)


def test_bytes_are_counted_where_they_leave_and_where_they_arrive() -> None:
    done = made(payload=50_000)
    nodes, result = done.nodes, done.result
    assert sum(node.bytes_out for node in nodes) == sum(node.bytes_in for node in nodes) == result.link_bytes
    publisher = nodes[done.publishing[0]]
    assert publisher.bytes_out == pytest.approx(2 * 5 * 50_000, rel=0.02)
    others = [node.bytes_in for node in nodes if node is not publisher]
    assert others == pytest.approx([2 * 50_000] * 5, rel=0.02)


def test_the_bytes_of_plans_are_counted() -> None:
    done = made(strategy=CHAIN)
    left = [node.name for node in done.nodes if node.number != done.publishing[0]]
    plans = [max(len(" ".join(sorted(left)[place:])), 1) for place in range(1, 6)]
    assert done.result.plan_bytes == 2 * sum(plans)
    assert run().plan_bytes == 0


def test_links_open_when_something_is_for_a_member() -> None:
    assert run().links == 5
    assert run(subscribers=1, strategy=STAR).links <= 2


def test_a_change_of_a_filter_costs_the_star_one_packet_and_the_barrier_two() -> None:
    done = made(strategy=STAR, changes=6)
    at_the_root = 1  # which tells nobody
    assert done.result.change_packets == (12 - 2 * at_the_root) / 12


def test_nodes_that_are_killed_do_nothing_and_survivors_hear_of_it() -> None:
    done = made(strategy=STAR, nodes=12, subscribers=12, publishers=12, kill=True, warm_up=2.0, seconds=6.0)
    (dead,) = done.coordinators()
    assert not dead.alive
    assert all(dead.name not in node.core.cluster.live for node in done.nodes if node is not dead)
    recovered = done.result.recovered_after
    assert recovered is not None
    # The new root is known when the death is: a probe interval and a suspicion later.
    assert 0.2 + 0.6 <= recovered <= 2.0
    steady, dip = done.result.timeline[1], min(done.result.timeline[4:6])
    assert dip == 0 < steady


def test_who_needs_no_coordinator_loses_nothing_when_it_dies() -> None:
    assert (
        run(kill=True, nodes=12, subscribers=12, publishers=12, warm_up=2.0, seconds=4.0).recovered_after
        == 0.0
    )


def test_a_link_that_is_hung_up_ends_at_both_sides_and_opens_again() -> None:
    done = made()
    one = done.nodes[done.publishing[0]]
    other = next(node for node in done.nodes if node is not one)
    assert linked(one, other)
    other.hang_up_member(one.name)
    one.hang_up_member(other.name)
    done.world.run(done.world.elapsed + 1.0)
    assert not linked(one, other)
    done.publishers[0].publish("topic0", (0).to_bytes(8))
    done.world.run(done.world.elapsed + 1.0)
    assert linked(one, other)


def linked(one: OverlayNode, other: OverlayNode) -> bool:
    return one.core.is_up(other.name) and other.core.is_up(one.name)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribers": 7}, "not more subscribers than nodes"),
        ({"payload": 4}, "at least 8 bytes"),
        ({"strategy": "sf"}, "no links on demand"),
        ({"kill": True}, "two intervals"),
    ],
)
def test_what_cannot_be_run_is_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run(**options)
