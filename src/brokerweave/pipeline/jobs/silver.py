"""Silver: bronze decoded and typed, without what clients resent.

Owns the order of a batch: schema, births, resends, decoding, the two sinks. Invariants: everything that a
batch decides depends on its rows and on notes of earlier batches, so a replay after a kill writes the same;
what does not decode goes to dead letters and stops nothing. Must not know: bronze's queries, when it is
started again.

Resends are found by looking, not by a state store of Spark's. `dropDuplicatesWithinWatermark` needs a
watermark over all nodes, which drops the rows of a site that was away, and would take a new message with an
old packet id for a copy; `transformWithState` would carry every QoS 1 row through a shuffle and a store.
Marked rows are rare: a batch without any costs one look at a boolean column; a batch with some reads a few
columns of the silver files around their receive times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from brokerweave.edgelog.arrow import SCHEMA as BRONZE
from brokerweave.errors import ConfigError
from brokerweave.pipeline.jobs import checkpoints
from brokerweave.pipeline.jobs.layer import Layer, read_schema, write_schema
from brokerweave.pipeline.jobs.resends import Decision, ResendWindow, SentRow, decide
from brokerweave.pipeline.payloads.rules import ERROR, KEPT, META, PayloadRule, RuleSet
from brokerweave.pipeline.payloads.sparkplug import BIRTHS, Birth, births

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from brokerweave.pipeline.sinks import Sink

SAMPLE = 1_000
"""Payloads of a rule, for each task, from which its fields are inferred."""
MOST_ALIASES = 100_000
"""Sparkplug names that are remembered; the births that are oldest go first."""
BYTES_A_BATCH = 64 << 20
"""Of bronze files. What a long pause left over is read in several batches."""
MESSAGE = ("client", "packet_id", "topic", "payload_hash")
POSITION = ("log_id", "epoch", "sequence")
_SENT = (*MESSAGE, *POSITION, "received", "dup")
DEAD_LETTER = [name for name in KEPT if name != "payload_hash"]


def read_layer(spark: SparkSession, folder: Path, schema: pa.Schema, bytes_a_batch: int) -> DataFrame:
    """A stream of the files that sinks publish in a layer's folder; never of what compaction made of them."""
    folder.mkdir(parents=True, exist_ok=True)
    return (
        spark.readStream.schema(from_arrow_schema(schema))
        .option("pathGlobFilter", "batch-*")
        .option("recursiveFileLookup", "true")
        .option("maxBytesPerTrigger", bytes_a_batch)
        .parquet(str(folder))
    )


def start_stream(
    rows: DataFrame,
    name: str,
    checkpoint: Path,
    write: Callable[[DataFrame, int], None],
    trigger: Mapping[str, object],
) -> StreamingQuery:
    """A stream whose batches `write` takes; `trigger` is what Spark's `trigger` takes."""
    checkpoints.clear_unfinished(checkpoint)
    stream = rows.writeStream.foreachBatch(write).queryName(name)
    stream = stream.option("checkpointLocation", str(checkpoint))
    return stream.trigger(**trigger).start()  # type: ignore[call-overload, no-any-return]


@dataclass(frozen=True, slots=True)
class SilverOptions:
    """`rules`: how payloads are read; `window`, `skew`: seconds, see `resends`."""

    rules: tuple[PayloadRule, ...] = (PayloadRule(),)
    window: float = 900.0
    skew: float = 5.0
    bytes_a_batch: int = BYTES_A_BATCH

    def __post_init__(self) -> None:
        names = [rule.name for rule in self.rules]
        if len(set(names)) < len(names) or not names:
            raise ConfigError("silver needs rules, each with a name of its own")


def resolved(lake: Path, rules: Sequence[PayloadRule]) -> RuleSet:
    """The rules with what was inferred so far. A rule whose columns are not known yet has none."""
    fields = read_schema(lake)["fields"]
    return RuleSet([rule.with_fields(fields.get(rule.name, {})) if rule.open else rule for rule in rules])


class SilverJob:
    """One stream for the whole lake. `begun` may refuse a batch by raising; `done` is called after each."""

    stage = 1
    name = "silver"

    def __init__(
        self,
        lake: Path,
        checkpoint: Path,
        sink: Sink,
        dead_letters: Sink,
        options: SilverOptions = SilverOptions(),  # noqa: B008 (frozen)
        *,
        begun: Callable[[], None] = lambda: None,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        self.lake = lake
        self.layer = Layer(lake, "silver", checkpoint)
        self._sink = sink
        self._dead_letters = dead_letters
        self._options = options
        self._window = ResendWindow(round(options.window * 1e6), round(options.skew * 1e6))
        self._begun = begun
        self.done = done

    def find(self) -> None:
        """Nothing to look for: bronze's folder is made if it is not there."""

    def report(self) -> None:
        """Nobody waits to hear how far silver is."""

    def start(self, spark: SparkSession, trigger: Mapping[str, object]) -> StreamingQuery:
        """Raises `ConfigError` if checkpoint, lake and rules do not fit together."""
        self.layer.check()
        self._check_columns(resolved(self.lake, self._options.rules))
        rows = read_layer(spark, self.lake / "bronze", BRONZE, self._options.bytes_a_batch)
        return start_stream(rows, self.name, self.layer.checkpoint, self.write, trigger)

    def write(self, batch: DataFrame, batch_id: int) -> None:
        """One batch of bronze rows into silver and dead letters."""
        self._begun()
        query = self.layer.claim()
        before = self.layer.before(batch_id)
        rules = self._rules(batch, before)
        opened = [SentRow(*each) for each in before.get("open", ())]
        decision = self._resends(batch, opened)
        after = {"open": [list(each) for each in decision.open], "aliases": _latest(rules.aliases)}
        if after != {"open": before.get("open", []), "aliases": before.get("aliases", {})}:
            self.layer.note(batch_id, after)
        decoded = decode(without(batch, decision), rules).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            good = decoded.filter(F.col(ERROR).isNull()).drop(ERROR, "_payload")
            self._sink.write(good, query, batch_id)
            bad = decoded.filter(F.col(ERROR).isNotNull())
            if not bad.isEmpty():
                self._dead_letters.write(
                    bad.select(
                        *DEAD_LETTER, F.col(ERROR).alias("reason"), F.col("_payload").alias("payload")
                    ),
                    query,
                    batch_id,
                )
        finally:
            decoded.unpersist()
        self.done()

    def _rules(self, batch: DataFrame, before: Mapping[str, Any]) -> RuleSet:
        """The rules for this batch: fields inferred now, for ever, and the aliases known up to it."""
        rules = resolved(self.lake, self._options.rules)
        fields = dict(read_schema(self.lake)["fields"])
        unknown = [rule for rule in self._options.rules if rule.open and rule.name not in fields]
        if unknown:
            samples = sample(batch, rules)
            for rule in unknown:
                found = rule.infer(samples.get(rule.name, []), rules.schema)
                if found:
                    fields[rule.name] = found
                    rules = RuleSet(
                        [each.with_fields(found) if each.name == rule.name else each for each in rules.rules]
                    )
        columns = self._check_columns(rules)
        if {"fields": fields, "columns": columns} != read_schema(self.lake):
            write_schema(self.lake, fields, columns)
        if any(rule.payload == "sparkplug" for rule in rules.rules):
            return RuleSet(rules.rules, _with_births(batch, before.get("aliases", {})))
        return rules

    def _check_columns(self, rules: RuleSet) -> dict[str, str]:
        """The payloads' columns that silver has had. Raises `ConfigError` if one would change its type."""
        known: dict[str, str] = dict(read_schema(self.lake)["columns"])
        # How a nested type is written differs between versions of Arrow; its column's name says what it is.
        simple = (each for each in rules.schema if not pa.types.is_nested(each.type))
        for column in (each for each in simple if each.name not in META.names):
            before = known.setdefault(column.name, str(column.type))
            if before != str(column.type):
                raise ConfigError(
                    f"silver has column {column.name} as {before}, and the rules now make it {column.type}: "
                    f"keep the type, or remove {self.lake / 'silver'}, {self.layer.folder} and "
                    f"{self.layer.checkpoint} to make silver anew from bronze"
                )
        return known

    def _resends(self, batch: DataFrame, opened: list[SentRow]) -> Decision:
        hashed = batch.filter("qos > 0").withColumn("payload_hash", F.xxhash64("payload"))
        copies = _sent(hashed.filter("dup"))
        if not copies and not opened:
            return Decision(frozenset(), ())
        spark = batch.sparkSession
        wanted = {row.message for row in copies} | {row.message for row in opened}
        rows = _sent(_only(hashed, spark, wanted))
        silver = self._silver(spark, copies)
        return decide(rows, silver, opened, self._window)

    def _silver(self, spark: SparkSession, copies: list[SentRow]) -> list[SentRow]:
        """Rows of silver that may be the same messages as some marked rows.

        Files are read as they lie there, also those of this very batch, or that a Delta log no longer lists:
        a row that is met twice, or is of the batch itself, changes nothing.
        """
        if not copies:
            return []
        length = self._window.length + self._window.skew
        first = _time(min(row.received for row in copies) - length)
        last = _time(max(row.received for row in copies) + length)
        days = [self.lake / "silver" / f"date={day}" for day in _days(first.date(), last.date())]
        paths = [str(path) for path in days if path.is_dir() and any(path.glob("*.parquet"))]
        if not paths:
            return []
        schema = pa.schema([field for field in _silver_key() if field.name in _SENT])
        rows = (
            spark.read.schema(from_arrow_schema(schema))
            .option("recursiveFileLookup", "true")
            .option("pathGlobFilter", "*.parquet")
            .parquet(*paths)
            .filter(F.col("received").between(F.lit(first), F.lit(last)) & F.col("payload_hash").isNotNull())
        )
        return _sent(_only(rows, spark, {row.message for row in copies}))


def decode(batch: DataFrame, rules: RuleSet) -> DataFrame:
    """Bronze rows as silver's columns, `_error` and the payload of rows in error."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in batches:
            yield from rules.decode(rows)

    hashed = F.when(F.col("qos") > 0, F.xxhash64("payload")).alias("payload_hash")
    rows = batch.drop("payload_hash").select("*", hashed)
    return rows.mapInArrow(work, from_arrow_schema(rules.output))


def sample(batch: DataFrame, rules: RuleSet) -> dict[str, list[bytes]]:
    """Some payloads of each rule whose fields are not known yet, by the rule's name."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        left = [SAMPLE] * len(rules.rules)
        for rows in batches:
            chosen = rules.choices(rows.column("topic"))
            numbers, payloads = [], []
            for number, payload in zip(chosen.to_pylist(), rows.column("payload").to_pylist(), strict=True):
                if number is not None and left[number]:
                    left[number] -= 1
                    numbers.append(number)
                    payloads.append(payload)
            yield pa.record_batch(
                [pa.array(numbers, pa.int32()), pa.array(payloads, pa.binary())], ["rule", "payload"]
            )
            if not any(left):
                return

    found: dict[str, list[bytes]] = {}
    for row in batch.select("topic", "payload").mapInArrow(work, "rule int, payload binary").collect():
        found.setdefault(rules.rules[row.rule].name, []).append(bytes(row.payload))
    return found


def without(batch: DataFrame, decision: Decision) -> DataFrame:
    """The batch without the rows that were decided to be copies."""
    if not decision.dropped:
        return batch
    dropped = pa.table(
        dict(zip(POSITION, map(list, zip(*sorted(decision.dropped), strict=True)), strict=True)),
        schema=pa.schema([BRONZE.field(name) for name in POSITION]),
    )
    return batch.join(F.broadcast(batch.sparkSession.createDataFrame(dropped)), list(POSITION), "left_anti")


def _silver_key() -> pa.Schema:
    return BRONZE.append(pa.field("payload_hash", pa.int64()))


def _only(rows: DataFrame, spark: SparkSession, messages: set[tuple[str, int, str, int]]) -> DataFrame:
    wanted = pa.table(
        dict(zip(MESSAGE, map(list, zip(*sorted(messages), strict=True)), strict=True)),
        schema=pa.schema([_silver_key().field(name) for name in MESSAGE]),
    )
    return rows.join(F.broadcast(spark.createDataFrame(wanted)), list(MESSAGE), "left_semi")


def _sent(rows: DataFrame) -> list[SentRow]:
    table = rows.select(
        *[F.unix_micros("received").alias(name) if name == "received" else name for name in _SENT]
    ).toArrow()
    return [SentRow(*row.values()) for row in table.to_pylist()]


def _with_births(batch: DataFrame, known: Mapping[str, Any]) -> dict[str, list[Birth]]:
    pattern = rf"^[^/]+/[^/]+/({'|'.join(BIRTHS)})/"
    rows = batch.filter(F.col("topic").rlike(pattern)).select("topic", "payload", "received", "sequence")
    found = births(rows.toArrow())
    for key, note in known.items():
        names = {int(alias): (name, kind) for alias, (name, kind) in note["names"].items()}
        found.setdefault(key, []).append(Birth((note["at"][0], note["at"][1]), names))
    return {key: sorted(each, key=lambda birth: birth.at) for key, each in found.items()}


def _latest(aliases: Mapping[str, list[Birth]]) -> dict[str, Any]:
    """The newest birth of each device, as notes have it, and not more names than are remembered."""
    newest = sorted(((each[-1], key) for key, each in aliases.items()), key=lambda one: one[0].at)
    kept: dict[str, Any] = {}
    left = MOST_ALIASES
    for birth, key in reversed(newest):
        left -= len(birth.names)
        if left < 0:
            break
        note = asdict(birth)
        kept[key] = {
            "at": list(note["at"]),
            "names": {str(alias): list(name) for alias, name in birth.names.items()},
        }
    return dict(sorted(kept.items()))


def _time(microseconds: int) -> datetime:
    return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)


def _days(first: date, last: date) -> Iterator[date]:
    # A wrong clock among the marked rows must not make us list centuries.
    for number in range(min((last - first).days, 3660) + 1):
        yield first + timedelta(days=number)
