"""The checker counts what a subscriber lacks, and what it got too much, by itself alone."""

from __future__ import annotations

from brokerweave.bench.migration.checker import SubscriberVerdict, verdicts
from tests.unit.bench.migration import runs
from tests.unit.bench.migration.runs import Got, Sent

ALWAYS = (9, 0, 100_000)


def judged(
    sent: list[Sent], got: list[Got], qos: int = 1, there: tuple[int, int, int] = ALWAYS
) -> SubscriberVerdict:
    (found,) = verdicts(runs.sends(sent), runs.receives(got), runs.subscribers(there), qos)
    return found


def counted(found: SubscriberVerdict) -> tuple[int, int, int, int, int]:
    return found.owed, found.lost, found.doubled, found.disordered, found.strays


def test_all_that_came_once_and_in_order_is_in_order() -> None:
    found = judged([(1, 0, 10, True), (1, 1, 20, True)], [(9, 1, 0, 11), (9, 1, 1, 21)])
    assert counted(found) == (2, 0, 0, 0, 0)


def test_an_acknowledged_message_that_never_came_is_lost() -> None:
    found = judged([(1, 0, 10, True), (1, 1, 20, True)], [(9, 1, 1, 21)])
    assert counted(found) == (2, 1, 0, 0, 0)


def test_what_was_not_acknowledged_is_owed_at_qos_0_only() -> None:
    sent: list[Sent] = [(1, 0, 10, False)]
    assert counted(judged(sent, [])) == (0, 0, 0, 0, 0)
    assert counted(judged(sent, [], qos=0)) == (1, 1, 0, 0, 0)


def test_a_delivery_too_much_hides_no_loss() -> None:
    found = judged([(1, 0, 10, True), (1, 1, 20, True)], [(9, 1, 0, 11), (9, 1, 0, 12)])
    assert counted(found) == (2, 1, 1, 0, 0)


def test_order_is_that_of_each_publisher_and_repetitions_do_not_break_it() -> None:
    sent: list[Sent] = [(1, 0, 10, True), (1, 1, 20, True), (2, 0, 15, True)]
    fine: list[Got] = [(9, 2, 0, 16), (9, 1, 0, 17), (9, 1, 1, 21), (9, 1, 0, 22)]
    assert counted(judged(sent, fine)) == (3, 0, 1, 0, 0)
    swapped: list[Got] = [(9, 1, 1, 21), (9, 2, 0, 22), (9, 1, 0, 23)]
    assert counted(judged(sent, swapped)) == (3, 0, 0, 1, 0)


def test_what_was_sent_before_or_after_a_subscriber_was_there_is_not_owed() -> None:
    sent: list[Sent] = [(1, 0, 10, True), (1, 1, 20, True), (1, 2, 30, True)]
    assert counted(judged(sent, [(9, 1, 1, 21)], there=(9, 15, 25))) == (1, 0, 0, 0, 0)


def test_what_nobody_sent_is_a_stray() -> None:
    assert counted(judged([(1, 0, 10, True)], [(9, 1, 0, 11), (9, 7, 7, 12)])) == (1, 0, 0, 0, 1)
