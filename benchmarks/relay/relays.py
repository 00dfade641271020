"""The relays under test as child processes on loopback: HAProxy, and a node.

Owns their configuration; how processes are kept is the lab's affair. HAProxy is as plain as it gets: TCP
mode, one thread, no checks.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from brokerweave.lab.broker import HOST, Broker, find_program, first_line, free_port


class HAProxy(Broker):
    """HAProxy in TCP mode with one thread, in front of the broker at `broker_port`."""

    name = "haproxy"

    def __init__(self, broker_port: int) -> None:
        super().__init__()
        self._broker_port = broker_port

    @classmethod
    def missing(cls) -> str | None:
        return None if find_program("haproxy") else "haproxy is not installed (scripts/install-debian)"

    @property
    def version(self) -> str:
        return first_line(find_program("haproxy") or "haproxy", "-v").removeprefix("HAProxy version ")

    def command(self) -> list[str]:
        path = self.directory / "haproxy.cfg"
        path.write_text(f"""\
global
    nbthread 1
    maxconn 9900
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
frontend clients
    bind {HOST}:{self.port}
    default_backend broker
backend broker
    server broker {HOST}:{self._broker_port}
""")
        return [find_program("haproxy") or "haproxy", "-db", "-f", str(path)]


class Node(Broker):
    """A brokerweave node in front of the broker at `broker_port`; `neighbours` maps ids to link ports."""

    name = "node"

    def __init__(self, node_id: str, broker_port: int) -> None:
        super().__init__()
        self.node_id = f"{node_id}-{self.port}"  # a running node's id is its own on the whole machine
        self.link_port = free_port()
        self.neighbours: dict[str, int] = {}
        self.taps: tuple[str, ...] = ()
        self._broker_port = broker_port

    @classmethod
    def missing(cls) -> str | None:
        return None if _brokerweave() else "the brokerweave command is not installed beside this Python"

    @property
    def version(self) -> str:
        return first_line(*(_brokerweave() or ["brokerweave"]), "--version")

    def command(self) -> list[str]:
        command = [*(_brokerweave() or ["brokerweave"]), "node", "--id", self.node_id, "--strategy", "sf"]
        command += ["--listen", f"{HOST}:{self.port}", "--broker", f"{HOST}:{self._broker_port}"]
        command += ["--link-listen", f"{HOST}:{self.link_port}", "--data-dir", str(self.directory / "data")]
        for neighbour, port in self.neighbours.items():
            command += ["--neighbour", f"{neighbour}={HOST}:{port}"]
        for tap in self.taps:
            command += ["--tap", tap]
        return command


def _brokerweave() -> list[str] | None:
    """The command that belongs to this interpreter, installed or from the source tree."""
    beside = Path(sys.executable).with_name("brokerweave")
    if beside.exists():
        return [str(beside)]
    return [sys.executable, "-m", "brokerweave"] if find_spec("brokerweave.__main__") else None
