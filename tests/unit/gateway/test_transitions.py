"""Each way of a move, as its table says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.errors import LocalProtocolError
from brokerweave.gateway.transitions import FLOWING, TABLE, WITH_SITE, ClientWay, Event, MoveStep, after

_RESULTS = {MoveStep.DONE, MoveStep.LATE, MoveStep.REFUSE, MoveStep.FAIL}


def walk(way: ClientWay, *events: Event) -> tuple[ClientWay, list[MoveStep]]:
    steps: list[MoveStep] = []
    for event in events:
        way, more = after(way, event)
        steps += more
    return way, steps


def test_a_planned_move_leaves_the_old_site_to_end_by_itself() -> None:
    way, steps = walk(ClientWay.AT_REST, Event.ORDERED, Event.OPENED, Event.ACCEPTED, Event.OWN_LOST)
    assert way is ClientWay.AT_REST
    assert steps == [
        MoveStep.DIAL,
        MoveStep.GREET,
        MoveStep.REPLAY,
        MoveStep.FORGET_OLD,
        MoveStep.SWITCH,
        MoveStep.DONE,
    ]


def test_emmas_procedure_connects_then_closes_then_replays_then_flushes() -> None:
    way, steps = walk(ClientWay.AT_REST, Event.ORDERED, Event.OPENED, Event.TAKEN_OVER)
    assert way is ClientWay.AT_REST
    assert steps[2:] == [
        MoveStep.LEAVE_OLD,
        MoveStep.FORGET_OLD,
        MoveStep.REPLAY,
        MoveStep.SWITCH,
        MoveStep.DONE,
    ]


@pytest.mark.parametrize("event", [Event.REFUSED, Event.OTHER_LOST, Event.OVERDUE])
def test_a_move_that_the_new_site_does_not_take_leaves_the_client_where_it_is(event: Event) -> None:
    way, steps = walk(ClientWay.AT_REST, Event.ORDERED, Event.OPENED, event)
    assert way is ClientWay.AT_REST
    assert MoveStep.RESUME in steps
    assert not {MoveStep.LEAVE_OLD, MoveStep.SWITCH} & set(steps)


def test_an_old_site_that_does_not_end_in_time_is_left() -> None:
    way, steps = walk(ClientWay.AT_REST, Event.ORDERED, Event.OPENED, Event.ACCEPTED, Event.OVERDUE)
    assert way is ClientWay.AT_REST
    assert steps[-4:] == [MoveStep.LEAVE_OLD, MoveStep.FORGET_OLD, MoveStep.SWITCH, MoveStep.LATE]


def test_a_client_whose_site_died_gets_the_next_one_that_answers() -> None:
    died = (Event.OWN_LOST, Event.UNREACHABLE, Event.OPENED, Event.REFUSED, Event.OPENED, Event.TAKEN_OVER)
    way, steps = walk(ClientWay.AT_REST, *died)
    assert way is ClientWay.AT_REST
    assert steps.count(MoveStep.SEEK) == 3
    assert steps[-3:] == [MoveStep.REPLAY, MoveStep.SWITCH, MoveStep.DONE]


@pytest.mark.parametrize("before", [(), (Event.OPENED,), (Event.OPENED, Event.ACCEPTED)])
def test_the_old_site_may_die_at_any_time_in_a_move(before: tuple[Event, ...]) -> None:
    way, steps = walk(ClientWay.AT_REST, Event.ORDERED, *before, Event.OWN_LOST)
    assert way in {ClientWay.SEEKING, ClientWay.ASKING, ClientWay.AT_REST}
    assert MoveStep.FORGET_OLD in steps


def test_what_cannot_happen_is_an_error() -> None:
    with pytest.raises(LocalProtocolError, match="accepted while at rest"):
        after(ClientWay.AT_REST, Event.ACCEPTED)


@given(st.data())
def test_whatever_happens_a_site_is_left_only_for_one_that_accepted_and_an_order_has_one_result(
    data: st.DataObject,
) -> None:
    way, ordered = ClientWay.AT_REST, False
    for _ in range(30):
        event = data.draw(st.sampled_from([each for at, each in TABLE if at is way]))
        before = way
        way, steps = after(way, event)
        if MoveStep.LEAVE_OLD in steps:
            assert event in {Event.TAKEN_OVER, Event.OVERDUE}
            assert before in {ClientWay.GREETING, ClientWay.DRAINING}
        if before in WITH_SITE and way not in WITH_SITE | {ClientWay.ENDED}:
            assert event is Event.OWN_LOST
        ordered = ordered or event is Event.ORDERED
        results = [step for step in steps if step in _RESULTS]
        assert len(results) <= 1
        if ordered and way is ClientWay.AT_REST:
            assert len(results) == 1
            ordered = False
        if MoveStep.SWITCH in steps or MoveStep.RESUME in steps:
            assert way in FLOWING
        if way is ClientWay.ENDED:
            assert MoveStep.END in steps
            return
