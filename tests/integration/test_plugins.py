"""Listeners inside a real node: what they reject, what they are told, and their own sessions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerweave.lab.node import LabNode
from brokerweave.mqtt import packets as mqtt
from brokerweave.mqtt.packets import Packet
from tests.integration.conftest import Connect
from tests.support.clients import MqttClient
from tests.support.raw import FakeBroker, RawClient
from tests.support.sites import QUICK, Network, merged, network, start_broker
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]
NO_PACKET = b"\x00\x00"
BROKER_REFUSES = b"\xf0\x00"
"""AUTH, which MQTT 3.1.1 does not have: the node passes it on, the broker ends the connection."""
LISTENERS = ["examples.json_validator:JsonValidator", "tests.support.recorder:Recorder"]
SETTINGS = merged(QUICK, {"node": {"listeners": LISTENERS}})


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
        with network([("a", "b")], settings=SETTINGS) as made:
            yield made


def events(client: MqttClient) -> list[str]:
    """What the recorder was told of its own session since `do/open`."""
    before = len(client.received)
    client.publish("do/tell", b"")
    wait_until(lambda: len(client.received) > before, "the recorder's answer")
    told = json.loads(client.received[-1].payload)
    assert told["paired"] == "broker"
    return list(told["events"])


def wait_for_event(client: MqttClient, event: str) -> None:
    wait_until(lambda: event in events(client), event)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_a_listener_rejects_reaches_no_site_and_the_next_message_does(
    net: Network, connect: Connect, version: int, qos: int
) -> None:
    subscribers = [connect(net.port(name)) for name in ("a", "b")]
    for subscriber in subscribers:
        subscriber.subscribe("checked/json", 2)
    before = net.counted("rejected_by_listener")["a"]
    publisher = connect(net.port("a"), version=version)
    publisher.publish("checked/json", b"not JSON", qos)
    publisher.publish("checked/json", b'{"is": "JSON"}', qos)
    for subscriber in subscribers:
        subscriber.wait_for_payload(b'{"is": "JSON"}')
        assert [message.payload for message in subscriber.received] == [b'{"is": "JSON"}']
    assert net.counted("rejected_by_listener")["a"] == before + 1


def test_a_listeners_own_session_subscribes_and_is_told_of_its_beginning_and_end(
    net: Network, connect: Connect
) -> None:
    client = connect(net.port("a"))
    client.publish("do/open", b"")
    wait_for_event(client, "connack established")
    client.publish("do/subscribe", b"")

    def heard() -> bool:
        client.publish("to/the/recorder", b"")
        return "publish established" in events(client)

    wait_until(heard, "a publication at the recorder")
    client.publish("do/close", b"")
    wait_for_event(client, "session_closed closed")
    seen = events(client)
    assert seen[:2] == ["session_established established", "connack established"]
    assert "tcp_down established" not in seen


def test_a_listeners_own_session_that_says_goodbye_does_not_go_down(net: Network, connect: Connect) -> None:
    client = connect(net.port("a"))
    client.publish("do/open", b"")
    wait_for_event(client, "connack established")
    client.publish("do/leave", b"")
    wait_for_event(client, "session_closed closed")
    assert "tcp_down established" not in events(client)


def test_a_listener_hears_when_its_own_session_is_no_mqtt_or_goes_down(connect: Connect) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")

        def answer(packet: Packet) -> bytes | None:
            return NO_PACKET if getattr(packet, "client_id", "") == "recorder" else None

        with (
            FakeBroker(answer) as broker,
            network([], alone=["a"], brokers={"a": broker}, settings=SETTINGS) as net,
        ):
            client = connect(net.port("a"))
            client.publish("do/open", b"")
            wait_for_event(client, "session_closed closed")
            assert events(client) == [
                "session_established established",
                "receive_failed established",
                "session_closed closed",
            ]


def test_a_listener_that_raises_at_the_end_of_a_session_keeps_no_connection_open() -> None:
    settings = merged(QUICK, {"node": {"listeners": ["tests.support.recorder:Clumsy"]}})
    broker = start_broker("mosquitto")
    with pytest.MonkeyPatch.context() as patch, broker:
        patch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
        with LabNode("a", broker.port, settings=settings) as node, RawClient(node.port) as client:
            client.send(mqtt.Connect("c"))
            client.read_packets(1)
            client.socket.sendall(BROKER_REFUSES)
            assert client.read_to_end() == b""
            assert "ZeroDivisionError" in node.log_tail(40)
