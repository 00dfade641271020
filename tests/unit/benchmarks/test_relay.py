"""The pure parts of benchmarks/relay: a benchmark that computes wrongly convinces nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks.idle import percentile
from benchmarks.relay.measure import Load, Spread, as_sample, scenario
from benchmarks.relay.report import Target
from benchmarks.relay.search import highest

from brokerweave.bench.figures import Usage
from tests.unit.bench.test_trust import INDEXES


@pytest.mark.parametrize("limit", [3.0, 180.0, 2000.0, 2001.0, 7350.0, 90_000.0])
def test_the_search_ends_just_below_the_limit_wherever_that_is(limit: float) -> None:
    found = highest(lambda rate: rate <= limit, start=2000.0, precision=0.025, most_probes=30)
    assert limit / 1.026 <= found <= limit


def test_the_search_asks_no_more_often_than_it_may() -> None:
    asked: list[float] = []

    def never(rate: float) -> bool:
        asked.append(rate)
        return False

    assert highest(never, start=1000.0, most_probes=7) == 0.0
    assert len(asked) == 7


def test_the_load_has_as_many_clients_and_messages_as_before_and_one_more_at_the_far_node() -> None:
    made = scenario(Load(5000.0, 8.0), far=True, latency=True)
    assert (made.publishers, made.payload) == (50, 32)
    assert made.rate == pytest.approx(5000.0)
    assert [group for group in made.groups if group.place == "far"] == [made.groups[5]]
    assert (made.groups[5].topic, made.groups[5].subscribers) == ("bench/0", 1)


def test_a_sample_divides_cpu_by_what_went_into_the_relay_and_out_of_it() -> None:
    cores = {"near/relay": 0.5, "near/broker": 0.25, "load/0": 0.1}
    usage = tuple(Usage(role, used, used, 0) for role, used in cores.items())
    found = replace(INDEXES, ingress_per_s=1000.0, egress_per_s=9100.0, usage=usage, noise=0.125)
    wanted = scenario(Load(1000.0, 8.0), far=True, latency=True)
    got = as_sample(found, wanted, 100.0, "")
    assert [got.relay_us, got.broker_us, got.held] == pytest.approx([50.0, 25.0, 0.9])
    assert (got.load_cpu, got.others, got.crossed_per_s) == (0.1, 0.125, 100.0)


def test_a_percentile_is_the_smallest_value_that_covers_the_share() -> None:
    values = [float(number) for number in range(200, 0, -1)]
    assert percentile(values, 0.99) == 198.0
    assert percentile([5.0], 0.99) == 5.0


def test_a_spread_keeps_the_median_and_both_ends() -> None:
    assert Spread.of([3.0, 1.0, 9.0]) == Spread(median=3.0, low=1.0, high=9.0)


def test_a_target_knows_in_which_direction_it_is_missed() -> None:
    assert Target("cost", 1.4, 1.5).met
    assert not Target("cost", 1.6, 1.5).met
    assert Target("rate", 0.91, 0.90, at_most=False).met
    assert not Target("rate", 0.89, 0.90, at_most=False).met
