"""Queues of what waits for its route."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from brokerweave.node.waiting import Waiting, WaitingRun
from tests.unit.links.runs import run

keys = st.tuples(st.sampled_from([None, "b", "c"]), st.sampled_from(["s", "t"]))


@given(st.lists(st.tuples(st.booleans(), keys), max_size=40))
def test_each_queue_is_left_in_the_order_in_which_it_was_filled_and_all_is_counted(
    steps: list[tuple[bool, tuple[str | None, str]]],
) -> None:
    waiting, model = Waiting(), dict[tuple[str | None, str], list[int]]()
    for number, (adds, key) in enumerate(steps, 1):
        if adds:
            waiting.add(WaitingRun(key[1], run(number), key[0], number=number))
            model.setdefault(key, []).append(number)
        elif key in waiting:
            assert waiting.first(key) == (taken := waiting.pop(key))
            assert taken.number == model[key].pop(0)
        waiting.check()
        left = {key: numbers for key, numbers in model.items() if numbers}
        assert set(waiting.queues()) == set(left)
        assert waiting.queues(["t"]) == [key for key in waiting.queues() if key[1] == "t"]
        assert bool(waiting) == bool(left)
    for key in waiting.queues():
        while key in waiting:
            waiting.pop(key)
    assert (waiting.bytes, waiting.runs) == (0, 0)


def test_it_is_full_at_its_limit() -> None:
    waiting = Waiting(1_500)
    waiting.add(WaitingRun("t", run()))
    assert not waiting.full
    waiting.add(WaitingRun("t", run(2)))
    assert waiting.full
    waiting.pop((None, "t"))
    assert not waiting.full
