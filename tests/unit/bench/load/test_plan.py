"""Dealing a scenario's clients out to workers."""

from __future__ import annotations

import json

from brokerweave.bench.load.plan import WorkerPlan, worker_plans
from brokerweave.bench.scenario import ClientGroup, Place, Scenario

SCENARIO = Scenario(
    "x",
    (Place("a"), Place("b")),
    (
        ClientGroup("a", "t1", publishers=3, subscribers=2),
        ClientGroup("b", "t2", publishers=3, subscribers=1),
        ClientGroup("b", "t1", subscribers=1),
        ClientGroup("a", "t6", publishers=1, subscribers=1, latency=True),
    ),
)
PLANS = worker_plans(SCENARIO, {"a": ("127.0.0.1", 1), "b": ("127.0.0.1", 2)}, "folder", "label")


def test_every_client_has_a_number_of_its_own_and_one_worker() -> None:
    numbers = [client.number for plan in PLANS for client in plan.clients]
    assert sorted(numbers) == list(range(12))


def test_latency_clients_have_a_worker_for_themselves_that_looks_at_once() -> None:
    kinds = [{client.kind for client in plan.clients} for plan in PLANS]
    assert kinds == [{0}, {0}, {1}]
    assert [plan.tick for plan in PLANS] == [SCENARIO.tick, SCENARIO.tick, 0.0]


def test_every_worker_knows_how_many_must_get_a_topics_messages_and_who_sends_them() -> None:
    for plan in PLANS:
        assert plan.topics == ("t1", "t2", "t6")
        assert plan.copies == (3, 1, 1)
        assert [len(each) for each in plan.publishers] == [3, 3, 1]


def test_publishers_take_turns_by_topic_and_spread_over_the_whole_interval() -> None:
    publishers = sorted(
        (c for plan in PLANS for c in plan.clients if c.publishes and c.kind == 0), key=lambda c: c.phase
    )
    assert [client.topic for client in publishers] == [0, 1, 0, 1, 0, 1]
    assert [round(client.phase * 6) for client in publishers] == list(range(6))


def test_both_workers_publish_and_listen() -> None:
    for plan in PLANS[:2]:
        assert {client.publishes for client in plan.clients} == {True, False}


def test_clients_connect_where_their_place_is() -> None:
    ports = {client.topic: client.port for plan in PLANS for client in plan.clients if client.publishes}
    assert ports == {0: 1, 1: 2, 2: 1}


def test_a_plan_survives_the_way_to_its_worker() -> None:
    for plan in PLANS:
        assert WorkerPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
