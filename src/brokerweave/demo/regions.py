"""The two regions of the demo's gateways: a site and a gateway in each, a distance between, one controller.

Owns every process of it. Invariants: from a region, everything in the other one is as far away as the other's
site; whatever happens, `close` leaves nothing running. Must not know: clients, what is shown.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from brokerweave.demo.mesh import STRATEGY
from brokerweave.demo.sites import SiteRow
from brokerweave.errors import Unavailable
from brokerweave.lab.broker import HOST, Broker, free_port
from brokerweave.lab.controller import LabController
from brokerweave.lab.debian import Mosquitto
from brokerweave.lab.distance import Distance
from brokerweave.lab.gateway import LabGateway
from brokerweave.lab.node import LabNode

NAMES = ("west", "east")
ONE_WAY = 0.02
"""Seconds from one region to the other."""
MOST_SECONDS = 60.0
"""For anything that is waited for."""
HOLD = 14.0
"""Seconds: two measurements, which begin every 15 s, are as far apart."""
_POLL = 0.05


@dataclass(frozen=True, slots=True)
class Region:
    name: str
    node: LabNode
    gateway: LabGateway
    monitor: int
    """The port where the node answers pings."""

    @property
    def port(self) -> int:
        """Where its clients connect."""
        return self.gateway.port


class Regions(SiteRow):
    def __init__(self) -> None:
        super().__init__()
        self.regions: list[Region] = []
        self.distance = Distance(ONE_WAY)
        self._controller: LabController

    def begin(self) -> None:
        """Start everything. Raises `Unavailable`."""
        brokers = [Mosquitto(config=("set_tcp_nodelay true",)) for _ in NAMES]
        self._start_all(brokers)
        key = brokers[0].directory / "key"
        key.write_text("a key that the two regions of the demo share\n")
        monitors = [free_port() for _ in NAMES]
        nodes = [
            LabNode(
                name,
                broker.port,
                strategy=STRATEGY,
                settings={
                    "node": {"key_file": str(key)},
                    "monitoring": {"listen": f"{HOST}:{monitor}"},
                },
            )
            for name, broker, monitor in zip(NAMES, brokers, monitors, strict=True)
        ]
        first, *others = nodes
        for other in others:
            other.dials(first.id, self.distance.tcp(first.link_port))
        self._start_all(nodes)
        for node in nodes:
            node.wait_for_links(len(others))
        self._controller = self._make_controller(nodes, monitors, str(key))
        gateways = [self._make_gateway(each, nodes, monitors, str(key)) for each in nodes]
        self._start_all([self._controller, *gateways])
        self.regions = [Region(*each) for each in zip(NAMES, nodes, gateways, monitors, strict=True)]
        self.wait(self._measured, "both sites measured from both regions")

    def _make_controller(self, nodes: list[LabNode], monitors: list[int], key: str) -> LabController:
        """One that does not wait as long as it should outside a demo before it moves somebody again."""
        sites = tuple(
            {"name": node.id, "clients": f"{HOST}:{node.port}", "monitor": f"{HOST}:{monitor}"}
            for node, monitor in zip(nodes, monitors, strict=True)
        )
        settings: dict[str, dict[str, object]] = {
            "controller": {"key_file": key, "round": 1.0},
            "policy": {"hold": HOLD, "rest": 1.0},
        }
        return LabController("controller", settings=settings, sites=sites)

    def _make_gateway(self, near: LabNode, nodes: list[LabNode], monitors: list[int], key: str) -> LabGateway:
        own: dict[str, object] = {
            "key_file": key,
            "controller": [f"{HOST}:{self._controller.port}"],
            "monitor": f"{HOST}:0",
        }
        sites = []
        for node, monitor in zip(nodes, monitors, strict=True):
            clients = node.port if node is near else self.distance.tcp(node.port)
            pings = monitor if node is near else self.distance.udp(monitor)
            sites.append({"name": node.id, "clients": f"{HOST}:{clients}", "monitor": f"{HOST}:{pings}"})
        return LabGateway(f"gateway-{near.id}", settings={"gateway": own}, sites=tuple(sites))

    def command(self, *words: str) -> list[str]:
        """What `brokerweave controller ...` prints. Raises `Unavailable` if it fails."""
        line = [sys.executable, "-m", "brokerweave", "controller", *words, "--api", str(self._controller.api)]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=MOST_SECONDS)
        if done.returncode:
            raise Unavailable(f"controller {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout.splitlines()

    def places(self) -> dict[str, Counter[str]]:
        """For each region, at which sites its clients are."""
        return {
            region.name: Counter(str(row["site"]) for row in region.gateway.ask("clients")["clients"])
            for region in self.regions
        }

    def moves(self) -> list[dict[str, Any]]:
        """What the controller decided, the newest first."""
        found: list[dict[str, Any]] = self._controller.ask("moves")["moves"]
        return found

    def connections(self) -> int:
        """That clients opened, to all gateways together."""
        counted = (region.gateway.status()["counters"] for region in self.regions)
        return sum(int(each.get("accepted_connections", 0)) for each in counted)

    def wait(self, done: Callable[[], bool], what: str, seconds: float = MOST_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                raise Unavailable(f"gateways: not {what} in {seconds:g} s")
            time.sleep(_POLL)

    def _measured(self) -> bool:
        rows = self._controller.ask("gateways")["gateways"]
        return len(rows) == len(NAMES) and all(
            row["follows"] and len(row["edges"]) == len(NAMES) and _whole(row["edges"].values())
            for row in rows
        )

    def _start_all(self, children: Sequence[Broker]) -> None:
        self._children += children
        for begun in [self._begin(child) for child in children]:
            begun.result()

    def close(self) -> None:
        super().close()
        self.distance.close()


def _whole(edges: Any) -> bool:
    return all(edge["mean_ms"] is not None and edge["pings"] > 1 for edge in edges)
