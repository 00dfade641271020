"""A log's own files are read where they are the service's, and only as far as they are whole."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from brokerweave.edgelog.layout import START, Position  # noqa: E402
from brokerweave.edgelog.reader import LogReader  # noqa: E402
from brokerweave.edgelog.writer import LogWriter  # noqa: E402
from brokerweave.flight import batches, local  # noqa: E402
from brokerweave.flight.protocol import LogState, ReadRequest  # noqa: E402
from tests.unit.edgelog.logs import SMALL, flip, frames, segment_files  # noqa: E402

ROWS = 40


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Four segments of ten rows each, on two topics."""
    folder = tmp_path / "log"
    for number in range(4):
        writer = LogWriter(folder, "site", SMALL)
        for topic in ("a/x", "b/x"):
            payloads = [b"%d %s" % (number, topic.encode())] * 5
            writer.append(number + 1, b"client", 4, 5, frames(*payloads, topic=topic))
            writer.flush()
        writer.close()
    return folder


def said(folder: Path) -> LogState:
    """What a service of the folder would say."""
    reader = LogReader(folder)
    identity = reader.identity()
    return LogState(
        identity.log_id,
        identity.node,
        reader.first(),
        reader.end(),
        0,
        reader.starts(),
        str(folder),
        local.mark(folder),
    )


def sequences(found: Sequence[tuple[Any, Position]]) -> list[int]:
    return [number for batch, _ in found for number in batch.column("sequence").to_pylist()]


@pytest.mark.parametrize("topics", [(), ("a/#",), ("a/+", "b/x"), ("none",)])
@pytest.mark.parametrize("columns", [None, ("payload", "site"), ("log_id",)])
@pytest.mark.parametrize("after", [START, Position(2, 13)])
def test_the_batches_are_those_that_the_service_sends(
    log: Path, topics: tuple[str, ...], columns: tuple[str, ...] | None, after: Position
) -> None:
    state = said(log)
    request = ReadRequest(after, Position(4, 37), topics, columns, log_id=state.log_id)
    found = list(local.read(state, request))
    assert found == list(batches.read(LogReader(log), request, None))
    assert found[-1][1] == request.up_to


def test_another_folder_than_the_services_is_not_read_though_it_is_a_copy(log: Path, tmp_path: Path) -> None:
    state = said(log)
    request = ReadRequest(START, state.end)
    assert len(sequences(list(local.read(state, request)))) == ROWS
    shutil.copytree(log, tmp_path / "copy")
    shutil.rmtree(log)
    assert list(local.read(state, request)) == []
    (tmp_path / "copy").rename(log)
    assert list(local.read(state, request)) == []
    assert list(local.read(replace(state, mark=None), request)) == []
    assert list(local.read(replace(state, folder="no\0folder"), request)) == []


def test_another_log_in_the_same_folder_is_not_read(log: Path, tmp_path: Path) -> None:
    state = said(log)
    for each in log.iterdir():
        each.unlink()
    writer = LogWriter(log, "site", SMALL)
    writer.append(1, b"client", 4, ROWS, frames(*[b"other"] * ROWS))
    writer.close()
    new = said(log)
    assert new.mark == state.mark
    assert list(local.read(state, ReadRequest(START, new.end))) == []
    assert list(local.read(new, ReadRequest(START, new.end, log_id=state.log_id))) == []


def test_what_is_not_served_yet_is_not_read(log: Path) -> None:
    state = said(log)
    beyond = Position(state.end.epoch, state.end.sequence + 1)
    assert list(local.read(state, ReadRequest(START, beyond))) == []


@pytest.mark.parametrize("name", ["log.json", "served"])
def test_files_that_cannot_be_read_are_left_to_the_service(log: Path, name: str) -> None:
    state = said(log)
    (log / name).unlink()
    (log / name).mkdir()  # permissions would not keep root out
    assert list(local.read(state, ReadRequest(START, state.end))) == []


def test_damage_ends_the_rows_before_it_and_is_left_to_the_service(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "BATCH_ROWS", 5)
    state = said(log)
    flip(segment_files(log)[2], -3)
    found = list(local.read(state, ReadRequest(START, state.end, columns=("sequence",), skip=True)))
    assert sequences(found) == list(range(1, 26))
    assert found[-1][1] == Position(3, 25)


def test_trimming_while_rows_are_read_ends_them_early(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_ROWS", 5)
    state = said(log)
    rows = local.read(state, ReadRequest(START, state.end, columns=("sequence",)))
    found = [next(rows)]
    for segment in segment_files(log)[1:3]:
        segment.unlink()
    found += list(rows)
    assert sequences(found) == list(range(1, 11))
    assert found[-1][1] == Position(1, 10)
