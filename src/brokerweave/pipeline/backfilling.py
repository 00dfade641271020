"""Brings a range of some logs into a lake: only the rows that bronze does not hold yet.

Owns which rows are missing. Invariants: a row is in bronze once, however often a range is asked for and
whoever was killed meanwhile; what the lake's own stream has yet to bring is left to it. Must not know:
flags.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from brokerweave.edgelog.layout import Position
from brokerweave.errors import ConfigError
from brokerweave.flight.client import LogClient, LogState
from brokerweave.pipeline.jobs.bronze import offsets_text, source_options
from brokerweave.pipeline.lake import durable
from brokerweave.pipeline.lake.notes import LakeNotes
from brokerweave.pipeline.settings import PipelineSettings
from brokerweave.pipeline.sinks.publishing import COMMITS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from brokerweave.pipeline.sinks import Sink


@dataclass(frozen=True, slots=True)
class Moment:
    """A place in every log: a time or a position. None of both: its beginning or its end."""

    time: int | None = None
    """Microseconds since 1970."""
    position: Position | None = None

    @classmethod
    def parse(cls, text: str | None, flag: str) -> Moment:
        """From EPOCH:SEQUENCE or ISO 8601. Raises `ConfigError`."""
        if text is None:
            return cls()
        try:
            return cls(position=Position.parse(text))
        except ValueError:
            pass
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ConfigError(
                f"{flag} should be a time such as 2026-01-31T12:00:00Z or a position such as 1:500; "
                f"not {text!r}"
            ) from None
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
        return cls(time=(since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)

    def in_log(self, client: LogClient, otherwise: Position) -> Position:
        if self.position is not None:
            return self.position
        return otherwise if self.time is None else client.position_at(self.time)


@dataclass(frozen=True, slots=True)
class Backfilled:
    node: str
    after: Position
    up_to: Position
    rows: int


def backfill(
    spark: SparkSession,
    settings: PipelineSettings,
    notes: LakeNotes,
    sink: Sink,
    since: Moment,
    until: Moment,
    say: Callable[[str], None] = lambda line: None,
) -> list[Backfilled]:
    """The range (since, until] of every node's log. Raises `BrokerweaveError` if a node does not answer."""
    done = []
    for address in settings.nodes():
        with LogClient(address, settings.token(), settings.pipeline.node_timeout) as client:
            state = client.state()
            before_first = Position(state.first.epoch, state.first.sequence - 1)
            after = max(since.in_log(client, before_first), before_first)
            up_to = min(until.in_log(client, state.end), state.end)
        up_to = _not_the_streams(notes, state, up_to, say)
        rows = _bring(spark, settings, notes, sink, address, state, after, up_to) if up_to > after else 0
        done.append(Backfilled(state.node, after, max(after, up_to), rows))
    return done


def _not_the_streams(
    notes: LakeNotes, state: LogState, up_to: Position, say: Callable[[str], None]
) -> Position:
    """What the lake's own stream has not brought yet, it will bring itself."""
    note = notes.log(state.log_id)
    if note is None or up_to <= note.held:
        return up_to
    say(f"node {state.node}: rows after {note.held} are left to `pipeline run`, which brings them")
    return note.held


def _bring(
    spark: SparkSession,
    settings: PipelineSettings,
    notes: LakeNotes,
    sink: Sink,
    address: str,
    state: LogState,
    after: Position,
    up_to: Position,
) -> int:
    rows = (
        spark.read.format("brokerweave")
        .options(**source_options(settings, address))
        .option("startingOffsets", offsets_text({state.log_id: after}))
        .option("endingOffsets", offsets_text({state.log_id: up_to}))
        .load()
    )
    # All backfills of a log are the batches of one query, so that one that was killed is finished first: what
    # it had staged must be visible before anybody asks what is missing.
    query = f"backfill-{state.node}-{state.log_id[:8]}"
    last = _last_batch(settings.lake / "bronze", query)
    if last >= 0:
        sink.write(rows.limit(0), query, last)
    known = held(spark, settings, state.log_id)
    missing = rows if known is None else rows.join(known, ["epoch", "sequence"], "left_anti")
    if notes.log(state.log_id) is None:
        # Before the first row: a stream that starts later must not bring them again.
        notes.add_backfill(state.log_id, after, up_to)
    return sink.write(missing, query, last + 1).rows


def _last_batch(table: Path, query: str) -> int:
    note = durable.read_note(table / COMMITS / f"{query}.json")
    return -1 if note is None else int(note["batch_id"])


def held(spark: SparkSession, settings: PipelineSettings, log_id: str) -> DataFrame | None:
    """Epoch and sequence of all rows of a log that bronze holds; None for no bronze at all."""
    from pyspark.sql import functions as F
    from pyspark.sql.pandas.types import from_arrow_schema

    from brokerweave.edgelog.arrow import SCHEMA

    folder = settings.lake / "bronze"
    if settings.pipeline.format == "delta":
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(str(folder)):
            return None
        paths = DeltaTable(str(folder)).file_uris()
    else:
        paths = [str(folder)] if any(folder.glob("date=*/*.parquet")) else []
    if not paths:
        return None
    rows = (
        spark.read.schema(from_arrow_schema(SCHEMA))
        .option("recursiveFileLookup", "true")
        .option("pathGlobFilter", "*.parquet")
        .parquet(*paths)
    )
    return rows.filter(F.col("log_id") == log_id).select("epoch", "sequence")
