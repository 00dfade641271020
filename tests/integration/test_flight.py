"""A node that serves its edge log over Arrow Flight, in front of a real Mosquitto, with real clients."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

pa = pytest.importorskip("pyarrow")

from brokerweave.edgelog import arrow  # noqa: E402
from brokerweave.edgelog.layout import START, DamagedLog, Position  # noqa: E402
from brokerweave.edgelog.reader import LogReader, TrimmedRows  # noqa: E402
from brokerweave.edgelog.rows import LogRow, rows  # noqa: E402
from brokerweave.errors import ConfigError, Unavailable  # noqa: E402
from brokerweave.flight.client import LogClient  # noqa: E402
from brokerweave.lab.broker import HOST, free_port  # noqa: E402
from brokerweave.lab.node import LabNode  # noqa: E402
from tests.integration.conftest import Connect  # noqa: E402
from tests.support.sites import start_broker  # noqa: E402
from tests.support.waiting import wait_until  # noqa: E402

TOKEN = "a-token-of-some-length"


@contextmanager
def serving(folder: Path, edge_log: Mapping[str, object] | None = None) -> Iterator[LabNode]:
    """A node with a tap on s/#, whose service is up."""
    token = folder / "token"
    token.write_text(f"{TOKEN}\n")
    settings: dict[str, dict[str, object]] = {
        "edge_log": {"fsync": "interval", "fsync_interval": 0.05, **(edge_log or {})},
        "flight": {"listen": f"{HOST}:{free_port()}", "token_file": str(token)},
    }
    with (
        start_broker("mosquitto") as broker,
        LabNode("a", broker.port, settings=settings, taps=("s/#",)) as node,
    ):
        wait_for_service(node)
        yield node
        assert "Traceback" not in node.log_tail(10_000)


def wait_for_service(node: LabNode) -> None:
    node.wait_for(lambda status: status["flight"]["state"] == "running", "the service up")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabNode]:
    with serving(tmp_path_factory.mktemp("flight")) as node:
        yield node


def client_of(node: LabNode, token: str | None = TOKEN, deadline: float = 10.0) -> LogClient:
    return LogClient(f"grpc://{node.status()['flight']['listen']}", token, deadline)


def publish(node: LabNode, connect: Connect, topic: str, count: int) -> Position:
    """Publish and wait until all of it is served; the last row's position."""
    publisher = connect(node.port)
    with client_of(node) as client:
        before = client.state().end
        for number in range(count):
            publisher.publish(topic, b"%d" % number, 1)
        wait_until(lambda: client.state().end.sequence >= before.sequence + count, f"{count} rows served")
        return client.state().end


def in_the_files(node: LabNode, after: Position = START) -> list[LogRow]:
    reader = LogReader(Path(node.status()["edge_log"]["path"]))
    return [row for block in reader.blocks(after) for row in rows(block, after)]


def test_the_rows_read_are_those_published(node: LabNode, connect: Connect) -> None:
    publisher = connect(node.port, "five", version=5)
    with client_of(node) as client:
        start = client.state().end
        for number in range(200):
            publisher.publish(
                f"s/{number % 3}", b"%d" % number, number % 3, number % 7 == 0, UserProperty=("k", "v")
            )
        wait_until(lambda: client.state().end.sequence == start.sequence + 200, "all rows served")
        state = client.state()
        table = pa.Table.from_batches(client.read(start, state.end), arrow.SCHEMA)
    expected = in_the_files(node, start)
    assert [row.payload for row in expected] == [b"%d" % number for number in range(200)]
    for name in ("sequence", "client", "topic", "payload", "qos", "retain", "dup", "packet_id"):
        assert table.column(name).to_pylist() == [getattr(row, name) for row in expected]
    assert set(table.column("log_id").to_pylist()) == {state.log_id}
    assert set(table.column("site").to_pylist()) == {"a"} == {state.node}
    assert state.received == expected[-1].received
    assert table.column("properties").to_pylist() == [[{"key": "k", "value": "v"}]] * 200


def test_topics_are_filtered_and_columns_chosen_at_the_node(node: LabNode, connect: Connect) -> None:
    with client_of(node) as client:
        start = client.state().end
        publish(node, connect, "s/hall/1", 5)
        publish(node, connect, "s/yard/1", 5)
        end = publish(node, connect, "s/hall/2", 5)
        batches = list(client.read(start, end, topics=["s/hall/+", "s/none"], columns=["payload", "topic"]))
        assert batches[0].schema.names == ["payload", "topic"]
        table = pa.Table.from_batches(batches)
        assert table.column("topic").to_pylist() == ["s/hall/1"] * 5 + ["s/hall/2"] * 5
        assert list(client.read(start, end, topics=["s/none"])) == []
        assert list(client.read(end, end)) == []
        with pytest.raises(ConfigError, match="no column 'colour'"):
            client.read(start, end, columns=["colour"])
        with pytest.raises(ConfigError, match="s#"):
            client.read(start, end, topics=["s#"])


@pytest.mark.parametrize(("token", "words"), [(None, "none"), ("wrong", "the one given")])
def test_no_call_is_answered_without_the_token(node: LabNode, token: str | None, words: str) -> None:
    with client_of(node, token) as client:
        for call in (
            client.state,
            client.readers,
            lambda: list(client.read(START, Position(1, 1))),
            lambda: client.commit("lake", START),
            lambda: client.wait(START, 0),
        ):
            with pytest.raises(ConfigError, match=words) as caught:
                call()
            assert "\n" not in str(caught.value)


def test_waiting_ends_when_rows_come_and_at_the_latest_when_asked_to(node: LabNode, connect: Connect) -> None:
    with client_of(node) as client:
        end = client.state().end
        assert client.wait(end, 0.1).end == end
        publisher = connect(node.port)
        publisher.publish("s/wait", b"x", 1)
        began = time.monotonic()
        assert client.wait(end, 60).end > end
        assert time.monotonic() - began < 30


def test_lag_is_counted_in_rows_and_seconds_and_commits_are_kept(node: LabNode, connect: Connect) -> None:
    with client_of(node) as client:
        start = client.state().end
        before = int(time.time() * 1e6)
        end = publish(node, connect, "s/lag", 10)
        behind, seconds = client.lag(start)
        assert behind == 10
        assert 0 < seconds <= time.time() - before / 1e6 + 1
        assert client.lag(end) == (0, 0.0)
        assert client.commit("lake", start) == start
        assert client.commit("lake", end) == end
        assert client.commit("lake", start) == end
        assert client.readers()["lake"] == end
        with pytest.raises(ConfigError, match="name"):
            client.commit("../x", end)


def test_a_time_is_found_as_a_position(node: LabNode, connect: Connect) -> None:
    with client_of(node) as client:
        middle = publish(node, connect, "s/time", 3)
        newest = client.state().received
        end = publish(node, connect, "s/time", 3)
        assert client.position_at(newest + 1) == middle
        assert client.position_at(client.state().received + 1) == end
        assert client.position_at(0) < client.state().first


def test_a_client_stays_in_its_process_and_can_insist_on_a_log(node: LabNode) -> None:
    with client_of(node) as client:
        with pytest.raises(TypeError, match="another process"):
            pickle.dumps(client)
        client.log_id = "00" * 16
        with pytest.raises(ConfigError, match="not 0000"):
            client.state()
        with pytest.raises(ConfigError, match="not 0000"):
            list(client.read(START, Position(1, 1)))


def test_rows_that_are_not_there_yet_are_not_silently_left_out(node: LabNode) -> None:
    with client_of(node) as client:
        end = client.state().end
        with pytest.raises(Unavailable, match="not there to be read"):
            list(client.read(START, Position(end.epoch, end.sequence + 1)))


def test_a_service_that_was_killed_is_started_again(tmp_path: Path, connect: Connect) -> None:
    with serving(tmp_path) as node:
        end = publish(node, connect, "s/1", 5)
        before = node.status()["flight"]
        with client_of(node) as client:
            assert client.state().end == end
            os.kill(before["pid"], signal.SIGKILL)
            node.wait_for(lambda status: status["flight"]["restarts"] == 1, "a restart")
            wait_for_service(node)
            after = node.status()["flight"]
            assert after["listen"] == before["listen"]
            assert after["pid"] != before["pid"]
            wait_until(lambda: _answers(client), "the same client to reach it again")
            assert sum(batch.num_rows for batch in client.read(START, end)) == 5


def _answers(client: LogClient) -> bool:
    try:
        client.state()
    except Unavailable:
        return False
    return True


def test_a_port_that_is_taken_is_told_by_status_and_the_service_comes_when_it_is_free(tmp_path: Path) -> None:
    with socket.socket() as taken, start_broker("mosquitto") as broker:
        taken.bind((HOST, 0))
        taken.listen()
        address = f"{HOST}:{taken.getsockname()[1]}"
        with LabNode("a", broker.port, settings={"flight": {"listen": address}}, taps=("s/#",)) as node:
            node.wait_for(lambda status: status["flight"]["state"] == "waiting", "a failure")
            assert "is another program there" in node.status()["flight"]["reason"]
            assert any("token_file" in warning for warning in node.status()["warnings"])
            taken.close()
            wait_for_service(node)


def test_the_service_ends_with_its_node_however_that_ended(tmp_path: Path, connect: Connect) -> None:
    with serving(tmp_path) as node:
        for kill in (signal.SIGKILL, signal.SIGTERM):
            publish(node, connect, "s/1", 1)
            child = psutil.Process(node.status()["flight"]["pid"])
            os.kill(node.pid, kill)
            wait_until(lambda: not node.running and not child.is_running(), "both to end")  # noqa: B023
            node.start()
            wait_for_service(node)
            assert node.status()["flight"]["restarts"] == 0


def _stands_still(pid: int) -> bool:
    states = [path.read_text().rpartition(") ")[2][0] for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"T"}


def test_a_service_that_is_paused_is_not_waited_for(tmp_path: Path, connect: Connect) -> None:
    with serving(tmp_path) as node:
        end = publish(node, connect, "s/1", 5)
        pid = node.status()["flight"]["pid"]
        with client_of(node) as client:
            client.state()
            client.deadline = 0.5
            os.kill(pid, signal.SIGSTOP)
            wait_until(lambda: _stands_still(pid), "all its threads to stand still")
            try:
                for call in (
                    client.state,
                    lambda: list(client.read(START, end)),
                    lambda: client.wait(end, 0.1),
                ):
                    began = time.monotonic()
                    with pytest.raises(Unavailable, match=r"within 0\.5 s") as caught:
                        call()
                    assert time.monotonic() - began < 20
                    assert "\n" not in str(caught.value)
            finally:
                os.kill(pid, signal.SIGCONT)
            client.deadline = 10
            assert client.state().end == end


def test_where_no_service_is_one_line_says_so() -> None:
    with LogClient(f"{HOST}:{free_port()}", deadline=2) as client, pytest.raises(Unavailable) as caught:
        client.state()
    assert "cannot be reached" in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError):
        LogClient("nonsense://x")


def test_trimmed_and_damaged_rows_stop_a_reader_or_are_counted(tmp_path: Path, connect: Connect) -> None:
    with serving(tmp_path, {"max_bytes": 1 << 20}) as node:
        publisher = connect(node.port)
        path = Path(node.status()["edge_log"]["path"])
        for number in range(12):
            publisher.publish("s/1", b"%d" % number * 20_000, 1)
            wait_until(lambda: LogReader(path).end().sequence > number, "it served")  # noqa: B023
        segments = LogReader(path).segments()
        assert len(segments) >= 3
        node.ask("trim_log", before=str(Position(1, segments[0].last)))
        kept = segments[1].first
        with client_of(node) as client:
            after, end = Position(1, 1), client.state().end
            assert client.state().first == Position(1, kept)
            with pytest.raises(TrimmedRows, match=f"oldest row that is kept is 1:{kept}") as trimmed:
                list(client.read(after, end))
            assert trimmed.value.first == Position(1, kept)
            damaged = path / segments[1].name
            data = bytearray(damaged.read_bytes())
            data[-100] ^= 1
            damaged.write_bytes(data)
            with pytest.raises(DamagedLog, match="checksum") as found:
                list(client.read(Position(1, kept - 1), end))
            assert found.value.damage.segment == damaged.name
            table = pa.Table.from_batches(client.read(after, end, skip=True))
            assert client.skipped.trimmed == kept - 2
            assert client.skipped.damaged == 1
            assert table.num_rows == end.sequence - (kept - 1) - 1
