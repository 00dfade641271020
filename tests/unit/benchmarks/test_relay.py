"""The pure parts of benchmarks/relay: a benchmark that computes wrongly convinces nobody."""

from __future__ import annotations

import pytest
from benchmarks.relay import wire
from benchmarks.relay.latency import percentile
from benchmarks.relay.measure import Spread
from benchmarks.relay.report import Target
from benchmarks.relay.search import highest


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


def test_every_publish_of_the_load_has_the_same_length_and_32_bytes_of_payload() -> None:
    heads = [wire.publish_head(f"bench/{number}") for number in range(5)]
    frames = [head + wire.PAYLOAD.pack(1, 2, 3) for head in heads]
    assert wire.PAYLOAD.size == 32
    assert {len(frame) for frame in frames} == {2 + 2 + len("bench/0") + 32}
    assert all(frame[1] == len(frame) - 2 for frame in frames)


def test_a_packet_too_long_for_a_one_byte_length_is_refused() -> None:
    with pytest.raises(ValueError, match="longer length"):
        wire.subscribe("x" * 200)


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
