"""The simulator takes any strategy, and holds it to what it declares."""

from __future__ import annotations

import pytest

from brokerweave.errors import ConfigError
from brokerweave.sim import scale
from brokerweave.sim.run import SimOptions, run

HERE = "tests.unit.sim.own_strategies"
HUB = "examples.strategy_hub:Hub"


@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("strategy", [HUB, f"{HERE}:OneHop"])
def test_a_strategy_of_somebody_elses_holds_under_all_faults(strategy: str, seed: int) -> None:
    outcome = run(seed, SimOptions(strategy, 4))
    assert outcome.problem == ""
    assert outcome.counts["promised"] > 0


def test_one_that_leaves_a_site_out_is_found() -> None:
    assert run(1, SimOptions(f"{HERE}:Forgetful", 4, faults=frozenset())).problem


def test_one_that_sends_where_nobody_wants_it_is_found_if_it_says_that_it_does_not() -> None:
    problem = run(1, SimOptions(f"{HERE}:Boastful", 4, faults=frozenset())).problem
    assert "wants" in problem or "still sends" in problem


@pytest.mark.parametrize("strategy", [HUB, f"{HERE}:OneHop"])
def test_sim_scale_builds_the_wiring_that_a_strategy_needs(strategy: str) -> None:
    result = scale.ScaleRun(scale.ScaleOptions(nodes=9, strategy=strategy, duration=120.0)).run()
    assert (result.hops, result.missed, result.doubled) == (2 if strategy == HUB else 1, 0, 0)
    assert result.checked > 0


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'mesh'"):
        run(1, SimOptions("mech"))
