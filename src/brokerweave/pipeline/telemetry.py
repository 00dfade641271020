"""Nodes' telemetry as tables: one row a node, one for the cluster, and rates over time, with a plot.

Owns the tables' columns and how totals become rates. Invariants: a rate is a difference of two totals of one
start of one node, so a lost message costs resolution, not correctness, and a restart never shows as a
negative rate; what is no telemetry is counted, not taken for zeros. Must not know: where rows come from (any
rows with `topic` and `payload` will do: bronze, `format("brokerweave")`, Kafka).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from brokerweave.errors import Unavailable
from brokerweave.pipeline.plot import chart

TOPIC = "brokerweave/telemetry/#"
FIELDS = """
    v int, node string, time double, interval double, start bigint, uptime double, pid bigint,
    address string, strategy string, state string,
    messages_in bigint, bytes_in bigint, messages_out bigint, bytes_out bigint,
    sessions bigint, filters bigint, subscribers bigint, publishers bigint, topics bigint,
    roles map<string, bigint>, links bigint, links_up bigint,
    link_messages_sent bigint, link_messages_received bigint, injected bigint,
    timed bigint, latency_seconds double, round_trip_seconds double,
    backlog_messages bigint, lag_seconds double, drops bigint,
    recorded bigint, log_rows bigint, kafka_lag bigint, cpu_seconds double, memory_bytes bigint
"""
"""What a node publishes (`runtime/telemetry.py`)."""
TOTALS = {
    "messages_in": "messages_in_rate",
    "messages_out": "messages_out_rate",
    "bytes_in": "bytes_in_rate",
    "bytes_out": "bytes_out_rate",
    "cpu_seconds": "cpu",
    "drops": "drops_rate",
}
"""Totals, and what their growth per second is called."""
_LATEST = ("address", "pid", "strategy", "state", "uptime", "links", "topics", "round_trip_seconds")
_SUMMED = (
    "sessions",
    "filters",
    "subscribers",
    "publishers",
    "links_up",
    "messages_in",
    "messages_out",
    "bytes_in",
    "bytes_out",
    "drops",
    "backlog_messages",
    "memory_bytes",
)
"""The latest of each, too, and the cluster has their sums."""
_TIMED = ("timed", "latency_seconds")
"""Totals whose growth gives the mean latency of what came meanwhile from other sites."""
_GAUGES = ("memory_bytes", "sessions", "backlog_messages", "lag_seconds")
_PLOTS = {
    "messages": ("Messages from clients", "messages a second", "messages_in_rate", 1.0),
    "bytes": ("Bytes to clients", "KB a second", "bytes_out_rate", 1e3),
    "latency": ("Mean latency from other sites", "ms", "latency", 1e-3),
    "cpu": ("CPU of each node", "cores", "cpu", 1.0),
    "memory": ("Memory of each node", "MB", "memory_bytes", 1e6),
}
"""File, title, unit, column, and by what it is divided."""


@dataclass(frozen=True, slots=True)
class TelemetryTables:
    """After MQTT2EdgePeer's Fig. 3.4. `cluster` has the rows `total` and `average`."""

    nodes: DataFrame
    cluster: DataFrame
    over_time: DataFrame
    unreadable: int
    """Messages on telemetry's topic that are none."""


def in_lake(bronze: DataFrame, topic: str = TOPIC) -> DataFrame:
    """The rows of a bronze table whose topics match an MQTT filter."""
    levels = [{"+": "[^/]*", "#": ".*"}.get(level, re.escape(level)) for level in topic.split("/")]
    pattern = "/".join(levels)
    if topic.endswith("/#"):  # the level above, too [MQTT-4.7.1-2]
        pattern = pattern.removesuffix("/.*") + "(/.*)?"
    return bronze.where(f.col("topic").rlike(f"^{pattern}$"))


def from_lake(spark: SparkSession, lake: Path, topic: str = TOPIC) -> DataFrame:
    """What a lake's bronze table, in Parquet, has of telemetry. Raises `Unavailable`."""
    bronze = lake / "bronze"
    if not any(bronze.glob("date=*/*.parquet")):
        raise Unavailable(f"there are no Parquet files of bronze in {bronze}")
    reading = spark.read.option("pathGlobFilter", "*.parquet").option("basePath", str(bronze))
    return in_lake(reading.parquet(*map(str, sorted(bronze.glob("date=*")))), topic)


def from_nodes(
    spark: SparkSession, nodes: str, topic: str = TOPIC, token_file: Path | None = None
) -> DataFrame:
    """What the nodes' edge logs have of it. `nodes`: their Flight services, separated by commas."""
    options = {"nodes": nodes, "topics": topic, "columns": "topic,payload"}
    if token_file is not None:
        options["tokenFile"] = str(token_file.absolute())
    return spark.read.format("brokerweave").options(**options).load()


def samples(rows: DataFrame) -> DataFrame:
    """Messages as columns; all null where a payload is none of ours."""
    said = f.from_json(f.col("payload").cast("string"), FIELDS)
    return rows.select(said.alias("said")).select("said.*")


def with_rates(said: DataFrame) -> DataFrame:
    """Each sample with the seconds since the one before, the rates between them, and the growth of `_TIMED`;
    null for a first one."""
    before = Window.partitionBy("node", "start").orderBy("time")
    seconds = f.col("time") - f.lag("time").over(before)
    rates = {
        rate: (f.col(total) - f.lag(total).over(before)) / f.when(seconds > 0, seconds)
        for total, rate in TOTALS.items()
    }
    grown = {f"{total}_grown": f.col(total) - f.lag(total).over(before) for total in _TIMED}
    return said.dropDuplicates(["node", "start", "time"]).withColumns({"seconds": seconds, **rates, **grown})


def _mean_latency() -> Column:
    """In seconds; null where nothing came from other sites."""
    return _mean(f.col("latency_seconds_grown"), "timed_grown")


def _mean(sums: Column, messages: str) -> Column:
    count = f.sum(messages)
    return (f.sum(sums) / f.when(count > 0, count)).alias("latency")


def per_node(rated: DataFrame) -> DataFrame:
    """One row a node: its latest totals, and its mean and highest rates over all samples."""
    latest = [f.max_by(name, "time").alias(name) for name in (*_LATEST, *_SUMMED)]
    latest.append(f.to_json(f.max_by("roles", "time")).alias("roles"))
    means = [
        (f.sum(f.col(rate) * f.col("seconds")) / f.sum("seconds")).alias(rate) for rate in TOTALS.values()
    ]
    highest = [
        f.max("messages_in_rate").alias("messages_in_peak"),
        f.max("lag_seconds").alias("lag_seconds_max"),
        f.max("memory_bytes").alias("memory_bytes_max"),
    ]
    counts = [f.countDistinct("start").alias("starts"), f.count("*").alias("samples")]
    latency = [_mean_latency(), f.sum("timed_grown").alias("timed")]
    return rated.groupBy("node").agg(*latest, *latency, *means, *highest, *counts).orderBy("node")


def per_cluster(nodes: DataFrame) -> DataFrame:
    """The nodes' sums and means; the mean latency is that of all their messages, in both rows."""

    def row(kind: str, how: Callable[[str], Column]) -> DataFrame:
        values = [how(name).cast("double").alias(name) for name in (*_SUMMED, *TOTALS.values())]
        latency = _mean(f.col("latency") * f.col("timed"), "timed")
        return nodes.agg(f.lit(kind).alias("cluster"), f.count("*").alias("nodes"), *values, latency)

    return row("total", f.sum).unionByName(row("average", f.avg))


def over_time(rated: DataFrame, seconds: float) -> DataFrame:
    """Mean rates per node and stretch of `seconds`."""
    begin = (f.floor(f.col("time") / seconds) * seconds).alias("from")
    means = [_mean_latency(), *(f.avg(name).alias(name) for name in (*TOTALS.values(), *_GAUGES))]
    return (
        rated.where(f.col("seconds").isNotNull()).groupBy("node", begin).agg(*means).orderBy("from", "node")
    )


def tables(rows: DataFrame, seconds: float = 10.0) -> TelemetryTables:
    """All three. `seconds`: how long a stretch of `over_time` is."""
    said = samples(rows).cache()
    ours = f.col("node").isNotNull() & f.col("time").isNotNull()
    rated = with_rates(said.where(ours)).cache()
    nodes = per_node(rated).cache()
    return TelemetryTables(nodes, per_cluster(nodes), over_time(rated, seconds), said.where(~ours).count())


def plots(time_table: DataFrame) -> dict[str, str]:
    """Name and SVG of each plot: a line for each node."""
    rows = time_table.collect()
    begin = min((row["from"] for row in rows), default=0.0)
    charts = {}
    for name, (title, up, column, unit) in _PLOTS.items():
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            if row[column] is not None:
                lines.setdefault(row["node"], []).append((row["from"] - begin, row[column] / unit))
        charts[name] = chart(title, "seconds", up, dict(sorted(lines.items())), linear=True)
    return charts


def write(found: TelemetryTables, folder: Path) -> list[Path]:
    """The tables as CSV and the plots as SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    named = {"nodes": found.nodes, "cluster": found.cluster, "over_time": found.over_time}
    for name, table in named.items():
        path = folder / f"{name}.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(table.columns)
            writer.writerows(table.collect())
        written.append(path)
    for name, svg in plots(found.over_time).items():
        path = folder / f"{name}.svg"
        path.write_text(svg)
        written.append(path)
    return written
