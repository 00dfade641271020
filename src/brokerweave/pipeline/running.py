"""A whole pipeline in one process: session, sinks, streams and status, from settings to the last commit.

Owns what is opened and that it is closed. Invariants: one process at a time writes a lake or uses a
checkpoint; SIGTERM and SIGINT end it after the running batches, a second one at once. Must not know: the
command line.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from types import FrameType
from typing import TYPE_CHECKING, Any

from brokerweave.errors import BrokerweaveError, Unavailable
from brokerweave.pipeline import status
from brokerweave.pipeline.lake.notes import FOLDER, CheckpointNotes, LakeNotes, only_one
from brokerweave.pipeline.settings import LAYERS, PipelineSettings
from brokerweave.pipeline.spark.failures import failure
from brokerweave.pipeline.spark.needs import SPARK, need

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from brokerweave.pipeline.jobs.bronze import BronzeJob
    from brokerweave.pipeline.lake.compaction import Compacted
    from brokerweave.pipeline.payloads.rules import PayloadRule
    from brokerweave.pipeline.sinks import Sink
    from brokerweave.pipeline.supervisor import Job

STATUS_PERIOD = 1.0
SPARK_LOG = "spark.log"
"""In the checkpoint: what Spark says itself, of the last run."""
LAG_PERIOD = 5.0


@contextmanager
def session(settings: PipelineSettings) -> Iterator[SparkSession]:
    """The Spark session, quiet, ended with the block."""
    need(*SPARK)
    from brokerweave.pipeline.spark.session import errors_to, open_session

    # What a stream's Python code raises is told by the supervisor, once and in words.
    for name in ("py4j", "py4j.clientserver", "py4j.java_gateway"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    log = settings.checkpoint / SPARK_LOG
    try:
        with errors_to(log):
            chosen = {"spark.ui.showConsoleProgress": "false", **settings.spark}
            spark = open_session(settings.pipeline.master, "brokerweave pipeline", chosen)
    except BrokerweaveError:
        raise
    except Exception as error:
        raise Unavailable(f"Spark cannot start: {failure(error).line}; see {log}") from error
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        with suppress(Exception):  # the JVM may be gone already
            spark.stop()


def rules(settings: PipelineSettings) -> tuple[PayloadRule, ...]:
    """How payloads are read."""
    from brokerweave.pipeline.payloads.rules import PayloadRule

    given = settings.payloads
    return tuple(
        PayloadRule(one.name, one.topics, one.format, one.fields, one.event_time) for one in given
    ) or (PayloadRule(),)


def sink(settings: PipelineSettings, layer: str) -> Sink:
    """Where a layer's batches go."""
    folder = settings.lake / layer
    if settings.pipeline.format == "delta":
        from brokerweave.pipeline.sinks.delta import DeltaSink

        return DeltaSink(folder)
    from brokerweave.pipeline.sinks.parquet import ParquetSink

    return ParquetSink(folder)


@contextmanager
def lake_for_backfill(settings: PipelineSettings) -> Iterator[LakeNotes]:
    """One backfill at a time; a pipeline may run beside it. Raises `ConfigError`."""
    notes = LakeNotes(settings.lake)
    notes.claim(settings.pipeline.format)
    with only_one(settings.lake / FOLDER / "backfill", f"another backfill into {settings.lake} runs"):
        yield notes


def compact_lake(settings: PipelineSettings, min_files: int) -> Iterator[tuple[str, Compacted]]:
    """Each table of a lake. A table that a layer is to be made from waits for that layer."""
    need(*SPARK)
    from brokerweave.pipeline.jobs.partials import merge
    from brokerweave.pipeline.lake.compaction import compact

    LakeNotes(settings.lake).table_format()
    layers = settings.pipeline.layers
    readers = {layer: [settings.checkpoint / above] for layer, above in pairwise(layers)}
    for name in (*LAYERS, "dead_letters"):
        if (settings.lake / name).is_dir():
            fold = merge if name == "gold" else None
            yield name, compact(settings.lake / name, readers.get(name, ()), fold=fold, min_files=min_files)


@dataclass
class Pipeline:
    """`say` gets what a user should know, a line each; `look` is called once a second with the status."""

    settings: PipelineSettings
    spark: SparkSession | None = None
    """None: a session of its own, ended with the run."""
    resume: bool = False
    accept: bool = False
    say: Callable[[str], None] = lambda line: None
    look: Callable[[Mapping[str, Any]], None] = lambda status: None
    board: status.Board = field(default_factory=status.Board)
    _lags: dict[str, dict[str, Any]] = field(default_factory=dict)

    def run(self) -> bool:
        """Until everything is read (`available-now`) or a signal. True if nothing failed."""
        settings = self.settings
        settings.nodes()
        settings.token()
        self.notes = LakeNotes(settings.lake)
        need(*SPARK)
        with ExitStack() as stack:
            stack.enter_context(self.notes.writing())
            only = only_one(
                settings.checkpoint, f"the checkpoint {settings.checkpoint} is in use by another pipeline"
            )
            stack.enter_context(only)
            lake_id = self.notes.claim(settings.pipeline.format)
            self._check_options(lake_id)
            ended = stack.enter_context(_signals())
            spark = self.spark or stack.enter_context(session(settings))
            if ended.is_set():
                return True
            return self._supervise(spark, ended, stack)

    def _check_options(self, lake_id: str) -> None:
        known = CheckpointNotes(self.settings.checkpoint)
        chosen = self.settings.pipeline
        options = {"lake": lake_id, "format": chosen.format, "topics": list(chosen.topics)}
        known.check("bronze", options, accept=self.accept)

    def _supervise(self, spark: SparkSession, ended: threading.Event, stack: ExitStack) -> bool:
        from brokerweave.pipeline.supervisor import Supervisor

        heard = status.listener(self.board)
        spark.streams.addListener(heard)
        stack.callback(lambda: spark.streams.removeListener(heard))
        self._asking = stack.enter_context(ThreadPoolExecutor(2, "lag"))
        supervisor = Supervisor(
            spark,
            self._jobs(),
            self.settings.seconds,
            say=self.say,
            given_up=self._given_up,
            tick=self._tick,
            patience=self.settings.pipeline.node_timeout,
        )
        self.supervisor = supervisor
        self.board.progressed = supervisor.progressed
        if self.settings.pipeline.metrics is not None:
            stack.callback(status.serve_metrics(self.settings.pipeline.metrics, lambda: self._status))
        _on_signal.append(supervisor.stop)
        stack.callback(_on_signal.clear)
        if ended.is_set():
            supervisor.stop()
        self._status: dict[str, Any] = {}
        self._told = self._asked = 0.0
        good = supervisor.run()
        self.board.wait_for_the_last_word()
        self._publish(running=False)
        return good

    def _jobs(self) -> list[Job]:
        from brokerweave.pipeline.jobs.bronze import BronzeJob, Stopping

        def begun() -> None:
            if self.supervisor.stopping:
                raise Stopping

        table = sink(self.settings, "bronze")
        self._bronze: list[BronzeJob] = []
        for address in self.settings.nodes():
            counted = status.CountedSink(table, self.board)
            job = BronzeJob(address, self.settings, self.notes, counted, resume=self.resume, begun=begun)
            job.done = partial(self._report_soon, job)
            self._bronze.append(job)
        return [*self._bronze, *self._upper_jobs(begun)]

    def _upper_jobs(self, begun: Callable[[], None]) -> Iterator[Job]:
        from brokerweave.pipeline.jobs.gold import GoldJob, GoldOptions
        from brokerweave.pipeline.jobs.silver import SilverJob, SilverOptions

        settings, chosen = self.settings, rules(self.settings)
        lake, checkpoint = settings.lake, settings.checkpoint
        if "silver" in settings.pipeline.layers:
            options = SilverOptions(chosen, settings.silver.window, settings.silver.skew)
            good = status.CountedSink(sink(settings, "silver"), self.board)
            bad = status.CountedSink(sink(settings, "dead_letters"), self.board, "dead letters")
            yield SilverJob(lake, checkpoint / "silver", good, bad, options, begun=begun)
        if "gold" in settings.pipeline.layers:
            windows = GoldOptions(chosen, settings.gold.window, settings.gold.lateness)
            parts = status.CountedSink(sink(settings, "gold"), self.board)
            yield GoldJob(lake, checkpoint / "gold", parts, windows, begun=begun)

    def _report_soon(self, job: BronzeJob) -> None:
        self.supervisor.report_soon(job)

    def _given_up(self) -> dict[str, object]:
        """By the names that an abandoned node's stream may have; it may never have answered in this run."""
        gone = self.notes.abandoned()
        by_address = {f"bronze@{note.address}": note.node for note in self.notes.logs().values()}
        names = {f"bronze-{node}": node for node in gone}
        return {**names, **{name: node for name, node in by_address.items() if node in gone}}

    def result(self) -> Iterator[str]:
        """What the run came to, a line for each stream."""
        for stream in self.supervisor.streams:
            told = self.board.progress(stream.job.name)
            rows = f"{told.rows_total:,} rows in {stream.batches} batches"
            yield f"{stream.job.name}: {stream.state}, {rows}" + (f"; {stream.line}" if stream.line else "")

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._asked >= LAG_PERIOD and not self.supervisor.stopping:
            self._asked = now
            for job in self._bronze:
                if job.state is not None:
                    self._asking.submit(self._ask_lag, job)
        if now - self._told >= STATUS_PERIOD:
            self._told = now
            self._publish(running=True)

    def _ask_lag(self, job: BronzeJob) -> None:
        assert job.state is not None
        with suppress(BrokerweaveError):
            note = self.notes.log(job.state.log_id)
            if note is not None:
                timeout = min(self.settings.pipeline.node_timeout, LAG_PERIOD)
                self._lags[note.log_id] = status.lag_of(note, self.settings.token(), timeout, job.address)

    def _publish(self, *, running: bool) -> None:
        self._status = status.snapshot(
            self.supervisor.streams, self.board, running=running, lags=dict(self._lags)
        )
        with suppress(OSError):  # a full disk is told by the streams
            self.notes.publish_status(self._status)
        self.look(self._status)


_on_signal: list[Callable[[], None]] = []


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """The first SIGTERM or SIGINT asks for the end; the next one is obeyed at once."""
    asked = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT)

    def stop(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        for each in _on_signal:
            each()

    before: dict[signal.Signals, Any] = {}
    with suppress(ValueError):  # not the main thread: whoever owns it handles signals
        before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


__all__ = ["Pipeline", "compact_lake", "lake_for_backfill", "session", "sink"]
