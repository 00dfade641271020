"""Every broker of the lab really starts, serves a common client, and goes away without a trace."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from brokerweave import lab
from brokerweave.config import Address
from brokerweave.errors import ConfigError, Unavailable
from brokerweave.lab.broker import answers_mqtt
from tests.support.clients import end
from tests.support.sites import makers, start_broker
from tests.support.waiting import LIMIT, wait_until


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Paho:
    """A client of another maker, with what it received."""

    def __init__(self, port: int) -> None:
        self.received: list[tuple[str, bytes]] = []
        self.subscribed = False
        self.client = paho.Client(CallbackAPIVersion.VERSION2)
        self.client.on_message = lambda _c, _u, it: self.received.append((it.topic, bytes(it.payload)))
        self.client.on_subscribe = lambda *_: setattr(self, "subscribed", True)
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        wait_until(self.client.is_connected)

    def close(self) -> None:
        end(self.client)


@pytest.fixture
def connect() -> Iterator[Callable[[int], Paho]]:
    clients: list[Paho] = []

    def connect(port: int) -> Paho:
        clients.append(Paho(port))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def carry_a_message(connect: Callable[[int], Paho], port: int) -> None:
    subscriber, publisher = connect(port), connect(port)
    subscriber.client.subscribe("lab/test", qos=1)
    wait_until(lambda: subscriber.subscribed)
    publisher.client.publish("lab/test", b"21.5", qos=1)
    wait_until(lambda: subscriber.received == [("lab/test", b"21.5")])
    # While the broker is still there: a client that finds it gone waits before it gives up.
    for client in (subscriber, publisher):
        client.close()


@pytest.mark.parametrize("name", makers(*lab.BROKERS))
def test_each_broker_carries_a_message_and_leaves_nothing_behind(
    name: str, connect: Callable[[int], Paho]
) -> None:
    with start_broker(name) as broker:
        assert broker.version
        carry_a_message(connect, broker.port)
        pid = broker.pid
    assert not exists(pid)
    assert not broker.directory.exists()
    assert not answers_mqtt(broker.port)


def test_two_brokers_of_one_kind_share_nothing(connect: Callable[[int], Paho]) -> None:
    with start_broker("mosquitto") as one, start_broker("mosquitto") as other:
        stranger, publisher = connect(other.port), connect(one.port)
        stranger.client.subscribe("#")
        wait_until(lambda: stranger.subscribed)
        publisher.client.publish("a", b"1", qos=1).wait_for_publish(5)
        connect(other.port).client.publish("b", b"2")
        wait_until(lambda: bool(stranger.received))
        assert stranger.received == [("b", b"2")]


def test_a_killed_broker_comes_back_on_its_port_with_what_it_kept(connect: Callable[[int], Paho]) -> None:
    with start_broker("mosquitto", persistence=True) as broker:
        port = broker.port
        connect(port).client.publish("kept", b"1", qos=1, retain=True).wait_for_publish(5)
        database = broker.directory / "mosquitto.db"
        wait_until(lambda: database.exists() and b"kept" in database.read_bytes())
        broker.restart(kill=True)
        assert broker.port == port
        late = connect(port)
        late.client.subscribe("kept")
        wait_until(lambda: late.received == [("kept", b"1")])


def test_a_paused_broker_is_silent_until_it_is_resumed() -> None:
    with start_broker("mosquitto") as broker:
        broker.pause()
        assert not answers_mqtt(broker.port, timeout=0.2)
        broker.resume()
        assert answers_mqtt(broker.port)


def test_a_broker_with_passwords_refuses_unknown_users() -> None:
    with start_broker("mosquitto", passwords={"ann": "secret"}) as broker:
        codes = []
        for password in ("secret", "wrong"):
            client = paho.Client(CallbackAPIVersion.VERSION2)
            client.username_pw_set("ann", password)
            client.on_connect = lambda _c, _u, _f, code, _p: codes.append(code.is_failure)
            client.connect(broker.host, broker.port)
            wait_until(lambda: client.loop(0.05) != 0 or bool(codes))  # noqa: B023
            end(client)
            assert codes.pop() is (password == "wrong")


def test_a_broker_that_cannot_start_says_why_with_the_end_of_its_log() -> None:
    with pytest.raises(Unavailable, match="nonsense"):
        start_broker("mosquitto", config=["nonsense yes"])


def test_an_unknown_broker_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="mosquitto"):
        lab.start("mosquito")


def test_a_broker_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    if reason := lab.available()["mosquitto"]:
        pytest.skip(reason)
    program = "import os; from brokerweave import lab; print(lab.start('mosquitto').pid); os._exit(0)"
    done = subprocess.run(
        [sys.executable, "-u", "-c", program],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    wait_until(lambda: not exists(int(done.stdout)))


def test_haproxy_passes_clients_to_its_broker(connect: Callable[[int], Paho]) -> None:
    if reason := lab.HAProxy.missing():
        pytest.skip(reason)
    with start_broker("mosquitto") as broker, lab.HAProxy(backend=Address(broker.host, broker.port)) as proxy:
        carry_a_message(connect, proxy.port)


def test_free_ports_are_free_and_never_given_twice() -> None:
    ports = [lab.free_port() for _ in range(50)]
    assert len(set(ports)) == len(ports)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", ports[0]))
