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
from brokerweave.runtime.haproxy import HaproxyServer
from tests.integration.conftest import Connect
from tests.support.sites import QUICK, Network, Settings, merged, network, start_all
from tests.support.waiting import LIMIT, wait_until

NAMES = ("a", "b", "c")
NOTICE = 3600.0
"""Seconds: a draining node waits until the test ends it."""


class Scene:
    def __init__(self, net: Network, health: dict[str, int], balancer: Balancer) -> None:
        self.net = net
        self.health = health
        self.balancer = balancer

    def server(self, name: str) -> HaproxyServer:
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
def scene(tmp_path: Path) -> Iterator[Scene]:
    if reason := Balancer.missing():
        pytest.skip(reason)
    health = {name: free_port() for name in NAMES}
    key = tmp_path / "key"
    key.write_text("the key of the cluster")
    members = {name: f"127.0.0.1:{free_port()}" for name in NAMES}
    special: dict[str, Settings] = {
        name: {
            "node": {"health": f"127.0.0.1:{port}"},
            "limits": {"drain_notice": NOTICE},
            "membership": {
                "bind": members[name],
                "join": list(members.values()),
                "key_file": str(key),
                "preset": "local",
            },
        }
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
    scene.net.settle(without="b")  # the link between a and c was a standby link
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
    assert direct.ended.wait(LIMIT)
    wait_until(lambda: not scene.net.node("b").running, "the end of b")


def test_a_node_that_starts_without_its_broker_is_not_ready(scene: Scene) -> None:
    node, broker = scene.net.node("a"), scene.net["a"].broker
    assert isinstance(broker, lab.Broker)
    node.stop(kill=True)
    broker.stop(kill=True)
    start_all([node.start])
    assert scene.health_of("a") == (503, "broker down")
    assert node.status()["node"]["not_ready"] == "broker down"


def watch(scene: Scene, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """`brokerweave haproxy --watch` for the scene's HAProxy."""
    command = [sys.executable, "-m", "brokerweave", "haproxy", "--listen", f"127.0.0.1:{scene.balancer.port}"]
    command += ["--out", str(scene.balancer.config_file), "--watch", "--every", "0.1", "--slow-start", "0.1"]
    command += ["--reload-pid", str(scene.balancer.pid_file), *arguments]
    with log.open("wb") as output:
        return subprocess.Popen(command, stderr=output)


def written(scene: Scene) -> list[str]:
    lines = scene.balancer.config_file.read_text().splitlines()
    return [line.split()[1] for line in lines if line.startswith("    server ")]


def test_the_file_follows_the_members_and_haproxy_follows_the_file(
    scene: Scene, connect: Connect, tmp_path: Path
) -> None:
    socket = str(scene.net.node("a").directory / "admin.sock")
    scene.balancer.config_file.unlink()
    with watch(scene, tmp_path / "log", "--socket", socket) as watching:
        try:
            wait_until(lambda: scene.balancer.config_file.exists(), "a first file")
            wait_until(lambda: written(scene) == ["a", "b", "c"], "all members in the file")
            scene.net.node("b").stop(kill=True)
            wait_until(lambda: state(scene, "b") == "dead", "b's death")
            leave(scene, "c")
            wait_until(lambda: written(scene) == ["a", "b"], "c being gone, and not b, which may come back")
            wait_until(lambda: scene.said("Reloading HAProxy") >= 1, "HAProxy taking it")
            start_all([scene.net.node("c").start])
            wait_until(lambda: written(scene) == ["a", "b", "c"], "c's return")
            scene.net.node("a").stop(kill=True)
            wait_until(lambda: "will try again" in (tmp_path / "log").read_text(), "a complaint")
            assert written(scene) == ["a", "b", "c"]
        finally:
            watching.terminate()
            watching.wait(LIMIT)
    scene.wait_for_health("c", 200, "ready")
    wait_until(lambda: connect(scene.balancer.port, "new", expect_refusal=True).code == 0, "a new client")


def state(scene: Scene, member: str) -> str:
    rows = scene.net.node("a").ask("members")["members"]
    return next((str(row["state"]) for row in rows if row["member"] == member), "unknown")


def leave(scene: Scene, name: str) -> None:
    node = scene.net.node(name)
    os.kill(node.pid, signal.SIGTERM)
    scene.wait_for_health(name, 503, "draining")
    os.kill(node.pid, signal.SIGTERM)
    wait_until(lambda: not node.running, f"the end of {name}")


def test_what_cannot_be_read_leaves_the_file_as_it_was_and_a_reload_cuts_nobody_off(
    scene: Scene, connect: Connect, tmp_path: Path
) -> None:
    clients = [connect(scene.balancer.port, f"kept-{number}") for number in range(3)]
    files = {name: tmp_path / f"{name}.toml" for name in NAMES}
    for name, file in files.items():
        file.write_text(scene.net.node(name).config_file.read_text())
    log, whole = tmp_path / "log", files["b"].read_text()
    scene.balancer.config_file.unlink()
    with watch(scene, log, *map(str, files.values())) as watching:
        try:
            wait_until(lambda: scene.balancer.config_file.exists(), "a first file")
            files["b"].write_text("[node]\n")
            wait_until(lambda: "the file stays as it was" in log.read_text(), "a complaint")
            files["b"].write_text(files["a"].read_text())
            wait_until(lambda: "is given twice" in log.read_text(), "another complaint")
            assert written(scene) == ["a", "b", "c"]
            files["b"].write_text(whole.replace(f":{scene.health['b']}", f":{scene.health['c']}"))
            wait_until(lambda: scene.said("Loading success") == 2, "HAProxy taking a second file")
            assert log.read_text().count("wrote") == 1
            for client in clients:
                client.publish("after/reload", b"here", 1)
        finally:
            watching.terminate()
            watching.wait(LIMIT)
