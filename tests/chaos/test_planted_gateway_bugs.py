"""The simulator bites at gateways, too: every bug planted there is found.

A seed that fails without the bug shows nothing: each find is run once more without it, and must hold then.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from brokerweave.sim.run import SimOptions, run
from brokerweave.sim.schedule import GATEWAY, GATEWAY_DEATHS
from tests.chaos.planted_gateway_bugs import IN_DEATHS, IN_MOVES
from tests.chaos.test_planted_mesh_bugs import found

FOUND_AT = {
    "a_client_that_leaves_does_not_wait_for_an_answer": 2,
    "a_doubled_order_is_carried_out_twice": 17,
    "a_ping_ends_the_replay": 4,
    "a_publication_that_has_its_pubrec_goes_again": 53,
    "deliveries_are_answered_to_the_wrong_site": 3,
    "publications_without_an_answer_are_not_sent_again": 48,
    "retained_messages_pass_again_at_a_replay": 4,
}
"""A seed that finds a bug, where it is not one of the first: tried before all others, to save time."""


SLOW = {
    "an_old_session_leaves_its_will",
    "an_order_that_is_refused_late_has_no_result",
    "a_client_comes_back_to_any_site",
    "a_client_that_leaves_does_not_wait_for_an_answer",
    "a_ping_ends_the_replay",
    "publications_without_an_answer_are_not_sent_again",
    "subscriptions_are_not_asked_for_again",
}


def _params(names: Iterable[str]) -> list[object]:
    return [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in names]


def in_moves(seed: int) -> str:
    return run(seed, SimOptions("mesh", 4, frozenset((GATEWAY,)))).problem


def in_deaths(seed: int) -> str:
    return run(seed, SimOptions("mesh", 4, frozenset((GATEWAY, GATEWAY_DEATHS)))).problem


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", _params(IN_MOVES))
def test_a_bug_planted_in_moves_is_found(name: str) -> None:
    assert found(IN_MOVES[name], in_moves, FOUND_AT) is not None


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", _params(IN_DEATHS))
def test_a_bug_planted_where_something_dies_is_found(name: str) -> None:
    assert found(IN_DEATHS[name], in_deaths, FOUND_AT) is not None


def test_there_are_at_least_six() -> None:
    assert len(IN_MOVES) + len(IN_DEATHS) >= 6
