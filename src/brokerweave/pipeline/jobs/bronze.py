"""Bronze: one stream for each node, from its log into LAKE/bronze as it was published.

Owns when a node's stream may start: its checkpoint and the lake must agree about what the lake has.
Invariants: the lake's notes are written before and after each batch; the node is told that rows are read
only after the sink has committed them; what one node does never touches another's stream. Must not know:
other layers, when it is started again (`supervisor`).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from brokerweave.edgelog.layout import START, Position
from brokerweave.errors import ConfigError
from brokerweave.flight.client import LogClient, LogState
from brokerweave.pipeline.jobs import checkpoints
from brokerweave.pipeline.lake.notes import LakeNotes, LogNote
from brokerweave.pipeline.settings import PipelineSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from brokerweave.pipeline.sinks import Sink


class Stopping(Exception):
    """The pipeline ends: a batch that has not begun is left to the next run."""


@dataclass(frozen=True, slots=True)
class LostCheckpoint:
    """Why a stream must not simply start, and where it could go on."""

    why: str
    note: LogNote | None
    resume: Position


def lost_checkpoint(
    state: LogState, folder: Path, note: LogNote | None, backfilled: Position
) -> LostCheckpoint | None:
    """Whether the lake holds rows of a log that the checkpoint does not know of. A pure look at both."""
    name = checkpoints.query_name("bronze", state.node, folder)
    if note is None:
        if backfilled == START or checkpoints.last_batch(folder) >= 0:
            return None
        return LostCheckpoint(f"a backfill brought rows up to {backfilled}", None, backfilled)
    if note.query != name:
        return LostCheckpoint(f"{folder} is not the checkpoint that brought them", note, note.held)
    if note.batch_id > checkpoints.last_batch(folder):
        return LostCheckpoint(f"{folder} is older than the lake", note, note.held)
    return None


def refusal(state: LogState, lost: LostCheckpoint) -> str:
    """The one line."""
    return (
        f"the lake already has rows of node {state.node} up to {lost.resume}, and {lost.why}: give the "
        "--checkpoint it was made with, or --resume-from-lake to go on after what the lake holds"
    )


def source_options(settings: PipelineSettings, address: str) -> dict[str, str]:
    """How Spark's source is told to read one node."""
    chosen = settings.pipeline
    options = {"nodes": address, "nodeTimeout": str(chosen.node_timeout), "local": chosen.local}
    if chosen.topics:
        options["topics"] = json.dumps(chosen.topics)
    if chosen.token_file is not None:
        options["tokenFile"] = str(chosen.token_file.absolute())
    if chosen.skip_lost:
        options["onTrimmed"] = "skip"
    return options


def offsets_text(positions: Mapping[str, Position]) -> str:
    """Positions by log id, as the source takes them."""
    return json.dumps({log_id: list(position) for log_id, position in positions.items()})


class BronzeJob:
    """One node's stream. `begun` is called in `foreachBatch`, before a batch, and may refuse it."""

    def __init__(
        self,
        address: str,
        settings: PipelineSettings,
        notes: LakeNotes,
        sink: Sink,
        *,
        resume: bool = False,
        begun: Callable[[], None] = lambda: None,
    ) -> None:
        self.stage = 0
        self.address = address
        self.state: LogState | None = None
        self._settings = settings
        self._notes = notes
        self._sink = sink
        self._resume = resume
        self._begun = begun
        self.done: Callable[[], None] = lambda: None
        """Called after each batch that the lake has."""
        self._starting = threading.Lock()

    @property
    def name(self) -> str:
        return f"bronze-{self.state.node}" if self.state is not None else f"bronze@{self.address}"

    @property
    def folder(self) -> Path:
        assert self.state is not None
        return self._settings.checkpoint / "bronze" / self.state.node

    def client(self) -> LogClient:
        return LogClient(self.address, self._settings.token(), self._settings.pipeline.node_timeout)

    def find(self) -> LogState:
        """Ask the node who it is. Raises `Unavailable`, or `ConfigError` for a wrong token."""
        with self.client() as client:
            self.state = client.state()
        return self.state

    def start(self, spark: SparkSession, trigger: Mapping[str, object]) -> StreamingQuery:
        """Raises `ConfigError` where the checkpoint does not fit the lake."""
        assert self.state is not None
        with self._starting:  # the first batch waits until the lake knows this stream
            positions = self._resumed(spark)
            self._initial = positions
            checkpoints.clear_unfinished(self.folder)
            query: StreamingQuery = (
                spark.readStream.format("brokerweave")  # type: ignore[call-overload]
                .options(**source_options(self._settings, self.address))
                .option("maxRowsPerBatch", self._settings.pipeline.max_rows_per_batch)
                .option("startingOffsets", offsets_text(positions) if positions else "earliest")
                .load()
                .writeStream.foreachBatch(self._write)
                .queryName(self.name)
                .option("checkpointLocation", str(self.folder))
                .trigger(**trigger)
                .start()
            )
            for log_id, position in positions.items():
                self._adopt(log_id, position)
        return query

    def _resumed(self, spark: SparkSession) -> dict[str, Position]:
        """Where to begin if not where the checkpoint says. Raises `ConfigError`."""
        assert self.state is not None
        log_id = self.state.log_id
        note = self._notes.log(log_id)
        ranges = self._notes.backfilled().get(log_id, [])
        backfilled = max((up_to for _, up_to in ranges), default=START)
        lost = lost_checkpoint(self.state, self.folder, note, backfilled)
        if lost is None:
            return {}
        if not self._resume:
            raise ConfigError(refusal(self.state, lost))
        position = max(lost.resume, backfilled)
        if note is not None and not note.whole:
            self._complete(spark, note)
            position = max(note.up_to, backfilled)
        checkpoints.set_aside(self.folder)
        return {log_id: position}

    def _complete(self, spark: SparkSession, note: LogNote) -> None:
        """Bring a batch that a killed driver left half written, under its own names."""
        rows = (
            spark.read.format("brokerweave")
            .options(**source_options(self._settings, self.address))
            .option("startingOffsets", offsets_text({note.log_id: note.after}))
            .option("endingOffsets", offsets_text({note.log_id: note.up_to}))
            .load()
        )
        self._sink.write(rows, note.query, note.batch_id)
        self._notes.finish(note)

    def _adopt(self, log_id: str, position: Position) -> None:
        assert self.state is not None
        query = checkpoints.query_name("bronze", self.state.node, self.folder)
        self._notes.write(LogNote(log_id, self.state.node, query, -1, position, position, True, self.address))

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        self._begun()
        with self._starting:
            pass
        begun = self._note(batch_id)
        for note in begun:
            self._notes.write(note)
        self._sink.write(batch, begun[0].query if begun else self._query(), batch_id)
        for note in begun:
            self._notes.finish(note)
        self.done()

    def _query(self) -> str:
        assert self.state is not None
        return checkpoints.query_name("bronze", self.state.node, self.folder)

    def _note(self, batch_id: int) -> list[LogNote]:
        """What the lake is about to get, one note for each log."""
        assert self.state is not None
        ends = checkpoints.planned(self.folder, batch_id)
        before = checkpoints.planned(self.folder, batch_id - 1) if batch_id else {}
        query = self._query()
        made = []
        for log_id, end in ends.items():
            after = before[log_id].position if log_id in before else self._initial.get(log_id, START)
            if end.position > after:
                note = LogNote(
                    log_id, self.state.node, query, batch_id, after, end.position, False, self.address
                )
                made.append(self._with_lost(note, end.skipped))
        return made

    def _with_lost(self, note: LogNote, skipped: int) -> LogNote:
        """With how much is lost. Damage shows when rows are read, so that no offset can have its rows."""
        known = self._notes.log(note.log_id)
        before = 0 if known is None else known.damaged_before + known.damaged
        if known is not None and (known.query, known.batch_id) == (note.query, note.batch_id):
            before = known.damaged_before  # this batch, begun once more
        damaged = 0
        if self._settings.pipeline.skip_lost:
            with self.client() as client:
                damaged = client.missing(note.after, note.up_to).damaged
        return replace(note, skipped=skipped, damaged=damaged, damaged_before=before)

    def report(self) -> None:
        """Tell the node how far the lake is, so that it may trim. Raises `BrokerweaveError`."""
        if self.state is None:
            return
        note = self._notes.log(self.state.log_id)
        if note is not None and note.held > START:
            with self.client() as client:
                client.commit(self._settings.pipeline.reader, note.held)
