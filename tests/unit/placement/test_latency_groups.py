from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.placement.latency_groups import BOUNDS, group_of, group_text, nearest_group


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "[0, 2) ms"),
        (1.999, "[0, 2) ms"),
        (2, "[2, 5) ms"),
        (5, "[5, 10) ms"),
        (19.9, "[10, 20) ms"),
        (20, "[20, 50) ms"),
        (50, "[50, 100) ms"),
        (100, "[100, 200) ms"),
        (200, "[200, 500) ms"),
        (999, "[500, 1000) ms"),
        (1000, "[1000, inf) ms"),
    ],
)
def test_the_groups_are_the_papers(milliseconds: float, text: str) -> None:
    assert group_text(group_of(milliseconds / 1000)) == text


@given(st.floats(0, 5), st.floats(0, 5))
def test_a_shorter_round_trip_is_never_in_a_later_group(one: float, other: float) -> None:
    assert group_of(min(one, other)) <= group_of(max(one, other)) <= len(BOUNDS)


def test_the_nearest_group_has_all_sites_of_the_lowest_group_there_is() -> None:
    assert nearest_group({"a": 0.030, "b": 0.011, "c": 0.019, "d": 0.020}) == ["b", "c"]
    assert nearest_group({}) == []
