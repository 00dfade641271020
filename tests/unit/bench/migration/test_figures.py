"""Figures of a migration run: latency by phase, gaps of moves, throughput of sites."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerweave.bench.migration import figures
from brokerweave.bench.migration.figures import MigrationFigures, Places
from brokerweave.bench.migration.promises import broken
from brokerweave.bench.migration.scenario import CENTRAL, EAST, WEST
from tests.unit.bench.migration import runs

EVERY = 100
"""Milliseconds between two messages."""


def computed(
    lost: int | None = None, twice: int | None = None, name: str = "planned"
) -> tuple[MigrationFigures, dict[str, object]]:
    """Ten seconds, an event at 0 and one at 5 s; from then on messages take 50 ms, not 10. A move at 2 s
    holds deliveries back for 400 ms."""
    sent = [(1, number, number * EVERY, True) for number in range(100)]
    got = []
    for _, number, at, _ in sent:
        arrival = at + (10 if at < 5000 else 50)
        if 2000 <= at < 2400:
            arrival = 2410 + number
        got += [(9, 1, number, arrival)] * (0 if number == lost else 2 if number == twice else 1)
    looks = [(1000 * at, "a", 10 * at, 20 * at, 3) for at in range(10)]
    logs = runs.logs(
        runs.sends(sent),
        runs.receives(got),
        runs.subscribers((9, 0, 100_000)),
        runs.moves((9, "done", 2000, 2500), (1, "done", 2000, 2100), (9, "refused", 6000, 6001)),
        runs.sites(*looks),
    )
    found, tables = figures.compute(runs.measurement(10, 0, 5), logs, ["news"], 1)
    assert isinstance(found, MigrationFigures)
    return replace(found, name=name), dict(tables)


def test_latency_is_that_of_each_phase() -> None:
    found, _ = computed()
    first, second = found.phases
    assert second.topics[0].settled_p50 == pytest.approx(50)
    assert first.topics[0].settled_p50 == pytest.approx(10)
    assert first.topics[0].mean > 10
    assert (first.moves, second.moves) == (2, 1)
    assert first.last_move_s == pytest.approx(2.5)


def test_a_gap_is_the_longest_pause_around_a_move() -> None:
    found, _ = computed()
    assert (found.moves.done, found.moves.refused, found.moves.gaps) == (2, 1, 1)
    assert found.moves.gap_p50 == pytest.approx(2430 - 1910)
    assert found.moves.took_worst == pytest.approx(0.5)


def test_sites_are_shown_by_what_they_took_and_gave_each_second() -> None:
    found, tables = computed()
    rows = tables["sites"].to_pylist()  # type: ignore[attr-defined]
    assert {(row["in_per_s"], row["out_per_s"], row["clients"]) for row in rows} == {(10.0, 20.0, 3)}
    assert found.phases[0].clients == {"a": 3}


def test_only_sites_that_are_equally_near_have_to_have_as_many_clients() -> None:
    places = Places({"central": CENTRAL, "west-1": WEST, "west-2": WEST, "east": EAST}, [EAST, WEST])
    assert places.uneven({"central": 10, "west-1": 20}) == pytest.approx(10 / 30)
    assert places.uneven({"central": 0, "west-1": 20, "east": 50}) == 0
    assert places.uneven({"central": 0, "west-1": 20, "west-2": 24, "east": 50}) == pytest.approx(4 / 44)


@pytest.mark.parametrize(
    ("lost", "twice", "name", "killed", "count"),
    [
        (None, None, "planned", False, 0),
        (7, None, "planned", False, 1),
        (7, None, "planned", True, 1),
        (None, 7, "planned", False, 1),
        (None, 7, "planned", True, 0),
        (7, 8, "emma", False, 0),
    ],
)
def test_what_is_lost_or_comes_twice_breaks_the_promise_of_our_procedure_alone(
    lost: int | None, twice: int | None, name: str, killed: bool, count: int
) -> None:
    found, _ = computed(lost, twice, name)
    assert len(broken(found, killed=killed)) == count


def test_the_share_that_is_lost_is_the_mean_over_subscribers() -> None:
    found, _ = computed(lost=7)
    assert found.lost_share == pytest.approx(0.01)
    assert found.to_dict()["lost"] == 1
