"""The sites of the demo: which brokers this machine has, and a row of nodes in front of them.

Owns every child process from start to end. Invariants: whatever was started is ended by `SiteRow.close`, also
when starting was interrupted; a broker that does not start is replaced, with a note. Must not know: clients,
what is shown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from brokerweave import lab
from brokerweave.errors import BrokerweaveError, Unavailable
from brokerweave.lab.broker import HOST, Broker, free_port
from brokerweave.lab.makers import Amqtt
from brokerweave.lab.node import LabNode
from brokerweave.lab.wiring import called, links
from brokerweave.plugin import Linking, registry

PREFERRED = ("mosquitto", "rabbitmq", "nats", "amqtt", "mochi", "aedes", "moquette", "activemq")
"""The sturdiest and quickest to start first."""

MOST_SITES, FEWEST_SITES = 5, 3
STOP_SECONDS = 10.0


def choose(available: Mapping[str, str | None]) -> list[str]:
    """Brokers for the row, as different as possible, the first of `PREFERRED` in the middle.

    The middle site's node is killed, and its broker must keep a session meanwhile. Empty if there is none.
    """
    chosen = [name for name in PREFERRED if name in available and available[name] is None][:MOST_SITES]
    while 0 < len(chosen) < FEWEST_SITES:
        chosen.append(chosen[len(chosen) % len(set(chosen))])
    if chosen:
        chosen.insert(len(chosen) // 2, chosen.pop(0))
    return chosen


def missing(available: Mapping[str, str | None]) -> list[str]:
    """Where there are few different brokers, one line for each that could be installed."""
    kinds = sum(reason is None for reason in available.values())
    return [reason for reason in available.values() if reason] if kinds < FEWEST_SITES else []


class NamedAmqtt(Amqtt):
    """amqtt keeps nothing for absent clients that are anonymous, so that here every client gives a name."""

    def command(self) -> list[str]:
        command = super().command()
        config = self.directory / "amqtt.yaml"
        config.write_text(config.read_text().replace("allow_anonymous: true", "allow_anonymous: false"))
        return command


def _make(name: str) -> Broker:
    return NamedAmqtt() if name == Amqtt.name else lab.BROKERS[name]()


def _username(broker: Broker) -> str | None:
    return "demo" if isinstance(broker, NamedAmqtt) else None


@dataclass(slots=True)
class Site:
    id: str
    broker: Broker
    node: LabNode
    broker_version: str
    status: dict[str, Any] | None = field(default=None)
    """The node's last answer; None while it is away."""

    @property
    def username(self) -> str | None:
        """The name with which clients connect here, if they need one."""
        return _username(self.broker)


class SiteRow:
    """The running sites. Children die with the thread that made them, so its threads last until `close`."""

    def __init__(self) -> None:
        self.sites: list[Site] = []
        self._links = 0
        """At all nodes together."""
        self._selective = False
        self._on_demand = False
        self._children: list[Broker] = []
        self._starts: list[Future[None]] = []
        self._threads = ThreadPoolExecutor(max_workers=2 * MOST_SITES, thread_name_prefix="site")
        self._closing = threading.Event()
        self._watch: threading.Thread | None = None

    def start(
        self,
        brokers: Sequence[str],
        note: Callable[[str], None],
        record: Sequence[str] = (),
        strategy: str = registry.DEFAULT,
    ) -> None:
        """Nodes keep `record`, topic filters, for a pipeline. Raises `Unavailable` if not all start."""
        traits = registry.strategy(strategy).traits
        self._on_demand = registry.strategy(strategy).linking is Linking.ON_DEMAND
        self._selective = traits.selective and not self._on_demand
        running = self._start_brokers(brokers, note)
        nodes: list[LabNode] = []
        ports = [free_port() for _ in running]
        for letter, broker in zip("abcdefgh", running, strict=False):
            # The default back-off waits up to 10 s, which is right for a network and long for a show.
            settings: dict[str, dict[str, object]] = {"links": {"reconnect_max": 1.0}}
            if username := _username(broker):
                settings["node"] = {"broker_username": username}
            if record:
                settings["flight"] = {"listen": f"{HOST}:{free_port()}"}
                settings["edge_log"] = {"fsync_interval": 0.2}
            if self._on_demand:
                settings["membership"] = _membership(broker, ports, len(nodes))
            dialed = () if self._on_demand else called(traits.wiring, nodes)
            taps = tuple(record)
            nodes.append(
                LabNode(letter, broker.port, dialed, strategy=strategy, settings=settings, taps=taps)
            )
        self._children += nodes
        for start in [self._begin(node) for node in nodes]:
            start.result()
        for node in nodes if self._on_demand else ():
            node.wait_for(lambda s: s["membership"]["alive"] == len(nodes), "the others")
        for number, node in enumerate(() if self._on_demand else nodes):
            self._links += (count := links(traits.wiring, number, len(nodes)))
            node.wait_for_links(count)
        self.sites = [Site(n.id, b, n, b.version) for n, b in zip(nodes, running, strict=True)]
        self._watch = threading.Thread(target=self._watch_nodes, name="status", daemon=True)
        self._watch.start()

    def _start_brokers(self, names: Sequence[str], note: Callable[[str], None]) -> list[Broker]:
        brokers = [_make(name) for name in names]
        self._children += brokers
        started = [self._begin(broker) for broker in brokers]
        running: list[Broker] = []
        for broker, result in zip(brokers, started, strict=True):
            try:
                result.result()
                running.append(broker)
            except BrokerweaveError as error:
                note(f"left out: {error}")
        if not running:
            raise Unavailable("no broker could be started")
        while len(running) < FEWEST_SITES:
            another = type(running[0])()
            self._children.append(another)
            self._begin(another).result()
            running.append(another)
        return running

    def wait_for_interest(self, timeout: float = 20.0) -> None:
        """Until every node was asked by every neighbour for what is wanted beyond it, if it is at all."""
        for site in self.sites if self._selective else ():
            site.node.wait_for(lambda s: all(row["filters_from"] for row in s["links"]), "interest", timeout)

    def kill(self, site: Site) -> None:
        site.node.stop(kill=True)
        site.status = None

    def bring_back(self, site: Site) -> Future[None]:
        return self._begin(site.node)

    def _begin(self, child: Broker) -> Future[None]:
        start = self._threads.submit(child.start)
        self._starts.append(start)
        return start

    def whole(self) -> bool:
        """Whether every link is up, as the nodes last said; where links come and go, every node."""
        if self._on_demand:
            found = [site.status["membership"]["alive"] for site in self.sites if site.status]
            return found == [len(self.sites)] * len(self.sites)
        rows = [row for site in self.sites if site.status for row in site.status["links"]]
        return len(rows) == self._links and all(row["state"] == "up" for row in rows)

    def _watch_nodes(self) -> None:
        while not self._closing.wait(0.25):
            for site in self.sites:
                try:
                    site.status = site.node.status()
                except BrokerweaveError:
                    site.status = None

    def close(self) -> None:
        """End every child; they keep nothing worth a polite good-bye. Bounded; call it once."""
        self._closing.set()
        for start in self._starts:
            start.cancel()
        for child in self._children:
            child.stop(kill=True)
        # A start that was under way sees its child gone and gives up, or just made another.
        wait(self._starts, timeout=STOP_SECONDS)
        for child in self._children:
            child.stop(kill=True)
            child.close()
        if self._watch is not None:
            self._watch.join(STOP_SECONDS)
        self._threads.shutdown(wait=False)


def _membership(broker: Broker, ports: Sequence[int], number: int) -> dict[str, object]:
    """The section of one node; all join by the first two."""
    key = broker.directory / "key"
    key.write_text("a key that the sites of the demo share\n")
    others = [port for port in ports[:2] if port != ports[number]]
    return {
        "bind": f"{HOST}:{ports[number]}",
        "join": [f"{HOST}:{port}" for port in others],
        "key_file": str(key),
    }
