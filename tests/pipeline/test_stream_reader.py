"""The stream reader as Spark calls it, without Spark: silences, beginnings, replaced logs, commits."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from brokerweave.edgelog.layout import Position
from brokerweave.edgelog.reader import Skipped
from brokerweave.errors import ConfigError, Unavailable
from brokerweave.flight.client import LogClient
from brokerweave.pipeline.source.data_source import Part, StreamReader, commit_offsets, read_part
from brokerweave.pipeline.source.offsets import Range, RowsGone
from brokerweave.pipeline.source.options import parse
from tests.support.edgelogs import SECOND, Site, numbered

MOST_BATCHES = 50


class Query:
    """Calls a stream reader as Spark does: offsets go through JSON, parts through pickle."""

    def __init__(self, *sites: Site, **options: object) -> None:
        self.options = {"nodes": ",".join(site.address for site in sites), "nodeTimeout": "10"}
        self.options |= {name: str(value) for name, value in options.items()}
        self.offset: dict[str, Any] | None = None
        self.reader = self._new()

    def _new(self) -> StreamReader:
        return StreamReader(parse(self.options))

    def restart(self) -> None:
        self.reader = self._new()

    def drain(self, limit: ReadLimit | None = None) -> list[bytes]:
        """Batches until there is nothing new; the payloads."""
        limit = limit or self.reader.getDefaultReadLimit()
        if self.offset is None:
            self.offset = self._stored(self.reader.initialOffset())
        found: list[bytes] = []
        for _ in range(MOST_BATCHES):
            end = self._stored(self.reader.latestOffset(self.offset, limit))
            if end == self.offset:
                return found
            found += self.read(self.offset, end)
            self.offset = end
            self.reader.commit(end)
        raise AssertionError("the offset moves on for ever")

    def read(self, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
        batches: list[pa.RecordBatch] = []
        for part in self.reader.partitions(start, end):
            worker = pickle.loads(pickle.dumps(self._new()))
            batches += worker.read(pickle.loads(pickle.dumps(part)))
        return [value for batch in batches for value in batch.column("payload").to_pylist()]

    @staticmethod
    def _stored(offset: dict[str, Any]) -> dict[str, Any]:
        stored: dict[str, Any] = json.loads(json.dumps(offset))
        return stored


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[list[Site]]:
    """Two nodes' logs, served."""
    with ExitStack() as stack:
        yield [stack.enter_context(Site(tmp_path / name, name)) for name in ("one", "two")]


def test_a_silent_node_keeps_its_offset_and_stops_nobody(sites: list[Site]) -> None:
    one, two = sites
    one.write(numbered(0, 5))
    two.write(numbered(5, 5))
    query = Query(one, two)
    assert sorted(query.drain(), key=int) == numbered(0, 10)
    one.write(numbered(10, 5))
    two.write(numbered(15, 5))
    two.stop()
    assert query.drain() == numbered(10, 5)
    assert query.offset == {one.log_id: [1, 10], two.log_id: [1, 5]}
    two.start()
    query.restart()  # or it is left in peace for a moment
    assert query.drain() == numbered(15, 5)


def test_a_node_that_was_silent_at_the_very_beginning_begins_when_it_answers(sites: list[Site]) -> None:
    one, two = sites
    one.write(numbered(0, 1))
    two.write(numbered(1, 5))
    two.stop()
    query = Query(one, two)
    assert query.drain() == numbered(0, 1)
    two.start()
    query.restart()
    assert query.drain() == numbered(1, 5)


def test_topics_and_columns_are_chosen_at_the_node(sites: list[Site]) -> None:
    one, _ = sites
    one.write(numbered(0, 3), "hall/1/heat")
    one.write(numbered(3, 3), "hall/1/noise")
    options = parse({"nodes": one.address, "topics": "hall/+/heat", "columns": "payload,topic"})
    part = Part(Range(one.log_id, Position(1, 0), Position(1, 6)), one.address)
    (batch,) = read_part(options, part)
    assert batch.schema.names == ["payload", "topic"]
    assert batch.column("payload").to_pylist() == numbered(0, 3)


@pytest.mark.parametrize(
    ("starting", "expected"),
    [
        ("latest", numbered(6, 2)),
        ("earliest", numbered(0, 8)),
        ("1970-01-01T00:00:20Z", numbered(3, 5)),
        ('{"LOG": [1, 4]}', numbered(4, 4)),
        ('{"LOG": "1:5"}', numbered(5, 3)),
    ],
)
def test_a_query_begins_where_it_is_told_to(sites: list[Site], starting: str, expected: list[bytes]) -> None:
    one, _ = sites
    one.write(numbered(0, 3), time=10 * SECOND)
    one.write(numbered(3, 3), time=20 * SECOND)
    query = Query(one, startingOffsets=starting.replace("LOG", one.log_id))
    seen = query.drain()
    one.write(numbered(6, 2), time=30 * SECOND)
    assert seen + query.drain() == expected


@pytest.mark.parametrize(("starting", "expected"), [("earliest", numbered(0, 5)), ("latest", numbered(3, 2))])
def test_a_log_that_joins_later_begins_there_too(
    sites: list[Site], starting: str, expected: list[bytes]
) -> None:
    one, two = sites
    query = Query(one, startingOffsets=starting)
    assert query.drain() == []
    two.write(numbered(0, 3))
    query.options["nodes"] += f",{two.address}"
    query.restart()
    seen = query.drain()
    two.write(numbered(3, 2))
    assert seen + query.drain() == expected


def test_an_available_now_run_ends_at_what_was_there_when_it_began(sites: list[Site]) -> None:
    one, _ = sites
    one.write(numbered(0, 5))
    query = Query(one, maxRowsPerBatch=2)
    query.reader.prepareForTriggerAvailableNow()
    one.write(numbered(5, 5))
    assert query.drain() == numbered(0, 5)
    assert query.offset == {one.log_id: [1, 5]}


def test_a_limit_that_spark_lifts_is_lifted(sites: list[Site]) -> None:
    one, _ = sites
    one.write(numbered(0, 5))
    query = Query(one, maxRowsPerBatch=2)
    start = query.reader.initialOffset()
    assert query.reader.latestOffset(start, ReadAllAvailable()) == {one.log_id: [1, 5]}
    assert query.reader.latestOffset(start, query.reader.getDefaultReadLimit()) == {one.log_id: [1, 2]}


def test_the_same_offsets_give_the_same_parts_after_a_restart(sites: list[Site]) -> None:
    one, two = sites
    start, end = {one.log_id: [1, 0], two.log_id: [1, 3]}, {one.log_id: [2, 40], two.log_id: [1, 9]}
    query = Query(one, two, rowsPerPartition=10)
    before = [part.range for part in query.reader.partitions(start, end) if isinstance(part, Part)]
    query.drain()
    query.restart()
    after = [part.range for part in query.reader.partitions(start, end) if isinstance(part, Part)]
    assert before == after
    assert len(before) > 4


def test_a_log_that_was_replaced_leaves_its_offset_and_its_unread_rows_are_told(
    sites: list[Site], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, _ = sites
    old.write(numbered(0, 5))
    query = Query(old)
    assert query.drain() == numbered(0, 5)
    old.write(numbered(5, 3))
    query.reader.latestOffset(query.offset or {}, ReadAllAvailable())  # seen, and not read any more
    old.stop()
    with Site(tmp_path / "new", "one", port=old.port) as new:
        new.write(numbered(8, 5))
        assert query.drain() == numbered(8, 5)
        assert query.offset == {old.log_id: [1, 5], new.log_id: [1, 5]}
        told = [line for line in caplog.messages if old.log_id in line]
    where = f"log {old.log_id} was replaced at {old.address} by log {new.log_id}"
    assert told == [f"{where}; its offset stays at 1:5, 3 rows that it had were not read"]


def test_rows_that_only_a_replaced_log_had_stop_the_query_or_are_skipped(
    sites: list[Site], caplog: pytest.LogCaptureFixture
) -> None:
    one, two = sites
    query = Query(one, two)
    lost = Part(Range("f" * 32, Position(1, 0), Position(1, 6)), one.address)
    with pytest.raises(RowsGone, match=f"log {'f' * 32} is served by none of .*onTrimmed = skip"):
        list(query.reader.read(lost))
    assert list(Query(one, onTrimmed="skip").reader.read(lost)) == []
    assert "its rows after 1:0 are skipped" in caplog.text
    two.stop()  # it might be the one who has it
    with pytest.raises(Unavailable, match="nobody who answers serves log"):
        list(Query(one, two, onTrimmed="skip").reader.read(lost))


def test_a_log_that_moved_to_another_address_is_found(sites: list[Site], tmp_path: Path) -> None:
    one, two = sites
    one.write(numbered(0, 5))
    part = Part(Range(one.log_id, Position(1, 0), Position(1, 5)), two.address)
    (batch,) = Query(two, one).reader.read(part)
    assert batch.column("payload").to_pylist() == numbered(0, 5)


def test_rows_trimmed_after_a_batch_was_planned_stop_its_task_or_are_told(
    sites: list[Site], caplog: pytest.LogCaptureFixture
) -> None:
    one, _ = sites
    one.write(numbered(0, 5))
    one.restart_epoch()
    one.write(numbered(5, 5))
    part = Part(Range(one.log_id, Position(1, 2), Position(2, 10)), one.address)
    one.trim_oldest()
    with pytest.raises(RowsGone, match=r"3 rows after 1:2 .* onTrimmed = skip"):
        list(Query(one).reader.read(part))
    (batch,) = Query(one, onTrimmed="skip").reader.read(part)
    assert batch.column("payload").to_pylist() == numbered(5, 5)
    assert "skipped 3 trimmed and 0 damaged rows" in caplog.text


def test_a_flipped_bit_stops_the_task_with_its_place(sites: list[Site]) -> None:
    one, _ = sites
    one.write(numbered(0, 5))
    one.write(numbered(5, 5))
    (segment,) = one.folder.glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[-3] ^= 1
    segment.write_bytes(data)
    part = Part(Range(one.log_id, Position(1, 0), Position(1, 10)), one.address)
    with pytest.raises(RowsGone, match=r"is damaged at byte \d+.*rows 6 to 10.*onTrimmed = skip"):
        list(Query(one).reader.read(part))
    (batch,) = Query(one, onTrimmed="skip").reader.read(part)
    assert batch.column("payload").to_pylist() == numbered(0, 5)
    with LogClient(one.address) as client:
        assert client.missing(Position(1, 0), Position(1, 8)).damaged == 3
        assert client.missing(Position(1, 8), Position(1, 10)).damaged == 2
        assert client.missing(Position(1, 0), Position(1, 5)).damaged == 0
        assert client.skipped == Skipped()


def planned(site: Site, after: Position, up_to: Position) -> Part:
    """A part as `partitions` makes it: with what the node said."""
    with LogClient(site.address) as client:
        return Part(Range(site.log_id, after, up_to), site.address, client.state())


def test_a_worker_on_the_logs_machine_reads_its_files_unless_that_is_forbidden(sites: list[Site]) -> None:
    one, _ = sites
    one.write(numbered(0, 5), topic="a")
    end = one.write(numbered(5, 5), topic="b")
    part = planned(one, Position(1, 1), end)
    chosen = {"topics": "b", "columns": "site,payload"}
    over_flight = list(Query(one, local="never", **chosen).reader.read(part))
    one.stop()
    assert list(Query(one, **chosen).reader.read(part)) == over_flight
    assert over_flight[0].column("payload").to_pylist() == numbered(5, 5)
    with pytest.raises(Unavailable):
        list(Query(one, local="never", nodeTimeout=1).reader.read(part))
    one.start()


def test_what_the_files_lack_is_told_as_by_the_node(
    sites: list[Site], caplog: pytest.LogCaptureFixture
) -> None:
    one, two = sites
    for site in sites:
        site.write(numbered(0, 5))
        site.restart_epoch()
        site.write(numbered(5, 5))
    trimmed = planned(one, Position(1, 2), Position(2, 10))
    one.trim_oldest()
    with pytest.raises(RowsGone, match=r"3 rows after 1:2 .* onTrimmed = skip"):
        list(Query(one).reader.read(trimmed))
    (batch,) = Query(one, onTrimmed="skip").reader.read(trimmed)
    assert batch.column("payload").to_pylist() == numbered(5, 5)
    assert "skipped 3 trimmed and 0 damaged rows" in caplog.text
    damaged = planned(two, Position(1, 0), Position(2, 10))
    newest = max(two.folder.glob("*.seg"))
    data = bytearray(newest.read_bytes())
    data[-3] ^= 1
    newest.write_bytes(data)
    with pytest.raises(RowsGone, match=r"is damaged at byte \d+.*rows 6 to 10.*onTrimmed = skip"):
        list(Query(two).reader.read(damaged))
    (batch,) = Query(two, onTrimmed="skip").reader.read(damaged)
    assert batch.column("payload").to_pylist() == numbered(0, 5)
    assert "skipped 0 trimmed and 5 damaged rows" in caplog.text


def test_the_rows_of_a_log_whose_files_are_elsewhere_come_from_its_node(sites: list[Site]) -> None:
    one, two = sites
    end = one.write(numbered(0, 5))
    two.write(numbered(5, 5))
    part = planned(one, Position(1, 0), end)
    assert part.state is not None
    here = planned(two, Position(1, 0), end).state
    assert here is not None
    for folder, mark in [("/no/folder", part.state.mark), (here.folder, here.mark)]:
        moved = replace(part, state=replace(part.state, folder=folder, mark=mark))
        (batch,) = Query(one).reader.read(moved)
        assert batch.column("payload").to_pylist() == numbered(0, 5)


def test_a_named_reader_is_committed_also_after_the_last_batch(sites: list[Site]) -> None:
    one, _ = sites
    one.write(numbered(0, 30))
    query = Query(one, reader="lake", maxRowsPerBatch=10)
    query.drain()
    assert one.readers() == {"lake": Position(1, 30)}
    end = {one.log_id: list(one.write(numbered(30, 1)))}
    assert commit_offsets(query.options, end) == {}
    assert one.readers() == {"lake": Position(1, 31)}
    one.stop()
    assert list(commit_offsets(query.options, end)) == [one.log_id]


def test_a_commit_that_fails_is_told_and_no_failure_of_the_query(
    sites: list[Site], caplog: pytest.LogCaptureFixture
) -> None:
    one, _ = sites
    one.write(numbered(0, 30))
    (one.folder / "readers").write_text("in the way of the folder")
    assert Query(one, reader="lake", maxRowsPerBatch=10).drain() == numbered(0, 30)
    assert "the position of reader lake is not committed" in caplog.text
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_wrong_token_is_one_clear_line_and_no_silence(tmp_path: Path) -> None:
    with Site(tmp_path / "secret", token="right") as site:
        with pytest.raises(ConfigError, match="wants another token than the one given"):
            Query(site, token="wrong").drain()
        with pytest.raises(ConfigError, match="wants another token than none"):
            Query(site).drain()


def test_the_latest_offsets_are_reported_for_the_logs_that_were_heard_of(sites: list[Site]) -> None:
    one, _ = sites
    one.write(numbered(0, 3))
    query = Query(one)
    assert query.reader.reportLatestOffset() == {}
    query.drain()
    assert query.reader.reportLatestOffset() == {one.log_id: [1, 3]}
