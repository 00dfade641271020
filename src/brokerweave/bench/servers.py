"""The edge servers of a scenario on this machine: brokers, what stands in front of them, how they are joined.

Owns the order of starting and everything that it started; all of it is gone when the block ends. Invariants:
a place with an address is somebody else's, and is left alone; without any, all run in a network of their own.
What stands in front of a broker is held to the same quota as the broker. Must not know: load, measurements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from brokerweave import lab
from brokerweave.bench.folder import EdgeServer
from brokerweave.bench.load.driver import LoadTarget, Progress, silent
from brokerweave.bench.network import own_network
from brokerweave.bench.quota import Quotas
from brokerweave.bench.scenario import Place, Scenario, joined_by
from brokerweave.config import Address, BrokerAddress
from brokerweave.errors import ConfigError, Unavailable
from brokerweave.lab.broker import HOST, Broker
from brokerweave.lab.node import LabNode
from brokerweave.lab.wiring import called, links
from brokerweave.plugin import registry

Settings = Mapping[str, Mapping[str, object]]
# Nagle's algorithm in the broker would hide everything else behind the 40 ms of a delayed acknowledgement.
_MOSQUITTO = ("set_tcp_nodelay true",)
# Clients that come back get everything that they missed.
_KEEPING = ("max_queued_messages 100000",)

# HAProxy closes a client's connection when the queue of a Unix socket is full (Mosquitto's has room for ten),
# where a node waits.
_SLOWLY = ("rate-limit sessions 10",)


@dataclass(slots=True)
class _Site:
    """What was started for one place; clients connect to the last."""

    place: Place
    running: dict[str, Broker] = field(default_factory=dict)
    member_port: int = 0

    @property
    def front(self) -> Broker:
        return list(self.running.values())[-1]


@contextmanager
def serving(scenario: Scenario, show: Progress = silent) -> Iterator[LoadTarget]:
    """Everything that the scenario's places need, running; `show` is told what is being started."""
    given = {place.name: Address.parse(place.address) for place in scenario.places if place.address}
    addresses = {name: (address.host, address.port) for name, address in given.items()}
    ours = [place for place in scenario.places if not place.address]
    with ExitStack() as stack:
        if not addresses:
            stack.enter_context(own_network(show, scenario.bandwidth))
        sites = [_Site(place) for place in ours]
        _start_brokers(scenario, sites, stack, show)
        nodes = _start_fronts(scenario, sites, stack, show)
        quotas = stack.enter_context(Quotas())
        held = [_held(site, quotas) for site in sites]
        if quotas.impossible:
            show(quotas.impossible)
        addresses |= {site.place.name: (site.front.host, site.front.port) for site in sites}
        yield LoadTarget(addresses, tuple(held), lambda: _control_bytes(nodes))


def _control_bytes(nodes: list[LabNode]) -> int:
    """Of those that live."""
    total = 0
    for node in nodes:
        with suppress(Unavailable):
            total += node.status()["counters"].get("control_bytes_sent", 0)
    return total


def _held(site: _Site, quotas: Quotas) -> EdgeServer:
    pids = {role: each.pid for role, each in site.running.items()}
    quota = site.place.quota or None
    if quota is not None:
        for pid in pids.values():
            quotas.hold(pid, quota)
    if quotas.impossible:
        quota = None
    return EdgeServer(site.place.name, quota, pids)


def _start_brokers(scenario: Scenario, sites: list[_Site], stack: ExitStack, show: Progress) -> None:
    """With bridges from the last to the first: each one calls the one after it."""
    after: _Site | None = None
    for site in reversed(sites):
        show(f"starting {site.place.broker} for {site.place.name}")
        if site.place.broker == "mosquitto":
            lines = _bridge(after, scenario.qos) if scenario.join == "bridges" and after else ()
            lines = (*lines, *(_KEEPING if scenario.kills else ()))
            unix = site.place.way == "unix"
            broker = lab.start("mosquitto", config=(*_MOSQUITTO, *lines), unix=unix)
        elif scenario.join == "bridges":
            raise ConfigError(f"{site.place.name}: only Mosquitto has bridges, {site.place.broker} does not")
        else:
            broker = lab.start(site.place.broker)
        site.running["broker"] = stack.enter_context(broker)
        after = site


def _bridge(to: _Site, qos: int) -> tuple[str, ...]:
    broker = to.running["broker"]
    return (
        f"connection to-{to.place.name}-{broker.port}",
        f"address {broker.host}:{broker.port}",
        f"topic # both {qos}",
        "cleansession true",
        "notifications false",
        "restart_timeout 1",
    )


def _start_fronts(scenario: Scenario, sites: list[_Site], stack: ExitStack, show: Progress) -> list[LabNode]:
    nodes: list[LabNode] = []
    strategy = joined_by(scenario.join)
    for site in sites:
        broker = _broker_of(site)
        if strategy is not None or site.place.front == "node":
            show(f"starting the node of {site.place.name}")
            dialed = called(strategy.traits.wiring, nodes) if strategy is not None else ()
            settings: dict[str, Mapping[str, object]] = {"node": {"broker": str(broker)}}
            if scenario.kills and strategy is not None and strategy.traits.keeps_for_absent:
                # Who is dead is known by membership alone; it finds the others too.
                dialed = ()
                settings |= _membership(site, sites, strategy.name, len(scenario.kills))
            if strategy is not None and scenario.options:
                settings[strategy.name] = {**settings.get(strategy.name, {}), **scenario.options}
            port = site.running["broker"].port
            runs = scenario.join if strategy is not None else registry.DEFAULT
            nodes.append(LabNode(site.place.name, port, dialed, strategy=runs, settings=settings))
            site.running["node"] = stack.enter_context(nodes[-1])
        elif site.place.front == "haproxy":
            rules = _SLOWLY if site.place.way == "unix" else ()
            site.running["haproxy"] = stack.enter_context(lab.HAProxy(backend=broker, rules=rules))
    if strategy is None:
        return nodes
    for number, node in enumerate(nodes):
        node.wait_for_links(links(strategy.traits.wiring, number, len(nodes)))
    return nodes


def _broker_of(site: _Site) -> BrokerAddress:
    """Where what stands in front of a broker finds it."""
    broker = site.running["broker"]
    if site.place.way == "unix" and isinstance(broker, lab.Mosquitto):
        return broker.socket
    return Address(broker.host, broker.port)


def _membership(site: _Site, sites: list[_Site], section: str, killed: int) -> Settings:
    """With one copy more of what is owed than sites are killed, so that one survives."""
    key = site.running["broker"].directory / "key"
    key.write_text("the key that all members share\n")
    before = sites[: sites.index(site)]
    site.member_port = lab.free_port()
    join = [f"{HOST}:{each.member_port}" for each in before]
    bind = f"{HOST}:{site.member_port}"
    membership = {"bind": bind, "join": join, "key_file": str(key)}
    return {"membership": membership, section: {"copies": killed + 1}}
