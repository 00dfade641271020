from __future__ import annotations

from math import inf, isfinite, nan
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.placement.coordinates import MOST_STEP, Coordinates
from brokerweave.placement.policy import PolicySettings
from brokerweave.placement.steady import SteadyPolicy
from brokerweave.sim.placement import PlacementWorld


@pytest.mark.parametrize("nonsense", [nan, inf, -inf, 0.0, -0.1, 11.0])
def test_what_is_no_round_trip_is_refused_and_counted(nonsense: float) -> None:
    coordinates = Coordinates(Random(1))
    coordinates.heard("a", "b", nonsense)
    assert (coordinates.refused, coordinates.guess("a", "b")) == (1, None)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("def"), st.floats()), max_size=60))
def test_whatever_is_heard_guesses_are_finite_and_no_step_is_longer_than_allowed(
    heard: list[tuple[str, str, float]],
) -> None:
    coordinates = Coordinates(Random(1))
    for one, other, trip in heard:
        before = coordinates.guess(one, other)
        coordinates.heard(one, other, trip)
        guess = coordinates.guess(one, other)
        assert guess is None or (isfinite(guess) and guess > 0)
        if before is not None and guess is not None:
            assert guess <= before + 3 * (2 * MOST_STEP + max(trip if trip == trip else 0, 0, before))
    assert all(0 <= coordinates.error(name) <= 1.5 for name in "abcdef")


def test_guesses_come_near_the_truth_for_pairs_that_never_measured() -> None:
    world, random = PlacementWorld(40, 20, SteadyPolicy(PolicySettings()), 3), Random(5)
    gateways, sites = [each.name for each in world.gateways], list(world.core.graph.sites)
    unmeasured = {(gateway, random.choice(sites)) for gateway in gateways}
    coordinates = Coordinates(Random(2))
    for _ in range(6000):
        pair = random.choice(gateways), random.choice(sites)
        if pair not in unmeasured:
            coordinates.heard(*pair, world.round_trip(*pair))
    off = []
    for pair in unmeasured:
        guess, truth = coordinates.guess(*pair), world.round_trip(*pair)
        assert guess is not None
        off.append(abs(guess - truth) / truth)
    assert median(off) < 0.1


def test_who_is_forgotten_begins_anew() -> None:
    coordinates = Coordinates(Random(1))
    coordinates.heard("a", "b", 0.010)
    coordinates.forget("b")
    assert coordinates.guess("a", "b") is None
