"""A mesh: no client loses or gets twice what it was promised, with and without sites that die.

A failure names the seed: `brokerweave sim --strategy mesh --nodes N --seed SEED --seeds 1 --faults churn`
shows the shortest schedule that fails.
"""

from __future__ import annotations

import pytest

from brokerweave.sim import many
from brokerweave.sim.run import SimOptions
from brokerweave.sim.schedule import MOVE
from tests.chaos.test_simulator import failures

SEEDS = range(1, 21)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("nodes", [3, 4])
def test_without_faults_every_promise_is_kept_and_nothing_is_let_pass(nodes: int) -> None:
    total = many.summary(SEEDS, SimOptions("mesh", nodes, frozenset()))
    assert failures(total) == []
    assert total.allowances == {}
    assert total.counts["promised"] > total.counts["publications"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("nodes", [3, 4])
def test_equal_publications_are_told_apart_where_brokers_pass_user_properties(nodes: int) -> None:
    total = many.summary(SEEDS, SimOptions("mesh", nodes, frozenset(("churn",)), equal=True))
    assert failures(total) == []
    assert total.counts["promised"] > total.counts["publications"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("nodes", [3, 4])
def test_promises_hold_where_clients_come_and_go_and_sites_die(nodes: int) -> None:
    total = many.summary(SEEDS, SimOptions("mesh", nodes, frozenset(("churn",))))
    assert failures(total) == []
    assert total.counts["promised"] > total.counts["publications"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("nodes", [3, 4])
def test_planned_moves_lose_and_double_nothing_and_nothing_is_let_pass(nodes: int) -> None:
    total = many.summary(SEEDS, SimOptions("mesh", nodes, frozenset((MOVE,))))
    assert failures(total) == []
    assert total.allowances == {}
    assert total.counts["moves, drained"] > 100
    assert "moves, late" not in total.counts


@pytest.mark.timeout(900)
def test_promises_hold_where_clients_move_as_planned_and_sites_die() -> None:
    total = many.summary(SEEDS, SimOptions("mesh", 4, frozenset(("churn", MOVE))))
    assert failures(total) == []
    assert total.counts["moves, drained"] > 50
