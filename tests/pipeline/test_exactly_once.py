"""Exactly once, under fire: drivers, a node and a Flight service are killed or frozen while sensors publish.

The lake is read with pyarrow and with DuckDB. What is promised: nothing that was acknowledged is missing;
each row of a log is there once; a message comes twice only if its client sent it twice, and then it is
marked; silver has each message once.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.pipeline import lakes
from tests.pipeline.fire import IN_FLIGHT, Driver, Publisher, RecordingSite, recording_sites, wait_for_answers
from tests.support.verdicts import all_arrived, keeps, once_each
from tests.support.waiting import wait_until

BROKERS = {"a": "mosquitto", "b": "nats", "c": "rabbitmq"}
PHASES = 5
MILLION = [pytest.mark.slow, pytest.mark.million, pytest.mark.timeout(7200)]


class Fleet:
    """Drivers that live and die together, each with a lake of its own."""

    def __init__(self, drivers: list[Driver]) -> None:
        self.drivers = drivers

    def start(self) -> None:
        for driver in self.drivers:
            driver.start()

    def kill(self) -> None:
        for driver in self.drivers:
            driver.kill()

    def wait_for_more(self, nodes: str) -> None:
        """Until every lake has more of these nodes than it has now."""
        before = [driver.held() for driver in self.drivers]
        for driver, held in zip(self.drivers, before, strict=True):
            driver.wait_for_more(list(nodes), held)


def under_fire(
    sites: dict[str, RecordingSite], fleet: Fleet, each: int, frozen: float
) -> tuple[set[str], set[str]]:
    """Publish `each` messages a site; who was acknowledged, and who was not when a node was killed."""
    interrupted: set[str] = set()
    publishers = {name: Publisher(site.node.port, name) for name, site in sites.items()}

    def go_on(phase: int) -> None:
        for publisher in publishers.values():
            publisher.allow(each * phase // PHASES)
        # Somewhere in the middle of a phase, with messages on their way.
        enough = each * phase // PHASES - each // PHASES // 2
        wait_for_answers(list(publishers.values()), enough)

    def kill_node() -> None:
        interrupted.update(publishers["a"].unanswered())
        sites["a"].node.restart(kill=True)

    try:
        fleet.start()
        go_on(1)
        fleet.wait_for_more("abc")
        fleet.kill()
        fleet.start()
        go_on(2)
        kill_node()
        fleet.wait_for_more("abc")
        sites["b"].freeze_service()
        until = time.monotonic() + frozen
        go_on(3)
        fleet.wait_for_more("ac")
        wait_until(lambda: time.monotonic() > until, "the end of the frost", frozen + 1)
        fleet.kill()
        sites["b"].thaw_service()
        fleet.start()
        go_on(4)
        kill_node()
        fleet.wait_for_more("abc")
        fleet.kill()
        go_on(5)
        wait_for_answers(list(publishers.values()), each)
        assert publishers["a"].reconnects >= 2
        return set().union(*(each.acknowledged for each in publishers.values())), interrupted
    finally:
        for publisher in publishers.values():
            publisher.close()


def check(lake: Path, acknowledged: set[str], interrupted: set[str]) -> None:
    bronze = lakes.read(lake, "bronze").select(["log_id", "epoch", "sequence", "payload", "dup"]).to_pylist()
    places = [(row["log_id"], row["epoch"], row["sequence"]) for row in bronze]
    once_each(places, list(set(places)), "bronze")
    ids = Counter(json.loads(row["payload"])["id"] for row in bronze)
    all_arrived(ids, acknowledged, "bronze")
    repeated = {identifier for identifier, count in ids.items() if count > 1}
    keeps(repeated <= interrupted, f"doubled, and sent once: {repeated - interrupted}")
    keeps(len(repeated) <= 2 * 2 * IN_FLIGHT, f"doubled: {repeated}")
    unmarked = [json.loads(row["payload"])["id"] for row in bronze if not row["dup"]]
    once_each(unmarked, list(set(unmarked)), "bronze, without what is marked")
    once_each(lakes.read(lake, "silver")["id"].to_pylist(), list(ids), "silver")

    duplicates = "SELECT count(*) FROM (SELECT 1 FROM rows GROUP BY {} HAVING count(*) > 1)"
    assert lakes.query(lake, "bronze", duplicates.format("log_id, epoch, sequence")) == [(0,)]
    seen = lakes.query(
        lake, "bronze", "SELECT DISTINCT json_extract_string(decode(payload), '$.id') FROM rows"
    )
    assert {identifier for (identifier,) in seen} == set(ids)
    assert lakes.query(lake, "silver", duplicates.format("id")) == [(0,)]
    assert lakes.query(lake, "silver", "SELECT count(DISTINCT id) FROM rows") == [(len(ids),)]


@pytest.mark.parametrize(
    ("formats", "messages", "frozen"),
    [
        pytest.param(["parquet"], 15_000, 8.0, marks=pytest.mark.timeout(1800)),
        pytest.param(["parquet", "delta"], 50_000, 30.0, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
        pytest.param(["parquet", "delta"], 1_000_000, 30.0, marks=MILLION),
    ],
)
def test_nothing_acknowledged_is_missing_and_nothing_is_there_twice(
    tmp_path: Path, formats: list[str], messages: int, frozen: float
) -> None:
    with contextlib.ExitStack() as stack:
        sites = stack.enter_context(recording_sites(BROKERS))
        addresses = [site.address for site in sites.values()]
        drivers = []
        for kind in formats:
            options = ["--format", kind, "--layers", "bronze,silver", "--node-timeout", "5", "--reader", kind]
            driver = Driver(tmp_path / kind, tmp_path / f"{kind}-check", addresses, options)
            drivers.append(stack.enter_context(driver))
        acknowledged, interrupted = under_fire(sites, Fleet(drivers), messages // 3, frozen)
        assert len(acknowledged) == messages // 3 * 3
        for driver in drivers:
            driver.start("available-now")
        for driver in drivers:
            assert driver.finish() == 0, driver.said()
            check(driver.lake, acknowledged, interrupted)
