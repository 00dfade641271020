"""The indexes of a whole run from its logs, on Spark (ILDM 5.1 and 5.2; jitter: the thesis, equation 5-3).

Owns how each figure is computed; what it means is in `bench.folder` and `bench.figures`. Writes indexes.json
and, in RUN/indexes, partitioned by measurement:

    timeline    a row for each tenth of a second, from the window's begin: messages in and out, latency
    latencies   how often each latency was measured: microseconds and count
    resources   CPU (cores) and memory of each role, sample by sample

Invariants: runs after the measurements, never beside one. Must not know: how load is made, what a report
shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.storagelevel import StorageLevel

from brokerweave.bench import figures
from brokerweave.bench.figures import Distribution, Indexes, Usage
from brokerweave.bench.folder import (
    L_CLIENT,
    LATE_NS,
    MACHINE,
    RECEIVES,
    RESOURCES,
    SENDS,
    T_CLIENT,
    Measurement,
    RunFolder,
)
from brokerweave.errors import ConfigError

BIN_NS = 100_000_000
"""A row of the timeline."""
_ROWS = 65_536
"""Rows that go from a log to Spark at once."""
_MILLI = 1e3
_PERCENTILES = (0.5, 0.9, 0.99, 0.999)
SETTINGS = {
    "spark.driver.memory": "2g",
    # Both sides lie by measurement and publisher already: enough for a join by message too.
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
}
_PARTITION_BYTES = 32 << 20
"""Of logs for one task of a shuffle: it sorts in memory, and a small run is not cut to pieces."""


def settings(folders: Iterable[RunFolder]) -> dict[str, str]:
    """What a session that computes these runs had better be opened with."""
    size = sum(log.stat().st_size for each in folders for log in each.path.glob("measurements/*/*.arrow"))
    return SETTINGS | {"spark.sql.shuffle.partitions": str(max(size // _PARTITION_BYTES, 2))}


def compute(spark: SparkSession, folder: RunFolder) -> list[Indexes]:
    """Compute and write all indexes of a run. Raises `ConfigError` if nothing was measured."""
    measurements = folder.measurements()
    if not measurements:
        raise ConfigError(f"{folder.path}: no measurement has ended, so there is nothing to compute")
    logs = _Logs(spark, folder, measurements)
    logs.sends.persist(StorageLevel.MEMORY_AND_DISK)
    first = _first_deliveries(logs).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        timeline = _kept(_timeline(logs, first), figures.table(folder, "timeline"))
        latencies = _kept(_latencies(first), figures.table(folder, "latencies"))
        resources = _kept(_resources(logs), figures.table(folder, "resources"))
        parts = [_sent(logs), _sp_ratio(logs), _received(logs), _delivered(first), _lost(logs, first)]
        parts += [_least(timeline, logs)]
        counted = [_by_measurement(part) for part in parts]
        latency = _latency_of(latencies)
        usage = _usage(resources)
    finally:
        first.unpersist()
        logs.sends.unpersist()
    found = [_indexes(m, counted, latency.get(m.id), usage.get(m.id, [])) for m in measurements]
    figures.write(folder, found)
    return found


class _Logs:
    """The logs of all measurements as Spark reads them, each row with its measurement and window."""

    def __init__(self, spark: SparkSession, folder: RunFolder, measurements: list[Measurement]) -> None:
        windows = [(m.id, *m.window_ns) for m in measurements]
        self.windows = f.broadcast(
            spark.createDataFrame(windows, "measurement int, begin_ns long, end_ns long")
        )

        def read(schema: pa.Schema) -> DataFrame:
            files = [(m.id, str(path)) for m in measurements for path in folder.logs(m.id, schema)]
            return _read(spark, files, schema).join(self.windows, "measurement")

        self.sends = read(SENDS).withColumn("inside", _inside("sent_ns"))
        self.receives = read(RECEIVES)
        self.resources = read(RESOURCES)


def _read(spark: SparkSession, files: list[tuple[int, str]], schema: pa.Schema) -> DataFrame:
    """Rows of Arrow files, with `measurement` and `position`: a client's rows are in one file, in order."""
    whole = pa.schema([("measurement", pa.int32()), ("position", pa.int64()), *schema])

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from _rows_of(row["measurement"], row["path"], whole)

    listed = spark.createDataFrame(files, "measurement int, path string").repartition(
        min(max(len(files), 1), 2 * spark.sparkContext.defaultParallelism)
    )
    return listed.mapInArrow(rows, from_arrow_schema(whole))


def _rows_of(measurement: int, path: str, whole: pa.Schema) -> Iterator[pa.RecordBatch]:
    position = 0
    with pa.memory_map(path) as file:
        log = pa.ipc.open_file(file)
        for number in range(log.num_record_batches):
            batch = log.get_batch(number)
            for start in range(0, batch.num_rows, _ROWS):
                part = batch.slice(start, _ROWS)
                ids = pa.repeat(pa.scalar(measurement, pa.int32()), part.num_rows)
                places = pa.array(np.arange(position, position + part.num_rows))
                position += part.num_rows
                yield pa.RecordBatch.from_arrays([ids, places, *part.columns], schema=whole)


def _inside(column: str) -> Column:
    return (f.col(column) >= f.col("begin_ns")) & (f.col(column) < f.col("end_ns"))


def _first_deliveries(logs: _Logs) -> DataFrame:
    """Each delivery of a message to a subscriber that had not got it before, with what was sent.

    `doubled` counts the further ones. `timed` says that latency and jitter are measured by it.
    """
    timed = logs.sends.groupBy("measurement").agg(f.max("kind").alias("timing_kind"))
    period = (f.max("due_ns") - f.min("due_ns")) / (f.count("*") - 1)
    schedule = logs.sends.groupBy("measurement", f.col("client").alias("publisher"), "topic").agg(
        f.when(f.count("*") > 1, period).alias("period_ns")
    )
    sent = logs.sends.select(
        "measurement", f.col("client").alias("publisher"), "message", "due_ns", "sent_ns", "inside"
    ).repartition("measurement", "publisher")
    received = logs.receives.repartition("measurement", "publisher")
    copies = received.groupBy("measurement", "publisher", "client", "message").agg(
        f.min(f.struct("position", "received_ns", "topic", "kind")).alias("first"),
        (f.count("*") - 1).alias("doubled"),
    )
    each = copies.select("measurement", "publisher", "client", "message", "doubled", "first.*")
    joined = (
        each.join(sent, ["measurement", "publisher", "message"], "left")
        .join(f.broadcast(timed), "measurement", "left")
        .join(f.broadcast(schedule), ["measurement", "publisher", "topic"], "left")
    )
    stream = Window.partitionBy("measurement", "publisher", "client", "topic").orderBy("position")
    before = stream.rowsBetween(Window.unboundedPreceding, -1)
    return joined.select(
        "*",
        f.max("message").over(before).alias("highest"),
        f.lag("received_ns").over(stream).alias("previous_ns"),
        ((f.col("timing_kind") == T_CLIENT) | (f.col("kind") == L_CLIENT)).alias("timed"),
        f.expr("(received_ns - sent_ns) div 1000").alias("latency_us"),
    )


def _sent(logs: _Logs) -> DataFrame:
    ours = f.col("inside") & (f.col("kind") == T_CLIENT)
    late = f.col("inside") & (f.col("sent_ns") - f.col("due_ns") > LATE_NS)
    return logs.sends.groupBy("measurement").agg(
        f.count_if(ours).alias("sent"),
        f.count_if(ours & (f.col("acked_ns") > 0)).alias("acknowledged"),
        f.sum(f.when(f.col("inside"), f.col("copies")).otherwise(0)).alias("expected"),
        f.count_if(late).alias("late_sends"),
        f.count_distinct(f.when(ours, f.col("client"))).alias("publishers"),
    )


def _sp_ratio(logs: _Logs) -> DataFrame:
    """By topics' publishers and subscribers, as ILDM 5.3 has it: what should be, not what was delivered."""
    ours = logs.sends.where(f.col("inside") & (f.col("kind") == T_CLIENT))
    topics = ours.groupBy("measurement", "topic").agg(
        f.count_distinct("client").alias("p"), f.max("copies").alias("s")
    )
    ratio = f.sum(f.col("p") * f.col("s")) / f.sum("p")
    return topics.groupBy("measurement").agg(ratio.alias("sp_ratio"))


def _received(logs: _Logs) -> DataFrame:
    ours = _inside("received_ns") & (f.col("kind") == T_CLIENT)
    return logs.receives.groupBy("measurement").agg(f.count_if(ours).alias("received"))


def _delivered(first: DataFrame) -> DataFrame:
    """Order, doubles and jitter: (receive of i + 1) - (receive of i) - T, with T as the schedule had it."""
    off = f.abs(f.col("received_ns") - f.col("previous_ns") - f.col("period_ns"))
    milliseconds = f.round(off / 1e3) / _MILLI
    rows = first.withColumn("off", f.when(f.col("timed") & f.col("inside"), milliseconds))
    return rows.groupBy("measurement").agg(
        f.sum(f.when(f.col("inside"), f.col("doubled")).otherwise(0)).alias("doubled"),
        f.count_if(f.col("inside") & (f.col("highest") > f.col("message"))).alias("disordered"),
        f.count_if(f.col("inside").isNull()).alias("strays"),
        *_described(f.col("off")),
    )


def _described(value: Column, weight: Column | None = None) -> list[Column]:
    """The columns of a `Distribution`."""
    weight = f.lit(1) if weight is None else weight
    count = f.sum(f.when(value.isNotNull(), weight))
    mean = f.sum(value * weight) / count
    return [
        f.coalesce(count, f.lit(0)).alias("count"),
        mean.alias("mean"),
        f.sqrt(f.greatest(f.sum(value * value * weight) / count - mean * mean, f.lit(0.0))).alias(
            "deviation"
        ),
        f.min(value).alias("least"),
        f.percentile(value, f.array(*map(f.lit, _PERCENTILES)), weight).alias("percentiles"),
        f.max(value).alias("worst"),
    ]


def _lost(logs: _Logs, first: DataFrame) -> DataFrame:
    """Message by message: what one subscriber got too much cannot hide what another missed."""
    got = first.groupBy("measurement", "publisher", "message").agg(f.count("*").alias("got"))
    owed = logs.sends.where("inside").select(
        "measurement", f.col("client").alias("publisher"), "message", "copies"
    )
    missing = f.col("copies") - f.coalesce(f.col("got"), f.lit(0))
    nothing = f.lit(0)
    return (
        owed.join(got, ["measurement", "publisher", "message"], "left")
        .groupBy("measurement")
        .agg(
            f.sum(f.greatest(missing, nothing)).alias("lost"),
            f.sum(f.greatest(-missing, nothing)).alias("surplus"),
        )
    )


def _timeline(logs: _Logs, first: DataFrame) -> DataFrame:
    def binned(rows: DataFrame, column: str, *counted: Column) -> DataFrame:
        bins = f.floor((f.col(column) - f.col("begin_ns")) / BIN_NS).cast("int").alias("bin")
        return rows.groupBy("measurement", bins).agg(*counted)

    ours = f.count_if(f.col("kind") == T_CLIENT)
    timed = first.where("timed").join(logs.windows, "measurement")
    latency = f.col("latency_us") / _MILLI
    return (
        binned(logs.sends, "sent_ns", ours.alias("ingress"))
        .join(binned(logs.receives, "received_ns", ours.alias("egress")), ["measurement", "bin"], "full")
        .join(
            binned(
                timed, "received_ns", f.mean(latency).alias("latency_ms"), f.max(latency).alias("worst_ms")
            ),
            ["measurement", "bin"],
            "full",
        )
        .fillna(0, ["ingress", "egress"])
        .orderBy("measurement", "bin")
    )


def _least(timeline: DataFrame, logs: _Logs) -> DataFrame:
    """The worst whole second of the window. A second without any row in the timeline had nothing at all."""
    per_second = 10**9 // BIN_NS
    seconds = logs.windows.select(
        "measurement",
        f.explode(
            f.sequence(f.lit(0), f.floor((f.col("end_ns") - f.col("begin_ns")) / 10**9).cast("int"))
        ).alias("second"),
        f.floor((f.col("end_ns") - f.col("begin_ns")) / 10**9).alias("seconds"),
    ).where("second < seconds")
    counted = timeline.groupBy(
        "measurement", f.floor(f.col("bin") / per_second).cast("int").alias("second")
    ).agg(f.sum("ingress").alias("ingress"), f.sum("egress").alias("egress"))
    whole = seconds.join(counted, ["measurement", "second"], "left").fillna(0, ["ingress", "egress"])
    return whole.groupBy("measurement").agg(
        f.min("ingress").alias("ingress_least"), f.min("egress").alias("egress_least")
    )


def _latencies(first: DataFrame) -> DataFrame:
    measured = first.where(f.col("timed") & f.col("inside"))
    return measured.groupBy("measurement", "latency_us").count().orderBy("measurement", "latency_us")


def _latency_of(latencies: DataFrame) -> dict[int, dict[str, Any]]:
    return _by_measurement(
        latencies.groupBy("measurement").agg(*_described(f.col("latency_us") / _MILLI, f.col("count")))
    )


def _resources(logs: _Logs) -> DataFrame:
    by_role = Window.partitionBy("measurement", "role").orderBy("at_ns")
    used = f.col("cpu_s") - f.lag("cpu_s").over(by_role)
    passed = (f.col("at_ns") - f.lag("at_ns").over(by_role)) / 1e9
    return logs.resources.select(
        "measurement",
        "role",
        ((f.col("at_ns") - f.col("begin_ns")) / 1e9).alias("second"),
        _inside("at_ns").alias("inside"),
        # A process that was started anew begins at zero again.
        f.when((passed > 0) & (used >= 0), used / passed).alias("cpu"),
        passed.alias("passed"),
        "rss",
    ).orderBy("measurement", "role", "second")


def _usage(resources: DataFrame) -> dict[int, list[Usage]]:
    known = resources.where("inside and cpu is not null")
    mean = f.sum(f.col("cpu") * f.col("passed")) / f.sum("passed")
    rows = known.groupBy("measurement", "role").agg(
        mean.alias("cpu"), f.max("cpu").alias("cpu_worst"), f.max("rss").alias("rss_worst")
    )
    found: dict[int, list[Usage]] = {}
    for row in rows.orderBy("measurement", "role").collect():
        usage = Usage(row["role"], row["cpu"], row["cpu_worst"], row["rss_worst"])
        found.setdefault(row["measurement"], []).append(usage)
    return found


def _kept(rows: DataFrame, path: Path) -> DataFrame:
    """The rows, written and read back, so that nothing computes them again."""
    rows.write.mode("overwrite").partitionBy("measurement").parquet(str(path))
    return rows.sparkSession.read.schema(rows.schema).parquet(str(path))


def _by_measurement(rows: DataFrame) -> dict[int, dict[str, Any]]:
    return {row["measurement"]: row.asDict() for row in rows.collect()}


def _distribution(row: dict[str, Any] | None) -> Distribution:
    if not row or not row["count"]:
        return Distribution()
    p50, p90, p99, p999 = row["percentiles"]
    return Distribution(
        row["count"], row["mean"], row["deviation"], row["least"], p50, p90, p99, p999, row["worst"]
    )


def _indexes(
    measurement: Measurement,
    counted: list[dict[int, dict[str, Any]]],
    latency: dict[str, Any] | None,
    usage: list[Usage],
) -> Indexes:
    row: dict[str, Any] = {}
    for part in counted:
        row |= part.get(measurement.id, {})

    def count(name: str) -> int:
        return int(row.get(name) or 0)

    machine = next((each.cpu for each in usage if each.role == MACHINE), None)
    known = sum(each.cpu for each in usage if each.role != MACHINE)
    return Indexes(
        id=measurement.id,
        name=measurement.name,
        repeat=measurement.repeat,
        rate=measurement.rate,
        sent=count("sent"),
        acknowledged=count("acknowledged"),
        received=count("received"),
        expected=count("expected"),
        lost=count("lost"),
        surplus=count("surplus"),
        strays=count("strays"),
        doubled=count("doubled"),
        disordered=count("disordered"),
        late_sends=count("late_sends"),
        publishers=count("publishers"),
        sp_ratio=float(row.get("sp_ratio") or 0.0),
        ingress_per_s=count("sent") / measurement.seconds,
        egress_per_s=count("received") / measurement.seconds,
        ingress_least=float(row.get("ingress_least") or 0.0),
        egress_least=float(row.get("egress_least") or 0.0),
        latency=_distribution(latency),
        jitter=_distribution(row if "percentiles" in row else None),
        usage=tuple(usage),
        noise=None if machine is None else max(machine - known, 0.0),
    )
