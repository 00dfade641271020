"""The processes of a migration run: sites, gateways and a controller, each in its region.

Owns everything that it starts; all of it is gone when the block ends. Invariants: a site is a real node
before a Mosquitto; a gateway and the controller are the real commands, one process each: a client of the
controller is a gateway, as in the paper. Must not know: events, load, what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from brokerweave.bench.folder import EdgeServer
from brokerweave.bench.migration.network import EmulatedRegion, RegionNetwork
from brokerweave.bench.migration.procedures import STRATEGIES, ControllerTimes, Procedure
from brokerweave.bench.migration.scenario import CENTRAL, MigrationGroup, RegionSite
from brokerweave.errors import Unavailable
from brokerweave.lab.broker import Broker, free_port
from brokerweave.lab.controller import LabController
from brokerweave.lab.debian import Mosquitto
from brokerweave.lab.gateway import LabGateway
from brokerweave.lab.node import LabNode
from brokerweave.plugin import NetworkShape, registry

Settings = Mapping[str, Mapping[str, object]]
_MOSQUITTO = ("set_tcp_nodelay true", "max_queued_messages 100000", "max_inflight_messages 1000")
COPIES = 2
"""Sites that have a message before its publisher hears so, where the strategy keeps copies."""
NOTICE = 3.0
"""Seconds that a site which is to stop serves its clients on, while they leave."""
_STARTERS = 4
_PATIENCE = 120.0
_MOST_MOVES = 20_000


class _LabSite:
    def __init__(
        self, site: RegionSite, region: EmulatedRegion, key: Path, before: list[_LabSite], strategy: str
    ) -> None:
        self.site, self.region = site, region
        self.broker = Mosquitto(config=_MOSQUITTO)
        host, self.member_port, monitor_port = region.host, free_port(), free_port()
        membership: dict[str, object] = {"bind": f"{host}:{self.member_port}", "key_file": str(key)}
        membership["join"] = [each.member for each in before]
        settings: dict[str, dict[str, object]] = {
            "node": {"key_file": str(key)},
            "membership": membership,
            "monitoring": {"listen": f"{host}:{monitor_port}"},
            "limits": {"drain_notice": NOTICE},
        }
        traits = registry.strategy(strategy).traits
        if traits.keeps_for_absent:
            settings[strategy] = {"copies": COPIES}
        self.linked_by_members = traits.wiring is NetworkShape.FULL
        dialed = () if self.linked_by_members else tuple(each.node for each in before[:1])
        self.node: LabNode = LabNode(
            site.name, self.broker.port, dialed, strategy=strategy, settings=settings
        )
        self.node.host = host

    @property
    def member(self) -> str:
        return f"{self.region.host}:{self.member_port}"

    def start(self) -> None:
        with self.region.inside():
            self.broker.start()
            self.node.start()

    def stop(self, *, kill: bool = False) -> None:
        """The node first: it goes in good order, or it and its broker die at once."""
        with self.region.inside():
            if kill:
                self.broker.stop(kill=True)
            self.node.stop(kill=kill)
            self.broker.stop(kill=kill)


class MigrationDeployment:
    """Also a context manager."""

    def __init__(
        self, network: RegionNetwork, procedure: Procedure, times: ControllerTimes, policy: str
    ) -> None:
        self.sites: dict[str, _LabSite] = {}
        self.gateways: dict[str, LabGateway] = {}
        self._network = network
        self._procedure = procedure
        self._strategy = STRATEGIES[procedure]
        self._times = times
        self._policy = policy
        self._running: list[str] = []
        self._gateway_regions: dict[str, EmulatedRegion] = {}
        self._stack = ExitStack()
        # A child dies with the thread that started it: these live as long as the deployment.
        self._starters = ThreadPoolExecutor(_STARTERS, "starter")
        self._controllers: list[LabController] = []
        """One, or none yet."""

    # Starting and stopping

    def prepare(self, sites: Iterable[RegionSite]) -> None:
        """Give each its ports. The first one is what the others and the controller join."""
        folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="brokerweave-migration-")))
        self._key = folder / "key"
        self._key.write_text("the key that sites, gateways and the controller share\n")
        for site in sites:
            before = list(self.sites.values())
            region = self._network[site.region]
            made = _LabSite(site, region, self._key, before, self._strategy)
            self._stack.callback(made.node.close)
            self._stack.callback(made.broker.close)
            self.sites[site.name] = made

    def start_controller(self) -> None:
        region, times = self._network[CENTRAL], self._times
        first = next(iter(self.sites.values()))
        bind = f"{region.host}:{free_port()}"
        controller = LabController(
            "controller",
            settings={
                "controller": {"key_file": str(self._key), "round": times.round},
                "policy": {"name": self._policy, "hold": times.hold, "rest": times.rest},
                "membership": {"bind": bind, "join": [first.member]},
            },
        )
        controller.host = region.host
        self._stack.callback(controller.close)
        self._controllers.append(controller)
        self._in(region, controller.start)

    def start_gateways(self, groups: Iterable[MigrationGroup]) -> None:
        """All at the same time; returns when the controller knows how far each is from all sites."""
        for group in groups:
            for name in group.gateway_names:
                self._make_gateway(name, self._network[group.region])
        starting = [
            self._starters.submit(self._inside, self._gateway_regions[name], gateway.start)
            for name, gateway in self.gateways.items()
        ]
        for done in starting:
            done.result(_PATIENCE)
        wait_for(self._all_measured, "gateways to measure the sites")

    def _all_measured(self) -> bool:
        rows = self.ask_controller("gateways")["gateways"]
        measured = [
            row["gateway"]
            for row in rows
            if row["edges"].keys() >= set(self._running)
            and all(edge["mean_ms"] is not None for edge in row["edges"].values())
        ]
        return set(measured) == self.gateways.keys()

    def _make_gateway(self, name: str, region: EmulatedRegion) -> None:
        controller = f"{self._controller.host}:{self._controller.port}"
        own = {
            "key_file": str(self._key),
            "controller": [controller],
            "monitor": f"{region.host}:0",
            "measure_every": self._times.measure,
        }
        moves = {"procedure": self._procedure.value}
        gateway = LabGateway(name, settings={"gateway": own, "moves": moves})
        gateway.host = region.host
        self._stack.callback(gateway.close)
        self.gateways[name], self._gateway_regions[name] = gateway, region

    def start_site(self, name: str) -> None:
        """Returns when it is linked with the others."""
        self._starters.submit(self.sites[name].start).result(_PATIENCE)
        self._running.append(name)
        before = len(self._running) - 1
        links = before if self.sites[name].linked_by_members else min(before, 1)
        self.sites[name].node.wait_for_links(links, _PATIENCE)

    def stop_site(self, name: str, *, kill: bool) -> None:
        self._starters.submit(self.sites[name].stop, kill=kill).result(_PATIENCE)
        self._running.remove(name)

    def _in(self, region: EmulatedRegion, start: Callable[[], None]) -> None:
        self._starters.submit(self._inside, region, start).result(_PATIENCE)

    @staticmethod
    def _inside(region: EmulatedRegion, start: Callable[[], None]) -> None:
        with region.inside():
            start()

    # What is asked

    @property
    def _controller(self) -> LabController:
        return self._controllers[0]

    def ask_controller(self, what: str, **told: object) -> dict[str, Any]:
        with self._network[CENTRAL].inside():
            return self._controller.ask(what, **told)

    def moves(self) -> list[dict[str, Any]]:
        """What the controller decided, the latest first."""
        found: list[dict[str, Any]] = self.ask_controller(f"moves?count={_MOST_MOVES}")["moves"]
        return found

    def running_sites(self) -> list[tuple[str, LabNode]]:
        return [(name, self.sites[name].node) for name in self._running]

    def counters(self) -> dict[str, int]:
        """Of all gateways together."""
        total: dict[str, int] = {}
        for gateway in self.gateways.values():
            with suppress(Unavailable):
                for name, count in gateway.status()["counters"].items():
                    total[name] = total.get(name, 0) + count
        return total

    def tracebacks(self) -> list[str]:
        """Which of its processes had an accident."""
        return [each.name for each in self._processes() if "Traceback" in each.log_tail(10_000)]

    def _processes(self) -> list[Broker]:
        nodes = [site.node for site in self.sites.values()]
        return [*self.gateways.values(), *self._controllers, *nodes]

    def servers(self) -> list[EdgeServer]:
        """Of all that runs now."""
        found = [
            EdgeServer(name, None, {"broker": site.broker.pid, "node": site.node.pid})
            for name, site in self.sites.items()
            if site.node.running
        ]
        others = {name: each.pid for name, each in self.gateways.items() if each.running}
        found.append(EdgeServer("gateways", None, others))
        placing = {"controller": self._controller.pid, "relay": self._network.router_pid}
        return [*found, EdgeServer("placing", None, placing)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for process in self._processes():
                process.stop(kill=True)
            self._stack.close()
        finally:
            self._starters.shutdown()


def wait_for(condition: Callable[[], bool], what: str, seconds: float = _PATIENCE) -> None:
    """Raises `Unavailable` if it does not come true."""
    import time

    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Unavailable(f"waited {seconds:g} s in vain for {what}")
        time.sleep(0.05)
