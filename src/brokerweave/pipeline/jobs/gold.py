"""Gold: from each silver batch, parts of aggregates per window, topic, site and field.

Owns which columns are readings, the windows, and what counts as late. Invariants: no row is ever too late:
it makes one more part, and parts are merged by whoever reads (`view`, `partials.merge`); a batch's parts
depend on its rows and on notes of earlier batches only. Must not know: how files are folded (compaction).

A row is *late* if its window had ended, by more than `lateness`, when rows received later were already in
gold: a watermark would have dropped it. It is counted, and the window's merged row has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from brokerweave.errors import ConfigError, Unavailable
from brokerweave.pipeline.jobs.layer import Layer
from brokerweave.pipeline.jobs.partials import KEY, MERGED_BY, MESSAGES, SCHEMA, listed
from brokerweave.pipeline.jobs.silver import BYTES_A_BATCH, read_layer, resolved, start_stream
from brokerweave.pipeline.lake import durable
from brokerweave.pipeline.payloads.fields import column_of
from brokerweave.pipeline.payloads.rules import META, PayloadRule

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from brokerweave.pipeline.sinks import Sink


@dataclass(frozen=True, slots=True)
class GoldOptions:
    """`rules` as silver has them; `window` and `lateness` in seconds."""

    rules: tuple[PayloadRule, ...] = (PayloadRule(),)
    window: float = 60.0
    lateness: float = 60.0
    bytes_a_batch: int = BYTES_A_BATCH

    def __post_init__(self) -> None:
        if not 0.001 <= self.window <= 31 * 86_400:
            raise ConfigError(f"a window of {self.window} s: use a millisecond to 31 days")


def fields_of(silver: pa.Schema, rules: Sequence[PayloadRule]) -> list[str]:
    """Silver's columns that are readings: numbers and truth values, but not times."""
    times = {column_of(rule.event_time) for rule in rules if rule.event_time is not None}
    return [
        column.name
        for column in silver
        if column.name not in META.names
        and column.name not in times
        and not column.name.startswith("sp_")
        and (pa.types.is_floating(column.type) or pa.types.is_int64(column.type) or column.type == pa.bool_())
    ]


class GoldJob:
    """One stream for the whole lake. `begun` may refuse a batch by raising; `done` is called after each."""

    stage = 2
    name = "gold"

    def __init__(
        self,
        lake: Path,
        checkpoint: Path,
        sink: Sink,
        options: GoldOptions = GoldOptions(),  # noqa: B008 (frozen)
        *,
        begun: Callable[[], None] = lambda: None,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self.lake = lake
        self.layer = Layer(lake, "gold", checkpoint)
        self._sink = sink
        self._options = options
        self._begun = begun
        self.done = done

    def find(self) -> None:
        """Nothing to look for."""

    def report(self) -> None:
        """Nobody waits to hear how far gold is."""

    def start(self, spark: SparkSession, trigger: Mapping[str, object]) -> StreamingQuery:
        """Raises `ConfigError` if checkpoint, lake and window do not fit together."""
        self.layer.check()
        self._check_window()
        schema = resolved(self.lake, self._options.rules).schema
        rows = read_layer(spark, self.lake / "silver", schema, self._options.bytes_a_batch)
        return start_stream(rows, self.name, self.layer.checkpoint, self.write, trigger)

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """One batch of silver rows into gold."""
        self._begun()
        schema = resolved(self.lake, self._options.rules).schema
        if not set(schema.names) <= set(batch.columns):
            raise Unavailable(
                "silver has columns that this stream of gold does not read yet; it starts again"
            )
        query = self.layer.claim()
        self._note_window()
        before: int | None = self.layer.before(batch_id).get("received_until")
        fields = fields_of(schema, self._options.rules)
        parts = partials(batch, fields, self._options.window, self._options.lateness, before).persist()
        try:
            newest = parts.agg(F.max(F.unix_micros("received_until"))).collect()[0][0]
            if newest is not None:
                self.layer.note(batch_id, {"received_until": max(newest, before or newest)})
            self._sink.write(parts, query, batch_id)
        finally:
            parts.unpersist()
        self.done()

    def _check_window(self) -> None:
        known = durable.read_note(self.layer.folder / "options.json")
        if known is not None and known["window"] != self._options.window:
            raise ConfigError(
                f"gold has windows of {known['window']} s, and is now asked for {self._options.window} s: "
                f"keep them, or remove {self.lake / 'gold'}, {self.layer.folder} and {self.layer.checkpoint} "
                "to make gold anew"
            )

    def _note_window(self) -> None:
        path = self.layer.folder / "options.json"
        if durable.read_note(path) is None:
            durable.write_note(path, {"window": self._options.window})


def partials(
    silver: DataFrame, fields: Sequence[str], window: float, lateness: float = 0.0, before: int | None = None
) -> DataFrame:
    """The parts that some silver rows make. `before`: the latest receive time (µs) in gold so far."""
    length = round(window * 1e6)
    readings = F.explode(_readings(silver, fields)).alias("reading")
    rows = silver.select("site", "topic", "received", readings).select(
        "site", "topic", "received", "reading.field", "reading.value", "reading.time"
    )
    finite = F.col("value").isNotNull() & ~F.isnan("value") & (F.abs("value") < float("inf"))
    rows = rows.filter((F.col("field") == MESSAGES) | finite)
    time = F.unix_micros("time")
    start = time - F.pmod(time, F.lit(length))
    ended = start + length + round(lateness * 1e6)
    late = F.lit(0) if before is None else (ended <= before).cast("long")
    last = F.max(F.struct("time", "received", "value"))
    made = (
        rows.withColumn("window_start", F.timestamp_micros(start))
        .withColumn("late", late)
        .groupBy(*KEY)
        .agg(
            F.count("*").alias("count"),
            F.sum("value").alias("sum"),
            F.sum(F.col("value") * F.col("value")).alias("sum_squares"),
            F.min("value").alias("min"),
            F.max("value").alias("max"),
            F.min("time").alias("first_time"),
            last.alias("newest"),
            F.max("received").alias("received_until"),
            F.sum("late").cast("long").alias("late"),
        )
        .withColumns(
            {
                "last_time": F.col("newest.time"),
                "last_received": F.col("newest.received"),
                "last": F.col("newest.value"),
                "date": F.to_date("window_start"),
            }
        )
    )
    return made.select(*SCHEMA.names, "date")


def _readings(silver: DataFrame, fields: Sequence[str]) -> Column:
    """For each row an array of (field, value, time)."""

    def reading(field: Column, value: Column, time: Column) -> Column:
        return F.struct(field.alias("field"), value.cast("double").alias("value"), time.alias("time"))

    at = F.col("event_time")
    found = F.array(
        reading(F.lit(MESSAGES), F.lit(None), at),
        *(reading(F.lit(name), F.col(f"`{name}`"), at) for name in fields),
    )
    if "metrics" not in silver.columns:
        return found

    def metric(each: Column) -> Column:
        name = F.coalesce(each["name"], F.concat(F.lit("alias "), each["alias"].cast("string")), F.lit("?"))
        return reading(name, each["value"], F.coalesce(each["time"], at))

    nothing = F.array().cast("array<struct<field:string,value:double,time:timestamp>>")
    return F.concat(found, F.coalesce(F.transform("metrics", metric), nothing))


def view(spark: SparkSession, folder: Path | str) -> DataFrame:
    """The merged gold of a lake, with mean and standard deviation."""
    files = (
        spark.read.schema(from_arrow_schema(SCHEMA))
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.parquet")
        .parquet(*(listed(folder) or [str(folder)]))
    )
    return merged(files)


def merged(parts: DataFrame) -> DataFrame:
    """`partials.merge` for Spark."""
    how = {"sum": F.sum, "min": F.min, "max": F.max}
    newest = F.max(F.struct("last_time", "last_received", "last")).alias("newest")
    simple = [how[MERGED_BY[name]](name).alias(name) for name in MERGED_BY]
    table = parts.groupBy(*KEY).agg(*simple, newest)
    table = table.withColumns({"last_received": F.col("newest.last_received"), "last": F.col("newest.last")})
    mean = F.col("sum") / F.col("count")
    spread = F.col("sum_squares") / F.col("count") - mean * mean
    # Rounding can make it a little less than nothing.
    deviation = F.sqrt(F.when(spread < 0, 0.0).otherwise(spread))
    return table.select(*SCHEMA.names, mean.alias("mean"), deviation.alias("stddev"))
