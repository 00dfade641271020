"""A publication that its publisher sends again is known by its packet id and what it says."""

from __future__ import annotations

import pytest

from brokerweave.care import publishers
from brokerweave.care.ids import MessageId
from brokerweave.care.publishers import TOLD, Publishers, Sent


def sent(number: int) -> Sent:
    return Sent(MessageId("a", 1, 0, number), False, "a")


def noted(*numbers: int) -> Publishers:
    known = Publishers()
    for number in numbers:
        known.note("c", number, b"content.", sent(number))
    return known


def test_a_publication_is_found_by_client_packet_id_and_content() -> None:
    known = noted(1)
    assert known.find("c", 1, b"content.") == sent(1)
    assert known.find("d", 1, b"content.") is None
    assert known.find("c", 2, b"content.") is None
    assert known.find("c", 1, b"another.") is None


def test_of_two_with_one_packet_id_and_content_the_later_counts() -> None:
    known = noted(1)
    known.turn()
    known.note("c", 1, b"content.", sent(2))
    assert known.find("c", 1, b"content.") == sent(2)
    assert known.last("c") == ((1, b"content.", sent(2).id),)


def test_what_was_noted_before_the_last_turn_is_forgotten() -> None:
    known = noted(1)
    assert known.turn()
    known.note("c", 2, b"content.", sent(2))
    assert known.find("c", 1, b"content.") == sent(1)
    assert known.turn()
    assert known.find("c", 1, b"content.") is None
    assert known.find("c", 2, b"content.") == sent(2)
    assert not known.turn()
    assert known.last("c") == ()


def test_where_a_client_comes_its_last_publications_are_told() -> None:
    known = noted(*range(1, TOLD + 1))
    known.turn()
    known.note("c", TOLD + 1, b"content.", sent(TOLD + 1))
    assert [packet_id for packet_id, _, _ in known.last("c")] == list(range(2, TOLD + 2))
    assert known.last("d") == ()


def test_what_was_sent_again_is_among_the_last() -> None:
    known = noted(*range(1, TOLD + 1))
    known.note("c", 1, b"content.", sent(1))
    known.note("c", TOLD + 1, b"content.", sent(TOLD + 1))
    told = [packet_id for packet_id, _, _ in known.last("c")]
    assert told == [*range(3, TOLD + 1), 1, TOLD + 1]


def test_if_there_are_too_many_the_earlier_ones_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishers, "MOST", 2)
    known = noted(1, 2, 3)
    assert known.overflows == 1
    assert known.find("c", 1, b"content.") == sent(1)
    for number in (4, 5, 6):
        known.note("c", number, b"content.", sent(number))
    assert known.overflows == 2
    assert known.find("c", 1, b"content.") is None
    assert known.find("c", 6, b"content.") == sent(6)
