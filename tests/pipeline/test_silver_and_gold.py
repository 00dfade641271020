"""Silver and gold over files and Spark: each message once, gold as recomputed, after any interruption."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import cbor2
import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from brokerweave.edgelog.arrow import SCHEMA as BRONZE
from brokerweave.errors import ConfigError
from brokerweave.pipeline.jobs import gold, partials
from brokerweave.pipeline.jobs.gold import GoldJob, GoldOptions
from brokerweave.pipeline.jobs.silver import SilverJob, SilverOptions
from brokerweave.pipeline.lake import durable
from brokerweave.pipeline.lake.compaction import compact
from brokerweave.pipeline.payloads.rules import PayloadRule
from brokerweave.pipeline.sinks.delta import DeltaSink
from brokerweave.pipeline.sinks.parquet import ParquetSink

# The first test also starts the session, which takes a minute where others use the machine as well.
pytestmark = pytest.mark.timeout(900)
T0 = datetime(2026, 1, 31, 23, 59, tzinfo=UTC)
NOW = {"availableNow": True}


def reading(number: int, **changed: Any) -> dict[str, Any]:
    """The row of one publication: number `number` of log L."""
    content = {
        "id": number,
        "t": 20 + math.sin(number),
        "at": (T0 + timedelta(seconds=number / 2)).isoformat(),
    }
    row = {
        "log_id": "L",
        "epoch": 1,
        "sequence": number,
        "site": "north",
        "client": f"c{number % 3}",
        "topic": f"sensors/{number % 4}",
        "payload": json.dumps(content).encode(),
        "received": T0 + timedelta(seconds=number),
        "qos": 1,
        "retain": False,
        "dup": False,
        "packet_id": number % 50 + 1,
        "properties": [],
        "schema_version": 1,
    }
    return row | changed


def resent(number: int, sequence: int, log: str = "M", after: float = 5.0) -> dict[str, Any]:
    """The same publication again, into another log."""
    received = T0 + timedelta(seconds=number + after)
    return reading(number, log_id=log, site="south", sequence=sequence, received=received, dup=True)


class Lake:
    """A lake whose bronze the test writes, and the two jobs on it."""

    def __init__(self, spark: SparkSession, folder: Path, *rules: PayloadRule, delta: bool = False) -> None:
        self.spark = spark
        self.folder = folder / "lake"
        self.checkpoints = folder / "checkpoints"
        self.rules = rules or (PayloadRule(event_time="at"),)
        self._kind = DeltaSink if delta else ParquetSink
        self._bronze = self._kind(self.folder / "bronze")
        self._batch = 0

    def frame(self, rows: Sequence[dict[str, Any]]) -> DataFrame:
        return self.spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=BRONZE))

    def publish(self, rows: Sequence[dict[str, Any]]) -> None:
        self._bronze.write(self.frame(rows).coalesce(1), "bronze-x", self._batch)
        self._batch += 1

    def silver(self, checkpoint: str = "silver", **options: Any) -> SilverJob:
        return SilverJob(
            self.folder,
            self.checkpoints / checkpoint,
            self._kind(self.folder / "silver"),
            self._kind(self.folder / "dead_letters"),
            SilverOptions(self.rules, **options),
        )

    def gold(self, **options: Any) -> GoldJob:
        sink = self._kind(self.folder / "gold")
        return GoldJob(self.folder, self.checkpoints / "gold", sink, GoldOptions(self.rules, **options))

    def drain(self, job: SilverJob | GoldJob) -> None:
        query = job.start(self.spark, NOW)
        assert query.awaitTermination(250)

    def read(self, layer: str, columns: str = "*") -> list[tuple[Any, ...]]:
        files = self.folder / layer / "**" / "*.parquet"
        found = duckdb.sql(
            f"select {columns} from read_parquet('{files}', union_by_name = true) order by all"
        )
        assert found is not None
        return found.fetchall()


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


def expected(rows: Sequence[dict[str, Any]], window: float) -> dict[tuple[Any, ...], dict[str, float]]:
    """Gold, recomputed in the plainest way from the bronze rows that are no copies."""
    found: dict[tuple[Any, ...], list[tuple[datetime, datetime, float]]] = {}
    for row in rows:
        content = json.loads(row["payload"])
        at = datetime.fromisoformat(content["at"])
        start = datetime.fromtimestamp(at.timestamp() // window * window, UTC)
        for name in ("id", "t"):
            key = (start, row["site"], row["topic"], name)
            found.setdefault(key, []).append((at, row["received"], float(content[name])))
    return {
        key: {
            "count": len(values),
            "sum": sum(value for _, _, value in values),
            "min": min(value for _, _, value in values),
            "max": max(value for _, _, value in values),
            "last": max(values)[2],
        }
        for key, values in found.items()
    }


def test_each_message_is_in_silver_once_and_gold_equals_a_recomputation_over_bronze(lake: Lake) -> None:
    originals = [reading(number) for number in range(300)]
    lost = resent(400, 1_400)  # its original was never recorded
    batches = [
        [*originals[:100], reading(500, payload=b"rubbish")],
        [resent(number, 800 + number) for number in (90, 99, 100, 101)],  # the originals of two come later
        # Log N comes before L's rest, and repeats what M already repeated.
        [*originals[100:200], lost, *(resent(number, number, "N", 6.0) for number in (99, 101, 205))],
        [*originals[200:], reading(500, payload=b"rubbish", log_id="K"), resent(205, 999, "K", 7.0)],
    ]
    # A byte a batch: each file is a batch of its own.
    silver, parts = lake.silver(bytes_a_batch=1), lake.gold(window=10.0, bytes_a_batch=1)
    for batch in batches:
        lake.publish(batch)
    lake.drain(silver)
    lake.drain(parts)
    identifiers = [row[0] for row in lake.read("silver", "id::int")]
    assert identifiers == [*range(300), 400]
    places = lake.read("silver", "log_id, epoch, sequence")
    assert len(set(places)) == len(places)
    assert [(row[0], row[1][:8], row[2]) for row in lake.read("dead_letters", "log_id, reason, payload")] == [
        ("K", "not JSON", b"rubbish"),
        ("L", "not JSON", b"rubbish"),
    ]
    late = sum(row[0] for row in lake.read("gold", "late"))
    assert late > 0
    _compare(lake, silver_rows(lake, batches))

    # The same after compaction, which folds gold; and a copy of what was compacted is still known as one.
    assert compact(lake.folder / "gold", fold=partials.merge, min_files=2).rows_after == len(
        wanted_keys(lake)
    )
    gold_reader = [lake.checkpoints / "gold"]
    assert (
        compact(lake.folder / "silver", gold_reader, sort_by=("topic", "received"), min_files=2).files_after
        > 0
    )
    _compare(lake, silver_rows(lake, batches))
    assert sum(row[0] for row in lake.read("gold", "late")) == late
    lake.publish([resent(150, 2_000, "K", 8.0)])
    lake.drain(silver)
    assert [row[0] for row in lake.read("silver", "id::int")] == identifiers


def wanted_keys(lake: Lake) -> set[tuple[Any, ...]]:
    return set(lake.read("gold", ", ".join(partials.KEY)))


def silver_rows(lake: Lake, batches: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The bronze rows that silver kept, by their positions."""
    kept = set(lake.read("silver", "log_id, sequence"))
    return [row for batch in batches for row in batch if (row["log_id"], row["sequence"]) in kept]


def _compare(lake: Lake, rows: Sequence[dict[str, Any]], window: float = 10.0) -> None:
    """Gold as DuckDB, pyarrow and Spark read it, against the recomputation."""
    wanted = expected(rows, window)
    seen = duckdb.sql(partials.duckdb_view(lake.folder / "gold"))
    assert seen is not None
    tables = {
        "duckdb": [dict(zip(seen.columns, row, strict=True)) for row in seen.fetchall()],
        "pyarrow": partials.read(lake.folder / "gold").to_pylist(),
        "spark": gold.view(lake.spark, lake.folder / "gold").toArrow().to_pylist(),
    }
    messages: dict[str, int] = {}
    for reader, table in tables.items():
        found = {
            (row["window_start"].astimezone(UTC), row["site"], row["topic"], row["field"]): row
            for row in table
        }
        measured = {key: row for key, row in found.items() if key[3] != partials.MESSAGES}
        assert measured.keys() == wanted.keys(), reader
        for key, row in measured.items():
            assert {name: row[name] for name in wanted[key]} == pytest.approx(wanted[key]), reader
        messages[reader] = sum(row["count"] for key, row in found.items() if key[3] == partials.MESSAGES)
    assert set(messages.values()) == {len(rows)}


class Killed(BaseException):
    """Stands for the driver's end."""


def dies(step: int, act: Callable[[], None]) -> bool:
    """The process "dies" at a step of the file changes; False if there are not so many."""
    left = iter(range(1, step))

    def reached(_: str) -> None:
        if next(left, None) is None:
            raise Killed

    durable.at_step = reached
    try:
        act()
    except Killed:
        return True
    finally:
        durable.at_step = None
    return False


def test_a_batch_that_dies_at_any_step_and_is_replayed_leaves_each_message_once(lake: Lake) -> None:
    """`foreachBatch` without the stream around it: the same batch and number come again until it ends."""
    silver, parts = lake.silver(), lake.gold(window=10.0)
    rows = [reading(number) for number in range(60)]
    batches = [
        [*rows[:20], resent(25, 1), reading(70, payload=b"rubbish")],
        [*rows[20:40], resent(5, 2), resent(6, 3, "N"), resent(6, 4)],
        [*rows[40:], resent(25, 5, "N"), reading(71, payload=b"\xff")],
    ]
    died = 0
    for number, batch in enumerate(batches):
        frame = lake.frame(batch).coalesce(1)
        # Not every step: each try costs a second. What one try made durable the next one finds.
        for step in (1 + number, 3, 5 + number, 8):
            died += dies(step, partial(silver.write, frame, number))
        silver.write(frame, number)
        silver.write(frame, number)
    assert died >= 6
    assert [row[0] for row in lake.read("silver", "id::int")] == list(range(60))
    assert lake.read("dead_letters", "sequence") == [(70,), (71,)]
    files = lake.spark.read.option("recursiveFileLookup", "true").option("mergeSchema", "true")
    frame = files.parquet(str(lake.folder / "silver"))
    assert sum(dies(step, partial(parts.write, frame, 0)) for step in (1, 4, 8)) >= 2
    parts.write(frame, 0)
    parts.write(frame, 0)
    _compare(lake, silver_rows(lake, batches))


def test_an_inferred_schema_outlives_the_job_and_new_members_go_to_the_rest(lake: Lake) -> None:
    lake.publish([reading(3)])
    lake.drain(lake.silver())
    other = json.dumps({"id": 1, "t": 5, "new": {"deep": [1]}}).encode()
    lake.publish([reading(1, payload=other), reading(2, payload=b'{"t":"warm"}')])
    lake.drain(lake.silver())
    assert lake.read("silver", "id, t, _rest")[0] == (1.0, 5.0, '{"new":{"deep":[1]}}')
    assert lake.read("dead_letters", "sequence, reason") == [(2, "field t: 'warm' is no double")]
    # The second row has no "at".
    assert lake.read("silver", "id, event_time = received") == [(1.0, True), (3.0, False)]


def test_another_checkpoint_another_type_or_another_window_is_refused_in_one_line(lake: Lake) -> None:
    lake.publish([reading(0)])
    lake.drain(lake.silver())
    lake.drain(lake.gold())
    with pytest.raises(ConfigError, match="was made with another checkpoint"):
        lake.silver("other").start(lake.spark, NOW)
    with pytest.raises(ConfigError, match=r"windows of 60\.0 s"):
        lake.gold(window=10.0).start(lake.spark, NOW)
    lake.rules = (PayloadRule(fields={"t": "string"}),)
    with pytest.raises(ConfigError, match="column t as double"):
        lake.silver().start(lake.spark, NOW)


def test_a_layer_that_starts_over_after_compaction_is_refused_until_it_can_read_all_rows(lake: Lake) -> None:
    lake.publish([reading(0), reading(1)])
    lake.publish([reading(2)])
    lake.drain(lake.silver())
    bronze = lake.folder / "bronze"
    assert compact(bronze, [lake.checkpoints / "silver"], min_files=2).files_after > 0
    lake.publish([reading(3)])
    lake.drain(lake.silver())  # with its own checkpoint it goes on
    shutil.rmtree(lake.folder / "silver")
    shutil.rmtree(lake.folder / "_brokerweave" / "silver")
    with pytest.raises(ConfigError, match=r"begins anew with .*compacted files in .*bronze: .* rename"):
        lake.silver("another").start(lake.spark, NOW)
    for path in bronze.glob("date=*/compact-*"):
        path.rename(path.with_name(f"batch-{path.name}"))
    lake.drain(lake.silver("another"))
    assert [row[0] for row in lake.read("silver", "sequence")] == [0, 1, 2, 3]


def test_a_delta_lake_gets_further_columns_when_payloads_of_another_kind_come(
    spark: SparkSession, tmp_path: Path
) -> None:
    objects, numbers = (
        PayloadRule("objects", ("sensors/#",), event_time="at"),
        PayloadRule("plain", ("plain/#",), "cbor"),
    )
    lake = Lake(spark, tmp_path, objects, numbers, delta=True)
    silver = lake.silver()
    silver.write(lake.frame([reading(0), reading(1)]), 0)
    resends = [resent(0, 7), reading(2, topic="plain/x", payload=cbor2.dumps({"level": 3}))]
    for _ in range(2):
        silver.write(lake.frame(resends), 1)
    table = DeltaTable(str(lake.folder / "silver")).to_pyarrow_table(columns=["sequence", "t", "level"])
    assert [
        (row["sequence"], row["t"] is None, row["level"]) for row in table.sort_by("sequence").to_pylist()
    ] == [
        (0, False, None),
        (1, False, None),
        (2, True, 3.0),
    ]
    parts = lake.gold(window=10.0)
    files = spark.read.option("recursiveFileLookup", "true").option("mergeSchema", "true")
    parts.write(files.parquet(str(lake.folder / "silver")), 0)
    compact(lake.folder / "gold", fold=partials.merge, min_files=2)
    merged = partials.read(lake.folder / "gold").to_pylist()
    assert sum(row["count"] for row in merged if row["field"] == partials.MESSAGES) == 3
    assert {row["field"]: row["last"] for row in merged}["level"] == 3.0
    assert gold.view(spark, lake.folder / "gold").count() == len(merged)


def test_what_a_sparkplug_birth_explained_is_remembered_in_later_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path, PayloadRule("plant", ("spBv1.0/#",), "sparkplug"))
    silver = lake.silver()
    # timestamp 0; metric (name "temp", alias 1, Int32, int_value -5); then only alias and value
    birth = bytes.fromhex("080012100a0474656d701001200350fbffffff0f") + b"\x18\x00"
    data = bytes.fromhex("120410015007")
    silver.write(lake.frame([reading(0, topic="spBv1.0/g/NBIRTH/n", payload=birth)]), 0)
    later = [
        reading(number, topic=f"spBv1.0/g/NDATA/{node}", payload=data)
        for number, node in ((1, "n"), (2, "m"))
    ]
    silver = lake.silver()
    silver.write(lake.frame(later), 1)
    found = lake.read("silver", "sequence, sp_type, metrics[1].name, metrics[1].value")
    assert found == [(0, "NBIRTH", "temp", -5.0), (1, "NDATA", "temp", 7.0), (2, "NDATA", None, 7.0)]
    files = spark.read.option("recursiveFileLookup", "true")
    parts = gold.partials(files.parquet(str(lake.folder / "silver")), [], 3600.0).toArrow().to_pylist()
    assert {(row["field"], row["count"]) for row in parts if row["field"] != partials.MESSAGES} == {
        ("temp", 1),
        ("alias 1", 1),
    }


def test_a_driver_killed_while_it_planned_the_first_batch_is_no_damage(lake: Lake) -> None:
    lake.publish([reading(0)])
    offsets = lake.checkpoints / "silver" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / ".0.3f2a.tmp").write_text("v1\n")
    (offsets / "..0.3f2a.tmp.crc").write_text("crc")
    lake.drain(lake.silver())
    assert len(lake.read("silver")) == 1
