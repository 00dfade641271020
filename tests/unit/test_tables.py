"""A dict that shrank gives its room back; one that is in use is left alone."""

from __future__ import annotations

from sys import getsizeof

from brokerweave.tables import ENTRY, SMALL, fit


def grown(count: int) -> dict[str, int]:
    return {str(number): number for number in range(count)}


def test_a_dict_that_held_much_more_gives_its_room_back_and_keeps_its_entries_in_order() -> None:
    table = grown(10_000)
    for number in range(9_990):
        del table[str(number)]
    assert getsizeof(table) > SMALL, "this is what a dict does by itself"
    fit(table)
    assert getsizeof(table) <= SMALL
    assert list(table.items()) == [(str(number), number) for number in range(9_990, 10_000)]


def test_an_emptied_dict_gives_its_room_back() -> None:
    table = grown(10_000)
    for name in list(table):
        del table[name]
    fit(table)
    assert getsizeof(table) == getsizeof({})


def test_a_dict_that_has_just_grown_is_far_from_being_remade() -> None:
    table: dict[str, int] = {}
    most = 0.0
    for number in range(20_000):
        table[str(number)] = number
        if getsizeof(table) > SMALL:
            most = max(most, getsizeof(table) / len(table))
    assert most * 4 < ENTRY
