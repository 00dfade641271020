"""A gateway before sites that know nothing of moves, sites that die, and with a controller."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from brokerweave import lab
from brokerweave.errors import BrokerweaveError
from brokerweave.lab.broker import HOST, free_port
from brokerweave.lab.controller import LabController
from brokerweave.lab.gateway import LabGateway
from tests.integration.test_moves import arrived, mesh, publishing, until
from tests.support.clients import MqttClient
from tests.support.mover import Mover
from tests.support.sites import start_all, start_broker
from tests.support.verdicts import all_arrived, keeps, once_each
from tests.support.waiting import LIMIT, wait_until

MOVES = 6
POLICY = "brokerweave.placement.steady:SteadyPolicy"
"""Spelled out: an entry point is known only where it was installed."""


class Bare:
    """Two brokers that know nothing of each other, and a gateway."""

    def __init__(self, stack: ExitStack) -> None:
        self.brokers: dict[str, lab.Broker] = {}
        for name in "xy":
            self.brokers[name] = start_broker("mosquitto")
            stack.callback(self.brokers[name].close)
        self.health = free_port()
        self.gateway = LabGateway(
            "bare",
            settings={"gateway": {"health": f"{HOST}:{self.health}"}},
            sites=tuple(
                {"name": name, "clients": f"{HOST}:{each.port}"} for name, each in self.brokers.items()
            ),
        )
        stack.callback(self.gateway.close)
        start_all([self.gateway.start])

    def site(self, client: str) -> str:
        return str(self.gateway.ask("where", client=client)["site"])

    def other(self, client: str) -> str:
        return "y" if self.site(client) == "x" else "x"


@pytest.fixture
def bare() -> Iterator[Bare]:
    with ExitStack() as stack:
        made = Bare(stack)
        yield made
        assert "Traceback" not in made.gateway.log_tail(1000)


def more_than(items: list[bytes], count: int) -> bool:
    return len(items) > count


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("persistent", [False, True])
def test_between_bare_brokers_a_publisher_loses_nothing(bare: Bare, version: int, persistent: bool) -> None:
    async def talk() -> None:
        mover = Mover("mover", version, persistent)
        watchers = {name: Mover(f"watch-{name}", version) for name in bare.brokers}
        for name, each in watchers.items():
            await each.connect(bare.brokers[name].port, {"up": 2})
        await mover.connect(bare.gateway.port, {"down": 1})
        sent: list[bytes] = []
        visited: list[bytes] = []
        load = asyncio.create_task(publishing(mover, "up", 2, sent))
        for _ in range(MOVES):
            count = len(sent) + 5
            await until(partial(more_than, sent, count))
            there = bare.other("mover")
            assert (
                await asyncio.wait_for(asyncio.to_thread(bare.gateway.move, "mover", there), LIMIT) == "done"
            )
            visited.append(there.encode())
            watchers[there].publish("down", visited[-1], 1)
            await until(arrived(mover, "down", len(visited)))
        load.cancel()
        await asyncio.gather(load, return_exceptions=True)
        await until(lambda: not mover.pending)

        def received() -> list[bytes]:
            return [payload for each in watchers.values() for payload in each.payloads("up")]

        await until(lambda: set(received()) >= set(sent))
        all_arrived(received(), sent, f"who watched, MQTT {version}")
        once_each(mover.payloads("down"), visited, "the subscriber")
        for client in (mover, *watchers.values()):
            client.close()

    asyncio.run(talk())


@pytest.mark.parametrize("version", [4, 5])
def test_a_move_brings_no_retained_message_again(bare: Bare, version: int) -> None:
    for broker in bare.brokers.values():
        with_retained = MqttClient(broker.port)
        with_retained.publish("kept/1", b"kept", 1, retain=True)
        with_retained.close()
    client = MqttClient(bare.gateway.port, "sub", version=version)
    client.subscribe("kept/#", 1)
    wait_until(lambda: len(client.received) == 1, "the retained message")
    there = bare.other("sub")
    assert bare.gateway.move("sub", there) == "done"
    at_new = MqttClient(bare.brokers[there].port)
    at_new.publish("kept/2", b"live", 1)
    wait_until(lambda: len(client.received) >= 2, "the live message")
    assert client.payloads() == [b"kept", b"live"]
    client.subscribe("kept/1", 1)
    wait_until(lambda: len(client.received) == 3, "what the client itself asks for")
    for each in (client, at_new):
        each.close()


def test_a_persistent_session_leaves_nothing_behind_at_a_bare_broker(bare: Bare) -> None:
    client = MqttClient(bare.gateway.port, "stays", clean=False)
    client.subscribe("q", 1)
    first, second = bare.site("stays"), bare.other("stays")
    assert bare.gateway.move("stays", second) == "done"

    def cleared() -> bool:
        again = MqttClient(bare.brokers[first].port, "stays", clean=False)
        again.close()
        return not again.session_present

    wait_until(cleared, "the session at the old site to end")
    client.close()


def test_when_a_bare_broker_dies_its_clients_go_on_at_the_next(bare: Bare) -> None:
    client = MqttClient(bare.gateway.port, "survivor")
    client.subscribe("s", 1)
    first, second = bare.site("survivor"), bare.other("survivor")
    bare.brokers[first].stop(kill=True)
    wait_until(lambda: bare.site("survivor") == second, "the other site")
    client.publish("s", b"alive", 1)
    client.wait_for_payload(b"alive")
    assert not client.ended.is_set()
    assert bare.gateway.status()["counters"]["sites_lost"] == 1
    client.close()


def test_a_client_whose_id_is_taken_over_is_not_taken_to_another_site(bare: Bare) -> None:
    client = MqttClient(bare.gateway.port, "twice")
    site = bare.site("twice")
    again = MqttClient(bare.brokers[site].port, "twice")
    assert client.ended.wait(LIMIT)
    assert not again.ended.is_set()
    again.close()


def test_a_gateway_without_a_site_refuses_and_one_that_stops_says_so(bare: Bare) -> None:
    with urllib.request.urlopen(f"http://{HOST}:{bare.health}/", timeout=LIMIT) as answer:
        assert answer.read() == b"ready\n"
    client = MqttClient(bare.gateway.port, "told", version=5)
    with pytest.raises(BrokerweaveError, match="no site 'nowhere'; known are x, y"):
        bare.gateway.move("told", "nowhere")
    with pytest.raises(BrokerweaveError, match="'nobody' is not connected here"):
        bare.gateway.move("nobody", "x")
    bare.gateway.stop()
    assert client.ended.wait(LIMIT)
    bare.gateway.start()
    for each in bare.brokers.values():
        each.stop(kill=True)
    refused = MqttClient(bare.gateway.port, "late", version=5, expect_refusal=True)
    assert refused.code == 0x88


def test_the_command_moves_a_client_and_shows_where_it_is(bare: Bare) -> None:
    client = MqttClient(bare.gateway.port, "shown")
    there = bare.other("shown")

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "brokerweave", "gateway", *words, "--socket", str(bare.gateway.socket)]
        return subprocess.run(line, capture_output=True, text=True, timeout=LIMIT, check=False)

    assert command("move", "shown", there).stdout == f"shown is at {there}\n"
    assert json.loads(command("clients", "--json").stdout)["clients"][0]["site"] == there
    assert there in command("status").stdout
    failed = command("move", "nobody", there)
    assert (failed.returncode, failed.stderr) == (1, "brokerweave: client 'nobody' is not connected here\n")
    client.close()


@pytest.mark.parametrize(("version", "qos"), [(4, 1), (5, 2)])
def test_when_a_mesh_site_dies_nothing_acknowledged_is_lost(tmp_path: Path, version: int, qos: int) -> None:
    with mesh(tmp_path) as net, ExitStack() as stack:
        sites = tuple({"name": name, "clients": f"{HOST}:{net.port(name)}"} for name in "ab")
        gateway = LabGateway("g", settings={"gateway": {"key_file": str(tmp_path / "key")}}, sites=sites)
        stack.callback(gateway.close)
        start_all([gateway.start])

        async def talk() -> None:
            mover, publisher = Mover("mover", version), Mover("publisher", version)
            watcher = Mover("watcher", version)
            await publisher.connect(net.port("c"))
            await watcher.connect(net.port("c"), {"up": qos})
            await mover.connect(gateway.port, {"down": qos})
            site = gateway.ask("where", client="mover")["site"]
            down: list[bytes] = []
            up: list[bytes] = []
            load = [
                asyncio.create_task(publishing(publisher, "down", qos, down)),
                asyncio.create_task(publishing(mover, "up", qos, up)),
            ]
            await until(arrived(mover, "down", 50))
            broker = net.sites[site].broker
            assert isinstance(broker, lab.Broker)
            await asyncio.to_thread(broker.stop, kill=True)
            await asyncio.to_thread(net.node(site).stop, kill=True)
            count = len(mover.payloads("down"))
            await until(arrived(mover, "down", count + 50))
            for task in load:
                task.cancel()
            await asyncio.gather(*load, return_exceptions=True)
            await until(lambda: not mover.pending + publisher.pending)
            await until(lambda: set(mover.payloads("down")) >= set(down))
            await until(lambda: set(watcher.payloads("up")) >= set(up))
            keeps({each.connection for each in mover.received} == {1}, "the client's connection ended")
            twice = len(mover.payloads("down")) - len(down), len(watcher.payloads("up")) - len(up)
            print(f"site {site} died: 0 lost; twice, of what was in flight: {twice}")
            for client in (mover, publisher, watcher):
                client.close()

        asyncio.run(talk())
        assert "Traceback" not in gateway.log_tail(1000)


def test_a_controller_moves_a_client_and_drains_a_site(tmp_path: Path) -> None:
    with mesh(tmp_path) as net, ExitStack() as stack:
        key = str(tmp_path / "key")
        sites = tuple({"name": name, "clients": f"{HOST}:{net.port(name)}"} for name in "ab")
        controller = LabController(
            "c1",
            settings={"controller": {"key_file": key, "round": 0.5}, "policy": {"name": POLICY}},
            sites=sites,
        )
        own = {"key_file": key, "controller": [f"{HOST}:{controller.port}"], "monitor": f"{HOST}:0"}
        gateway = LabGateway("g", settings={"gateway": own})
        for each in (controller, gateway):
            stack.callback(each.close)
            start_all([each.start])
        wait_until(lambda: len(gateway.status()["sites"]) == 2, "the controller's sites")
        client = MqttClient(gateway.port, "led")
        client.subscribe("led", 1)

        def site() -> str:
            return str(gateway.ask("where", client="led")["site"])

        def known() -> dict[str, str]:
            return {c: s for row in controller.ask("gateways")["gateways"] for c, s in row["clients"].items()}

        def is_at(there: str) -> bool:
            return known() == {"led": there} and site() == there

        wait_until(lambda: known() == {"led": site()}, "the controller to know the client")
        for _ in range(2):
            there = "b" if site() == "a" else "a"
            controller.ask("move", client="led", site=there)
            wait_until(partial(is_at, there), "the move")
        here = site()
        controller.ask("drain", site=here)
        wait_until(lambda: site() != here, "the site to be empty")
        client.publish("led", b"still here", 1)
        client.wait_for_payload(b"still here")
        wait_until(lambda: controller.ask("moves")["moves"][0]["outcome"] == "done", "the outcome")
        assert not client.ended.is_set()
        client.close()
