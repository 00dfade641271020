"""Spark's `format("brokerweave")`: the edge logs of some nodes as a stream, or a range of them as a batch.

Owns what Spark calls, and in which process: offsets on the driver, rows on the workers. Invariants: the same
(start, end) gives the same rows, or an error; nothing that cannot be pickled is kept on `self`; a silent node
keeps its offset and stops nobody else; rows that are gone are never left out without a word. Must not know:
sinks, checkpoints.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    In,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from brokerweave.edgelog.arrow import SCHEMA
from brokerweave.edgelog.layout import DamagedLog, Position
from brokerweave.edgelog.reader import TrimmedRows
from brokerweave.errors import BrokerweaveError, Unavailable
from brokerweave.flight.memory import keep_memory
from brokerweave.flight.protocol import LogState, ReadRequest
from brokerweave.pipeline.source import nodes, offsets
from brokerweave.pipeline.source.nodes import Nodes, Round, ServedLog
from brokerweave.pipeline.source.offsets import Offsets, Range, ReadPosition, RowsGone
from brokerweave.pipeline.source.options import (
    EARLIEST,
    LATEST,
    LogBoundary,
    SourceOptions,
    check_columns,
    parse,
)

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "brokerweave"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
READ_PATIENCE = 6
"""A batch of rows may take so many times as long as an answer."""
_log = logging.getLogger("brokerweave.pipeline")


def register(spark: SparkSession) -> None:
    """Make `format("brokerweave")` known to a session."""
    spark.dataSource.register(BrokerweaveSource)
    # Spark refuses a source that takes filters while this is off. In a declarative pipeline nothing may be
    # set: there it has to be on already.
    if spark.conf.get(PUSHDOWN, "false") != "true":
        spark.conf.set(PUSHDOWN, "true")


class BrokerweaveSource(DataSource):
    """Options: see `SourceOptions`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        chosen = parse(self.options).columns
        return from_arrow_schema(SCHEMA.empty_table().select(list(chosen)).schema)

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(self._options(schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(self._options(schema))

    def _options(self, schema: StructType) -> SourceOptions:
        return replace(parse(self.options), columns=check_columns(tuple(schema.fieldNames())))


@dataclass(frozen=True)
class Part(InputPartition):
    """What one task reads."""

    range: Range
    address: str | None
    """Where the log was served last. Only saves asking around: the log's id decides."""
    state: LogState | None = None
    """What was said there: with it a worker on the log's machine reads the log's own files."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream over all rows of some nodes' logs. Its methods but `read` are called in one process."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._nodes = Nodes(options)
        self._target: Round | None = None
        self._seen: dict[str, ServedLog] = {}
        self._silent: dict[str, str] = {}
        self._missed: set[str] = set()
        self._committed: dict[str, Position] = {}

    def initialOffset(self) -> dict[str, list[int]]:
        given = self._options.starting.offsets or {}
        served = self._ask().served
        return offsets.encode(given | _begin(self._options, served, given))

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ask(everyone=True)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, list[int]]:
        at = offsets.decode(start)
        found = self._target or self._ask()
        self._report_lost(at, found)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        extents = {log_id: served.extent for log_id, served in found.served.items()}
        end = offsets.next_offsets(at, extents, most, self._options.skip_trimmed)
        self._report_skipped(at, end)
        # A log that is new to this query joins with where it begins; its rows come with the next batch.
        return offsets.encode(end | _begin(self._options, found.served, at))

    def reportLatestOffset(self) -> dict[str, list[int]]:
        """For progress reports: the logs' ends, as far as they were heard of."""
        return {log_id: [*served.state.end] for log_id, served in sorted(self._seen.items())}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        parts = offsets.ranges(offsets.decode(start), offsets.decode(end), self._options.rows_per_partition)
        return _with_addresses(parts, self._seen)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Never an error: a commit only permits trimming, and the next one says it all again."""
        if self._options.reader is None:
            return
        reached = {
            log_id: (self._seen[log_id].address, mark.position)
            for log_id, mark in offsets.decode(end).items()
            if log_id in self._seen and self._committed.get(log_id) != mark.position
        }
        reached = {log_id: each for log_id, each in reached.items() if each[0] not in self._silent}
        try:
            failed = nodes.commit(self._options, reached)
        except BrokerweaveError as error:
            failed = dict.fromkeys(reached, str(error))
        for log_id, why in failed.items():
            _log.warning("the position of reader %s is not committed: %s", self._options.reader, why)
            del reached[log_id]
        self._committed |= {log_id: position for log_id, (_, position) in reached.items()}

    def _ask(self, *, everyone: bool = False) -> Round:
        found = self._nodes.ask(everyone=everyone)
        for address, why in found.silent.items():
            if address not in self._silent:
                _log.warning("a node does not answer, its rows wait: %s", why)
        for address in self._silent.keys() - found.silent.keys():
            _log.warning("%s answers again", address)
        self._silent = found.silent
        self._seen |= found.served
        return found

    def _report_lost(self, at: Offsets, found: Round) -> None:
        """Once for each log that nobody serves, though everybody answered: it was replaced, or taken away."""
        if found.silent:
            return
        for log_id in at.keys() - found.served.keys() - self._missed:
            self._missed.add(log_id)
            _log.warning("%s", _lost_line(log_id, at[log_id], self._seen.get(log_id), found))

    def _report_skipped(self, at: Offsets, end: Offsets) -> None:
        for log_id, mark in at.items():
            rows = end[log_id].skipped - mark.skipped
            if rows:
                _log.warning("%d unread rows of log %s were trimmed, and are skipped", rows, log_id)


class BatchReader(DataSourceReader):
    """A range of positions or of times, read once. All nodes have to answer."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._logs: frozenset[str] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Topics and log ids go to the nodes; Spark looks at all rows again, so this only saves sending."""
        for each in filters:
            match each:
                case EqualTo(attribute=("topic",), value=str(topic)):
                    self._narrow_topics((topic,))
                case In(attribute=("topic",), value=topics):
                    self._narrow_topics(tuple(topics))
                case EqualTo(attribute=("log_id",), value=str(log_id)):
                    self._narrow_logs({log_id})
                case In(attribute=("log_id",), value=log_ids):
                    self._narrow_logs(set(log_ids))
        return filters

    def partitions(self) -> list[InputPartition]:
        found = Nodes(self._options).ask(everyone=True)
        if found.silent:
            raise Unavailable(f"a batch needs all nodes: {'; '.join(found.silent.values())}")
        named = (self._options.starting.offsets or {}) | (self._options.ending.offsets or {})
        for log_id in named.keys() - found.served.keys():
            raise RowsGone(_nobody_line(self._options, log_id))
        served = {
            log_id: each
            for log_id, each in found.served.items()
            if self._logs is None or log_id in self._logs
        }
        starts = _begin(self._options, served, {})
        ends = _resolve(self._options, self._options.ending, served)
        parts = offsets.ranges(starts, ends, self._options.rows_per_partition)
        return _with_addresses(parts, served)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(self._options, partition)

    def _narrow_topics(self, topics: tuple[object, ...]) -> None:
        plain = tuple(
            each for each in topics if isinstance(each, str) and each and not {"+", "#"} & set(each)
        )
        if len(plain) == len(topics) and not self._options.topics:
            self._options = replace(self._options, topics=plain)

    def _narrow_logs(self, log_ids: set[Any]) -> None:
        self._logs = frozenset(log_ids) if self._logs is None else self._logs & log_ids


def commit_offsets(options: Mapping[str, str], end: Mapping[str, Any]) -> dict[str, str]:
    """Commit a finished batch's end offset: Spark never reports the last batch of an AvailableNow run.

    `options` are those of the source. Returns why, for each log id that could not be committed.
    """
    parsed = parse(options)
    served = Nodes(parsed).ask(everyone=True).served
    marks = offsets.decode(end)
    reached = {
        log_id: (served[log_id].address, mark.position) for log_id, mark in marks.items() if log_id in served
    }
    absent = {log_id: _nobody_line(parsed, log_id) for log_id in marks.keys() - served.keys()}
    return absent | (nodes.commit(parsed, reached) if parsed.reader else {})


def read_part(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """On a worker: the rows of one part, from the log's own files as far as they are here, else of a node."""
    if not isinstance(partition, Part):  # Spark's stand-in for a batch without parts
        return
    _settle()
    rows = partition.range
    if options.local and partition.state is not None:
        request = ReadRequest(rows.after, rows.up_to, options.topics, options.columns, log_id=rows.log_id)
        for batch, at in _local(partition.state, request):
            rows = replace(rows, after=at)
            if batch.num_rows:
                yield batch
    if rows.after < rows.up_to:
        yield from _read_node(options, replace(partition, range=rows))


def _local(state: LogState, request: ReadRequest) -> Iterator[tuple[pa.RecordBatch, Position]]:
    from brokerweave.flight import local  # the process that plans starts without it

    return local.read(state, request)


def _read_node(options: SourceOptions, part: Part) -> Iterator[pa.RecordBatch]:
    rows = part.range
    address = _find(options, part)
    if address is None:
        _log.warning("%s; its rows after %s are skipped", _nobody_line(options, rows.log_id), rows.after)
        return
    # The node has just answered: that the first rows take longer than an answer is no silence.
    patient = replace(options, node_timeout=READ_PATIENCE * options.node_timeout)
    with nodes.client_for(patient, address, rows.log_id) as client:
        try:
            yield from client.read(
                rows.after,
                rows.up_to,
                topics=options.topics,
                columns=options.columns,
                skip=options.skip_trimmed,
            )
        except TrimmedRows as error:
            gone = error.first.sequence - 1 - rows.after.sequence
            raise RowsGone(offsets.trimmed_line(rows.log_id, gone, rows.after)) from error
        except DamagedLog as error:
            raise RowsGone(
                f"{error}; the option onTrimmed = skip goes on behind it, and counts them"
            ) from error
        lost = client.skipped
        if lost.trimmed or lost.damaged:
            _log.warning(
                "skipped %d trimmed and %d damaged rows of log %s", lost.trimmed, lost.damaged, rows.log_id
            )


@cache
def _settle() -> None:
    """Once in each worker: what it does for every batch, and Spark after every task, then costs less."""
    if "pyspark.worker" in sys.modules:  # else the process is not Spark's, but a caller's own
        keep_memory()
        gc.freeze()  # Spark has the collector look at everything after each task: modules are no garbage


def _find(options: SourceOptions, part: Part) -> str | None:
    """Who serves the log. None: nobody does, and that may be skipped. Raises `BrokerweaveError`."""
    log_id = part.range.log_id
    if part.address is not None:
        first = Nodes(replace(options, nodes=(part.address,))).ask()
        if log_id in first.served:
            return part.address
    found = Nodes(options).ask()
    if log_id in found.served:
        return found.served[log_id].address
    if found.silent:
        raise Unavailable(f"nobody who answers serves log {log_id}: {'; '.join(found.silent.values())}")
    if options.skip_trimmed:
        return None
    raise RowsGone(f"{_nobody_line(options, log_id)}; the option onTrimmed = skip goes on without it")


def _begin(options: SourceOptions, served: Mapping[str, ServedLog], known: Offsets) -> Offsets:
    """Where logs that are not known yet begin."""
    new = {log_id: each for log_id, each in served.items() if log_id not in known}
    return _resolve(options, options.starting, new)


def _resolve(options: SourceOptions, place: LogBoundary, served: Mapping[str, ServedLog]) -> Offsets:
    begins = {log_id: each.extent.begin for log_id, each in served.items()}
    if place.word == EARLIEST:
        return {log_id: ReadPosition(begin) for log_id, begin in begins.items()}
    if place.word == LATEST:
        return {log_id: ReadPosition(each.state.end) for log_id, each in served.items()}
    if place.offsets is not None:
        rest = LogBoundary(LATEST if place is options.ending else EARLIEST)
        return _resolve(options, rest, served) | {
            log_id: mark for log_id, mark in place.offsets.items() if log_id in served
        }
    found = nodes.positions_at(options, served, place.time) if served else {}
    return {log_id: ReadPosition(max(position, begins[log_id])) for log_id, position in found.items()}


def _with_addresses(parts: Iterable[Range], served: Mapping[str, ServedLog]) -> list[InputPartition]:
    return [_part(each, served.get(each.log_id)) for each in parts]


def _part(rows: Range, served: ServedLog | None) -> Part:
    return Part(rows, None) if served is None else Part(rows, served.address, served.state)


def _nobody_line(options: SourceOptions, log_id: str) -> str:
    return f"log {log_id} is served by none of {', '.join(options.nodes)}"


def _lost_line(log_id: str, mark: ReadPosition, last: ServedLog | None, found: Round) -> str:
    where = "is served by none of the nodes"
    unread = "how much of it was unread is not known"
    if last is not None:
        unread = f"{last.extent.rows_after(mark.position)} rows that it had were not read"
        now = [new for new, each in found.served.items() if each.address == last.address]
        if now:
            where = f"was replaced at {last.address} by log {now[0]}"
    return f"log {log_id} {where}; its offset stays at {mark.position}, {unread}"
