"""The relays under test as child processes on loopback, as they are installed: a node, and a gateway.

Owns its command line; how processes are kept is the lab's affair.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from brokerweave.config import Address, BrokerAddress
from brokerweave.lab.broker import HOST, Broker, first_line, free_port


class Node(Broker):
    """A brokerweave node in front of `broker`; `neighbours` maps ids to link ports."""

    name = "node"

    def __init__(self, node_id: str, broker: BrokerAddress) -> None:
        super().__init__()
        self.node_id = f"{node_id}-{self.port}"  # a running node's id is its own on the whole machine
        self.link_port = free_port()
        self.neighbours: dict[str, int] = {}
        self.taps: tuple[str, ...] = ()
        self._broker = broker

    @classmethod
    def missing(cls) -> str | None:
        return None if _brokerweave() else "the brokerweave command is not installed beside this Python"

    @property
    def version(self) -> str:
        return first_line(*(_brokerweave() or ["brokerweave"]), "--version")

    def command(self) -> list[str]:
        command = [*(_brokerweave() or ["brokerweave"]), "node", "--id", self.node_id, "--strategy", "sf"]
        command += ["--listen", f"{HOST}:{self.port}", "--broker", str(self._broker)]
        command += ["--link-listen", f"{HOST}:{self.link_port}", "--data-dir", str(self.directory / "data")]
        for neighbour, port in self.neighbours.items():
            command += ["--neighbour", f"{neighbour}={HOST}:{port}"]
        for tap in self.taps:
            command += ["--tap", tap]
        return command


class Gateway(Broker):
    """A brokerweave gateway whose only site is a bare broker."""

    name = "gateway"

    def __init__(self, broker: Address) -> None:
        super().__init__()
        self._broker = broker

    @classmethod
    def missing(cls) -> str | None:
        return Node.missing()

    @property
    def version(self) -> str:
        return first_line(*(_brokerweave() or ["brokerweave"]), "--version")

    def command(self) -> list[str]:
        command = [*(_brokerweave() or ["brokerweave"]), "gateway", "--id", f"bench-{self.port}"]
        command += ["--admin-socket", str(self.directory / "admin.sock")]
        return [*command, "--listen", f"{HOST}:{self.port}", "--site", f"only={self._broker}"]


def _brokerweave() -> list[str] | None:
    """The command that belongs to this interpreter, installed or from the source tree."""
    beside = Path(sys.executable).with_name("brokerweave")
    if beside.exists():
        return [str(beside)]
    return [sys.executable, "-m", "brokerweave"] if find_spec("brokerweave.__main__") else None
