"""A network of sites from an edge list: a real broker and a real node each, as child processes.

Owns the order of starting and ending. Invariants: brokers, then nodes, start at the same time; every link is
up and every injector ready before a test sees the network; no node may ever have shown a traceback. Must
not know: what is tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from brokerweave import lab
from brokerweave.lab.node import LabNode
from tests.support.raw import FakeBroker
from tests.support.waiting import LIMIT, wait_until

AnyBroker = lab.Broker | FakeBroker
Edges = Iterable[tuple[str, str]]
Settings = Mapping[str, Mapping[str, object]]

QUICK: Settings = {
    "node": {"barrier_timeout": 5},
    "links": {"ping_interval": 0.5, "reconnect_min": 0.05, "reconnect_max": 0.5},
}
"""Links that notice and return fast enough for a test, and barriers that a busy machine does not end."""

INSTALLED_BY_SETUP = ("mosquitto", "rabbitmq", "nats", "amqtt")

# A child dies with the thread that started it, so these threads live as long as the test run.
_starters = ThreadPoolExecutor(8, "starter")


def start_all(starts: Iterable[Callable[[], object]]) -> None:
    for done in [_starters.submit(start) for start in starts]:
        done.result(3 * LIMIT)


def makers(*names: str) -> list[str]:
    """Of these brokers those that tests can be about: what `make setup` installs, and whatever else is here.

    A broker that nobody said would be there makes no skipped test.
    """
    return [name for name in names if name in INSTALLED_BY_SETUP or lab.BROKERS[name].missing() is None]


def start_broker(name: str, **options: Any) -> lab.Broker:
    """A broker that outlives the test that asked for it, or a skip that says why there is none."""
    if reason := lab.available()[name]:
        pytest.skip(reason)
    return _starters.submit(lab.start, name, **options).result(3 * LIMIT)


@dataclass
class Site:
    broker: AnyBroker
    node: LabNode

    @property
    def port(self) -> int:
        """Where clients connect."""
        return self.node.port


@dataclass
class Network:
    sites: dict[str, Site] = field(default_factory=dict)
    links: list[tuple[str, str]] = field(default_factory=list)

    def __getitem__(self, name: str) -> Site:
        return self.sites[name]

    def node(self, name: str) -> LabNode:
        return self.sites[name].node

    def port(self, name: str) -> int:
        return self.sites[name].node.port

    def degree(self, name: str) -> int:
        return sum(name in link for link in self.links)

    def wait_for_links(self) -> None:
        for name, site in self.sites.items():
            site.node.wait_for_links(self.degree(name))

    def link(self, a: str, b: str, port: int | None = None) -> None:
        """Let a dial b from now on, through `port` if something stands between, and wait for the link."""
        port = port or self.node(b).link_port
        self.node(a).ask("add_neighbour", id=b, address=f"127.0.0.1:{port}")
        self.node(a).dials(b, port)
        self.links.append((a, b))
        self.wait_for_links()

    def rows(self) -> dict[tuple[str, str], dict[str, Any]]:
        """The row of each link in `status`, by (whose status, neighbour)."""
        found = {}
        for name, site in self.sites.items():
            for row in site.node.status()["links"]:
                found[name, row["neighbour"]] = row
        return found

    def settle(self, without: str = "") -> None:
        """Wait until every inter-subscription has arrived; `without`: a site that is down.

        A node passes a filter on in the same turn in which it takes it, so while one is still on its way,
        some two neighbours do not count the same. While a link is down nothing is on its way, and both sides
        may count nothing: a busy machine makes links fail, so that they are up again is part of this.
        """
        wait_until(lambda: self._settled(without), "agreement about filters")

    def _settled(self, without: str = "") -> bool:
        states = {name: site.node.status() for name, site in self.sites.items() if name != without}
        rows = {(name, row["neighbour"]): row for name, each in states.items() for row in each["links"]}

        def agree(a: str, b: str) -> bool:
            to, from_ = rows.get((a, b)), rows.get((b, a))
            if to is None or from_ is None:
                return to is from_  # removed at both sides
            up = to["state"] == from_["state"] == "up"
            return bool(up and to.get("filters_to") == from_.get("filters_from"))

        links = [(a, b) for a, b in self.links if without not in (a, b)]
        linked = all(agree(a, b) and agree(b, a) for a, b in links)
        return linked and all(each["tree"]["settled"] for each in states.values())

    def wait_until_quiet(self) -> None:
        """Wait until nobody wants anything and nothing is owed, so that the next test starts from nothing."""

        def quiet() -> bool:
            rows = self.rows().values()
            return self._settled() and not any(r.get("filters_from") or r["backlog_messages"] for r in rows)

        wait_until(quiet, "quiet")

    def wait_until_nothing_is_pending(self, seconds: float = LIMIT) -> None:
        """Every lane of every link is up, and no outbox has anything left."""

        def idle() -> bool:
            states = [site.node.status() for site in self.sites.values()]
            links = [row for status in states for row in status["links"]]
            owing = links + [row for status in states for row in status["injectors"]]
            return all(row["lanes_up"] == row["lanes"] for row in links) and not any(
                row["backlog_messages"] for row in owing
            )

        wait_until(idle, "nothing owed", seconds)

    def crossed(self) -> Counter[tuple[str, str]]:
        """Messages that each direction of each link has carried; compare two to see what crossed between."""
        return Counter({link: row["sent"] for link, row in self.rows().items()})

    def counted(self, name: str) -> Counter[str]:
        """One of `status`' counters at every node."""
        each = {site: one.node.status()["counters"].get(name, 0) for site, one in self.sites.items()}
        return Counter(each)


def merged(one: Settings, other: Settings) -> Settings:
    return {section: {**one.get(section, {}), **other.get(section, {})} for section in {**one, **other}}


@contextmanager
def network(
    edges: Edges,
    *,
    strategy: str = "sf",
    brokers: Mapping[str, AnyBroker] | None = None,
    settings: Settings = QUICK,
    special: Mapping[str, Settings] | None = None,
    alone: Iterable[str] = (),
    taps: Mapping[str, tuple[str, ...]] | None = None,
) -> Iterator[Network]:
    """Sites named in `edges` (and `alone`, without links), with Mosquittos where `brokers` has no other.

    `special` has further settings of single sites, `taps` what they record. Brokers that are given stay when
    the network goes.
    """
    net = Network(links=list(edges))
    names = list(dict.fromkeys([name for edge in net.links for name in edge] + list(alone)))
    given = dict(brokers or {})
    own = {name: lab.BROKERS["mosquitto"]() for name in names if name not in given}
    try:
        start_all(broker.start for broker in own.values())
        for name in names:
            dialed = tuple(net.node(b if a == name else a) for a, b in net.links if _dials(net, name, a, b))
            broker = own.get(name) or given[name]
            keys = merged(settings, (special or {}).get(name, {}))
            recorded = (taps or {}).get(name, ())
            node = LabNode(name, broker.port, dialed, strategy=strategy, settings=keys, taps=recorded)
            net.sites[name] = Site(broker, node)
        start_all(site.node.start for site in net.sites.values())
        net.wait_for_links()
        yield net
        for name, site in net.sites.items():
            assert "Traceback" not in site.node.log_tail(10_000), f"node {name} had an accident"
    except BaseException:
        for name, site in net.sites.items():
            print(f"node {name} said:\n{site.node.log_tail(40)}")
        raise
    finally:
        start_all([site.node.close for site in net.sites.values()])
        start_all([broker.close for broker in own.values()])


def _dials(net: Network, name: str, a: str, b: str) -> bool:
    """The later named of two dials the earlier."""
    return name in (a, b) and (a if b == name else b) in net.sites
