"""Rings and meshes of real brokers: each message once and in order, and another link takes over.

Every node dials the others through proxies, so that any link can be cut as a cable would be.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import combinations

import psutil
import pytest

from tests.integration.conftest import Connect
from tests.support.clients import MqttClient
from tests.support.proxy import Proxy
from tests.support.sites import QUICK, Network, merged, network, start_broker
from tests.support.verdicts import in_order
from tests.support.waiting import LIMIT, wait_until

RING = list(combinations("abc", 2))
MESH = list(combinations("abcde", 2))
FEW, ALL = 2_000, 10_000

wirings = pytest.mark.parametrize("wiring", [RING, MESH], ids=["ring", "mesh"])
strategies = pytest.mark.parametrize("strategy", ["pf", "sf"])

Wiring = list[tuple[str, str]]


class Cables:
    """A network whose links run through proxies."""

    def __init__(self, net: Network, proxies: dict[tuple[str, str], Proxy]) -> None:
        self.net = net
        self._proxies = proxies

    def tree(self) -> list[tuple[str, str]]:
        """The links that both ends call active."""
        rows = self.net.rows()
        return [
            (a, b)
            for a, b in self._proxies
            if rows.get((a, b), {}).get("role") == rows.get((b, a), {}).get("role") == "active"
        ]

    def wait_for_tree(self, without: tuple[str, str] | None = None) -> None:
        size = len(self.net.sites) - 1
        wait_until(lambda: len(found := self.tree()) == size and without not in found, "a settled tree")

    def break_(self, link: tuple[str, str]) -> None:
        """Connections break, and nobody gets through any more."""
        self._proxies[link].__exit__()


@contextmanager
def cabled(wiring: Wiring, strategy: str) -> Iterator[Cables]:
    names = sorted({name for link in wiring for name in link})
    with ExitStack() as stack:
        # What is in question here is the way between the brokers, so they drop nothing by themselves.
        brokers = {name: start_broker("mosquitto", config=["max_queued_messages 0"]) for name in names}
        for broker in brokers.values():
            stack.callback(broker.close)
        # Patient: a busy machine must not look like a link that failed, or the tree changes.
        settings = merged(QUICK, {"links": {"cycles": "stand-by", "ping_interval": 5}})
        net = stack.enter_context(
            network([], strategy=strategy, alone=names, brokers=brokers, settings=settings)
        )
        proxies = {}
        for a, b in wiring:
            proxies[a, b] = stack.enter_context(Proxy(net.node(b).link_port))
            net.link(a, b, proxies[a, b].port)
        cables = Cables(net, proxies)
        cables.wait_for_tree()
        yield cables


def subscribe_everywhere(cables: Cables, connect: Connect) -> dict[str, MqttClient]:
    subscribers = {}
    for name in cables.net.sites:
        subscribers[name] = connect(cables.net.port(name), f"subscriber-{name}")
        subscribers[name].subscribe("t/#", 1)
    cables.net.settle()
    return subscribers


def payloads(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def check(subscribers: dict[str, MqttClient], count: int) -> None:
    for name, subscriber in subscribers.items():
        subscriber.wait_for(lambda received: len(received) >= count)
        in_order(subscriber.payloads(), payloads(count), name)


def wait_until_idle(cables: Cables) -> None:
    """Nothing crosses a link any more, and the nodes take no CPU to speak of."""
    nodes = [psutil.Process(site.node.pid) for site in cables.net.sites.values()]
    seen: list[tuple[object, float]] = []

    def idle() -> bool:
        now = sum(sum(node.cpu_times()[:2]) for node in nodes)
        seen.append((cables.net.crossed(), now))
        before = seen[-20] if len(seen) >= 20 else (None, 0.0)
        # The question itself costs some: a twentieth of a second for twenty of them, at all nodes.
        return before[0] == seen[-1][0] and now - before[1] < 0.05 * len(nodes)

    wait_until(idle, "quiet")


def run(wiring: Wiring, strategy: str, connect: Connect, count: int) -> None:
    with cabled(wiring, strategy) as cables:
        subscribers = subscribe_everywhere(cables, connect)
        before = cables.net.crossed()
        publisher = connect(cables.net.port("b"), "publisher")
        publisher.publish_all("t/1", payloads(count), qos=1)
        check(subscribers, count)
        wait_until_idle(cables)
        crossed = cables.net.crossed() - before
        assert sum(crossed.values()) == count * (len(cables.net.sites) - 1)
        unsubscribe(cables, subscribers)


def run_with_cut(wiring: Wiring, strategy: str, connect: Connect, count: int) -> None:
    with cabled(wiring, strategy) as cables:
        subscribers = subscribe_everywhere(cables, connect)
        link = next(link for link in cables.tree() if "b" in link)
        publisher = connect(cables.net.port("b"), "publisher")
        sending = threading.Thread(target=publisher.publish_all, args=("t/1", payloads(count), 1))
        sending.start()
        subscribers["c"].wait_for(lambda received: len(received) > count // 4)
        cables.break_(link)
        sending.join(LIMIT)
        assert not sending.is_alive()
        check(subscribers, count)
        cables.wait_for_tree(without=link)
        wait_until_idle(cables)
        unsubscribe(cables, subscribers)
        assert not any(cables.net.counted("tree_settle_limits").values())


def unsubscribe(cables: Cables, subscribers: dict[str, MqttClient]) -> None:
    for subscriber in subscribers.values():
        subscriber.unsubscribe("t/#")
    nothing = {"filters_from", "filters_to", "backlog_messages"}
    wait_until(
        lambda: not any(row.get(key) for row in cables.net.rows().values() for key in nothing),
        "an end of all interest",
    )


# Each strategy in one wiring here, and in the other with a cut; with all messages (slow) in both.
@pytest.mark.parametrize(("wiring", "strategy"), [(RING, "sf"), (MESH, "pf")], ids=["ring-sf", "mesh-pf"])
def test_each_message_is_delivered_once_and_in_order(wiring: Wiring, strategy: str, connect: Connect) -> None:
    run(wiring, strategy, connect, FEW)


@pytest.mark.parametrize(("wiring", "strategy"), [(RING, "pf"), (MESH, "sf")], ids=["ring-pf", "mesh-sf"])
def test_when_a_tree_link_is_cut_a_standby_takes_over_and_nothing_is_lost(
    wiring: Wiring, strategy: str, connect: Connect
) -> None:
    run_with_cut(wiring, strategy, connect, FEW)


@pytest.mark.slow
@wirings
@strategies
def test_ten_thousand_messages_are_delivered_once_and_in_order(
    wiring: Wiring, strategy: str, connect: Connect
) -> None:
    run(wiring, strategy, connect, ALL)


@pytest.mark.slow
@wirings
@strategies
def test_ten_thousand_messages_survive_the_cut_of_a_tree_link(
    wiring: Wiring, strategy: str, connect: Connect
) -> None:
    run_with_cut(wiring, strategy, connect, ALL)
