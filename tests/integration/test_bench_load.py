"""The load tool against a real Mosquitto: what it counted is what its logs say."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from brokerweave import lab
from brokerweave.bench.folder import (
    RECEIVES,
    RESOURCES,
    SENDS,
    EdgeServer,
    RunFolder,
    Times,
    log_writer,
    read_log,
)
from brokerweave.bench.load.driver import LoadTarget, measure
from brokerweave.bench.scenario import ClientGroup, Place, Scenario
from brokerweave.errors import BrokerweaveError, Unavailable
from tests.support.verdicts import keeps
from tests.support.waiting import LIMIT, wait_until

GROUPS = (
    ClientGroup("a", "topic1", 4, 3),
    ClientGroup("a", "second", 2, 2),
    ClientGroup("a", "topic6", 1, 2, latency=True),
)


@pytest.mark.parametrize(("qos", "subscriber_qos"), [(0, 0), (1, 1), (2, 2), (2, 0)])
def test_counters_agree_with_the_logs(tmp_path: Path, qos: int, subscriber_qos: int) -> None:
    scenario = Scenario(
        "small",
        (Place("a"),),
        GROUPS,
        Times(0.3, 1, 0.2),
        interval=0.02,
        latency_interval=0.05,
        qos=qos,
        subscriber_qos=subscriber_qos,
    )
    folder = RunFolder(tmp_path)
    with lab.start("mosquitto") as broker:
        target = LoadTarget(
            {"a": (broker.host, broker.port)}, (EdgeServer("a", None, {"broker": broker.pid}),)
        )
        done = measure(scenario, target, folder)
    counters = done.counters
    assert folder.measurements() == [done]
    sends = read_log(folder.logs(1, SENDS), SENDS).to_pylist()
    receives = read_log(folder.logs(1, RECEIVES), RECEIVES).to_pylist()
    begin, end = done.window_ns
    sent = [row for row in sends if begin <= row["sent_ns"] < end]
    assert counters.sent == sum(row["kind"] == 0 for row in sent) > 100
    assert counters.expected == sum(row["copies"] for row in sent)
    assert counters.received == sum(begin <= row["received_ns"] < end for row in receives if row["kind"] == 0)
    assert counters.acknowledged == (counters.sent if qos else 0)
    keeps((counters.lost, counters.doubled, counters.disordered) == (0, 0, 0), counters)
    when = {(row["client"], row["message"]): row["sent_ns"] for row in sent}
    latencies = [
        (row["received_ns"] - when[key]) // 1000 / 1000
        for row in receives
        if row["kind"] == 1 and (key := (row["publisher"], row["message"])) in when
    ]
    assert counters.latency_worst_ms == pytest.approx(max(latencies))
    assert counters.latency_mean_ms == pytest.approx(sum(latencies) / len(latencies))
    roles = set(read_log(folder.logs(1, RESOURCES), RESOURCES)["role"].to_pylist())
    assert {"a/broker", "load/0", "load/1", "load/2", "machine"} <= roles


def test_the_broker_itself_and_a_client_of_another_make_count_the_same(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    scenario = Scenario("small", (Place("a"),), GROUPS, Times(0.3, 1, 0.2), interval=0.005)
    heard = Counter[str]()
    told: dict[str, int] = {}

    def on_message(_client: object, _data: object, message: mqtt.MQTTMessage) -> None:
        if message.topic.startswith("$SYS"):
            told[message.topic.rpartition("/")[2]] = int(message.payload)
        else:
            heard[message.topic] += 1

    with lab.start("mosquitto", config=("sys_interval 1",)) as broker:
        other = mqtt.Client(CallbackAPIVersion.VERSION2)
        other.on_message = on_message
        other.connect(broker.host, broker.port)
        other.subscribe([("#", 0), ("$SYS/broker/publish/messages/received", 0)])
        other.loop_start()
        measure(scenario, LoadTarget({"a": (broker.host, broker.port)}), folder)
        sends = read_log(folder.logs(1, SENDS), SENDS)
        try:
            wait_until(lambda: told.get("received") == sends.num_rows, "the broker's count")
        finally:
            other.disconnect()
            other.loop_stop()
    assert sends.num_rows > 1000
    assert heard.total() == sends.num_rows
    receives = read_log(folder.logs(1, RECEIVES), RECEIVES)
    assert receives.num_rows == 3 * heard["topic1"] + 2 * heard["second"] + 2 * heard["topic6"]


def test_a_broker_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    scenario = Scenario("x", (Place("a"),), GROUPS)
    with pytest.raises(Unavailable, match="does not take clients") as caught:
        measure(scenario, LoadTarget({"a": ("127.0.0.1", lab.free_port())}), RunFolder(tmp_path))
    assert "\n" not in str(caught.value)


ACCEPTED, GRANTED = bytes((0x20, 2, 0, 0)), bytes((0x90, 3, 0, 1, 0))


def closes(connection: socket.socket) -> None:
    connection.close()


def speaks_http(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def refuses(connection: socket.socket) -> None:
    connection.sendall(bytes((0x20, 2, 0, 5)))


def sends_garbage_later(connection: socket.socket) -> None:
    connection.recv(1000)
    connection.sendall(ACCEPTED)
    connection.recv(1000)
    connection.sendall(GRANTED + b"\xff" * 1000)


def resets_later(connection: socket.socket) -> None:
    connection.sendall(ACCEPTED)
    connection.recv(10)
    connection.close()  # with unread bytes: a reset


@pytest.mark.parametrize(
    ("behaves", "said"),
    [
        (closes, "does not take clients"),
        (speaks_http, "b'HTTP', which is not MQTT"),
        (refuses, "refused one, with code 5"),
        (sends_garbage_later, "sent what is not MQTT"),
        (resets_later, "127.0.0.1"),
    ],
)
def test_a_broker_that_misbehaves_is_one_line(
    tmp_path: Path, behaves: Callable[[socket.socket], None], said: str
) -> None:
    groups = (ClientGroup("a", "topic1", 2, 2),)
    scenario = Scenario("x", (Place("a"),), groups, Times(0.2, 0.5, 0.1), interval=0.02, workers=1)
    kept, serving = list[socket.socket](), list[threading.Thread]()

    def behave(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            behaves(connection)

    def accept() -> None:
        with contextlib.suppress(OSError):
            for _ in range(4):
                kept.append(listener.accept()[0])
                serving.append(threading.Thread(target=behave, args=(kept[-1],)))
                serving[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LIMIT)
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            with pytest.raises(BrokerweaveError) as caught:
                measure(scenario, LoadTarget({"a": listener.getsockname()}), RunFolder(tmp_path))
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for each in serving:  # all clients have left
                each.join()
            for connection in kept:
                connection.close()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_a_slow_broker_has_yet_to_take_is_sent_before_clients_leave(tmp_path: Path) -> None:
    """A few messages are more than the kernel holds, and nothing is delivered meanwhile."""
    payload = 1_000_000
    scenario = Scenario(
        "x",
        (Place("a"),),
        (ClientGroup("a", "t", 1, 1),),
        Times(0.1, 0.8, 0.1),
        interval=0.02,
        payload=payload,
        workers=1,
    )
    got = 0

    def serve() -> None:
        nonlocal got
        subscriber, _ = listener.accept()
        subscriber.sendall(ACCEPTED + GRANTED)
        connection, _ = listener.accept()
        with subscriber, connection:
            connection.recv(1000)
            connection.sendall(ACCEPTED)
            while data := connection.recv(1 << 20, socket.MSG_WAITALL):
                got += len(data)
                time.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
        listener.settimeout(LIMIT)
        serving = threading.Thread(target=serve)
        serving.start()
        measure(scenario, LoadTarget({"a": listener.getsockname()}), RunFolder(tmp_path))
        serving.join()
    sent = read_log(RunFolder(tmp_path).logs(1, SENDS), SENDS).num_rows
    assert sent > 25
    assert got > sent * payload


def test_a_log_that_cannot_be_written_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As on a full disk: files may not grow to what a log without a row would have."""
    with log_writer(tmp_path / "empty.arrow", RECEIVES):
        pass
    most = (tmp_path / "empty.arrow").stat().st_size - 1
    scenario = Scenario("x", (Place("a"),), GROUPS, Times(0.2, 0.5, 0.1), interval=0.001)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with lab.start("mosquitto") as broker:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
        try:
            with pytest.raises(Unavailable, match="File too large") as caught:
                measure(scenario, LoadTarget({"a": (broker.host, broker.port)}), RunFolder(tmp_path))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""
