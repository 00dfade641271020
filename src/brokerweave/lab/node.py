"""A real node as a child process on loopback, in front of a broker.

Owns its configuration file and admin socket; the process is kept as any broker's is. Invariants: ports and
data stay the same over a restart, so `restart(kill=True)` is a crash and a return. Must not know: what the
node does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import brokerweave
from brokerweave.errors import Unavailable
from brokerweave.lab.broker import HOST, Broker, free_port
from brokerweave.plugin import registry
from brokerweave.runtime.admin_client import ask

_PATIENCE = 60.0
"""Seconds that an answer may take: there may be many nodes and brokers on this machine, all of them busy."""


class LabNode(Broker):
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
        settings: Mapping[str, Mapping[str, object]] | None = None,
        taps: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.id = node_id
        self.link_port = free_port()
        self._broker_port = broker_port
        self._neighbours = [(node.id, node.host, node.link_port) for node in neighbours]
        self._strategy = strategy
        self._taps = taps
        self._settings = {section: dict(keys) for section, keys in (settings or {}).items()}

    @classmethod
    def missing(cls) -> str | None:
        return None

    @property
    def version(self) -> str:
        return brokerweave.__version__

    @property
    def config_file(self) -> Path:
        return self.directory / "node.toml"

    def command(self) -> list[str]:
        node: dict[str, object] = {
            "id": self.id,
            "listen": f"{self.host}:{self.port}",
            "broker": f"{HOST}:{self._broker_port}",
            "link_listen": f"{self.host}:{self.link_port}",
            "strategy": self._strategy,
            "data_dir": str(self.directory / "data"),
            "admin_socket": str(self._socket),
        }
        node.update(self._settings.get("node", {}))
        sections = {"node": node, **{s: k for s, k in self._settings.items() if s != "node"}}
        lines = []
        for section, keys in sections.items():
            lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
        for identifier, host, port in self._neighbours:
            lines += ["[[neighbour]]", f'id = "{identifier}"', f'address = "{host}:{port}"']
        if self._taps:
            lines += ["[[tap]]", f"topics = {json.dumps(self._taps)}"]
        self.config_file.write_text("\n".join(lines) + "\n")
        return [sys.executable, "-m", "brokerweave", "node", str(self.config_file)]

    def dials(self, neighbour: str, port: int) -> None:
        """One more neighbour in the configuration, from the next start on."""
        self._neighbours.append((neighbour, HOST, port))

    def ready(self) -> bool:
        try:
            self.status()
        except Unavailable:
            return False
        return True

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
