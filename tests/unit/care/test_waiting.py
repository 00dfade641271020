"""Who waits for something goes on when it has come, and nobody else is looked at."""

from __future__ import annotations

from brokerweave.care.home import Home
from brokerweave.care.record import Record
from brokerweave.care.waiting import SLACK, Thresholds, WaitingHomes


def home(client: str) -> Home:
    return Home(Record(client))


def clients(homes: list[Home]) -> list[str]:
    return [each.client for each in homes]


def waiting(**versions: int) -> WaitingHomes:
    homes = WaitingHomes()
    for client, version in versions.items():
        homes.add(home(client), version, {"h": 10 * version})
    return homes


def test_only_those_are_told_whose_version_is_among_those_that_were_heard() -> None:
    homes = waiting(a=1, b=2, c=3, d=4)
    assert clients(homes.heard(1, 3)) == ["b", "c"]
    assert clients(homes.heard(3, 3)) == []


def test_each_neighbour_is_heard_by_itself() -> None:
    homes = waiting(a=1, b=2)
    assert clients(homes.heard(0, 2)) == ["a", "b"]
    assert clients(homes.heard(1, 2)) == ["b"]


def test_who_waits_for_an_earlier_version_after_others_is_told_too() -> None:
    assert clients(waiting(a=3, b=1, c=2).heard(0, 2)) == ["b", "c"]


def test_a_holder_tells_those_whose_positions_it_has() -> None:
    homes = waiting(a=1, b=2, c=3)
    assert clients(homes.had("h", 10, 25)) == ["b"]
    assert clients(homes.had("another", 0, 100)) == []


def test_who_waits_twice_is_told_once() -> None:
    homes = WaitingHomes()
    twice = home("a")
    homes.add(twice, 1, {})
    homes.add(twice, 2, {})
    assert clients(homes.heard(0, 2)) == ["a"]
    assert len(homes) == 1


def test_who_waits_no_longer_is_not_told() -> None:
    homes = waiting(a=1, b=1)
    homes.discard("a")
    assert clients(homes.heard(0, 1)) == ["b"]
    homes.add(home("b"), 5, {})  # the client came again: the home of before is gone
    assert clients(homes.heard(0, 1)) == []
    assert clients(homes.all()) == ["b"]


def test_those_who_wait_no_longer_take_no_room() -> None:
    waits: set[int] = set()
    thresholds: Thresholds[int] = Thresholds()
    for number in range(10 * SLACK):
        waits = {number}
        thresholds.add(number, number, waits.__contains__)
    assert len(thresholds) <= SLACK + 1
    assert thresholds.passed(0, 10 * SLACK)[-1] == 10 * SLACK - 1
