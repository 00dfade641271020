"""The Flight service over logs that a writer made, in this process: its bounds, and readers that are slow."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")

from pyarrow import flight  # noqa: E402

from brokerweave.edgelog.layout import START, Position  # noqa: E402
from brokerweave.edgelog.reader import LogReader  # noqa: E402
from brokerweave.edgelog.writer import LogWriter, Policy  # noqa: E402
from brokerweave.errors import ConfigError, Unavailable  # noqa: E402
from brokerweave.flight import batches as batches_module  # noqa: E402
from brokerweave.flight.client import LogClient  # noqa: E402
from brokerweave.flight.service import LogService, ServiceLimits  # noqa: E402
from tests.support.waiting import wait_until  # noqa: E402
from tests.unit.edgelog.logs import frames, write_block  # noqa: E402

POLICY = Policy(fsync="never", min_free=0)
FEW = ServiceLimits(calls=4, waiting=2)


@contextmanager
def serving(folder: Path, limits: ServiceLimits = FEW, deadline: float = 10.0) -> Iterator[LogClient]:
    service = LogService(folder, "127.0.0.1:0", None, limits)
    try:
        with LogClient(f"127.0.0.1:{service.port}", deadline=deadline) as client:
            yield client
    finally:
        service.shutdown()


def write_rows(folder: Path, blocks: int, rows: int = 1000, size: int = 100) -> Position:
    writer = LogWriter(folder, "a", POLICY)
    for number in range(blocks):
        topic = f"t/{number % 10}"
        payloads = [b"%d" % row * (size // 4) for row in range(1000, 1000 + rows)]
        writer.append(number + 1, b"c", 4, rows, frames(*payloads, topic=topic))
        writer.flush()
    last = writer.last
    writer.close()
    return last


def sequences(batches: Iterator[Any]) -> list[int]:
    return [number for batch in batches for number in batch.column("sequence").to_pylist()]


def test_batches_are_large_and_filtered_ones_are_joined(tmp_path: Path) -> None:
    end = write_rows(tmp_path, 200)
    with serving(tmp_path) as client:
        sizes = [batch.num_rows for batch in client.read(START, end)]
        assert sum(sizes) == 200_000
        assert all(10_000 <= size <= 50_000 for size in sizes)
        sizes = [batch.num_rows for batch in client.read(START, end, topics=["t/3"])]
        assert sizes == [20_000]


def test_a_read_whose_consumer_is_slower_than_the_deadline_gets_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches_module, "BATCH_ROWS", 2000)
    end = write_rows(tmp_path, 100, size=1000)  # more than what gRPC holds for a reader
    with serving(tmp_path, deadline=2.0) as client:
        found: list[int] = []
        for number, batch in enumerate(client.read(START, end, columns=["sequence", "payload"])):
            found += batch.column("sequence").to_pylist()
            if number in (3, 20):
                time.sleep(2.2)
    assert found == list(range(1, 100_001))


def test_calls_beyond_the_limit_are_refused_and_each_that_ends_makes_room(tmp_path: Path) -> None:
    end = write_rows(tmp_path, 300, size=1000)
    with serving(tmp_path) as client:
        open_reads = []
        for _ in range(4):
            open_reads.append(client.read(START, end))
            next(open_reads[-1])
        with pytest.raises(Unavailable, match="too many"):
            client.state()
        for read in open_reads:
            read.close()  # type: ignore[attr-defined]

        def answers() -> bool:
            try:
                client.state()
            except Unavailable:
                return False
            return True

        wait_until(answers, "room for another call")
        for _ in range(20):  # a call that ends, however it does, is counted once
            next(client.read(START, end)).validate()
            with pytest.raises(ConfigError):
                client.commit("not a name", end)
            wait_until(answers, "room for another call")


def test_calls_that_wait_are_bounded_and_keep_nobody_else_out(tmp_path: Path) -> None:
    end = write_rows(tmp_path, 1, rows=1)
    writer = LogWriter(tmp_path, "a", POLICY)
    with serving(tmp_path) as client:
        end = client.state().end
        woken: list[Position] = []

        def stay() -> None:
            for _ in range(1000):  # a look below takes one of the two places while it lasts
                try:
                    woken.append(client.wait(end, 60).end)
                    return
                except Unavailable:
                    time.sleep(0.01)

        threads = [threading.Thread(target=stay, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()

        def full() -> bool:
            try:
                client.wait(end, 0)
            except Unavailable as error:
                return "wait" in str(error)
            return False

        wait_until(full, "two calls to wait")
        assert client.state().end == end
        write_block(writer, b"x")
        for thread in threads:
            thread.join(20)
        assert woken == [writer.last] * 2
    writer.close()


def test_very_long_client_names_make_small_batches_and_lose_no_row(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, "a", POLICY)
    write_block(writer, b"before")
    names = [b"n%d" % number * 15_000 for number in range(2)]
    for name in names:
        writer.append(1, name, 4, 2000, frames(*[b"x"] * 2000))
    write_block(writer, b"after")
    end = writer.last
    writer.close()
    with serving(tmp_path) as client:
        batches = list(client.read(Position(1, 3), end, columns=["client", "sequence"]))
    assert sequences(iter(batches)) == list(range(4, 4003))
    assert max(batch.nbytes for batch in batches) < 40 << 20
    (wanted,) = {batch.column("client")[0].as_py() for batch in batches[:1]}
    assert wanted.encode() == names[0]


def test_columns_that_are_the_same_in_all_rows_are_there_though_they_do_not_travel(tmp_path: Path) -> None:
    end = write_rows(tmp_path, 3, rows=10)
    log_id = LogReader(tmp_path).identity().log_id
    with serving(tmp_path) as client:
        (batch,) = client.read(START, end, columns=["schema_version", "log_id", "site"])
        assert batch.to_pydict() == {"schema_version": [1] * 30, "log_id": [log_id] * 30, "site": ["a"] * 30}


def test_tools_that_know_only_flight_find_the_log_and_read_it(tmp_path: Path) -> None:
    write_rows(tmp_path, 3, rows=10)
    with serving(tmp_path) as client:
        plain = flight.FlightClient(client.address)
        (info,) = plain.list_flights()
        assert info.total_records == 30
        table = plain.do_get(info.endpoints[0].ticket).read_all()
        assert (table.num_rows, table.column_names[0]) == (30, "log_id")
        assert {action.type for action in plain.list_actions()} >= {"state", "commit"}
        with pytest.raises(flight.FlightServerError, match="no action"):
            list(plain.do_action(flight.Action("dance", b"{}")))
        plain.close()


def test_a_folder_without_a_log_is_said_and_served_once_there_is_one(tmp_path: Path) -> None:
    with serving(tmp_path / "log") as client:
        with pytest.raises(Unavailable, match="no edge log"):
            client.state()
        write_rows(tmp_path / "log", 1)
        assert client.state().end == Position(1, 1000)
        assert sequences(client.read(START, Position(1, 1000), columns=["sequence"])) == list(range(1, 1001))


def test_a_port_that_is_taken_is_one_line(tmp_path: Path) -> None:
    first = LogService(tmp_path, "127.0.0.1:0", None)
    with pytest.raises(Unavailable, match="is another program there"):
        LogService(tmp_path, f"127.0.0.1:{first.port}", None)
    first.shutdown()
