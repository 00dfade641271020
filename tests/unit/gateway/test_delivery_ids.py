"""Packet ids of deliveries from two sites."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from brokerweave.gateway.delivery_ids import DeliveryIds
from brokerweave.gateway.ledger import PUBACK, PUBCOMP, PUBREC, TO_ACKNOWLEDGE, TO_RECEIVE, TO_RELEASE


def test_ids_that_nobody_left_open_stay_as_they_are() -> None:
    ids = DeliveryIds()
    assert not ids
    assert ids.delivered(5, {}) == 5
    assert ids.answered(PUBACK, 5, True) == (5, False)


def test_an_id_that_the_old_site_left_open_is_another_one_at_the_client() -> None:
    ids = DeliveryIds()
    assert ids.leave({5: TO_ACKNOWLEDGE}) == []
    own = ids.delivered(5, {})
    assert own != 5
    assert ids.answered(PUBACK, 5, True) == (0, False), "the old site's: nobody waits for it"
    assert ids.answered(PUBACK, own, True) == (5, False)
    assert not ids


def test_what_a_dead_site_left_half_done_is_brought_to_its_end() -> None:
    ids = DeliveryIds()
    assert ids.leave({1: TO_RECEIVE, 2: TO_RELEASE}) == [2]
    assert ids.answered(PUBCOMP, 2, True) == (0, False)
    assert ids.answered(PUBREC, 1, False) == (0, True)
    assert ids.answered(PUBCOMP, 1, True) == (0, False)
    assert not ids


@given(st.sets(st.integers(1, 40), max_size=20), st.lists(st.integers(1, 40), max_size=60))
def test_no_two_open_deliveries_have_the_same_id_at_the_client(left: set[int], numbers: list[int]) -> None:
    ids = DeliveryIds()
    ids.leave(dict.fromkeys(left, TO_ACKNOWLEDGE))
    here: dict[int, int] = {}
    for number in numbers:
        if number in here:
            own = here.pop(number)
            assert ids.answered(PUBACK, own, True) == (number, False)
        else:
            own = ids.delivered(number, dict.fromkeys(here, TO_ACKNOWLEDGE))
            assert own not in left
            assert own not in here.values()
            here[number] = own
