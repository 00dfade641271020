"""Clients behind a gateway: any client at any site, and moved between sites."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from brokerweave import lab
from brokerweave.lab.broker import HOST
from brokerweave.lab.gateway import LabGateway
from tests.support.clients import MqttClient
from tests.support.sites import QUICK, Network, Settings, merged, network, start_all, start_broker
from tests.support.waiting import LIMIT, wait_until

KEY = b"a key that all nodes share"
MESH: Settings = merged(QUICK, {"mesh": {"copies": 2, "window": 60.0}})


class Deployment:
    """Two mesh nodes before real brokers, a bare broker, and a gateway before each of the two kinds."""

    def __init__(self, net: Network, bare: lab.Broker, key: Path, stack: ExitStack) -> None:
        self.net = net
        nodes = tuple({"name": name, "clients": f"{HOST}:{net.port(name)}"} for name in "ab")
        self.gateway = LabGateway("g", settings={"gateway": {"key_file": str(key)}}, sites=nodes)
        self.bare_address = f"{HOST}:{bare.port}"
        alone = {"name": "bare", "clients": self.bare_address, "bare": True}
        self.bare = LabGateway("h", sites=(alone,))
        for each in (self.gateway, self.bare):
            stack.callback(each.close)
        start_all([self.gateway.start, self.bare.start])


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    key = tmp_path_factory.mktemp("gateway") / "key"
    key.write_bytes(KEY)
    settings = merged(MESH, {"node": {"key_file": str(key)}})
    with ExitStack() as stack:
        net = stack.enter_context(network([("b", "a")], strategy="mesh", settings=settings))
        bare = start_broker("mosquitto")
        stack.callback(bare.close)
        made = Deployment(net, bare, key, stack)
        yield made
        for each in (made.gateway, made.bare):
            assert "Traceback" not in each.log_tail(1000)
            assert each.status()["counters"]["internal_errors"] == 0


@pytest.mark.parametrize("kind", ["gateway", "bare"])
@pytest.mark.parametrize("version", [4, 5])
def test_paho_publishes_and_receives_through_a_gateway(
    deployment: Deployment, kind: str, version: int
) -> None:
    port = getattr(deployment, kind).port
    client = MqttClient(port, f"paho-{version}", version=version)
    client.subscribe(f"paho/{version}/#", 2)
    for qos in (0, 1, 2):
        client.publish(f"paho/{version}/{qos}", b"x" * 1000, qos)
    wait_until(lambda: len(client.received) == 3, "three messages")
    assert {(each.qos, len(each.payload)) for each in client.received} == {(0, 1000), (1, 1000), (2, 1000)}
    client.close()


@pytest.mark.parametrize("kind", ["gateway", "bare"])
@pytest.mark.parametrize("version", [aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5])
def test_aiomqtt_publishes_and_receives_through_a_gateway(
    deployment: Deployment, kind: str, version: aiomqtt.ProtocolVersion
) -> None:
    async def talk() -> bytes:
        async with aiomqtt.Client(HOST, getattr(deployment, kind).port, protocol=version) as client:
            await client.subscribe(f"aio/{version}", qos=1)
            await client.publish(f"aio/{version}", b"hello", qos=1)
            async with asyncio.timeout(LIMIT):
                async for message in client.messages:
                    assert isinstance(message.payload, bytes)
                    return message.payload
        return b""

    assert asyncio.run(talk()) == b"hello"


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto_sub is not installed")
@pytest.mark.parametrize("kind", ["gateway", "bare"])
@pytest.mark.parametrize("version", ["mqttv311", "mqttv5"])
def test_mosquitto_sub_receives_through_a_gateway(deployment: Deployment, kind: str, version: str) -> None:
    port = str(getattr(deployment, kind).port)
    where = ["-h", HOST, "-p", port, "-V", version, "-t", f"tool/{version}", "-q", "1"]
    publish = ["mosquitto_pub", *where, "-r", "-m", "kept"]
    subprocess.run(publish, check=True, timeout=LIMIT)
    subscribe = ["mosquitto_sub", *where, "-C", "1", "-i", f"tool-{version}"]
    done = subprocess.run(subscribe, check=True, timeout=LIMIT, capture_output=True)
    assert done.stdout == b"kept\n"


def test_a_will_is_published_for_a_client_that_is_lost_and_not_for_one_that_leaves(
    deployment: Deployment,
) -> None:
    watcher = MqttClient(deployment.gateway.port, "will-watcher")
    watcher.subscribe("wills/#", 1)
    leaves = MqttClient(deployment.gateway.port, "leaves", will=("wills/leaves", b"", 1, False))
    leaves.close()
    lost = MqttClient(deployment.gateway.port, "lost", will=("wills/lost", b"", 1, False))
    lost.cut()
    wait_until(lambda: bool(watcher.received), "a will")
    assert [each.topic for each in watcher.received] == ["wills/lost"]
    watcher.close()


def test_a_gateway_publishes_its_own_numbers_through_itself(deployment: Deployment) -> None:
    telling = LabGateway(
        "teller",
        settings={"telemetry": {"interval": 0.1}},
        sites=({"name": "bare", "clients": deployment.bare_address, "bare": True},),
    )
    start_all([telling.start])
    try:
        collector = MqttClient(telling.port, "collector")
        collector.subscribe("brokerweave/gateways/+")

        def last() -> dict[str, Any]:
            return json.loads(collector.received[-1].payload) if collector.received else {}

        wait_until(lambda: last().get("clients") == 2, "numbers that count the collector")
        said = last()
        assert {each.topic for each in collector.received} == {"brokerweave/gateways/teller"}
        assert (said["gateway"], said["sites"], said["moving"]) == ("teller", {"bare": 2}, 0)
        assert said["cpu_seconds"] > 0
        assert said["memory_bytes"] > 1_000_000
        collector.close()
    finally:
        telling.close()
