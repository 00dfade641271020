"""What a home gives to its client, and in which order."""

from __future__ import annotations

from brokerweave.care.home import Home
from brokerweave.care.record import Record
from tests.unit.care.messages import held


def test_of_one_stream_ids_count_and_of_several_ages_do() -> None:
    """An age is told when a link carries it, and takes on what that took."""
    home = Home(Record("c"))
    home.grant({"#": 1}, tick=1)
    queue = [
        held(1, born=5.3),
        held(2, born=5.1),
        held(3, born=5.4),
        held(7, origin="q", born=5.2),
        held(8, origin="q", born=5.35),
    ]
    home.record.queue.update((each.id, each) for each in reversed(queue))
    given = [(each.id.origin, each.id.sequence) for each, _ in home.waiting(now=6.0)]
    assert given == [("q", 7), ("p", 1), ("p", 2), ("q", 8), ("p", 3)]


def test_an_earlier_one_that_the_node_gives_comes_before_what_the_broker_delivers() -> None:
    home = Home(Record("c"))
    for sequence in (1, 2, 3):
        home.record.queue[held(sequence).id] = held(sequence)
    home.delivering.by_broker = {held(2).id, held(3).id}
    assert home.gives_before(held(3))
    home.delivering.flight.add(held(1).id)
    assert not home.gives_before(held(3))
    home.record.queue[held(9, topic="u").id] = held(9, topic="u")
    assert not home.gives_before(held(3))


def test_what_there_was_no_room_for_on_the_way_to_the_broker_holds_up_nothing() -> None:
    home = Home(Record("c"))
    home.grant({"#": 1}, tick=1)
    for sequence in (1, 2, 3):
        home.record.queue[held(sequence).id] = held(sequence)
    home.delivering.by_broker = {held(1).id}
    assert home.waiting(now=6.0) == []
    home.delivering.refuse(held(1).id)
    assert [each.id.sequence for each, _ in home.waiting(now=6.0)] == [2, 3]
