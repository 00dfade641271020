from __future__ import annotations

from math import inf

from brokerweave.placement.measuring import INTERVAL, PATIENCE, PINGS, PingSeries


def begun(pings: int = PINGS) -> PingSeries:
    measuring = PingSeries("a", pings, 100.0)
    for number in range(pings):
        assert measuring.next_due() == 100.0 + number * INTERVAL
        measuring.send(number, measuring.next_due())
    return measuring


def test_ten_pings_go_out_a_quarter_of_a_second_apart_and_their_mean_comes_back() -> None:
    measuring = begun()
    for number in range(PINGS):
        assert not measuring.finished(103.0)
        measuring.answered(number, 100.0 + number * INTERVAL + 0.010 + 0.001 * (number % 2))
    assert measuring.finished(102.3)
    found = measuring.result(102.3)
    assert (round(found.mean, 6), round(found.jitter, 6), found.loss) == (0.0105, 0.001, 0.0)


def test_it_ends_without_the_answers_that_are_lost() -> None:
    measuring = begun(2)
    measuring.answered(0, 100.01)
    last = 100.0 + INTERVAL + PATIENCE
    assert measuring.next_due() == last
    assert not measuring.finished(last - 0.001)
    assert measuring.finished(last)
    assert measuring.result(last).loss == 0.5


def test_an_answer_that_comes_twice_too_late_or_to_nothing_does_not_count() -> None:
    measuring = begun(1)
    measuring.answered(7, 100.1)
    measuring.answered(0, 100.0 + PATIENCE + 0.1)
    assert measuring.result(110.0).mean == inf
    measuring = begun(1)
    measuring.answered(0, 100.5)
    measuring.answered(0, 101.5)
    assert measuring.result(110.0).mean == 0.5
