from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from brokerweave.placement.pace import MovePace


@given(st.floats(0.2, 50), st.lists(st.floats(0, 3), min_size=1, max_size=200))
def test_no_second_has_more_moves_than_allowed_and_one(per_second: float, gaps: list[float]) -> None:
    pace, now, taken = MovePace(1000, per_second, 0.0), 0.0, []
    for gap in gaps:
        now += gap
        while pace.take(0, now):
            taken.append(now)
    for start in taken:
        within = sum(start <= each < start + 1 for each in taken)
        assert within <= 2 * max(per_second, 1.0) + 1


def test_nothing_begins_while_as_many_as_allowed_are_under_way() -> None:
    pace = MovePace(2, 100.0, 0.0)
    assert not pace.take(2, 5.0)
    assert pace.take(1, 5.0)
