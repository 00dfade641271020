"""The sink's pace: the rate that was set, whenever it is asked."""

from __future__ import annotations

import random

from brokerweave.bench.sink import Pace

SECOND = 10**9


def test_while_publications_wait_the_rate_holds_however_irregularly_it_is_asked() -> None:
    chance, pace, now, served = random.Random(3), Pace(1000), 0, 0
    pace.allows(0, 10**6)
    while now < 10 * SECOND:
        now += chance.choice([1_000, 1_000_000, 300_000_000])
        served += pace.allows(now, 10**6)
    assert served == now * 1000 // SECOND


def test_time_without_work_is_not_made_up_for() -> None:
    pace = Pace(1000)
    assert pace.allows(0, 0) == 0
    assert pace.allows(5 * SECOND, 100) == 0
    assert pace.allows(5 * SECOND + 10_000_000, 100) == 10


def test_no_more_is_served_than_waits_and_without_a_rate_all_of_it() -> None:
    pace = Pace(1000)
    pace.allows(0, 5)
    assert pace.allows(SECOND, 5) == 5
    assert Pace(0).allows(0, 12_345) == 12_345
