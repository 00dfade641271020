"""What membership is held to, in virtual time: under faults, and with 100 members that lose every twentieth
datagram (in small in tests/unit/sim/test_membership.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from brokerweave.sim.membership_faults import run

LOSS = ("--loss", "0.05", "--preset", "lan")


def simulated(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "brokerweave", "sim", "membership", *LOSS, *arguments, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=1700, check=False)
    found: dict[str, Any] = json.loads(done.stdout)
    print({key: found[key] for key in found if key != "options"})
    return found


def broken(seeds: range) -> dict[int, str]:
    return {seed: problem for seed in seeds if (problem := run(seed))}


@pytest.mark.timeout(900)
def test_members_that_crash_pause_leave_and_are_split_know_the_truth_in_time() -> None:
    assert broken(range(1, 61)) == {}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_they_do_so_over_five_thousand_seeds() -> None:
    assert broken(range(1_000, 6_000)) == {}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_crash_is_known_everywhere_within_three_seconds_at_the_99th_percentile() -> None:
    found = simulated("--nodes", "100", "--duration", "10", "--crashes", "300", "--changes", "100")
    assert found["crash_known"]["count"] == 300
    assert found["crash_known"]["never"] == 0
    assert found["crash_known"]["p99"] <= 3.0
    assert found["change_known"]["p99"] <= 1.0
    assert found["false_deaths"] == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nobody_is_held_for_dead_in_vain_in_an_hour() -> None:
    found = simulated("--nodes", "100", "--duration", "3600", "--crashes", "0", "--changes", "0")
    assert found["virtual_seconds"] >= 3600
    assert found["false_deaths"] == 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_thousand_members_cost_each_hardly_more_than_fifty_do() -> None:
    few, many = (
        simulated("--nodes", nodes, "--duration", seconds, "--crashes", "0", "--changes", "0")
        for nodes, seconds in (("50", "120"), ("1000", "60"))
    )
    assert many["bytes_per_node_second"] <= 1.5 * few["bytes_per_node_second"]
