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
