"""Four real nodes on loopback: who joins, dies, returns and leaves is known to all; strangers are not."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from brokerweave.lab.broker import HOST, free_port
from brokerweave.lab.node import LabNode
from tests.support.sites import start_all
from tests.support.waiting import wait_until

NAMES = "abcd"


class Cluster:
    """Nodes by name. Their brokers are not there: membership does without."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.ports = {name: free_port() for name in NAMES}
        self.nodes = {name: self.make(name) for name in NAMES}

    def make(self, name: str, key: str = "the key of the cluster", port: int = 0) -> LabNode:
        key_file = self._folder / f"{name}{port}.key"
        key_file.write_text(key)
        membership = {
            "bind": f"{HOST}:{port or self.ports[name]}",
            "join": [f"{HOST}:{self.ports['a']}"],
            "preset": "local",
            "key_file": str(key_file),
        }
        node = LabNode(name, free_port(), settings={"membership": membership})
        self._stack.callback(node.close)
        return node

    def states(self, name: str) -> dict[str, str]:
        rows = self.nodes[name].ask("members")["members"]
        return {row["member"]: row["state"] for row in rows}

    def wait(self, wanted: dict[str, str], seen_by: str = NAMES) -> None:
        wait_until(lambda: all(self.states(name) == wanted for name in seen_by), f"{wanted} at {seen_by}")

    def row(self, at: str, member: str) -> dict[str, Any]:
        rows = self.nodes[at].ask("members")["members"]
        return next(row for row in rows if row["member"] == member)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Each test leaves it as it was: all four alive."""
    with ExitStack() as stack:
        made = Cluster(tmp_path_factory.mktemp("keys"), stack)
        start_all(node.start for node in made.nodes.values())
        made.wait(all_but())
        yield made


def all_but(**states: str) -> dict[str, str]:
    return {**dict.fromkeys(NAMES, "alive"), **states}


def test_a_killed_node_is_dead_to_all_and_alive_again_when_it_returns(cluster: Cluster) -> None:
    before = cluster.row("a", "d")
    cluster.nodes["d"].stop(kill=True)
    cluster.wait(all_but(d="dead"), "abc")
    cluster.nodes["d"].start()
    cluster.wait(all_but())
    after = cluster.row("a", "d")
    assert after["boot"] != before["boot"]
    assert after["incarnation"] > before["incarnation"]
    assert after["link_address"] == f"{HOST}:{cluster.nodes['d'].link_port}"


def test_the_seed_that_was_killed_is_found_by_the_others(cluster: Cluster) -> None:
    """Its own `join` names only itself."""
    cluster.nodes["a"].stop(kill=True)
    cluster.wait(all_but(a="dead"), "bcd")
    cluster.nodes["a"].start()
    cluster.wait(all_but())


def test_a_node_that_is_stopped_has_left_and_comes_back(cluster: Cluster) -> None:
    cluster.nodes["c"].stop()
    cluster.wait(all_but(c="left"), "abd")
    cluster.nodes["c"].start()
    cluster.wait(all_but())


def test_round_trips_are_shown_and_status_counts_members(cluster: Cluster) -> None:
    wait_until(lambda: (cluster.row("a", "b")["round_trip_ms"] or 0) > 0, "a probe that was answered")
    status = cluster.nodes["a"].status()
    assert (status["membership"]["alive"], len(status["members"])) == (4, 4)
    assert status["members"][0]["self"]


def test_unauthenticated_peers_and_garbage_change_nothing_and_are_counted(cluster: Cluster) -> None:
    target = (HOST, cluster.ports["a"])
    random = Random(1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for size in [0, 1, 40, 42, 100, 1400, 1500, 8000]:
            sender.sendto(random.randbytes(size), target)
        for _ in range(20):
            sender.sendto(b"\x01\x01" + random.randbytes(60), target)
    with socket.create_connection(target) as caller:
        caller.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert caller.recv(100)[:3] == b"BWX"
    stranger = cluster.make("s", key="another key altogether", port=free_port())
    stranger.start()
    counted(cluster, lambda counters: counters["membership_unauthentic"] > 20)
    counted(cluster, lambda counters: counters["membership_failed_exchanges"] > 1)
    counted(cluster, lambda counters: counters["membership_too_long"] == 2)
    wait_until(
        lambda: stranger.status()["counters"]["membership_failed_exchanges"] > 1, "the stranger is refused"
    )
    assert [row["member"] for row in stranger.ask("members")["members"]] == ["s"]
    assert all(cluster.states(name) == all_but() for name in NAMES)


def counted(cluster: Cluster, condition: Callable[[dict[str, Any]], bool]) -> None:
    wait_until(lambda: condition(cluster.nodes["a"].status()["counters"]), "the strangers are counted")
