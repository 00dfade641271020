"""Real nodes of a mesh, one of them started afresh and published to at once: what it acknowledges arrives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode

from brokerweave import lab
from brokerweave.lab.node import LabNode
from brokerweave.mqtt import packets
from tests.integration.conftest import Connect
from tests.support.clients import MqttClient, end
from tests.support.proxy import Proxy
from tests.support.raw import RawClient
from tests.support.sites import QUICK, Network, Settings, merged, network, start_all
from tests.support.verdicts import in_order
from tests.support.waiting import LIMIT, wait_until

STARTS = [3, pytest.param(10, marks=pytest.mark.slow)]
"""How often; few for `make test`."""
MESSAGES = 20
"""Of each fresh start; every other one at QoS 2."""
MESH: Settings = merged(QUICK, {"mesh": {"copies": 2, "window": 60.0, "patience": 10.0}})
HASTY: Settings = merged(MESH, {"mesh": {"patience": 1.0}})


@pytest.fixture
def pair() -> Iterator[Network]:
    """The two sites that are there before."""
    with network([("d", "e")], strategy="mesh", settings=MESH) as net:
        yield net


@contextmanager
def fresh(ports: dict[str, int], settings: Settings = MESH) -> Iterator[LabNode]:
    """A node without a past, which dials the others through these ports. It is listening, nothing more."""
    broker = lab.BROKERS["mosquitto"]()
    start_all([broker.start])
    node = LabNode("p", broker.port, strategy="mesh", settings=settings)
    for name, port in ports.items():
        node.dials(name, port)
    try:
        start_all([node.start])
        yield node
        assert "Traceback" not in node.log_tail(10_000)
    finally:
        start_all([node.close])
        start_all([broker.close])


class Eager:
    """Publishes as soon as it is connected, and knows what was acknowledged."""

    def __init__(self, port: int, version: int = 4) -> None:
        self.reason = -1
        self.ended = threading.Event()
        self._sent: dict[int, bytes] = {}
        self._answered: set[int] = set()
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2,
            "eager",
            protocol=MQTTProtocolVersion(version),
            reconnect_on_failure=False,
        )
        self._client.on_publish = self._on_publish
        self._client.on_disconnect = self._on_disconnect
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def publish(self, payloads: list[bytes]) -> None:
        for number, payload in enumerate(payloads):
            mid = self._client.publish("t/1", payload, 1 + number % 2).mid
            self._sent[mid] = payload

    def heard(self) -> set[bytes]:
        return {self._sent[mid] for mid in self._answered if mid in self._sent}

    def close(self) -> None:
        end(self._client)

    def _on_publish(self, _client: object, _data: object, mid: int, code: ReasonCode, _p: object) -> None:
        if not code.is_failure:
            self._answered.add(mid)

    def _on_disconnect(
        self, _client: object, _data: object, _flags: object, code: object, _p: object
    ) -> None:
        self.reason = int(getattr(code, "value", -1))
        self.ended.set()


def start_and_publish(
    ports: dict[str, int], number: int, meanwhile: Callable[[], None] = lambda: None
) -> list[bytes]:
    """What a fresh node acknowledged: everything."""
    payloads = [b"%d/%d" % (number, each) for each in range(MESSAGES)]
    with fresh(ports) as node:
        eager = Eager(node.port)
        try:
            eager.publish(payloads)
            meanwhile()
            wait_until(lambda: eager.heard() == set(payloads), "all acknowledgements")
        finally:
            eager.close()
    return payloads


def everything_came(subscriber: MqttClient, payloads: list[bytes]) -> None:
    subscriber.wait_for(lambda received: {message.payload for message in received} >= set(payloads))


@pytest.mark.parametrize("starts", STARTS)
def test_nothing_that_a_fresh_node_acknowledges_is_lost(pair: Network, connect: Connect, starts: int) -> None:
    subscriber = connect(pair.port("d"), "subscriber")
    subscriber.subscribe("t/#", 2)
    ports = {name: pair.node(name).link_port for name in "de"}
    for number in range(starts):
        payloads = start_and_publish(ports, number)
        everything_came(subscriber, payloads)
        for qos in (0, 1):  # order is kept per QoS
            in_order([got for got in subscriber.payloads() if got in payloads[qos::2]], payloads[qos::2])


@pytest.mark.parametrize("starts", STARTS)
def test_nor_is_it_where_the_others_are_slow_to_answer(pair: Network, connect: Connect, starts: int) -> None:
    subscriber = connect(pair.port("d"), "subscriber")
    subscriber.subscribe("t/#", 2)
    with Proxy(pair.node("d").link_port) as slow:

        def meanwhile() -> None:
            threading.Timer(1.0, slow.resume).start()

        for number in range(starts):
            slow.stall()
            payloads = start_and_publish({"d": slow.port, "e": pair.node("e").link_port}, number, meanwhile)
            everything_came(subscriber, payloads)


@pytest.mark.parametrize("version", [4, 5])
def test_where_the_others_are_away_clients_are_refused_and_nothing_is_acknowledged(version: int) -> None:
    with Proxy(1) as nobody, fresh({"d": nobody.port, "e": nobody.port}, HASTY) as node:
        eager = Eager(node.port, version)
        try:
            eager.publish([b"1", b"2"])
            assert eager.ended.wait(LIMIT)
            assert eager.heard() == set()
            assert version == 4 or eager.reason == 0x89
        finally:
            eager.close()
        counters = node.status()["counters"]
        assert (counters["held_at_start"], counters["refused_at_start"]) == (1, 1)


def test_a_client_that_waits_longer_than_its_keep_alive_is_not_timed_out() -> None:
    settings = merged(MESH, {"mesh": {"patience": 6.0}})
    with Proxy(1) as nobody, fresh({"d": nobody.port}, settings) as node:
        client = RawClient(node.port)
        try:
            client.send(packets.Connect("c", keep_alive=1), packets.Publish("t", b"", 1, packet_id=1))
            client.read_packets(1)
            client.socket.settimeout(4.0)
            with pytest.raises(TimeoutError):  # the broker would have hung up after 1.5 s
                client.read_to_end()
            client.socket.settimeout(LIMIT)
            assert client.read_to_end() == b""
        finally:
            client.socket.close()
        assert node.status()["counters"]["refused_at_start"] == 1
