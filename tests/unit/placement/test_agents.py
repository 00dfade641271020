"""Gateways, sites and controllers with each other, in virtual time, over datagrams that get lost."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from brokerweave.placement.followed import KnownSite
from brokerweave.placement.graph import GraphSite
from brokerweave.placement.history import MoveOutcome
from tests.unit.placement.air import Cluster, FakeGateway


def settled(*sites: str, clients: int = 3, **distances: float) -> Cluster:
    """One gateway whose clients are where they should be."""
    cluster = Cluster(*sites)
    cluster.distance("g", **distances)
    gateway = cluster.gateway("g")
    cluster.air.run(40)
    for number in range(clients):
        gateway.connect(f"x{number}")
        cluster.air.run(1)
    return cluster


def test_a_gateway_learns_the_sites_measures_them_and_the_controller_knows() -> None:
    cluster = settled("a", "b", a=4, b=30)
    edges = cluster.controllers["c1"].core.graph.gateways["g"].edges
    assert edges["a"].mean == pytest.approx(0.004, rel=0.01)
    assert edges["b"].mean == pytest.approx(0.030, rel=0.01)
    assert edges["a"].latest.pings == 10
    assert edges["a"].latest.loss == 0
    assert cluster.controllers["c1"].core.graph.sites["a"].cpu == 0.25
    assert cluster.gateways["g"].agent.sites["b"] == KnownSite("b", ("b", 1883), ("b", 1))


def test_new_clients_go_to_the_nearest_site_and_the_controller_hears_of_them() -> None:
    cluster = settled("a", "b", a=30, b=4)
    assert cluster.seen_by("c1") == {"x0": "b", "x1": "b", "x2": "b"}
    cluster.gateways["g"].agent.client_gone("x1", cluster.air.now)
    cluster.air.run(1)
    assert cluster.seen_by("c1") == {"x0": "b", "x2": "b"}


def test_clients_follow_when_another_site_becomes_better() -> None:
    cluster = settled("a", "b", a=4, b=30)
    cluster.distance("g", a=60)
    cluster.air.run(90)
    assert cluster.seen_by("c1") == {"x0": "b", "x1": "b", "x2": "b"}
    assert cluster.controllers["c1"].core.orders.counters["done"] == 3


def test_a_site_that_leaves_moves_its_clients_at_once() -> None:
    cluster = settled("a", "b", a=4, b=30)
    cluster.air.leave(("a", 1))
    cluster.controllers["c1"].core.site_gone("a")
    cluster.air.run(0.5)
    assert cluster.seen_by("c1") == {"x0": "b", "x1": "b", "x2": "b"}


def test_an_order_that_is_lost_or_doubled_moves_the_client_once() -> None:
    for seed in range(10):
        cluster = settled("a", "b", a=4, b=30)
        cluster.air.random = Random(seed)
        cluster.air.loss, cluster.air.doubled = 0.3, 0.3
        cluster.controllers["c1"].core.evacuate("a")
        cluster.air.run(25)
        assert Counter(cluster.gateways["g"].moves) == {(f"x{number}", "b"): 1 for number in range(3)}
        cluster.air.loss = 0.0
        cluster.air.run(10)
        assert set(cluster.seen_by("c1").values()) == {"b"}


def test_a_refusal_is_told_and_the_client_stays() -> None:
    cluster = settled("a", "b", a=4, b=30, clients=1)
    cluster.gateways["g"].outcome = MoveOutcome.REFUSED
    core = cluster.controllers["c1"].core
    core.move("x0", "b", cluster.air.now)
    cluster.air.run(1)
    (decision,) = core.history.last(1, cluster.air.now)
    assert (decision.outcome, decision.note) == (MoveOutcome.REFUSED, "as it was told")
    assert cluster.seen_by("c1") == {"x0": "a"}


def test_without_a_controller_clients_stay_and_new_ones_go_where_the_gateway_measured_last() -> None:
    cluster = settled("a", "b", a=4, b=30)
    cluster.air.leave(("c1", 1))
    cluster.air.run(60)
    gateway = cluster.gateways["g"]
    assert gateway.agent.follows == ""
    assert gateway.connect("late") == ["a", "b"]
    cluster.distance("g", a=90)
    cluster.air.run(60)
    assert gateway.connect("later") == ["b", "a"]
    assert gateway.moves == []


def test_a_controller_that_dies_while_it_is_asked_is_not_waited_for() -> None:
    cluster = settled("a", "b", a=4, b=30)
    cluster.air.leave(("c1", 1))
    found = cluster.gateways["g"].connect("late")
    cluster.air.run(0.4)
    assert found == ["a", "b"]


def test_a_controller_that_comes_back_knows_everything_within_one_round() -> None:
    cluster = settled("a", "b", a=4, b=30, clients=200)
    cluster.air.leave(("c1", 1))
    cluster.air.run(100)
    cluster.start_controller("c1")
    cluster.air.run(15)
    assert Counter(cluster.seen_by("c1").values()) == {"a": 200}
    edges = cluster.controllers["c1"].core.graph.gateways["g"].edges
    assert edges.keys() == {"a", "b"}


def test_a_gateway_that_restarts_begins_with_no_clients() -> None:
    cluster = settled("a", "b", a=4, b=30)
    cluster.gateway("g").connect("new")
    cluster.air.run(30)
    assert cluster.seen_by("c1").keys() == {"new"}


def test_of_two_controllers_the_lower_id_decides_and_the_other_takes_its_place_when_it_dies() -> None:
    cluster = Cluster("a", "b", controllers=("c2", "c1"))
    cluster.distance("g", a=4, b=30)
    gateway = cluster.gateway("g")
    cluster.air.run(40)
    gateway.connect("x")
    cluster.air.run(10)
    assert gateway.agent.follows == "c1"
    assert cluster.seen_by("c1") == cluster.seen_by("c2") == {"x": "a"}
    cluster.controllers["c2"].core.evacuate("a")
    cluster.air.run(20)
    assert gateway.moves == []
    cluster.air.leave(("c1", 1))
    cluster.air.run(40)
    assert gateway.agent.follows == "c2"
    assert gateway.moves == [("x", "b")]
    cluster.start_controller("c1")
    cluster.air.run(10)
    assert gateway.agent.follows == "c1"


def test_an_order_of_a_controller_that_is_not_followed_is_not_obeyed() -> None:
    cluster = Cluster("a", "b", controllers=("c2", "c1"))
    gateway = cluster.gateway("g")
    cluster.air.run(40)
    gateway.connect("x")
    cluster.air.run(10)
    other = cluster.controllers["c2"].core
    other.graph.gateways["g"].follows = "c2"
    other.move("x", "b" if cluster.seen_by("c2")["x"] == "a" else "a", cluster.air.now)
    cluster.air.run(3)
    assert gateway.moves == []


def test_a_new_site_is_told_to_gateways_and_one_that_is_gone_is_forgotten() -> None:
    cluster = settled("a", "b", a=30, b=40)
    cluster.distance("g", c=2)
    cluster.start_site("c")
    core = cluster.controllers["c1"].core
    core.site_here(GraphSite("c", ("c", 1883), ("c", 1)))
    core.site_gone("b")
    cluster.air.run(400)  # who was at b rests before it moves again
    assert cluster.gateways["g"].agent.sites.keys() == {"a", "c"}
    assert set(cluster.seen_by("c1").values()) == {"c"}


def test_an_address_that_the_gateway_was_given_for_a_site_stands_against_the_controllers() -> None:
    cluster = settled("a", "b", a=4, b=30)
    by_another_way = KnownSite("b", ("relay", 1883), ("b", 1))
    gateway = FakeGateway(cluster.air, "h", [("c1", 1)], [by_another_way, KnownSite("not there", ("x", 1))])
    cluster.air.run(5)
    assert gateway.agent.sites == {"a": KnownSite("a", ("a", 1883), ("a", 1)), "b": by_another_way}


def test_a_site_that_restarts_is_measured_again() -> None:
    cluster = settled("a", a=4)
    cluster.air.leave(("a", 1))
    cluster.air.run(60)
    edge = cluster.controllers["c1"].core.graph.gateways["g"].edges["a"]
    assert edge.latest.loss == 1.0
    cluster.start_site("a")
    cluster.air.run(40)
    assert edge.latest.loss == 0.0


def test_a_gateway_with_sites_of_its_own_does_without_a_controller() -> None:
    cluster = Cluster("a", "b", controllers=())
    cluster.distance("g", a=30, b=4)
    gateway = cluster.gateway("g", [KnownSite(name, (name, 1883), (name, 1)) for name in "ab"])
    cluster.air.run(20)
    assert gateway.connect("x") == ["b", "a"]


def test_strangers_garbage_and_replays_change_nothing_and_are_counted() -> None:
    cluster = settled("a", "b", a=4, b=30)
    agent, controller, air = cluster.gateways["g"].agent, cluster.controllers["c1"], cluster.air
    before = cluster.seen_by("c1")
    recorded, random = list(air.sent), Random(3)
    for data, _, to in recorded:
        air.send(data, ("thief", 1), to)
    for to in (("g", 1), ("c1", 1), ("a", 1)):
        for size in (0, 5, 42, 60, 1400, 2000):
            air.send(random.randbytes(size), ("stranger", 1), to)
    air.run(40)
    assert cluster.seen_by("c1") == before
    assert cluster.gateways["g"].moves == []
    for party in (agent, controller):
        assert party.refused["replayed"] > 10
        assert party.refused["too_long"] == 1
        assert party.refused["version"] + party.refused["unauthentic"] == 3
    assert agent.follows == "c1"
