"""Clients of gateways: moved, nothing is lost or doubled; when something dies, the promises of a mesh hold.

A failure names the seed: `brokerweave sim --strategy mesh --seed SEED --seeds 1 --faults gateway` shows the
shortest schedule that fails.
"""

from __future__ import annotations

import pytest

from brokerweave.sim import many
from brokerweave.sim.run import SimOptions
from brokerweave.sim.schedule import GATEWAY
from tests.chaos.test_simulator import failures


@pytest.mark.timeout(900)
def test_moves_lose_and_double_nothing_and_nothing_is_let_pass() -> None:
    total = many.summary(range(1, 4), SimOptions("mesh", 4, frozenset((GATEWAY,))))
    assert failures(total) == []
    assert total.allowances == {}
    assert total.counts["gateway moves, done"] > 15


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_moves_lose_and_double_nothing_and_nothing_is_let_pass() -> None:
    total = many.summary(range(1, 101), SimOptions("mesh", 4, frozenset((GATEWAY,))))
    assert failures(total) == []
    assert total.allowances == {}
