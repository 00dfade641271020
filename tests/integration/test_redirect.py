"""A node that is stopped tells its clients where to go, and their wills are not published for that."""

from __future__ import annotations

import os
import signal

import pytest

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import ConnAck, Connect, Disconnect, Packet, Will
from brokerweave.mqtt.properties import Property
from tests.support.clients import MqttClient
from tests.support.raw import RawClient
from tests.support.sites import QUICK, merged, network
from tests.support.waiting import wait_until

ELSEWHERE = "b.example.com:1883"
USE_ANOTHER_SERVER, UNAVAILABLE = 0x9C, 3
SETTINGS = merged(QUICK, {"node": {"redirect": ELSEWHERE}, "limits": {"drain_notice": 600.0}})


def connected(port: int, name: str, version: int) -> tuple[RawClient, Packet]:
    client = RawClient(port)
    client.send(Connect(name, version, will=Will(f"wills/{name}", b"gone")), version=version)
    return client, codec.decode(client.read_packets(1), version)


def reference(packet: Packet) -> object:
    assert isinstance(packet, (ConnAck, Disconnect))
    return dict(packet.properties).get(Property.SERVER_REFERENCE)


@pytest.mark.parametrize("version", [4, 5])
def test_a_stopped_node_sends_clients_elsewhere_without_their_wills(version: int) -> None:
    with network([], alone=["a"], settings=SETTINGS) as net:
        watcher = MqttClient(net["a"].broker.port, "watcher")
        watcher.subscribe("#", 1)
        here, answer = connected(net.port("a"), "here", version)
        assert isinstance(answer, ConnAck)
        assert answer.reason_code == 0
        node = net.node("a")
        os.kill(node.pid, signal.SIGTERM)

        def refused() -> bool:
            late, answer = connected(net.port("a"), "late", version)
            late.close()
            assert isinstance(answer, ConnAck)
            if version == 5 and answer.reason_code:
                assert reference(answer) == ELSEWHERE
            return answer.reason_code == (USE_ANOTHER_SERVER if version == 5 else UNAVAILABLE)

        wait_until(refused, "the node to refuse clients")
        assert node.status()["counters"]["redirected_clients"] >= 1
        os.kill(node.pid, signal.SIGTERM)
        if version == 5:
            goodbye = codec.decode(here.read_packets(1), 5)
            assert isinstance(goodbye, Disconnect)
            assert (goodbye.reason_code, reference(goodbye)) == (USE_ANOTHER_SERVER, ELSEWHERE)
        assert here.read_to_end() == b""
        here.close()
        wait_until(lambda: not node.running, "the node's end")
        last = MqttClient(net["a"].broker.port, "last")
        last.publish("marker", b"", 1)
        wait_until(lambda: bool(watcher.payloads("marker")), "the marker")
        # "late" may have been let in before the node heard SIGTERM, and has left without a goodbye.
        assert {each.topic for each in watcher.received} - {"wills/late"} == {"marker"}
        for each in (watcher, last):
            each.close()
