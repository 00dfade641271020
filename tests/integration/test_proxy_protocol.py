"""Who stands behind a node, as HAProxy before the broker sees it, and RabbitMQ by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from brokerweave import lab
from brokerweave.config import Address
from brokerweave.lab.broker import answers_mqtt
from brokerweave.lab.debian import RabbitMQ
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import ConnAck, Connect
from tests.integration.conftest import Connect as Connects
from tests.support.raw import RawClient
from tests.support.sites import QUICK, Network, merged, network, start_all
from tests.support.waiting import wait_until

PROXIED = merged(QUICK, {"node": {"proxy_protocol": True}})
UNWANTED = "127.0.0.66"


@pytest.fixture(scope="module")
def behind_haproxy() -> Iterator[Network]:
    """Site b's broker is a Mosquitto behind an HAProxy that turns one address away."""
    if reason := lab.HAProxy.missing():
        pytest.skip(reason)
    broker = lab.BROKERS["mosquitto"]()
    turn_away = f"tcp-request session reject if {{ src {UNWANTED} }}"
    proxy = lab.HAProxy(backend=Address(broker.host, broker.port), accept_proxy=True, rules=[turn_away])
    start_all([broker.start])
    start_all([proxy.start])
    try:
        with network([], alone=["b"], brokers={"b": proxy}, settings=PROXIED) as net:
            yield net
    finally:
        start_all([proxy.close, broker.close])


def test_the_proxy_before_the_broker_sees_the_clients_own_address(behind_haproxy: Network) -> None:
    for source in ("127.0.0.1", "127.0.0.2"):
        with RawClient(behind_haproxy.port("b"), source=source) as client:
            client.send(Connect("c", 4))
            assert codec.decode(client.read_packets(1), 4) == ConnAck()
    with RawClient(behind_haproxy.port("b"), source=UNWANTED) as client:
        client.send(Connect("c", 4))
        assert client.read_to_end() == b""


def test_the_nodes_own_sessions_say_that_they_are_its_own(behind_haproxy: Network, connect: Connects) -> None:
    """Probe and injectors came through, or the node would not be ready; and clients work as ever."""
    status = behind_haproxy.node("b").status()
    assert status["node"]["broker"]["abilities"]["version"] == 5
    assert all(row["state"] == "ready" for row in status["injectors"])
    client = connect(behind_haproxy.port("b"), version=5)
    client.subscribe("t", 2)
    client.publish("t", b"through both", 2)
    client.wait_for_payload(b"through both")


class ProxiedRabbitMQ(RabbitMQ):
    """Takes no connection without the header."""

    def __init__(self) -> None:
        super().__init__(config=["mqtt.proxy_protocol = true"])

    def ready(self) -> bool:
        return answers_mqtt(self.port, proxied=True)


def test_rabbitmq_sees_the_clients_own_address() -> None:
    if reason := RabbitMQ.missing():
        pytest.skip(reason)
    broker = ProxiedRabbitMQ()
    start_all([broker.start])
    try:
        assert not answers_mqtt(broker.port)
        with (
            network([], alone=["a"], brokers={"a": broker}, settings=PROXIED) as net,
            RawClient(net.port("a"), source="127.0.0.2") as client,
        ):
            net.node("a").wait_for_links(0)
            client.send(Connect("c", 4))
            assert codec.decode(client.read_packets(1), 4) == ConnAck()
            own = "{}:{}".format(*client.socket.getsockname())
            wait_until(lambda: own in broker.log_tail(20), "the client's address in RabbitMQ's log")
    finally:
        start_all([broker.close])
