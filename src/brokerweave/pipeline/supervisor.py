"""Keeps the streams running: starts them, starts again with back-off what failed, ends them cleanly.

Owns each stream's state and the times between tries. Invariants: one stream's failure never ends another;
what cannot be mended by trying again is not tried again; at the end no batch is broken off, and every node
has been told how far the lake is. Must not know: what a stream does, or how its state is shown (`status`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from brokerweave.errors import BrokerweaveError, ConfigError
from brokerweave.pipeline.spark.failures import failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PERIOD = 0.2
"""Seconds between two looks at the streams."""
BACK_OFF_MIN, BACK_OFF_MAX = 1.0, 60.0
TRIES_OF_A_DRAIN = 4
"""How often `available-now` starts a stream that fails; it is to end some time."""
TRIES_WHEN_BUSY = 10
LONGEST_BEGIN = 5.0
"""Seconds that other streams wait for one to begin."""
STOP_SECONDS = 120.0
"""What a running batch may still take after a request to stop."""


class _GivenUp(Exception):
    """The node that answered was abandoned."""


class Query(Protocol):
    """What is used of Spark's StreamingQuery."""

    @property
    def isActive(self) -> bool: ...
    @property
    def status(self) -> Mapping[str, object]: ...
    def exception(self) -> BaseException | None: ...
    def stop(self) -> None: ...


class Job(Protocol):
    """A stream that can be started. Only bronze has a node to find first."""

    @property
    def name(self) -> str: ...
    @property
    def stage(self) -> int:
        """A drain runs the stages one after the other: bronze 0, silver 1, gold 2."""

    def find(self) -> object: ...
    def start(self, spark: SparkSession, trigger: Mapping[str, object]) -> Query: ...
    def report(self) -> None: ...


@dataclass(slots=True)
class JobStream:
    """A job and how it fares. `state`: waiting, starting, running, done, failed, away, abandoned."""

    job: Job
    state: str = "waiting"
    failures: int = 0
    """In a row; a batch that succeeds ends the row."""
    failed_ever: int = 0
    line: str = ""
    """The last failure, in words."""
    due: float = 0.0
    query: Query | None = None
    starting: Future[Query] | None = None
    batches: int = 0

    @property
    def over(self) -> bool:
        return self.state in ("done", "failed", "away", "abandoned")


def back_off(failures: int) -> float:
    """Seconds until the next try."""
    return float(min(BACK_OFF_MAX, BACK_OFF_MIN * 2 ** (failures - 1)))


@dataclass
class Supervisor:
    """`interval` is the time between batches; None: drain what there is, then end."""

    spark: SparkSession
    jobs: Sequence[Job]
    interval: float | None
    say: Callable[[str], None] = lambda line: None
    given_up: Callable[[], Mapping[str, object]] = dict
    """Who was abandoned, by the name of its stream; asked now and then."""
    tick: Callable[[], None] = lambda: None
    patience: float = 10.0
    """Seconds that a drain waits for a node that does not answer."""
    clock: Callable[[], float] = time.monotonic
    streams: list[JobStream] = field(init=False)

    def __post_init__(self) -> None:
        self.streams = [JobStream(job) for job in self.jobs]
        self._stop = threading.Event()
        self._beginning = threading.Lock()
        self._pool = ThreadPoolExecutor(max(4, len(self.streams) + 2), "pipeline")
        self._began = self.clock()
        self._asked = 0.0

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Ask for the end; may be called from a signal handler."""
        self._stop.set()

    def run(self) -> bool:
        """Until there is nothing left to do, or `stop`. True if no stream failed."""
        try:
            while not self._stop.is_set() and not all(stream.over for stream in self.streams):
                self.step()
                self._stop.wait(PERIOD)
        finally:
            self._end()
        return not any(stream.state in ("failed", "away") for stream in self.streams)

    def step(self) -> None:
        """One look at every stream."""
        self._leave_abandoned()
        for stream in self.streams:
            if stream.state == "starting":
                self._see_start(stream)
            elif stream.state == "running":
                self._see_run(stream)
            elif stream.state == "waiting" and self._may_start(stream):
                stream.state = "starting"
                stream.starting = self._pool.submit(self._start, stream.job)
        self.tick()

    def _may_start(self, stream: JobStream) -> bool:
        if self.clock() < stream.due:
            return False
        if self.interval is not None:
            return True
        return all(other.over for other in self.streams if other.job.stage < stream.job.stage)

    def _start(self, job: Job) -> Query:
        job.find()
        if job.name in self.given_up():
            raise _GivenUp
        self._check_name(job)
        trigger = {"availableNow": True} if self.interval is None else {"processingTime": self._every}
        with self._beginning:
            query = job.start(self.spark, trigger)
            self._let_begin(query)
        return query

    def _let_begin(self, query: Query) -> None:
        """A stream starts an interpreter, and Spark gives that ten seconds: many at once would miss them."""
        deadline = time.monotonic() + LONGEST_BEGIN
        while query.isActive and str(query.status["message"]).startswith("Initializing"):
            if time.monotonic() > deadline or self._stop.wait(0.05):
                return

    @property
    def _every(self) -> str:
        return f"{round((self.interval or 0) * 1000)} milliseconds"

    def _check_name(self, job: Job) -> None:
        taken = [other.job for other in self.streams if other.job is not job and other.job.name == job.name]
        if taken:
            other = getattr(taken[0], "address", "")
            raise ConfigError(
                f"{getattr(job, 'address', job.name)} and {other} are both {job.name.partition('-')[2]}: "
                "each node needs an id of its own, and its address only once"
            )

    def _see_start(self, stream: JobStream) -> None:
        assert stream.starting is not None
        if not stream.starting.done():
            return
        error = stream.starting.exception()
        if isinstance(error, _GivenUp):
            self._leave(stream)
            return
        if error is not None:
            self._failed(stream, error)
            return
        stream.query, stream.starting, stream.state = stream.starting.result(), None, "running"
        self.say(f"{stream.job.name}: running")

    def _see_run(self, stream: JobStream) -> None:
        assert stream.query is not None
        if stream.query.isActive:
            return
        error = stream.query.exception()
        if error is not None:
            self._failed(stream, error)
        elif self.interval is None:
            stream.state = "done"
            self._report(stream)
            self.say(f"{stream.job.name}: everything is read")
        else:
            self._failed(stream, BrokerweaveError("the stream ended without a reason"))

    def _failed(self, stream: JobStream, error: BaseException) -> None:
        stream.query = stream.starting = None
        if self.stopping:
            stream.state = "done"
            return
        told = failure(error)
        stream.failures += 1
        stream.failed_ever += 1
        silent = isinstance(error, BrokerweaveError) and error.transient
        tries = TRIES_WHEN_BUSY if told.busy else TRIES_OF_A_DRAIN
        given_up = self.interval is None and (
            self.clock() - self._began > self.patience if silent else stream.failures >= tries
        )
        wait_for = back_off(stream.failures)
        repeated, stream.line = stream.line == told.line, told.line
        if told.lasting or given_up:
            stream.state = "away" if silent else "failed"
            self.say(f"{stream.job.name}: {told.line}")
            return
        stream.state, stream.due = "waiting", self.clock() + wait_for
        if not repeated:
            self.say(f"{stream.job.name}: {told.line}; trying again")

    def progressed(self, name: str) -> None:
        """A batch of this stream succeeded."""
        for stream in self.streams:
            if stream.job.name == name:
                stream.failures, stream.line = 0, ""
                stream.batches += 1

    def _leave_abandoned(self) -> None:
        if self.clock() - self._asked < 2:
            return
        self._asked = self.clock()
        gone = self.given_up()
        for stream in self.streams:
            ready = stream.state == "running" or (stream.state == "waiting" and stream.failures)
            if ready and stream.job.name in gone:
                self._leave(stream)

    def _leave(self, stream: JobStream) -> None:
        if stream.query is not None:
            _end_query(stream.query, STOP_SECONDS)
        stream.query, stream.starting, stream.state = None, None, "abandoned"
        self.say(f"{stream.job.name}: abandoned; its rows are not waited for")

    def report_soon(self, job: Job) -> None:
        """Tell a node how far the lake is, without waiting for it."""
        with contextlib.suppress(RuntimeError):  # the pool is shut down: the end reports it
            self._pool.submit(_quietly, job.report)

    def _report(self, stream: JobStream) -> Future[None]:
        return self._pool.submit(_quietly, stream.job.report)

    def _end(self) -> None:
        self._stop.set()
        starting = [stream.starting for stream in self.streams if stream.starting is not None]
        wait(starting, timeout=STOP_SECONDS)
        for stream in self.streams:
            if stream.starting is not None and stream.starting.done() and not stream.starting.exception():
                stream.query = stream.starting.result()
        running = [stream for stream in self.streams if stream.query is not None]
        ending = [self._pool.submit(_end_query, query, STOP_SECONDS) for query in _queries(running)]
        wait(ending, timeout=STOP_SECONDS + 10)
        told = [self._report(stream) for stream in self.streams if stream.state != "abandoned"]
        wait(told, timeout=self.patience)
        for stream in running:
            if stream.state in ("running", "starting"):
                stream.state = "done"
        self.tick()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _queries(streams: Sequence[JobStream]) -> Iterator[Query]:
    return (stream.query for stream in streams if stream.query is not None)


def _end_query(query: Query, seconds: float) -> None:
    """Let the running batch end: Spark's `stop` would break it off."""
    deadline = time.monotonic() + seconds
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(0.05)
    query.stop()


def _quietly(report: Callable[[], None]) -> None:
    with contextlib.suppress(BrokerweaveError):  # the node is away; it hears it with the next batch
        report()
