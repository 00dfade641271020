"""A storm: who has load when, and the bound of what a subscriber sees."""

from __future__ import annotations

import pytest

from brokerweave.bench.migration.scenario import CENTRAL, WEST
from brokerweave.bench.migration.storm import AROUND, StormOptions, bound_ms, lit
from brokerweave.bench.migration.storm_load import PUBLISHER_EVERY, planned

PORTS = {CENTRAL: ("c", 1), WEST: ("w", 2)}


def test_load_is_for_those_that_move_and_those_around_them() -> None:
    options = StormOptions(100, 1, 1, 500.0)
    everybody = list(range(100))
    assert lit(everybody, 50, options) == list(range(50 - AROUND, 50 + AROUND + 1))
    assert lit(everybody, 0, options) == list(range(AROUND + 1))
    fifty = StormOptions(1000, 50, 1, 500.0)
    assert len(lit(list(range(1000)), 500, fifty)) == fifty.crowd == 60


def test_the_bound_is_two_round_trips_and_a_bit_and_the_time_between_two_messages() -> None:
    options = StormOptions(1000, 1, 1, 500.0)
    assert bound_ms(options) == pytest.approx(20 + 20 + 20 + 1000 * options.crowd / 500)


def test_each_client_that_moves_has_somebody_at_the_other_end() -> None:
    made = planned(10, PORTS)
    numbers = [each.number for some in made.values() for each in some]
    assert len(set(numbers)) == len(numbers)
    movers = {each.number: each for each in made[WEST]}
    assert movers.keys() == set(range(10))
    heard = {each.topic for each in made[WEST] if not each.publishes}
    assert heard == {each.topic for each in made[CENTRAL] if each.publishes}
    assert sum(each.publishes for each in made[WEST]) == 10 // PUBLISHER_EVERY
    (collector,) = [each for each in made[CENTRAL] if not each.publishes]
    assert {each.topic for each in made[WEST] if each.publishes} == {collector.topic}
