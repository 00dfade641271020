"""Three nodes behind a real HAProxy: who gets clients, who loses them, and how the file follows the nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerweave import lab
from brokerweave.lab.balancer import Balancer, served
from brokerweave.lab.broker import free_port
from brokerweave.runtime.haproxy import Server
from tests.integration.conftest import Connect
from tests.support.sites import QUICK, Network, Settings, merged, network, start_all
from tests.support.waiting import wait_until

NAMES = ("a", "b", "c")
NOTICE = 3600.0
"""Seconds: a draining node waits until the test ends it."""


class Scene:
    def __init__(self, net: Network, health: dict[str, int], balancer: Balancer) -> None:
        self.net = net
        self.health = health
        self.balancer = balancer

    def server(self, name: str) -> Server:
        return served(name, self.net.port(name), self.health[name])

    def health_of(self, name: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.health[name]}/", timeout=5) as answer:
                return answer.status, answer.read().decode().strip()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode().strip()
        except OSError as error:
            return 0, str(error)

    def wait_for_health(self, name: str, status: int, text: str) -> None:
        wait_until(lambda: self.health_of(name) == (status, text), f"{name} being {text}")

    def open(self, name: str) -> int:
        return int(self.net.node(name).status()["sessions"]["open"])

    def said(self, words: str) -> int:
        return self.balancer.log_tail(10_000).count(words)


@pytest.fixture
def scene() -> Iterator[Scene]:
    if reason := Balancer.missing():
        pytest.skip(reason)
    health = {name: free_port() for name in NAMES}
    special: dict[str, Settings] = {
        name: {"node": {"health": f"127.0.0.1:{port}"}, "limits": {"drain_notice": NOTICE}}
        for name, port in health.items()
    }
    settings = merged(QUICK, {"links": {"cycles": "stand-by"}})
    edges = [("a", "b"), ("b", "c"), ("a", "c")]
    with network(edges, settings=settings, special=special) as net:
        balancer = Balancer([served(name, net.port(name), health[name]) for name in NAMES], slow_start=0.1)
        try:
            start_all([balancer.start])
            made = Scene(net, health, balancer)
            for name in NAMES:
                made.wait_for_health(name, 200, "ready")
            yield made
        finally:
            balancer.close()
            for name in NAMES:  # some drain for an hour
                net.node(name).stop(kill=True)


def test_clients_are_spread_over_all_nodes(scene: Scene, connect: Connect) -> None:
    for number in range(9):
        connect(scene.balancer.port, f"spread-{number}")
    assert [scene.open(name) for name in NAMES] == [3, 3, 3]


def test_clients_of_a_killed_node_are_cut_and_taken_in_by_the_others(scene: Scene, connect: Connect) -> None:
    clients = [connect(scene.balancer.port, f"kill-{number}") for number in range(6)]
    scene.net.node("b").stop(kill=True)
    wait_until(lambda: sum(client.ended.is_set() for client in clients) == 2, "the end of b's two clients")
    back = [connect(scene.balancer.port, f"back-{number}") for number in range(2)]
    assert scene.open("a") + scene.open("c") == 6
    got = connect(scene.balancer.port, "witness")
    got.subscribe("after/#", 1)
    for client in back:
        client.publish("after/kill", b"here", 1)
    got.wait_for(lambda received: len(received) == 2)
    assert not any(client.ended.is_set() for client in back)


def test_a_frozen_node_loses_its_clients_though_it_closes_nothing(scene: Scene, connect: Connect) -> None:
    clients = [connect(scene.balancer.port, f"frozen-{number}") for number in range(6)]
    scene.net.node("c").pause()
    try:
        wait_until(lambda: sum(client.ended.is_set() for client in clients) == 2, "the end of c's clients")
    finally:
        scene.net.node("c").resume()


def test_a_node_whose_broker_is_dead_gets_no_clients_until_it_is_back(scene: Scene, connect: Connect) -> None:
    broker = scene.net["a"].broker
    assert isinstance(broker, lab.Broker)
    broker.stop(kill=True)
    scene.wait_for_health("a", 503, "broker down")
    wait_until(lambda: scene.said("nodes/a is DOWN") == 1, "HAProxy noticing it")
    for number in range(4):
        connect(scene.balancer.port, f"dead-{number}")
    assert (scene.open("a"), scene.open("b"), scene.open("c")) == (0, 2, 2)
    start_all([broker.start])
    scene.wait_for_health("a", 200, "ready")
    wait_until(lambda: scene.said("nodes/a is UP") == 1, "HAProxy noticing its return")
    connect(scene.balancer.port, "returned")
    assert scene.open("a") == 1


def test_a_draining_node_serves_on_but_its_clients_are_led_away(scene: Scene, connect: Connect) -> None:
    behind = [connect(scene.balancer.port, f"drain-{number}") for number in range(3)]
    direct = connect(scene.net.port("b"), "direct")
    os.kill(scene.net.node("b").pid, signal.SIGTERM)
    scene.wait_for_health("b", 503, "draining")
    wait_until(lambda: sum(client.ended.is_set() for client in behind) == 1, "the end of b's client")
    for number in range(4):
        connect(scene.balancer.port, f"later-{number}")
    assert (scene.open("a"), scene.open("b"), scene.open("c")) == (3, 1, 3)
    direct.publish("still/served", b"yes", 1)
    os.kill(scene.net.node("b").pid, signal.SIGTERM)  # enough of waiting
    assert direct.ended.wait(20)
    wait_until(lambda: not scene.net.node("b").running, "the end of b")


def test_a_node_that_starts_without_its_broker_is_not_ready(scene: Scene) -> None:
    node, broker = scene.net.node("a"), scene.net["a"].broker
    assert isinstance(broker, lab.Broker)
    node.stop(kill=True)
    broker.stop(kill=True)
    start_all([node.start])
    assert scene.health_of("a") == (503, "broker down")
    assert node.status()["node"]["not_ready"] == "broker down"


def test_the_file_is_written_and_taken_anew_when_the_nodes_change(
    scene: Scene, connect: Connect, tmp_path: Path
) -> None:
    """HAProxy's file follows NODE.toml files, of which one is changed, as it follows members."""
    kept = connect(scene.balancer.port, "kept")
    files = []
    for name in NAMES:
        files.append(tmp_path / f"{name}.toml")
        files[-1].write_text(scene.net.node(name).config_file.read_text())
    command = [sys.executable, "-m", "brokerweave", "haproxy", "--listen", f"127.0.0.1:{scene.balancer.port}"]
    command += ["--out", str(scene.balancer.config_file), "--watch", "--every", "0.1"]
    command += ["--reload-pid", str(scene.balancer.pid_file), *map(str, files)]
    log = tmp_path / "log"
    with log.open("wb") as output, subprocess.Popen(command, stderr=output) as watching:
        try:
            wait_until(lambda: "slowstart 5000ms" in scene.balancer.config_file.read_text(), "a first file")
            files[1].write_text("[node]\n")
            wait_until(lambda: "the file stays as it was" in log.read_text(), "a complaint")
            assert scene.balancer.config_file.read_text().count("    server ") == 3
            files[1].write_text(files[0].read_text())
            wait_until(lambda: "is given twice" in log.read_text(), "another complaint")
            text = scene.net.node("b").config_file.read_text()
            files[1].write_text(text.replace(f":{scene.health['b']}", f":{scene.health['c']}"))
            wait_until(lambda: log.read_text().count("wrote") == 1, "a second file")
        finally:
            watching.terminate()
            watching.wait(20)
    wait_until(lambda: scene.said("Reloading HAProxy") == 1, "HAProxy taking it")
    assert not kept.ended.is_set()
    connect(scene.balancer.port, "new")
