"""The report of a run as it comes from the logs: what it says and shows, and of two runs what differs."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pyspark.sql import SparkSession

from brokerweave.bench import report, spark_job
from brokerweave.bench.figures import Distribution, Indexes
from brokerweave.bench.folder import RunFolder
from brokerweave.bench.report.document import Chart, Document, Table, html, markdown
from brokerweave.cli.main import main
from brokerweave.errors import ConfigError
from brokerweave.pipeline.spark.failures import failure
from brokerweave.pipeline.spark.session import SPARK_ERRORS

pytestmark = pytest.mark.timeout(900)


def charts(made: Document) -> list[Chart]:
    return [part for section in made.sections for part in section.parts if isinstance(part, Chart)]


def changed(folder: RunFolder, to: Path, name: str, scale: float) -> RunFolder:
    """A copy of a run in which one name's throughput was another."""
    shutil.copytree(folder.path, to)
    copy = RunFolder(to)
    indexes: dict[str, Any] = json.loads(copy.indexes_json.read_text())
    for each in indexes["measurements"]:
        if each["name"] == name:
            each["ingress_per_s"] *= scale
            each["egress_per_s"] *= scale
    copy.indexes_json.write_text(json.dumps(indexes))
    return copy


def test_every_picture_is_whole_and_says_of_what_it_is(folder: RunFolder, computed: list[Indexes]) -> None:
    made = report.document([folder])
    drawn = charts(made)
    titles = [ElementTree.fromstring(each.svg).findtext("{http://www.w3.org/2000/svg}text") for each in drawn]
    for title in ("Ingress throughput", "Egress throughput", "Latency, mean", "Histogram", "CPU", "Memory"):
        assert title in titles
    for title in ("Cumulative distribution", "Q-Q against normal", "P-P against normal"):
        assert titles.count(title) >= 4
    assert all("commit 0123abc" in each.caption and "mosquitto" in each.caption for each in drawn)
    assert html(made).count("<svg") == len(drawn)


def test_the_tables_have_the_figures_that_were_computed(folder: RunFolder, computed: list[Indexes]) -> None:
    text = markdown(report.document([folder]))
    clean = computed[0]
    row = next(line for line in text.splitlines() if line.startswith("| A sf | 6 |"))
    assert f"| {clean.ingress_per_s:,.0f} | {clean.egress_per_s:,.0f} |" in row
    assert "no rate was under the limit" in text


def test_where_no_latency_was_measured_none_is_shown(
    folder: RunFolder, computed: list[Indexes], tmp_path: Path
) -> None:
    copy = RunFolder(Path(shutil.copytree(folder.path, tmp_path / "copy")))
    indexes: dict[str, Any] = json.loads(copy.indexes_json.read_text())
    for each in indexes["measurements"]:
        each["latency"] = asdict(Distribution())
    copy.indexes_json.write_text(json.dumps(indexes))
    lines = markdown(report.document([copy])).splitlines()
    cells = next(line for line in lines if line.startswith("| A sf | 6 |")).split("|")
    assert [cell.strip() for cell in cells[8:11]] == ["", "", ""]
    assert cells[11].strip()


def test_ratios_are_to_the_single_broker_just_before_and_just_after(
    folder: RunFolder, computed: list[Indexes], tmp_path: Path
) -> None:
    """Measured first, third and fourth; the third is no limit. What is second is compared with the first and
    the fourth, what is fifth with the fourth."""
    copy = RunFolder(Path(shutil.copytree(folder.path, tmp_path / "copy")))
    for repeat, number in enumerate((1, 3, 4)):
        for path in (copy.folder_of(number) / "measurement.json", copy.indexes_json):
            whole = json.loads(path.read_text())
            one = whole if "id" in whole else next(m for m in whole["measurements"] if m["id"] == number)
            one.update(name="mosquitto S1", repeat=repeat)
            path.write_text(json.dumps(whole))
    first, second, _, fourth, fifth = (each.egress_per_s for each in computed[:5])
    rows = [line.split(" | ") for line in markdown(report.document([copy])).splitlines()]
    ratios = {row[0]: row[4] for row in rows if len(row) > 10}
    assert ratios["| mosquitto S1"] == ratios["| mosquitto S1 #3"] == "1.00"
    assert ratios["| B sf (over the limit)"] == f"{second / ((first + fourth) / 2):.2f}"
    assert ratios["| D sf (over the limit)"] == f"{fifth / fourth:.2f}"


def test_a_kill_is_shown_with_what_throughput_did(folder: RunFolder, computed: list[Indexes]) -> None:
    made = report.document([folder])
    (section,) = [each for each in made.sections if each.title == "Across failures"]
    (table,) = [part for part in section.parts if isinstance(part, Table)]
    (row,) = table.rows
    before, least, _, below = (float(row[n].replace(",", "")) for n in (2, 3, 4, 5))
    assert row[1] == "killed site1/broker at 0.4 s"
    assert before == pytest.approx(600, rel=0.1)
    assert least == 0
    assert below == pytest.approx(1.5, abs=0.11)
    assert any("killed site1/broker" in each.svg for each in charts(made))


def test_two_runs_that_differ_by_more_than_a_tenth_are_called_not_trustworthy(
    folder: RunFolder, computed: list[Indexes], tmp_path: Path
) -> None:
    other = changed(folder, tmp_path / "b", "A sf", 1.2)
    text = markdown(report.document([folder, other]))
    assert "A sf (6 publishers) is not trustworthy: 2 runs differ by 20%, more than 10%; a delivery" in text
    near = markdown(report.document([folder, changed(folder, tmp_path / "c", "A sf", 1.05)]))
    ended = "no higher rate was missed: the search did not end"  # which is all that speaks against it
    assert f"| A sf (6 publishers) | not trustworthy | 5.0% | {ended} |" in near
    assert "+5.0%" in near


def test_the_command_writes_both_files_and_starts_no_spark_for_what_is_computed(
    folder: RunFolder, computed: list[Indexes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "report", str(folder.path), "--out", str(tmp_path / "out"), "--master", "nowhere"])
    assert ended.value.code == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"report.html", "report.md"}
    assert "report.html" in capsys.readouterr().out


def test_a_run_is_not_compared_with_itself(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "report", str(folder.path), f"{folder.path}/."])
    assert ended.value.code == 2
    assert "two different runs" in capsys.readouterr().err


def test_runs_of_two_kinds_are_not_compared(
    folder: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    RunFolder(tmp_path).write_run(replace(folder.run(), kind="pairs"))
    with pytest.raises(SystemExit) as ended:
        main(["bench", "report", str(folder.path), str(tmp_path)])
    assert ended.value.code == 2
    assert "only runs of one kind" in capsys.readouterr().err


def test_a_damaged_table_is_named_with_what_to_do(
    folder: RunFolder, computed: list[Indexes], tmp_path: Path
) -> None:
    copy = RunFolder(Path(shutil.copytree(folder.path, tmp_path / "copy")))
    table = copy.indexes / "timeline" / "measurement=1" / "rows.parquet"
    table.write_bytes(table.read_bytes()[:50])
    with pytest.raises(ConfigError, match=r"timeline/measurement=1: damaged.*--again"):
        report.document([copy])


def test_a_log_that_was_cut_off_is_named_in_one_line(
    spark: SparkSession, folder: RunFolder, tmp_path: Path
) -> None:
    copy = RunFolder(Path(shutil.copytree(folder.path, tmp_path / "copy")))
    log = copy.folder_of(1) / "receives-0.arrow"
    log.write_bytes(log.read_bytes()[:1000])
    with pytest.raises(SPARK_ERRORS) as caught:
        spark_job.compute(spark, copy)
    assert f"{log}: damaged" in failure(caught.value).line


def test_a_folder_of_something_else_is_one_line_and_bad_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "report", str(tmp_path)])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no run's folder" in line
