"""A link that is cut for long under traffic, while both its nodes are killed: nothing promised is broken.

Everything is cluster delivery between clients with persistent sessions, which never subscribe a second time.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from brokerweave.mqtt.packets import Connect as ConnectPacket
from brokerweave.mqtt.packets import Publish, Subscribe, Subscription
from tests.integration.conftest import Connect
from tests.support.proxy import Proxy
from tests.support.publisher import StrictPublisher
from tests.support.raw import RawClient
from tests.support.retained import wait_for_retained
from tests.support.sites import QUICK, Network, Settings, merged, network, start_broker
from tests.support.waiting import wait_until

IN_FLIGHT = 20
ENDLESS = ("max_queued_messages 0", f"max_inflight_messages {IN_FLIGHT}", "set_tcp_nodelay true")
LANES, OUTBOX_MEMORY = 2, 256 << 10
MIB = 1 << 20
SETTINGS: Settings = merged(
    QUICK, {"node": {"delivery": "cluster"}, "links": {"sessions": LANES, "outbox_memory": OUTBOX_MEMORY}}
)
SLACK = 8 * MIB
"""What an interpreter's own memory may grow by."""
PACE = 0.005
"""Seconds between two messages of a publisher: the traffic is to last, not to be much."""


@contextmanager
def cuttable() -> Iterator[tuple[Network, Proxy]]:
    """a ──proxy── b ── c, brokers that queue without limit, outboxes that hold little in memory."""
    with ExitStack() as stack:
        brokers = {name: start_broker("mosquitto", config=ENDLESS) for name in "abc"}
        for broker in brokers.values():
            stack.callback(broker.close)
        net = stack.enter_context(network([("b", "c")], alone=["a"], brokers=brokers, settings=SETTINGS))
        proxy = stack.enter_context(Proxy(net.node("b").link_port))
        net.link("a", "b", proxy.port)
        yield net, proxy


class Traffic:
    """A publisher at each end of the row, from now until `stop`."""

    def __init__(self, net: Network, qos: int) -> None:
        self._enough = threading.Event()
        self._pool = ThreadPoolExecutor(2)
        self.publishers = {
            name: StrictPublisher(net.port(name), f"at-{name}", f"t/{name}", qos) for name in "ac"
        }
        self.so_far = Counter[str]()
        self._sent: dict[str, Future[list[bytes]]] = {
            name: self._pool.submit(
                publisher.publish_until, lambda _: self._enough.is_set(), self._count(name)
            )
            for name, publisher in self.publishers.items()
        }

    def _count(self, name: str) -> Callable[[int], None]:
        def meanwhile(number: int) -> None:
            self.so_far[name] = number
            time.sleep(PACE)

        return meanwhile

    def wait_for_more(self) -> None:
        """Both publishers went on meanwhile."""
        wanted = {name: number + 20 for name, number in self.so_far.items()}
        wait_until(lambda: all(self.so_far[name] >= number for name, number in wanted.items()), "traffic")

    def stop(self) -> dict[str, list[bytes]]:
        """What each publisher has sent, all of it acknowledged."""
        self._enough.set()
        sent = {name: future.result(30) for name, future in self._sent.items()}
        self._pool.shutdown()
        return sent


class Probe:
    """The time from a publication to its arrival at a subscriber beside the publisher."""

    def __init__(self, stack: ExitStack, port: int, topic: str) -> None:
        self._topic = topic
        self._here, self._there = (stack.enter_context(RawClient(port)) for _ in range(2))
        for number, client in enumerate((self._here, self._there)):
            client.send(ConnectPacket(f"probe-{number}-{topic}"))
            client.read_packets(1)
        self._there.send(Subscribe(1, (Subscription(topic),)))
        self._there.read_packets(1)

    def sample(self) -> list[float]:
        """Many, from the shortest to the longest."""
        return sorted(self._seconds() for _ in range(200))

    def _seconds(self) -> float:
        begin = time.perf_counter()
        self._here.send(Publish(self._topic, b"probe", 1, packet_id=1))
        self._there.read_packets(1)
        took = time.perf_counter() - begin
        self._here.read_packets(1)
        return took


def memory(net: Network, name: str, line: str) -> int:
    """VmRSS: what the node uses; VmHWM: the most it ever used since it was started."""
    status = Path(f"/proc/{net.node(name).pid}/status").read_text()
    return int(status.partition(f"{line}:")[2].split()[0]) << 10


class Story:
    """Who takes part, and what is to be compared at the end."""

    def __init__(self, net: Network, proxy: Proxy, connect: Connect, stack: ExitStack, qos: int) -> None:
        self.net, self.proxy, self.connect, self.qos = net, proxy, connect, qos
        self.clients = {name: connect(net.port(name), f"subscriber-{name}", clean=False) for name in "abc"}
        for client in self.clients.values():
            client.subscribe("t/#", qos)
        self.clients["b"].subscribe("bulk/#", 1)
        net.settle()
        self.keeper = connect(net.port("c"), "keeper")
        for topic in ("kept", "deleted", "last"):
            self.keeper.publish(topic, b"before", 1, retain=True)
        wait_for_retained(net, {"kept": b"before", "deleted": b"before"})
        self.probe = Probe(stack, net.port("a"), "bulk/probe")
        self.traffic = Traffic(net, qos)
        stack.callback(self.traffic.stop)
        self.traffic.wait_for_more()
        self.linked = self.probe.sample()
        self.memory = {name: memory(net, name, "VmRSS") for name in "ab"}
        self.grown: dict[str, int] = {}

    def note_memory(self, name: str, when: str) -> None:
        self.grown[f"{name} {when}"] = memory(self.net, name, "VmHWM") - self.memory[name]

    def wait_until_down(self, name: str, other: str) -> None:
        wait_until(lambda: self.net.node(name).link(other)["state"] == "down", "noticing the cut")

    def cut(self, seconds: float, bulk: list[bytes]) -> None:
        """The link is away for so long, and there is much to do at both of its ends."""
        self.proxy.stall()  # no word to either side: they have to notice
        end = time.monotonic() + seconds
        for name, other in ("ab", "ba"):
            self.wait_until_down(name, other)
        self.traffic.wait_for_more()
        self.cut_off = self.probe.sample()
        self.clients["c"].close()  # until all is over
        self.connect(self.net.port("a"), "deleter").publish("deleted", b"", 1, retain=True)
        self.keeper.publish("new", b"during", 1, retain=True)
        self.connect(self.net.port("a"), "bulk").publish_all("bulk/t", bulk, 1)
        self.note_memory("a", "owing")
        self.owed_bytes = self.net.node("a").link("b")["backlog_bytes"]
        for name in "ab":
            self.net.node(name).restart(kill=True)
            self.clients[name].come_back()
            self.traffic.wait_for_more()
        wait_until(lambda: time.monotonic() > end, "the end of the cut", seconds + 1)
        assert self.net.node("a").link("b")["state"] == "down"

    def heal(self) -> dict[str, list[bytes]]:
        """What each publisher sent, once all of it is where it belongs, or should be."""
        self.proxy.cut()  # what was on its way is lost
        self.proxy.resume()
        self.net.wait_for_links()
        self.traffic.wait_for_more()
        sent = self.traffic.stop()
        self.net.wait_until_nothing_is_pending(60)
        for name in "ab":
            self.note_memory(name, "killed and restarted")
        self.clients["c"].come_back()
        assert self.clients["c"].session_present
        return sent

    def check(self, source: str, sent: list[bytes], name: str) -> None:
        """What the publisher at `source` sent is at the subscriber of site `name`, as often as allowed."""
        client, topic = self.clients[name], f"t/{source}"
        client.wait_for(lambda _: set(client.payloads(topic)) >= set(sent))
        got = client.payloads(topic)
        assert set(got) == set(sent)
        # QoS 1: what the publisher had no answer to, nor the broker when the subscriber's connection ended,
        # nor the injector when its node was killed.
        repeated = self.traffic.publishers[source].repeated
        unanswered = repeated + IN_FLIGHT + (IN_FLIGHT if name in "ab" and name != source else 0)
        assert len(got) - len(sent) <= (0 if self.qos == 2 else unanswered), f"{source} to {name}"

    def tell(self) -> str:
        grown = ", ".join(f"{what} +{amount / MIB:.1f} MiB" for what, amount in self.grown.items())
        ratio = statistics.median(self.cut_off) / statistics.median(self.linked)
        return (
            f"QoS {self.qos}: {self.owed_bytes / MIB:.0f} MiB owed; memory: {grown}; "
            f"median local latency, cut off / linked: {ratio:.2f}"
        )


@pytest.mark.parametrize("qos", [2, 1])
@pytest.mark.parametrize(
    ("seconds", "megabytes"),
    [(3.0, 24), pytest.param(60.0, 96, marks=pytest.mark.slow)],
    ids=["short", "minute"],
)
def test_a_long_cut_and_kill_9_of_both_its_nodes_lose_nothing_and_double_no_qos_2(
    connect: Connect, qos: int, seconds: float, megabytes: int
) -> None:
    bulk = [b"%d" % number + bytes(16 << 10) for number in range(megabytes * MIB // (16 << 10))]
    with cuttable() as (net, proxy), ExitStack() as stack:
        story = Story(net, proxy, connect, stack, qos)
        story.cut(seconds, bulk)
        sent = story.heal()
        print(f"\ncut for {seconds:g} s, {sum(map(len, sent.values()))} messages, {story.tell()}")
        for source, payloads in sent.items():
            for name in "abc":
                story.check(source, payloads, name)
        at_b = story.clients["b"]
        at_b.wait_for(lambda _: set(at_b.payloads("bulk/t")) >= set(bulk), 60)
        wait_for_retained(net, {"kept": b"before", "new": b"during"}, "deleted")
        for site in net.sites.values():
            status = site.node.status()
            assert not any(status["drops"].values()), status["drops"]
            assert status["counters"]["dead_letters"] == 0
        allowed = LANES * OUTBOX_MEMORY + SLACK
        assert story.owed_bytes > 2 * allowed
        assert max(story.grown.values()) < allowed, story.grown
        # Not the medians: on a busy machine they say how busy it was.
        assert story.cut_off[20] < 5 * story.linked[20]
