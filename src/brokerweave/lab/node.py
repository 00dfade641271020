"""A real node as a child process on loopback, in front of a broker.

Owns its admin socket. Must not know: what the node does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from brokerweave.errors import Unavailable
from brokerweave.lab.broker import HOST, free_port
from brokerweave.lab.own_process import Keys, OwnProcess
from brokerweave.plugin import registry
from brokerweave.runtime.admin_client import ask

_PATIENCE = 60.0
"""Seconds that an answer may take: there may be many nodes and brokers on this machine, all of them busy."""


class LabNode(OwnProcess):
    """`neighbours` are the nodes that this one dials. `settings` are further keys, by section:
    `{"links": {"qos": 0}}`. `taps` are the topic filters of one tap."""

    name = "node"

    def __init__(
        self,
        node_id: str,
        broker_port: int,
        neighbours: tuple[LabNode, ...] = (),
        *,
        strategy: str = registry.DEFAULT,
        settings: Mapping[str, Keys] | None = None,
        taps: tuple[str, ...] = (),
    ) -> None:
        super().__init__(node_id, settings)
        self.link_port = free_port()
        self._broker_port = broker_port
        self._neighbours = [(node.id, node.host, node.link_port) for node in neighbours]
        self._strategy = strategy
        self._taps = taps

    def own_keys(self) -> Keys:
        return {
            "id": self.id,
            "listen": f"{self.host}:{self.port}",
            "broker": f"{HOST}:{self._broker_port}",
            "link_listen": f"{self.host}:{self.link_port}",
            "strategy": self._strategy,
            "data_dir": str(self.directory / "data"),
            "admin_socket": str(self._socket),
        }

    def tables(self) -> Mapping[str, Sequence[Keys]]:
        called = [{"id": each, "address": f"{host}:{port}"} for each, host, port in self._neighbours]
        return {"neighbour": called, "tap": [{"topics": self._taps}] if self._taps else []}

    def ask_status(self) -> object:
        return self.status()

    def dials(self, neighbour: str, port: int) -> None:
        """One more neighbour in the configuration, from the next start on."""
        self._neighbours.append((neighbour, HOST, port))

    def ask(self, do: str, **arguments: object) -> dict[str, Any]:
        """One command on the admin socket."""
        return ask(self._socket, {"do": do, **arguments}, _PATIENCE)

    def status(self) -> dict[str, Any]:
        return self.ask("status")

    def link(self, neighbour: str) -> dict[str, Any]:
        """The row of one neighbour in `status`."""
        return next((row for row in self.status()["links"] if row["neighbour"] == neighbour), {})

    def wait_for(self, condition: Callable[[dict[str, Any]], bool], what: str, timeout: float = 60.0) -> None:
        """Wait until `status` fulfils the condition, or raise `Unavailable` that says what did not happen."""
        deadline = time.monotonic() + timeout
        while not condition(status := self.status()):
            if time.monotonic() > deadline:
                raise Unavailable(f"node {self.id}: {what} did not happen in {timeout:g} s; {status}")
            time.sleep(0.02)

    def wait_for_links(self, count: int, timeout: float = 60.0) -> None:
        """Wait until this many neighbours are up on all lanes and each has its role, and the broker takes
        injections."""

        def linked(status: dict[str, Any]) -> bool:
            up = [row for row in status["links"] if row["lanes_up"] == row["lanes"]]
            ready = all(row["state"] == "ready" for row in status["injectors"])
            return len(up) >= count and ready and bool(status["tree"]["settled"])

        self.wait_for(linked, f"{count} links and the injectors up", timeout)

    @property
    def _socket(self) -> Path:
        return self.directory / "admin.sock"
