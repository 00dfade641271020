"""The simulator bites at gateways, too: every bug planted there is found.

A seed that fails without the bug shows nothing: each find is run once more without it, and must hold then.
"""

from __future__ import annotations

import pytest

from brokerweave.sim.run import SimOptions, run
from brokerweave.sim.schedule import GATEWAY, GATEWAY_DEATHS
from tests.chaos.planted_gateway_bugs import IN_DEATHS, IN_MOVES
from tests.chaos.test_planted_mesh_bugs import found

FOUND_AT: dict[str, int] = {}
"""A seed that finds a bug, where it is not one of the first: tried before all others, to save time."""


def in_moves(seed: int) -> str:
    return run(seed, SimOptions("mesh", 4, frozenset((GATEWAY,)))).problem


def in_deaths(seed: int) -> str:
    return run(seed, SimOptions("mesh", 4, frozenset((GATEWAY, GATEWAY_DEATHS)))).problem


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", IN_MOVES)
def test_a_bug_planted_in_moves_is_found(name: str) -> None:
    assert found(IN_MOVES[name], in_moves, FOUND_AT) is not None


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", IN_DEATHS)
def test_a_bug_planted_where_something_dies_is_found(name: str) -> None:
    assert found(IN_DEATHS[name], in_deaths, FOUND_AT) is not None


def test_there_are_at_least_six() -> None:
    assert len(IN_MOVES) + len(IN_DEATHS) >= 6
