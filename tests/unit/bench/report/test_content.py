"""What a report's tables say, of runs that have indexes and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from brokerweave.bench import figures, report
from brokerweave.bench.figures import Distribution, EventPhase
from brokerweave.bench.folder import RunEvent, RunFolder
from brokerweave.bench.patterns import patterns
from brokerweave.bench.report.document import Table
from brokerweave.bench.scenario import PRESETS
from tests.unit.bench.test_trust import INDEXES, MEASUREMENT, RUN


def run_of(path: Path, *found: tuple[str, int, float]) -> RunFolder:
    """A run of patterns: name, repetition and egress of each."""
    folder, indexes = RunFolder(path), []
    folder.write_run(RUN)
    for name, repeat, egress in found:
        number, _ = folder.begin_measurement()
        folder.end_measurement(replace(MEASUREMENT, id=number, name=name, repeat=repeat))
        named = replace(INDEXES, id=number, name=name, repeat=repeat)
        indexes.append(replace(named, ingress_per_s=egress / 2, egress_per_s=egress))
    figures.write(folder, indexes)
    return folder


def rows(title: str, *folders: RunFolder) -> list[dict[str, str]]:
    (section,) = [each for each in report.document([*folders]).sections if each.title == title]
    (table,) = [part for part in section.parts if isinstance(part, Table)]
    return [dict(zip(table.head, row, strict=True)) for row in table.rows]


def test_patterns_are_compared_with_bridges_between_the_same_brokers(tmp_path: Path) -> None:
    folder = run_of(
        tmp_path, ("mosquitto S1", 0, 100), ("B sf", 0, 300), ("B bridges", 0, 200), ("C sf", 0, 400)
    )
    found = {row["name"]: (row["x single"], row["x bridges"]) for row in rows("Results", folder)}
    assert found == {
        "mosquitto S1": ("1.00", ""),
        "B sf": ("3.00", "1.50"),
        "B bridges": ("2.00", "1.00"),
        "C sf": ("4.00", ""),
    }


def test_the_report_of_patterns_says_where_servers_and_clients_are(tmp_path: Path) -> None:
    folder = run_of(tmp_path, ("D sf", 0, 300))
    made = {name: each.scenario.to_dict() for name, each in patterns(0.1, PRESETS["short"]).items()}
    folder.write_run(replace(RUN, scenario={"patterns": made}))
    found = {row["name"]: [*row.values()][1:] for row in rows("Placement", folder)}
    join, servers, clients = found["D sf"]
    assert (join, servers) == ("sf", "5 x mosquitto 10%, front node by unix")
    assert clients.startswith("site1: topic1 8+8, topic2 1+1, topic3 1+1, topic6 1+1; site2: topic2 8+8")
    assert found["mosquitto S2"][1] == "1 x mosquitto 100%, front none by tcp"


def test_of_a_failure_each_phase_has_its_latency_and_jitter(tmp_path: Path) -> None:
    folder = run_of(tmp_path, ("mesh one killed", 0, 100))
    (measurement,) = folder.measurements()
    folder.end_measurement(replace(measurement, events=(RunEvent(10**9, "killed site4"),)))
    wait, off = Distribution(3, mean=2.0, p99=3.0, worst=4.0), Distribution(2, p90=6.0, worst=7.0)
    (indexes,) = figures.read(folder)
    phases = (
        EventPhase("before", 90.0, wait, off),
        EventPhase("during", 80.0, Distribution(), Distribution()),
    )
    figures.write(folder, [replace(indexes, phases=phases)])
    before, during = rows("Before, during and after", folder)
    assert (before["out/s"], before["latency ms"], before["p90"], before["worst"]) == ("90", "2", "6", "7")
    assert (during["when"], during["out/s"], during["latency ms"]) == ("during", "80", "")


def test_repetitions_are_told_apart_in_two_runs_side_by_side(tmp_path: Path) -> None:
    one = run_of(tmp_path / "a", ("mosquitto S1", 0, 100), ("mosquitto S1", 1, 110))
    other = run_of(tmp_path / "b", ("mosquitto S1", 0, 105))
    assert [row["name"] for row in rows("Differences", one, other)] == ["mosquitto S1", "mosquitto S1 #2"]
