"""Sites killed, drained, joined and split under load, by the harness of `benchmarks/failover` in small.

With `mesh`: nothing lost, nothing doubled where nobody died. With `sf`, which promises neither: everybody
comes back by themselves.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.failover import join, wires
from benchmarks.failover.account import Account, account
from benchmarks.failover.report import faults, harm
from benchmarks.failover.scene import Plan, run

from brokerweave.lab.balancer import Balancer

SMALL: dict[str, Any] = {"topics": 20, "rate": 200.0, "kills": 1, "calm": 2.0, "watched": 3.0}


def killed(plan: Plan) -> Account:
    if reason := Balancer.missing():
        pytest.skip(reason)
    record, kills = run(plan)
    found = account(record, kills, plan.calm)
    assert sum(each.cut_off for each in found.rounds) > 0, "the site that was killed had no clients"
    assert found.acknowledged == found.published
    assert found.never_sent == 0
    assert [each.never_back for each in found.rounds] == [0] * plan.kills
    return found


def test_with_sf_all_clients_of_a_killed_site_come_back_and_publishing_goes_on() -> None:
    found = killed(Plan(strategy="sf", **SMALL))
    assert found.delivered > 0
    assert all(each.returns for each in found.rounds)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("publish_qos", "subscribe_qos", "at_once"),
    [(1, 1, 1), (2, 2, 1), (1, 1, 2)],
    ids=["1", "2", "two sites"],
)
def test_with_mesh_nothing_acknowledged_is_lost_and_nothing_comes_twice_where_nobody_died(
    publish_qos: int, subscribe_qos: int, at_once: int
) -> None:
    plan = Plan(
        strategy="mesh",
        publish_qos=publish_qos,
        subscribe_qos=subscribe_qos,
        at_once=at_once,
        copies=at_once + 1,
        **SMALL,
    )
    found = killed(plan)
    assert faults(plan, found) == [], "\n".join(harm(found))


def test_when_only_a_sites_broker_dies_its_clients_miss_nothing_and_nobody_gets_anything_twice() -> None:
    plan = Plan(strategy="mesh", how="broker", **SMALL)
    found = killed(plan)
    assert faults(plan, found) == [], "\n".join(harm(found))


def test_clients_with_sessions_of_a_site_that_is_drained_miss_nothing() -> None:
    plan = Plan(strategy="mesh", how="drain", persistent=True, **{**SMALL, "watched": 5.0})
    found = killed(plan)
    assert faults(plan, found) == [], "\n".join(harm(found))


@pytest.mark.slow
@pytest.mark.parametrize("qos", [1, 2])
def test_a_site_that_joins_under_load_misses_nothing_and_gives_nothing_twice(qos: int) -> None:
    if reason := Balancer.missing():
        pytest.skip(reason)
    plan = Plan("mesh", topics=20, rate=200.0, publish_qos=qos, subscribe_qos=qos)
    stays, record = join.run(plan, 5, 4.0)
    assert all(stay.expected for stay in stays)
    assert [(stay.lost, stay.doubled) for stay in stays] == [(0, 0)] * len(stays)
    assert join.others(record) == (0, 0)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("qos", ["1", "2"])
def test_halves_of_a_split_mesh_go_on_and_have_all_of_each_other_when_it_heals(qos: str) -> None:
    if reason := wires.missing():
        pytest.skip(reason)
    # In a process of its own, since it leaves this machine's network for one that it makes.
    command = [sys.executable, "-m", "benchmarks.failover.split", "--qos", qos]
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
