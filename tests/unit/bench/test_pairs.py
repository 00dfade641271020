"""Pairs: the number of clients grows, nothing else does."""

from __future__ import annotations

import pytest

from brokerweave.bench.pairs import COUNTS, pairs, series
from brokerweave.bench.scenario import PRESETS
from brokerweave.errors import ConfigError


@pytest.mark.parametrize("join", ["none", "sf"])
@pytest.mark.parametrize("count", COUNTS)
def test_every_topic_has_one_publisher_and_one_subscriber_and_the_rate_stays(join: str, count: int) -> None:
    scenario = pairs(count, join, 0.15, PRESETS["short"])
    assert scenario.publishers == count
    assert scenario.sp_ratio == 1
    assert scenario.rate == pytest.approx(1000)
    assert (scenario.qos, scenario.subscriber_qos, scenario.payload) == (2, 0, 32)
    assert len({group.topic for group in scenario.groups}) == count


def test_four_sites_have_as_many_clients_each_and_half_of_the_pairs_are_apart() -> None:
    scenario = pairs(2000, "sf", 0.15, PRESETS["short"])
    for place in scenario.places:
        here = [group for group in scenario.groups if group.place == place.name]
        assert sum(group.publishers for group in here) == 500
        assert sum(group.subscribers for group in here) == 500
    together = sum(group.publishers == group.subscribers == 1 for group in scenario.groups)
    assert together == 1000


def test_a_series_has_every_number_of_pairs_under_the_name_of_the_way_so_that_they_can_be_compared() -> None:
    made = series(("none", "sf"), (50, 2000), 0.1, PRESETS["short"])
    named = [(scenario.name, scenario.publishers) for scenario in made]
    assert named == [("single", 50), ("single", 2000), ("sf", 50), ("sf", 2000)]


def test_a_way_that_four_sites_are_not_joined_by_is_refused() -> None:
    with pytest.raises(ConfigError, match="give none, or a strategy"):
        pairs(10, "bridges", 0.1, PRESETS["short"])


def test_pairs_that_would_not_all_send_while_they_are_measured_are_refused() -> None:
    with pytest.raises(ConfigError, match="give a higher --rate"):
        pairs(2000, "sf", 0.1, PRESETS["short"], rate=100.0)
