"""What a broker may be about to deliver is found by its stamp, or else by its content."""

from __future__ import annotations

import pytest

from brokerweave.care import recent
from brokerweave.care.recent import Entering, RecentPublications
from tests.unit.care.messages import held

CONTENT = held(1, "x").hash


def entering(publisher: str = "c", packet_id: int = 1) -> Entering:
    return Entering(publisher, packet_id, "t", CONTENT, 1)


def test_publications_that_say_the_same_are_found_in_the_order_in_which_they_came() -> None:
    came = RecentPublications()
    came.note(held(1, "x"))
    came.note(held(2, "y"))
    came.turn()
    came.note(held(3, "x"))
    assert came.of(CONTENT) == [held(1, "x"), held(3, "x")]
    assert came.of(b"another.") == []


def test_by_its_stamp_one_of_several_that_say_the_same_is_found() -> None:
    came = RecentPublications()
    came.note(held(1, "x"), b"stamp 01")
    came.turn()
    came.note(held(2, "x"), b"stamp 02")
    assert came.of(CONTENT + b"stamp 01") == [held(1, "x")]
    assert came.of(CONTENT + b"stamp 02") == [held(2, "x")]
    assert came.of(CONTENT + b"stamp 03") == []
    assert came.of(CONTENT) == [held(1, "x"), held(2, "x")]
    came.turn()
    assert came.of(CONTENT + b"stamp 01") == []


def test_of_two_that_enter_alike_a_stamp_tells_which_is_delivered() -> None:
    came, one, other = RecentPublications(), entering(), entering()
    one.stamp, other.stamp = b"stamp 01", b"stamp 02"
    came.enter(one)
    came.enter(other)
    assert came.entering(CONTENT + b"stamp 02") == [other]
    assert came.entering(CONTENT) == [one, other]


def test_a_publication_is_forgotten_at_the_second_turn() -> None:
    came = RecentPublications()
    came.note(held(1, "x"))
    assert came.turn()
    assert came.of(CONTENT) == [held(1, "x")]
    assert not came.turn()
    assert came.of(CONTENT) == []
    assert came.forgotten == 0


def test_if_there_are_too_many_the_earlier_ones_go_and_that_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent, "MOST", 2)
    came = RecentPublications()
    for number in range(1, 6):
        came.note(held(number))
    assert [held(number) in came.of(held(number).hash) for number in range(1, 6)] == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert came.forgotten == 2


def test_what_enters_is_known_until_it_has_an_id() -> None:
    came, one, other = RecentPublications(), entering(), entering("d")
    came.enter(one)
    came.enter(other)
    assert came.entering(CONTENT) == [one, other]
    assert came.entered("c", 2, CONTENT) is None
    assert came.entered("c", 1, b"another.") is None
    assert came.entered("c", 1, CONTENT) is one
    assert came.entered("c", 1, CONTENT) is None
    assert came.entering(CONTENT) == [other]
    assert came.entered("d", 1, CONTENT) is other
    assert came.entering(CONTENT) == []


def test_of_two_that_a_publisher_sends_alike_each_enters_once() -> None:
    came, first, second = RecentPublications(), entering(), entering()
    came.enter(first)
    came.enter(second)
    assert came.entered("c", 1, CONTENT) is first
    assert came.entered("c", 1, CONTENT) is second


def test_what_enters_stays_over_turns_of_the_window() -> None:
    came, one = RecentPublications(), entering()
    came.enter(one)
    came.turn()
    came.turn()
    assert came.entering(CONTENT) == [one]


def test_of_what_enters_and_never_leaves_the_oldest_goes_and_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recent, "MOST_ENTERING", 1)
    came, one = RecentPublications(), entering()
    came.enter(one)
    came.enter(Entering("c", 2, "t", b"another.", 2))
    assert came.entering(CONTENT) == []
    assert len(came.entering(b"another.")) == 1
    assert came.forgotten == 1
