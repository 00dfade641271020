"""How the pipeline fares: what streams did last, how far nodes are behind; for people, scripts, Prometheus.

Owns the numbers and their names. Invariants: what Spark's listener tells is kept as it comes, bounded by the
number of streams; a node that does not answer has an unknown lag, never a zero. Must not know: how streams
are started.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from brokerweave.config.values import Address
from brokerweave.errors import BrokerweaveError, ConfigError
from brokerweave.flight.client import LogClient
from brokerweave.pipeline.lake.notes import LakeNotes, LogNote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import StreamingQueryListener

    from brokerweave.pipeline.sinks import Sink, Written
    from brokerweave.pipeline.supervisor import JobStream

STALE = 15.0
"""Seconds after which a status that nobody renewed counts as that of a pipeline that ended."""


@dataclass(slots=True)
class StreamProgress:
    """What the listener heard of one stream."""

    batch: int = -1
    rows: int = 0
    """Of the last batch."""
    rows_total: int = 0
    rows_per_second: float = 0.0
    batch_seconds: float = 0.0
    at: float = 0.0
    """When the last batch ended, seconds since 1970."""


class Board:
    """Everything that is known now; the listener writes, others read."""

    def __init__(self, progressed: Callable[[str], None] = lambda name: None) -> None:
        self._lock = threading.Lock()
        self._progress: dict[str, StreamProgress] = {}
        self._written: dict[str, int] = {}
        """By batches whose end was not heard of yet."""
        self._open = 0
        self._ended = threading.Condition(self._lock)
        self.progressed = progressed

    def began(self) -> None:
        with self._lock:
            self._open += 1

    def ended(self) -> None:
        with self._ended:
            self._open -= 1
            self._ended.notify_all()

    def wait_for_the_last_word(self, seconds: float = 3.0) -> None:
        """Spark tells of batches a moment after they ended: until all streams are heard to have ended."""
        with self._ended:
            self._ended.wait_for(lambda: self._open <= 0, seconds)

    def heard(self, name: str, batch: int, seconds: float) -> None:
        """The listener's word. Rows are counted by sinks: Spark counts one again for every look at it."""
        with self._lock:
            known = self._progress.setdefault(name, StreamProgress())
            known.batch, known.batch_seconds, known.at = batch, seconds, time.time()
            known.rows = self._written.pop(name, 0)
            known.rows_per_second = known.rows / seconds if seconds else 0.0
        self.progressed(name)

    def wrote(self, name: str, rows: int) -> None:
        with self._lock:
            self._progress.setdefault(name, StreamProgress()).rows_total += rows
            self._written[name] = rows

    def progress(self, name: str) -> StreamProgress:
        with self._lock:
            return self._progress.get(name, StreamProgress())


def listener(board: Board) -> StreamingQueryListener:
    """What Spark calls after each batch."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class QueryListener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            board.began()

        def onQueryProgress(self, event: Any) -> None:
            told = event.progress
            with suppress(KeyError, TypeError):
                if told.durationMs and "addBatch" in told.durationMs:  # else it only says that nothing came
                    seconds = told.durationMs["triggerExecution"] / 1000
                    board.heard(told.name or str(told.id), told.batchId, seconds)

        def onQueryTerminated(self, event: Any) -> None:
            board.ended()

    return QueryListener()


class CountedSink:
    """A sink that tells the board how many rows it has taken, under a stream's name or another."""

    def __init__(self, sink: Sink, board: Board, name: str | None = None) -> None:
        self._sink = sink
        self._board = board
        self._name = name

    def write(self, batch: DataFrame, query: str, batch_id: int) -> Written:
        written = self._sink.write(batch, query, batch_id)
        self._board.wrote(self._name or query.rpartition("-")[0], 0 if written.replayed else written.rows)
        return written


def snapshot(
    streams: Iterable[JobStream], board: Board, *, running: bool, lags: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The status file: `pipeline status` adds what it can ask itself."""
    rows = []
    for stream in streams:
        told = board.progress(stream.job.name)
        rows.append(
            {
                "stream": stream.job.name,
                "state": stream.state,
                "failures": stream.failed_ever,
                "last_failure": stream.line,
                "address": getattr(stream.job, "address", None),
                **asdict(told),
            }
        )
    return {
        "pid": os.getpid() if running else None,
        "host": socket.gethostname(),
        "at": time.time(),
        "streams": rows,
        "nodes": list(lags.values()),
    }


def lag_of(note: LogNote, token: str | None, timeout: float, address: str | None = None) -> dict[str, Any]:
    """How far the lake is behind one log; the node is asked."""
    found: dict[str, Any] = {
        "node": note.node,
        "log_id": note.log_id,
        "address": address or note.address,
        "position": str(note.held),
        "answers": False,
        "rows_behind": None,
        "seconds_behind": None,
        "skipped": note.lost,
    }
    if not found["address"]:
        return found
    try:
        with LogClient(found["address"], token, timeout) as client:
            if client.state().log_id != note.log_id:
                found["failure"] = f"another log answers at {found['address']}"
                return found
            found["rows_behind"], found["seconds_behind"] = client.lag(note.held)
            found["answers"] = True
    except BrokerweaveError as error:
        found["failure"] = str(error)
    return found


def gather(notes: LakeNotes, token: str | None, timeout: float) -> dict[str, Any]:
    """What `pipeline status` shows: the running pipeline's word, and each node's."""
    stored = notes.status()
    logs = list(notes.logs().values())
    if stored is None and not logs:
        raise ConfigError(f"no pipeline has written to {notes.lake} yet")
    gone = notes.abandoned()
    with ThreadPoolExecutor(max(1, len(logs))) as pool:
        asked = [each for each in logs if each.node not in gone]
        nodes = list(pool.map(lambda note: lag_of(note, token, timeout), asked))
    status = stored or {"pid": None, "at": 0.0, "streams": []}
    status["running"] = _runs(status)
    status["nodes"] = nodes
    status["abandoned"] = [asdict(each) for each in gone.values()]
    status["lake"] = str(notes.lake)
    return status


def _runs(status: Mapping[str, Any]) -> bool:
    if status["pid"] is None or time.time() - status["at"] >= STALE:
        return False
    if status.get("host") == socket.gethostname():
        with suppress(PermissionError):
            try:
                os.kill(status["pid"], 0)
            except ProcessLookupError:
                return False
    return True


def serve_metrics(address: Address, current: Callable[[], Mapping[str, Any]]) -> Callable[[], None]:
    """Answer Prometheus at `address`; what is given ends it. Raises `ConfigError`."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
        from prometheus_client.registry import Collector
    except ImportError:
        raise ConfigError("metrics need prometheus-client: pip install 'brokerweave[spark]'") from None

    class PipelineCollector(Collector):
        def collect(self) -> Iterable[Any]:
            status = current()
            for name, key, help_text, labels, rows in _families(status):
                kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
                family = kind(f"brokerweave_pipeline_{name}", help_text, labels=[labels])
                for row in rows:
                    if row.get(key) is not None:
                        family.add_metric([row[labels]], float(row[key]))
                yield family

    registry = CollectorRegistry()
    registry.register(PipelineCollector())
    try:
        server, thread = start_http_server(address.port, address.host, registry)
    except OSError as error:
        raise ConfigError(f"metrics cannot listen on {address}: {error.strerror}") from error

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join(5)

    return end


def _families(status: Mapping[str, Any]) -> Iterable[tuple[str, str, str, str, list[dict[str, Any]]]]:
    streams, nodes = list(status.get("streams", [])), list(status.get("nodes", []))
    up = [{**each, "running": each["state"] == "running"} for each in streams]
    return (
        ("rows_behind", "rows_behind", "Rows of a node that the lake lacks.", "node", nodes),
        ("seconds_behind", "seconds_behind", "Age of the oldest of them.", "node", nodes),
        ("rows_skipped_total", "skipped", "Rows that were trimmed unread, or damaged.", "node", nodes),
        ("node_answers", "answers", "Whether the node answered.", "node", nodes),
        ("rows_total", "rows_total", "Rows that a stream has brought.", "stream", streams),
        ("rows_per_second", "rows_per_second", "Rows a second in the last batch.", "stream", streams),
        ("batch_seconds", "batch_seconds", "How long the last batch took.", "stream", streams),
        ("last_batch", "batch", "The number of the last batch.", "stream", streams),
        ("last_batch_time_seconds", "at", "When it ended.", "stream", streams),
        ("failures_total", "failures", "How often a stream failed.", "stream", streams),
        ("stream_running", "running", "Whether a stream runs.", "stream", up),
    )
