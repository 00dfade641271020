"""The simulator bites: every planted bug is found within 300 seeds."""

from __future__ import annotations

import pytest

from brokerweave.sim.run import Options, run
from tests.chaos.planted_bugs import PLANTED

SEEDS = 300


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[name](monkeypatch)
    for seed in range(1, SEEDS + 1):
        options = Options(strategy="pf" if seed % 4 == 0 else "sf", nodes=3 + seed % 3)
        problem = run(seed, options).problem
        if problem:
            assert "Error:" not in problem, "the patch itself is broken"
            return
    pytest.fail(f"{name} was not found in {SEEDS} seeds")
