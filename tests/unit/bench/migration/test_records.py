"""What a run leaves behind, how much of it is owed, and the report that is made of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from brokerweave.bench import report, run_indexes
from brokerweave.bench.folder import RECEIVES, RESOURCES, SENDS, RunFolder, RunInfo, log_writer, read_log
from brokerweave.bench.migration import computing, records
from brokerweave.bench.migration.records import RunClient, RunMove, SiteSample
from tests.unit.bench.migration import runs
from tests.unit.bench.migration.runs import MS

STAYS = RunClient(9, "eu-group", "g-1", 0, False, 0, 100_000 * MS)
LEAVES = RunClient(8, "global", "g-2", 0, False, 15 * MS, 25 * MS)
PUBLISHES = RunClient(1, "eu-group", "g-1", 0, True, 0, 100_000 * MS)


def keep(path: Path, schema: pa.Schema, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with log_writer(path, schema) as writer:
        writer.write_table(table)


def fill(folder: Path) -> None:
    keep(folder / "sends-0.arrow", SENDS, runs.sends([(1, number, 10 * number, True) for number in range(4)]))
    got = [(9, 1, number, 10 * number + 1) for number in range(4)]
    keep(folder / "receives-0.arrow", RECEIVES, runs.receives(got))
    keep(folder / "receives-1.arrow", RECEIVES, runs.receives([(8, 1, 2, 21), (8, 1, 3, 31)]))
    keep(folder / "resources.arrow", RESOURCES, RESOURCES.empty_table())


def test_a_message_is_owed_to_those_who_were_there_when_it_was_sent(tmp_path: Path) -> None:
    fill(tmp_path)
    records.settle(tmp_path, [STAYS, LEAVES, PUBLISHES])
    sends = read_log([tmp_path / "sends-0.arrow"], SENDS)
    assert sends["copies"].to_pylist() == [1, 1, 2, 1]
    kept = read_log([tmp_path / "receives-1.arrow"], RECEIVES)
    assert kept["message"].to_pylist() == [2], "what came while it was leaving does not count"
    assert len(read_log([tmp_path / "receives-0.arrow"], RECEIVES)) == 4


def test_what_was_written_is_read(tmp_path: Path) -> None:
    records.write(tmp_path, "clients", [STAYS, LEAVES])
    records.write(tmp_path, "moves", [RunMove(9, "a", "b", "policy", "done", 1, 2)])
    records.write(tmp_path, "sites", [])
    assert [row["client"] for row in records.read(tmp_path, "clients").to_pylist()] == [9, 8]
    assert records.read(tmp_path, "moves")["target"].to_pylist() == ["b"]
    assert len(records.read(tmp_path, "sites")) == 0


def test_the_report_shows_procedures_events_and_subscribers(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    scenario = {"topics": ["news"], "qos": 1, "sites": [{"name": "a", "region": "eu-west"}], "groups": []}
    folder.write_run(RunInfo("migration", scenario, {}, {}, "abc", "now"))
    number, path = folder.begin_measurement()
    fill(path)
    records.write(path, "clients", [STAYS, LEAVES, PUBLISHES])
    records.write(path, "moves", [RunMove(9, "a", "b", "policy", "done", 5 * MS, 12 * MS)])
    looks = [SiteSample(at * MS, "a", at, 2 * at, 3) for at in (1, 11, 21)]
    records.write(path, "sites", looks)
    records.settle(path, [STAYS, LEAVES, PUBLISHES])
    folder.end_measurement(replace(runs.measurement(1, 0), id=number))
    run_indexes.compute(folder)
    assert computing.read(folder, number)["lost"] == 0
    made = report.document([folder])
    titles = [section.title for section in made.sections]
    assert titles[:2] == ["Procedures", "planned, event by event"]
    assert "Across failures" not in titles
    written = report.write(made, tmp_path / "out")
    text = written[1].read_text()
    assert "| planned, QoS 1 | 5 | 0 |" in text
    assert "| eu-group | 1 | 4 | 0 |" in text
    assert "Latency, by topic" in written[0].read_text()
