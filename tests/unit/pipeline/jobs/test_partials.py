"""Parts of aggregates: merged in any order and grouping they say what all rows together say."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.pipeline.jobs.partials import (
    KEY,
    MESSAGES,
    SCHEMA,
    duckdb_view,
    merge,
    outliers,
    read,
    silence,
)

T0 = datetime(2026, 1, 31, 12, tzinfo=UTC)


def part(
    value: float | None,
    at: float,
    *,
    topic: str = "t",
    received: float | None = None,
    window: int = 10,
    late: int = 0,
) -> dict[str, Any]:
    """One reading, `at` seconds after T0, as a part of its own."""
    time = T0 + timedelta(seconds=at)
    came = T0 + timedelta(seconds=at if received is None else received)
    return {
        "window_start": T0 + timedelta(seconds=at // window * window),
        "site": "north",
        "topic": topic,
        "field": MESSAGES if value is None else "value",
        "count": 1,
        "sum": value,
        "sum_squares": None if value is None else value * value,
        "min": value,
        "max": value,
        "first_time": time,
        "last_time": time,
        "last_received": came,
        "last": value,
        "received_until": came,
        "late": late,
    }


def table(parts: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(parts, schema=SCHEMA)


def ordered(merged: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = merged.to_pylist()
    return sorted(rows, key=lambda row: [row[name] for name in KEY])


# Whole numbers: their sums are the same in any order.
readings = st.lists(
    st.builds(
        part,
        st.none() | st.integers(-1000, 1000).map(float),
        st.integers(0, 40).map(float),
        topic=st.sampled_from("ab"),
        received=st.integers(0, 60).map(float),
        late=st.integers(0, 1),
    ),
    max_size=25,
)


@given(readings, st.data())
def test_any_order_and_grouping_merges_to_the_same(parts: list[dict[str, Any]], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(parts))
    cut = data.draw(st.integers(0, len(parts)))
    grouped = pa.concat_tables([merge(table(shuffled[:cut])), merge(table(shuffled[cut:]))])
    whole = ordered(merge(table(parts)))
    assert ordered(merge(grouped)) == whole
    assert ordered(merge(merge(grouped))) == whole


@given(readings)
def test_merged_rows_say_what_a_plain_recomputation_says(parts: list[dict[str, Any]]) -> None:
    expected: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for each in parts:
        expected.setdefault(tuple(each[name] for name in KEY), []).append(each)
    merged = {tuple(row[name] for name in KEY): row for row in merge(table(parts)).to_pylist()}
    assert merged.keys() == expected.keys()
    for key, rows in expected.items():
        values = [row["last"] for row in rows if row["last"] is not None]
        newest = max(rows, key=lambda row: (row["last_time"], row["last_received"], row["last"] or 0.0))
        found = merged[key]
        assert (found["count"], found["late"]) == (len(rows), sum(row["late"] for row in rows))
        assert (found["last"], found["last_time"]) == (newest["last"], newest["last_time"])
        assert found["received_until"] == max(row["received_until"] for row in rows)
        assert found["first_time"] == min(row["first_time"] for row in rows)
        assert (found["sum"], found["min"], found["max"]) == (
            (sum(values), min(values), max(values)) if values else (None, None, None)
        )


def test_duckdb_and_pyarrow_read_the_same_from_files(tmp_path: Path) -> None:
    rng = random.Random(4)
    parts = [part(rng.choice([None, rng.uniform(-5, 5)]), float(rng.randrange(100))) for _ in range(300)]
    for number in range(3):
        folder = tmp_path / f"date=2026-01-3{number}"
        folder.mkdir()
        pq.write_table(
            table(parts[number * 100 : number * 100 + 100]), folder / f"batch-x-{number}-0.parquet"
        )
    (tmp_path / "_tmp").mkdir()
    found = duckdb.sql(duckdb_view(tmp_path))
    assert found is not None
    rows = dict(zip(found.columns, zip(*found.fetchall(), strict=True), strict=True))
    theirs = pa.table({name: pa.array(rows[name]) for name in SCHEMA.names}).cast(SCHEMA)
    for one, other in zip(ordered(read(tmp_path)), ordered(theirs), strict=True):
        sums = {"sum", "sum_squares"}
        assert {name: one[name] for name in sums} == pytest.approx({name: other[name] for name in sums})
        assert all(one[name] == other[name] for name in one.keys() - sums)
    for count, total, squares, mean, stddev in zip(
        *(rows[name] for name in ("count", "sum", "sum_squares", "mean", "stddev")), strict=True
    ):
        assert (mean is None) == (stddev is None) == (total is None)
        if total is not None:
            assert mean == pytest.approx(total / count)
            assert stddev == pytest.approx(math.sqrt(max(squares / count - mean**2, 0)), abs=1e-6)


def test_a_sensor_that_stops_is_silent_after_so_many_of_its_own_intervals() -> None:
    quick = [part(1.0, float(at), topic="quick") for at in range(30)]
    slow = [part(1.0, float(at), topic="slow") for at in (0, 10, 20)]
    once = [part(1.0, 0.0, topic="once")]
    merged = merge(table(quick + slow + once))
    assert silence(merged, T0 + timedelta(seconds=32), 3.0).num_rows == 0
    [found] = silence(merged, T0 + timedelta(seconds=33), 3.0).to_pylist()
    assert (found["topic"], found["interval"], found["silent"]) == ("quick", 1.0, 4.0)
    told = silence(merged, T0 + timedelta(seconds=33), 3.0, every=10.0).to_pylist()
    assert [each["topic"] for each in told] == ["once"]


def test_a_reading_far_from_all_other_windows_is_an_outlier() -> None:
    rng = random.Random(1)
    usual = [part(rng.gauss(20, 1), float(at)) for at in range(200)]
    merged = merge(table([*usual, part(35.0, 105.0), *[part(None, float(at)) for at in range(200)]]))
    [found] = outliers(merged, 6.0).to_pylist()
    assert (found["window_start"], found["value"]) == (T0 + timedelta(seconds=100), 35.0)
    assert found["z"] > 6
    assert outliers(merge(table(usual)), 6.0).num_rows == 0


def test_a_value_that_never_changed_before_is_an_outlier_when_it_does() -> None:
    constant = [part(20.0, float(at)) for at in range(100)]
    assert outliers(merge(table(constant)), 6.0).num_rows == 0
    [found] = outliers(merge(table([*constant, part(21.0, 105.0)])), 6.0).to_pylist()
    assert found["value"] == 21.0
