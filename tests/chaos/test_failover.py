"""A site killed under load behind a real HAProxy, by the harness of `benchmarks/failover` in small.

With `mesh`: nothing lost, nothing doubled where nobody died. With `sf`, which promises neither: everybody
comes back by themselves.
"""

from __future__ import annotations

from typing import Any

import pytest
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
