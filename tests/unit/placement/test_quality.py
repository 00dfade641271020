from __future__ import annotations

from math import inf, isclose

from hypothesis import given
from hypothesis import strategies as st

from brokerweave.placement.quality import MOST_SAMPLES, Edge, Sample, sample


def test_jitter_is_the_mean_step_between_round_trips_that_follow_each_other() -> None:
    found = sample(7.0, [0.010, 0.014, 0.012], 4)
    assert (found.at, found.loss) == (7.0, 0.25)
    assert isclose(found.mean, 0.012)
    assert isclose(found.jitter, 0.003)


def test_a_measurement_without_an_answer_costs_more_than_any_other() -> None:
    found = sample(0.0, [], 10)
    assert (found.mean, found.loss, found.cost) == (inf, 1.0, inf)


@given(st.lists(st.floats(0, 2), min_size=1, max_size=10))
def test_every_ping_that_is_lost_adds_to_the_cost(trips: list[float]) -> None:
    costs = [sample(0.0, trips, pings).cost for pings in range(len(trips), 12)]
    assert costs == sorted(costs)
    assert len(set(costs)) == len(costs)


def test_costs_over_a_time_need_a_sample_from_before_it_and_one_in_it() -> None:
    edge = Edge([Sample(at, mean) for at, mean in ((0, 0.030), (15, 0.010), (30, 0.020))])
    assert edge.costs_over(30.0, 30.0) == (0.010, 0.030)
    assert edge.costs_over(20.0, 35.0) == (0.010, 0.020)
    assert edge.costs_over(31.0, 30.0) is None, "not measured for so long"
    assert edge.costs_over(10.0, 60.0) is None, "no longer measured"
    assert Edge().costs_over(10.0, 10.0) is None


def test_a_sample_that_was_overtaken_is_ignored_and_only_the_last_are_kept() -> None:
    edge = Edge()
    for at in [5.0, 3.0, 5.0, *range(6, 6 + MOST_SAMPLES)]:
        edge.add(Sample(float(at), 0.001))
    assert [each.at for each in edge.samples] == [float(at) for at in range(6, 6 + MOST_SAMPLES)]


def test_the_mean_of_a_way_that_fell_silent_is_the_last_one_known() -> None:
    edge = Edge([Sample(0, 0.010), Sample(15, inf, loss=1.0)])
    assert edge.mean == 0.010
    assert edge.latest.cost == inf
