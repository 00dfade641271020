"""The default policy: it moves for good reasons only, and seldom."""

from __future__ import annotations

from math import inf, pi, sin
from random import Random

import pytest

from brokerweave.placement.graph import Load
from brokerweave.placement.policy import PolicySettings
from brokerweave.placement.quality import Sample
from brokerweave.placement.steady import SteadyPolicy
from tests.unit.placement.networks import SmallNetwork, steady


def test_a_client_moves_when_the_better_site_stayed_better_for_the_hold() -> None:
    net = SmallNetwork(steady(hold=60)).sites("a", "b")
    net.gateway("g", "a")
    net.pass_time(59, g={"a": 40, "b": 10})
    assert net.where() == {"g-0": "a"}
    net.pass_time(31, g={"a": 40, "b": 10})
    assert net.where() == {"g-0": "b"}
    (decision,) = net.core.history.last(1, net.now)
    assert decision.move.reason == "cost 40.0 ms at a, 10.0 at b, for 60 s"


def test_one_measurement_that_says_otherwise_begins_the_hold_anew() -> None:
    net = SmallNetwork(steady(hold=60)).sites("a", "b")
    net.gateway("g", "a")
    net.pass_time(45, g={"a": 40, "b": 10})
    net.pass_time(15, g={"a": 12, "b": 10})
    net.pass_time(59, g={"a": 40, "b": 10})
    assert net.where() == {"g-0": "a"}


def test_a_site_that_is_better_by_less_than_the_margin_is_not_worth_a_move() -> None:
    net = SmallNetwork().sites("a", "b")
    net.gateway("g", "a")
    net.pass_time(300, g={"a": 14, "b": 10})
    assert net.where() == {"g-0": "a"}


def test_a_client_rests_after_a_move() -> None:
    net = SmallNetwork(steady(hold=30, rest=600)).sites("a", "b")
    net.gateway("g", "a")
    net.pass_time(60, g={"a": 40, "b": 10})
    assert net.where() == {"g-0": "b"}
    net.pass_time(500, g={"a": 10, "b": 40})
    assert net.where() == {"g-0": "b"}
    net.pass_time(200, g={"a": 10, "b": 40})
    assert net.where() == {"g-0": "a"}


@pytest.mark.parametrize(("jitter", "loss"), [(0.010, 0.0), (0.0, 0.1)])
def test_jitter_and_loss_count_as_latency_does(jitter: float, loss: float) -> None:
    net = SmallNetwork().sites("a", "b")
    net.gateway("g", "a")
    for _ in range(6):
        net.core.graph.measured("g", "a", Sample(net.now, 0.010, jitter, loss))
        net.core.graph.measured("g", "b", Sample(net.now, 0.012))
        net.tick(15)
    assert net.where() == {"g-0": "b"}


def test_a_site_that_does_not_answer_is_left_after_the_hold() -> None:
    net = SmallNetwork().sites("a", "b")
    net.gateway("g", "a")
    net.measured("g", a=1)
    for _ in range(6):
        net.tick(15)
        net.core.graph.measured("g", "a", Sample(net.now, inf, loss=1.0))
        net.measured("g", b=20)
    net.tick(15)
    assert net.where() == {"g-0": "b"}


def test_sites_that_are_as_near_share_the_clients_by_their_weights() -> None:
    net = SmallNetwork().sites(a=1.0, b=3.0)
    net.gateway("g", "a", 40)
    net.pass_time(60, g={"a": 10, "b": 11})
    assert 26 <= net.count("b") <= 32


def test_messages_a_second_are_balanced_where_they_are_the_load() -> None:
    policy = SteadyPolicy(PolicySettings(load=Load.MESSAGES))
    net = SmallNetwork(policy).sites("a", "b")
    net.core.gateway_heard("g", "", 0.0)
    for number in range(8):
        net.core.client_at("g", f"busy{number}", "a", 100.0)
        net.core.client_at("g", f"calm{number}", "b", 0.0)
    net.pass_time(60, g={"a": 10, "b": 10})
    assert sorted(net.where()[f"busy{number}"] for number in range(8)).count("b") in (3, 4)
    assert all(net.where()[f"calm{number}"] == "b" for number in range(8))


def test_cpu_is_balanced_where_it_is_the_load() -> None:
    net = SmallNetwork(SteadyPolicy(PolicySettings(load=Load.CPU))).sites("a", "b")
    net.gateway("g", "a", 10)
    net.core.graph.sites["a"].cpu = 0.8
    net.measured("g", a=10, b=10)
    net.tick(10)
    net.now = 40.0
    net.measured("g", a=10, b=10)
    assert 4 <= len(net.core.plan(40.0)) <= 5


def test_a_new_client_goes_to_the_least_loaded_of_the_sites_that_are_as_near() -> None:
    net = SmallNetwork().sites("a", "b", "c")
    net.gateway("g", "a", 5)
    net.measured("g", a=10, b=11, c=40)
    assert net.core.place("g", "new", net.now) == ["b", "a", "c"]


PERIODS = (20.0, 37.0, 60.0, 240.0, 1800.0, 0.0)


@pytest.mark.parametrize("period", PERIODS)
def test_sites_that_swing_around_the_same_mean_for_an_hour_move_nobody(period: float) -> None:
    """By 20 % to both sides, against each other: the worst case, whatever the period; 0 is at random."""
    net, random, mean = SmallNetwork().sites("a", "b"), Random(1), 20.0
    for number in range(40):
        net.gateway(f"g{number}", "ab"[number % 2], 5)
    while net.now < 3600:
        for number in range(40):
            phase = sin(2 * pi * net.now / period) if period else random.choice((-1, 1))
            net.measured(f"g{number}", a=mean * (1 + 0.2 * phase), b=mean * (1 - 0.2 * phase))
        net.tick(15)
    assert net.sent == []
