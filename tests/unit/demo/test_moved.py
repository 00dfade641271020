"""The arithmetic of the summary of the demo's gateways."""

from __future__ import annotations

import pytest

from brokerweave.demo.deliveries import Key, SentMessage
from brokerweave.demo.moved import MovesStage, MovesTally, tally

STAGE = MovesStage(10.0, 20.0)


def key(sequence: int) -> Key:
    return "west", "s0", sequence


SENT = [SentMessage(key(number), 10.0 + number, 10.1 + number) for number in range(5)]
ALL = [(message.key, message.at + 0.2) for message in SENT]


def of(got: list[tuple[Key, float]], sent: list[SentMessage] = SENT, reconnects: int = 0) -> MovesTally:
    return tally(sent, [ALL, got], [(got, STAGE)], {"done": 3}, reconnects)


def test_what_arrived_once_everywhere_keeps_the_promise() -> None:
    found = of(ALL)
    assert found.ok
    assert (found.published, found.lost, found.doubled) == (5, 0, 0)


@pytest.mark.parametrize(
    ("found", "lost", "doubled"),
    [
        pytest.param(of(ALL[1:]), 1, 0, id="lost"),
        pytest.param(of([*ALL, ALL[0]]), 0, 1, id="doubled"),
        pytest.param(of(ALL, [*SENT, SentMessage(key(9), 15.0, None)]), 0, 0, id="not acknowledged"),
        pytest.param(of(ALL, reconnects=1), 0, 0, id="a connection ended"),
        pytest.param(tally(SENT, [ALL], [], {"failed": 1}, 0), 0, 0, id="nobody moved"),
        pytest.param(tally([], [], [], {"done": 1}, 0), 0, 0, id="nothing published"),
    ],
)
def test_anything_else_breaks_it(found: MovesTally, lost: int, doubled: int) -> None:
    assert not found.ok
    assert (found.lost, found.doubled) == (lost, doubled)


def test_a_pause_is_the_longest_between_two_deliveries_while_clients_move() -> None:
    times = [1.0, 9.0, 11.0, 11.5, 14.0, 14.1, 19.0, 30.0]
    assert STAGE.longest_pause(times) == pytest.approx(4.9)
    assert STAGE.longest_pause([1.0, 30.0]) == 0


def test_pauses_are_told_at_the_median_and_at_99_percent() -> None:
    gaps = tuple(number / 100 for number in range(1, 101))
    found = MovesTally(1, 0, 1, 0, 0, {"done": 1}, 0, gaps)
    assert list(found.gap) == pytest.approx([0.505, 0.9901])
