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
    assert (found.mean, found.loss, found.delay) == (inf, 1.0, inf)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8))
def test_losses_are_counted_together_and_one_or_two_of_all_are_chance(lost: list[int]) -> None:
    edge = Edge(Sample(float(at), 0.010, 0.0, each / 10) for at, each in enumerate(lost))
    assert (edge.lossy == 0) == (sum(lost) <= 2)
    assert isclose(edge.cost, 0.010 + edge.lossy)
    before = edge.lossy
    edge.add(Sample(100.0, 0.010, 0.0, 1.0))
    assert edge.lossy > before


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
    assert edge.latest.delay == inf
