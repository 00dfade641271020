"""Counting deliveries block by block, beside a count of the same by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest

from brokerweave.bench.folder import Times
from brokerweave.bench.load.plan import WorkerPlan, worker_plans
from brokerweave.bench.load.tally import DeliveryBlock, Tally
from brokerweave.bench.scenario import ClientGroup, Place, Scenario

BEGIN, END = 1_000_000, 5_000_000

Row = tuple[int, int, int, int, int]
"""subscriber's place, publisher, message, sent, received"""


def plan(*, latency: bool = False) -> WorkerPlan:
    groups = [ClientGroup("a", "t1", publishers=2, subscribers=2)]
    if latency:
        groups.append(ClientGroup("a", "t6", publishers=1, subscribers=1, latency=True))
    scenario = Scenario("x", (Place("a"),), tuple(groups), Times(1, 4, 1), interval=0.1, workers=1)
    plans = worker_plans(scenario, {"a": ("127.0.0.1", 1)}, "", "")
    return plans[-1]


def block(rows: list[Row]) -> DeliveryBlock:
    columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    return DeliveryBlock(*columns)


def tally(*blocks: list[Row]) -> Tally:
    made = Tally(plan(), BEGIN, END)
    for rows in blocks:
        made.add(block(rows))
    return made


def test_a_delivery_counts_by_when_it_came_and_a_message_by_when_it_was_sent() -> None:
    made = tally([(0, 0, 0, BEGIN - 1, BEGIN), (0, 0, 1, BEGIN, BEGIN + 1), (0, 0, 2, END - 1, END)])
    assert made.received == 2
    assert made.taken == 2
    assert sorted(made.latencies()) == [0, 0]


@pytest.mark.parametrize("together", [True, False])
def test_a_message_that_comes_twice_is_doubled_and_not_disordered(together: bool) -> None:
    rows = [
        (0, 0, 0, BEGIN, BEGIN + 5),
        (0, 0, 1, BEGIN, BEGIN + 6),
        (0, 0, 0, BEGIN, BEGIN + 7),
        (1, 0, 0, BEGIN, BEGIN + 8),
    ]
    made = tally(rows) if together else tally(rows[:2], rows[2:])
    assert (made.taken, made.doubled, made.disordered) == (3, 1, 0)
    assert made.latencies().size == 3


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_message_behind_a_higher_one_of_its_publisher_is_disordered(cut: int) -> None:
    rows = [
        (0, 0, 2, BEGIN, BEGIN + 5),
        (0, 1, 1, BEGIN, BEGIN + 6),
        (0, 0, 1, BEGIN, BEGIN + 7),
        (0, 0, 3, BEGIN, BEGIN + 8),
        (1, 1, 0, BEGIN, BEGIN + 9),
    ]
    assert tally(rows[:cut], rows[cut:]).disordered == 1


def test_with_latency_clients_only_theirs_is_the_latency() -> None:
    made = Tally(plan(latency=True), BEGIN, END)
    made.add(block([(0, 4, 0, BEGIN, BEGIN + 3_999)]))
    assert list(made.latencies()) == [3]
    assert made.received == 0
    assert made.taken == 1


def test_blocks_of_any_size_give_what_counting_one_by_one_gives() -> None:
    chance = random.Random(7)
    rows: list[Row] = []
    for _ in range(600):
        subscriber, publisher, message = chance.randrange(2), chance.randrange(2), chance.randrange(60)
        sent = message * 100_000 + publisher
        rows.append((subscriber, publisher, message, sent, sent + 10))
    seen: dict[tuple[int, int, int], int] = {}
    highest: dict[tuple[int, int], int] = {}
    disordered = 0
    for subscriber, publisher, message, sent, _ in rows:
        inside = BEGIN <= sent < END
        key = (subscriber, publisher, message)
        disordered += inside and key not in seen and message < highest.get(key[:2], -1)
        highest[key[:2]] = max(message, highest.get(key[:2], -1))
        if inside:
            seen[key] = seen.get(key, 0) + 1
    cuts = sorted(chance.sample(range(600), 12))
    made = tally(*(rows[a:b] for a, b in zip([0, *cuts], [*cuts, 600], strict=True)))
    assert made.taken == len(seen)
    assert made.doubled == sum(seen.values()) - len(seen)
    assert made.disordered == disordered
