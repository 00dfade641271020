"""`brokerweave pipeline sensors`, on gold that was written by hand."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from brokerweave.cli import main
from brokerweave.pipeline.jobs.partials import SCHEMA


def gold(lake: Path, readings: dict[str, list[tuple[float, float]]]) -> None:
    """`readings`: for each topic, seconds ago and value; each in a window of its own."""
    now = datetime.now(UTC)
    rows = []
    for topic, given in readings.items():
        for ago, value in given:
            time = now - timedelta(seconds=ago)
            times = dict.fromkeys(("first_time", "last_time", "last_received", "received_until"), time)
            values = {"sum": value, "sum_squares": value * value, "min": value, "max": value, "last": value}
            named = {"window_start": time, "site": "north", "topic": topic, "field": "celsius"}
            rows.append(named | times | values | {"count": 1, "late": 0})
    (lake / "gold").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), lake / "gold" / "batch-1.parquet")


def told(capsys: pytest.CaptureFixture[str], lake: Path, *flags: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as caught:
        main.main(["pipeline", "sensors", "--to", str(lake), *flags])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert isinstance(caught.value.code, int)
    return caught.value.code, out + err


STEADY = [(float(1000 * ago), 20.0 + ago % 2) for ago in range(30)]


def test_nothing_is_said_of_sensors_that_do_what_they_always_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gold(tmp_path, {"hall/1": STEADY})
    assert told(capsys, tmp_path) == (0, "every sensor speaks, and gives what it always gives\n")


def test_a_sensor_that_fell_silent_and_one_that_gave_too_much_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    gold(tmp_path, {"silent": [(ago + 4000.0, 20.0) for ago, _ in STEADY], "odd": [*STEADY, (500.0, 300.0)]})
    code, text = told(capsys, tmp_path)
    assert code == 1
    assert "4,000" in text
    assert "300" in text
    found = json.loads(told(capsys, tmp_path, "--json")[1])
    assert [each["topic"] for each in found["silent"]] == ["silent"]
    assert [(each["topic"], each["value"]) for each in found["outliers"]] == [("odd", 300.0)]
    assert told(capsys, tmp_path, "--every", "9000", "--z", "10000")[0] == 0


def test_a_folder_without_gold_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = told(capsys, tmp_path)
    assert code == 2
    assert "has no gold: run the pipeline" in text
