"""A small migration run, with real processes in emulated regions."""

from __future__ import annotations

from pathlib import Path

import pytest

from brokerweave.bench.folder import RunFolder, RunInfo
from brokerweave.bench.migration import computing, network, promises, records
from brokerweave.bench.migration.playing import PlayOptions, play
from brokerweave.bench.migration.procedures import PRESETS, Procedure
from brokerweave.bench.migration.scenario import (
    CENTRAL,
    WEST,
    EventKind,
    MigrationGroup,
    MigrationScenario,
    RegionSite,
    ScenarioEvent,
    eight_events,
)
from tests.support.verdicts import keeps

pytestmark = pytest.mark.skipif(network.missing() is not None, reason=str(network.missing()))
POLICY = "brokerweave.placement.steady:SteadyPolicy"


def two_sites(qos: int, phase: float) -> MigrationScenario:
    """Clients in eu-west at a site there, which stops."""
    sites = (RegionSite("central", CENTRAL), RegionSite("west-1", WEST))
    groups = (MigrationGroup("eu-group", WEST, "news", 2, 2, 1),)
    events = (
        ScenarioEvent(0, EventKind.SITE, ("central", "west-1"), "two sites"),
        ScenarioEvent(1, EventKind.CLIENTS, ("eu-group",), "clients"),
        ScenarioEvent(2, EventKind.STOP, ("west-1",), "the near one stops"),
    )
    return MigrationScenario(sites, groups, events, 20.0, qos, phase)


def run(scenario: MigrationScenario, options: PlayOptions, folder: Path) -> RunFolder:
    described = {**scenario.to_dict(), "topics": scenario.topics}
    kept = RunFolder(folder)
    kept.write_run(RunInfo("migration", described, {}, {}, "", ""))
    play(scenario, options, kept, print)
    return kept


def test_clients_of_a_site_that_stops_go_to_the_next_and_miss_nothing(tmp_path: Path) -> None:
    options = PlayOptions(Procedure.PLANNED, PRESETS["short"][1], POLICY)
    folder = run(two_sites(1, 1.0), options, tmp_path / "run")
    (measurement,) = folder.measurements()
    found, tables = computing.compute(folder, measurement)
    assert found.owed > 20
    moves = records.read(folder.folder_of(measurement.id), "moves").to_pylist()
    assert {row["client"] for row in moves if (row["cause"], row["outcome"]) == ("evacuated", "done")} == set(
        range(6)
    )
    keeps(not promises.broken(found, killed=False), f"{found}")
    assert "central" in tables["sites"]["site"].to_pylist()


@pytest.mark.slow
@pytest.mark.parametrize(("qos", "procedure"), [(0, "planned"), (1, "emma"), (2, "planned")])
def test_the_eight_events_with_small_groups(tmp_path: Path, qos: int, procedure: str) -> None:
    scenario = eight_events(2.0, qos, 12.0, gateways=2)
    policy = POLICY if procedure == "planned" else "brokerweave.placement.emma:EmmaPolicy"
    options = PlayOptions(Procedure(procedure), PRESETS["short"][1], policy)
    folder = run(scenario, options, tmp_path / "run")
    (measurement,) = folder.measurements()
    found, _ = computing.compute(folder, measurement)
    keeps(not promises.broken(found, killed=False), f"{found}")
    assert len(found.phases) == 8
    assert found.phases[6].taken["central"] == 0, "nothing of `global` reaches a site without clients"
