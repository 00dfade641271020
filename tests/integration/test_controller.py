"""A real controller with real nodes: they answer its gateway's pings, and membership tells it of them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from brokerweave.errors import ConfigError
from brokerweave.lab.broker import HOST, free_port
from brokerweave.lab.controller import LabController
from brokerweave.lab.node import LabNode
from brokerweave.placement import table_one
from tests.support.fake_gateway import FakeGateway
from tests.support.sites import start_all
from tests.support.waiting import LIMIT, wait_until

KEY = b"the key of the cluster"
POLICY = "brokerweave.placement.steady:SteadyPolicy"
"""Spelled out: an entry point is known only where it was installed."""


class Deployment:
    """Two mesh nodes, whose brokers are not there, two controllers and a gateway."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.key = key = folder / "key"
        key.write_bytes(KEY)
        seed = f"{HOST}:{free_port()}"
        membership: dict[str, object] = {"join": [seed], "preset": "local", "key_file": str(key)}
        self.nodes: dict[str, LabNode] = {}
        for name, bind in (("a", seed), ("b", f"{HOST}:{free_port()}")):
            settings: dict[str, dict[str, object]] = {
                "membership": {"bind": bind, **membership},
                "monitoring": {"listen": f"{HOST}:{free_port()}"},
            }
            self.nodes[name] = LabNode(name, free_port(), strategy="mesh", settings=settings)
            stack.callback(self.nodes[name].close)
        self.controllers: dict[str, LabController] = {}
        for name in ("c1", "c2"):
            settings = {
                "controller": {"key_file": str(key), "round": 0.5},
                "policy": {"name": POLICY},
                "membership": membership,
            }
            self.controllers[name] = LabController(name, settings=settings)
            stack.callback(self.controllers[name].close)
        start_all([each.start for each in [*self.nodes.values(), *self.controllers.values()]])
        self.gateway = FakeGateway("g", KEY, [(HOST, each.port) for each in self.controllers.values()])
        stack.callback(self.gateway.close)

    def sites(self, controller: str = "c1") -> dict[str, dict[str, Any]]:
        return {row["site"]: row for row in self.controllers[controller].ask("sites")["sites"]}

    def clients(self, controller: str = "c1") -> dict[str, str]:
        found: dict[str, str] = {}
        for row in self.controllers[controller].ask("gateways")["gateways"]:
            found |= row["clients"]
        return found

    def settle(self) -> None:
        """Both sites are open and measured, and the gateway follows the first controller."""

        def settled() -> bool:
            open_sites = {name for name, row in self.sites().items() if row["state"] == "open"}
            measured = self.gateway.estimates().keys() == {"a", "b"}
            return open_sites == {"a", "b"} and measured and self.gateway.follows() == "c1"

        wait_until(settled, "both sites, measured")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """Each test leaves both sites open, and all controllers and nodes running."""
    with ExitStack() as stack:
        made = Deployment(tmp_path_factory.mktemp("keys"), stack)
        made.settle()
        yield made
        for each in [*made.nodes.values(), *made.controllers.values()]:
            assert "Traceback" not in each.log_tail(10_000)


def command(deployment: Deployment, *words: str, controller: str = "c1") -> subprocess.CompletedProcess[str]:
    api = str(deployment.controllers[controller].api)
    line = [sys.executable, "-m", "brokerweave", "controller", *words, "--api", api]
    return subprocess.run(line, capture_output=True, text=True, timeout=LIMIT)


def test_sites_are_found_through_membership_and_nodes_do_not_link_with_controllers(
    deployment: Deployment,
) -> None:
    for name, row in deployment.sites().items():
        node = deployment.nodes[name]
        assert row["address"] == f"{HOST}:{node.port}"
        assert row["monitor"] == node.status()["monitoring"]["listen"]
        assert {link["neighbour"] for link in node.status()["links"]} == {"a", "b"} - {name}
        states = {member["member"]: member["state"] for member in node.ask("members")["members"]}
        assert states == dict.fromkeys(["a", "b", "c1", "c2"], "alive")


def test_what_the_gateway_measures_is_known_to_both_controllers(deployment: Deployment) -> None:
    for controller in deployment.controllers.values():

        def rows(controller: LabController = controller) -> list[dict[str, Any]]:
            return list(controller.ask("gateways")["gateways"])

        wait_until(lambda: {edge["pings"] for row in rows() for edge in row["edges"].values()} == {10})
        (row,) = rows()
        assert (row["gateway"], row["follows"]) == ("g", "c1")
        assert all(0 < edge["mean_ms"] < 1000 * LIMIT for edge in row["edges"].values())


def test_a_site_is_drained_by_command_and_then_may_be_stopped(deployment: Deployment) -> None:
    names = [f"drained{number}" for number in range(6)]
    for name in names:
        deployment.gateway.connect(name)
    wait_until(lambda: set(names) <= deployment.clients().keys())
    site = deployment.clients()[names[0]]
    (other,) = {"a", "b"} - {site}
    plan = deployment.controllers["c1"].ask("plan")["moves"]
    done = command(deployment, "drain", site, "--pace", "50")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"{site} has no clients: it may be stopped"
    assert {deployment.gateway.where(name) for name in names} == {other}
    assert deployment.gateway.connect("new") == other
    moves = json.loads(command(deployment, "moves", "--json").stdout)["moves"]
    assert {move["cause"] for move in moves if move["client"] in names} >= {"draining"}
    assert all(move["outcome"] == "done" for move in moves if move["client"] in names)
    assert command(deployment, "resume", site).stdout == f"{site} takes clients\n"
    assert all(move["cause"] == "policy" for move in plan)


def test_a_client_is_moved_and_pinned_by_command(deployment: Deployment) -> None:
    site = deployment.gateway.connect("one")
    (other,) = {"a", "b"} - {site}
    wait_until(lambda: "one" in deployment.clients())
    assert command(deployment, "move", "one", other).returncode == 0
    wait_until(lambda: deployment.gateway.where("one") == other)
    assert command(deployment, "pin", "one", site).returncode == 0
    wait_until(lambda: deployment.gateway.where("one") == site)
    failed = command(deployment, "move", "nobody", "a")
    assert (failed.returncode, failed.stderr) == (2, "brokerweave: no gateway has a client 'nobody'\n")


def test_clients_of_a_node_that_is_killed_move_as_soon_as_membership_knows(
    deployment: Deployment,
) -> None:
    deployment.gateway.connect("survivor")
    deployment.controllers["c1"].ask("pin", client="survivor", site="b")
    wait_until(lambda: deployment.gateway.where("survivor") == "b")
    deployment.nodes["b"].stop(kill=True)
    wait_until(lambda: deployment.gateway.where("survivor") == "a", "the move away")
    wait_until(lambda: deployment.clients().get("survivor") == "a")
    moves = deployment.controllers["c1"].ask("moves")["moves"]
    assert next(move["cause"] for move in moves if move["client"] == "survivor") == "site gone"
    deployment.nodes["b"].start()
    wait_until(lambda: deployment.gateway.where("survivor") == "b", "the return to where it is pinned")
    deployment.settle()


def test_a_controller_that_is_killed_is_followed_by_the_next_and_knows_all_when_it_is_back(
    deployment: Deployment,
) -> None:
    """What was asked of it is kept on disk; who is where, it hears again."""
    deployment.gateway.connect("kept")
    first = deployment.controllers["c1"]
    first.ask("pin", client="kept", site="a")
    wait_until(lambda: deployment.clients("c2").get("kept") == "a")
    before = deployment.clients("c2")
    first.stop(kill=True)
    wait_until(lambda: deployment.gateway.follows() == "c2", "the second controller is followed")
    assert deployment.clients("c2") == before, "nobody moved"
    first.start()
    assert first.ask("sites")["pins"]["kept"] == "a"
    wait_until(lambda: deployment.clients().items() >= before.items(), "the first controller knows all again")
    deployment.settle()
    with pytest.raises(ConfigError, match="kept is moved by controller c1: ask there"):
        deployment.controllers["c2"].ask("move", client="kept", site="b")


def test_strangers_and_garbage_change_nothing_and_are_counted(deployment: Deployment) -> None:
    controller, random = deployment.controllers["c1"], Random(1)
    before, clients = controller.ask("status")["refused"], deployment.clients()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for size in (0, 5, 47, 60, 1500):
            stranger.sendto(random.randbytes(size), (HOST, controller.port))
        forged = table_one.Reconnected(0, "evil", (HOST, 1883))
        stranger.sendto(table_one.encode(forged), (HOST, controller.port))

    def counted() -> int:
        after = controller.ask("status")["refused"]
        return sum(after[cause] - before[cause] for cause in after if cause != "misdirected")

    wait_until(lambda: counted() == 6)
    stranger_gateway = FakeGateway("s", b"another key altogether", [(HOST, controller.port)])
    wait_until(lambda: counted() > 6)
    stranger_gateway.close()
    assert deployment.clients() == clients
    assert controller.ask("status")["gateways"] == 1


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("GET", "/", {}, None, 404),
        ("GET", "/drain", {}, None, 405),
        ("POST", "/status", {}, "{}", 405),
        ("POST", "/drain", {"Content-Type": "text/plain"}, '{"site": "a"}', 415),
        ("POST", "/drain", {"Content-Type": "application/json"}, "[", 400),
        ("POST", "/drain", {"Content-Type": "application/json"}, '{"site": 5}', 400),
        ("POST", "/drain", {"Content-Type": "application/json"}, '{"site": "a", "per_second": -1}', 400),
        ("POST", "/drain", {"Content-Type": "application/json", "Content-Length": "999999"}, "", 413),
        ("GET", "/moves?count=x", {}, None, 400),
    ],
)
def test_requests_that_make_no_sense_are_refused_with_a_reason(
    deployment: Deployment, method: str, path: str, headers: dict[str, str], body: str | None, status: int
) -> None:
    connection = http.client.HTTPConnection(*deployment.controllers["c1"].api, timeout=LIMIT)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    assert (response.status, list(json.loads(response.read()))) == (status, ["error"])
    connection.close()
    assert {row["state"] for row in deployment.sites().values()} == {"open"}


def test_a_controller_ends_cleanly_with_sigterm_and_leaves_membership(deployment: Deployment) -> None:
    line = [sys.executable, "-m", "brokerweave", "controller", "--id", "c3", "--policy", POLICY]
    bind = f"{HOST}:{free_port()}"
    line += ["--listen", f"{HOST}:{free_port()}", "--api", f"{HOST}:{free_port()}", "--membership", bind]
    line += [
        "--join",
        deployment.nodes["a"].status()["membership"]["address"],
        "--membership-preset",
        "local",
    ]
    line += ["--key-file", str(deployment.key)]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)

    def state() -> str:
        rows = deployment.nodes["a"].ask("members")["members"]
        return str(next((row["state"] for row in rows if row["member"] == "c3"), "unknown"))

    wait_until(lambda: state() == "alive")
    os.kill(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=LIMIT)
    assert (process.returncode, errors) == (0, "")
    assert state() == "left"


def test_without_a_seal_the_controller_speaks_emmas_six_packets() -> None:
    ports = {name: free_port() for name in "ab"}
    sites = tuple({"name": name, "clients": f"{HOST}:{port}"} for name, port in ports.items())
    controller = LabController(
        "c1",
        settings={
            "controller": {"sealed": False},
            "policy": {"name": "brokerweave.placement.emma:EmmaPolicy"},
        },
        sites=sites,
    )
    try:
        controller.start()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gateway:
            gateway.settimeout(LIMIT)
            at = _placed(gateway, controller.port, table_one.NOWHERE)
            assert at in [(HOST, port) for port in ports.values()]
            registered = table_one.Reconnected(0, "g", at)
            gateway.sendto(table_one.encode(registered), (HOST, controller.port))
            wait_until(lambda: controller.ask("status")["clients"] == 1)
            name = next(name for name, port in ports.items() if port == at[1])
            controller.ask("evacuate", site=name)
            moved = _reconnect(gateway)
            assert moved.site != at
            answer = table_one.Reconnected(moved.number, "g", moved.site)
            gateway.sendto(table_one.encode(answer), (HOST, controller.port))
            wait_until(lambda: controller.ask("moves")["moves"][0]["outcome"] == "done")
    finally:
        controller.close()


def _placed(gateway: socket.socket, port: int, at: tuple[str, int]) -> tuple[str, int]:
    gateway.sendto(table_one.encode(table_one.Reconnected(0, "g", at)), (HOST, port))
    return _reconnect(gateway).site


def _reconnect(gateway: socket.socket) -> table_one.Reconnect:
    while True:
        packet = table_one.decode(gateway.recv(100))
        if isinstance(packet, table_one.Reconnect):
            return packet
