"""What an overlay costs each node: sites that publish to sites over links on demand, in virtual time.

Owns the scenario: everybody is a member, some sites subscribe to all topics, some publish to all of them at a
steady rate, and at a set time the nodes closest to the topics' keys may be killed. Measured are each node's
bytes and the latency at each site. Invariants: a run is a pure function of its options; sites, moments and
delays depend on the seed and not on the strategy; what is published before a death, or after it by survivors
when all know of it, is expected at every surviving site that subscribed, once. Must not know: real time, how
results are shown, any strategy.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import ceil, log

from brokerweave.cooperation.overlay.keys import key_of_filter
from brokerweave.cooperation.overlay.ring import Ring, key_position
from brokerweave.errors import ConfigError
from brokerweave.membership.members import Address
from brokerweave.membership.presets import LAN
from brokerweave.plugin import Linking, OptionValue, registry
from brokerweave.sim.overlay_node import OverlayNetwork, OverlayNode
from brokerweave.sim.scale_node import ScaleClient, ScaleTraffic
from brokerweave.sim.world import World

BARRIER_TIMEOUT = 0.5
"""As in the configuration's default."""
NUMBER = 8
"""Bytes of a payload that say which publication it is."""
CLOSE = 0.99
"""The part of the deliveries before a death that counts as recovered (4.2.5 of the thesis)."""
LOOK = 0.01
"""Seconds between two looks at whether deliveries have recovered."""
BIN = 0.5
"""Seconds of a timeline that are counted together."""
STEP = 0.1
"""Virtual seconds between two reports of progress."""


@dataclass(frozen=True, slots=True)
class OverlayOptions:
    nodes: int = 50
    subscribers: int = 50
    """Sites that subscribe to every topic."""
    publishers: int = 14
    """Clients that publish to every topic, each at a site of its own while there are enough."""
    topics: int = 7
    payload: int = 4096
    strategy: str = registry.DEFAULT
    strategy_options: tuple[tuple[str, OptionValue], ...] = ()
    rate: float = 1.0
    """Publications a second of each publisher to each topic."""
    warm_up: float = 1.0
    """Seconds of publications whose latency does not count: links open, lists are fetched."""
    seconds: float = 2.0
    """Seconds of publications that count."""
    settle: float = 2.0
    """Seconds for subscriptions before anybody publishes, and for the last deliveries."""
    delays: tuple[float, float] = (0.001, 0.010)
    """Seconds one way, the least and the most of any pair: as in the thesis."""
    uplink: float = 1e9
    """Bits a second that a node can send."""
    kill: bool = False
    """Kill the node closest to each topic's key, when `warm_up` is over."""
    changes: int = 0
    """Sites that withdraw a filter at the end and ask for it again, one after another, to count packets."""
    max_links: int = 256
    shared: bool = False
    """Nodes hear of no announcements, and of their strategy is run what many in one process may share."""
    seed: int = 1

    def check(self) -> None:
        if min(self.nodes, self.publishers, self.topics) < 1 or not 0 < self.subscribers <= self.nodes:
            raise ConfigError("a run needs nodes, publishers, topics, and not more subscribers than nodes")
        if self.payload < NUMBER or self.rate <= 0 or self.uplink <= 0:
            raise ConfigError(f"a payload has at least {NUMBER} bytes; rate and uplink are above 0")
        if self.kill and self.warm_up * self.rate < 2:
            raise ConfigError("two intervals of publications have to be over before nodes are killed")
        if registry.strategy(self.strategy).linking is not Linking.ON_DEMAND:
            raise ConfigError(f"strategy {self.strategy!r} has no links on demand")


@dataclass(slots=True)
class OverlayResult:
    bytes: list[int] = field(default_factory=list)
    """In and out, of each node, over the whole run: heads, acknowledgements, handshakes, control packets and
    plans included."""
    latencies: list[float] = field(default_factory=list)
    """The mean of each site that got anything, in seconds, of what came from other sites."""
    deliveries: int = 0
    """To other sites than the publisher's, of publications that count."""
    latency_sum: float = 0.0
    published: int = 0
    missed: int = 0
    doubled: int = 0
    recovered_after: float | None = None
    """Seconds from the kill; None: nobody was killed, or not before the end."""
    timeline: list[int] = field(default_factory=list)
    """Deliveries from survivors to survivors, by when they came: in each `BIN` since the first second of
    publications."""
    control_packets: int = 0
    """In the whole run, without acknowledgements and the subscribe barrier's."""
    change_packets: float = 0.0
    """Control packets of the strategy for each change of a filter, at rest."""
    barrier_packets: float = 0.0
    """Packets of the subscribe barrier, for each of these changes."""
    plan_bytes: int = 0
    link_bytes: int = 0
    links: int = 0
    """Dialed, each attempt counted."""
    events: int = 0
    failures: int = 0
    """Exceptions of the strategy; `failure` is what a node said of one."""
    failure: str = ""

    @property
    def latency(self) -> float:
        """The mean of all deliveries."""
        return self.latency_sum / self.deliveries if self.deliveries else 0.0


@dataclass(slots=True)
class _Publication:
    at: float
    site: int
    counts: bool
    """Whether its latency does."""
    arrived: dict[int, float] = field(default_factory=dict)


class OverlayRun:
    def __init__(
        self, options: OverlayOptions, progress: Callable[[float], None] = lambda part: None
    ) -> None:
        options.check()
        self.options = options
        self.result = OverlayResult()
        self.world = world = World(str(options.seed))
        self.traffic = ScaleTraffic()
        self.traffic.injected = self._injected
        self._progress = progress
        self._publications: list[_Publication] = []
        self._killed_at: float | None = None
        self.network = OverlayNetwork(world, options.delays, options.uplink / 8, announces=not options.shared)
        strategy = registry.strategy(options.strategy)
        if options.shared:
            strategy = strategy.in_one_process()
        random = world.random("nodes")
        names = [f"s{options.seed}n{number}" for number in range(options.nodes)]
        self.nodes = [
            OverlayNode(
                self.network,
                self.traffic,
                random,
                number,
                strategy,
                BARRIER_TIMEOUT,
                name,
                dict(options.strategy_options),
                options.max_links,
            )
            for number, name in enumerate(names)
        ]
        self.network.nodes |= zip(names, self.nodes, strict=True)
        self.topics = [f"topic{number}" for number in range(options.topics)]
        sites = world.random("sites")
        self.subscribed = sorted(sites.sample(range(options.nodes), options.subscribers))
        order = sites.sample(range(options.nodes), options.nodes)
        self.publishing = [order[number % options.nodes] for number in range(options.publishers)]
        self.subscribers = {site: ScaleClient(self.nodes[site], f"s{site}") for site in self.subscribed}
        self.publishers = [
            ScaleClient(self.nodes[site], f"p{number}") for number, site in enumerate(self.publishing)
        ]

    def run(self) -> OverlayResult:
        options, begin = self.options, self.options.settle
        self._join()
        end = begin + options.warm_up + options.seconds
        self._plan_publications(begin, end)
        if options.kill:
            self.world.later(begin + options.warm_up, self._kill)
        self._until(end + options.settle)
        if options.changes:
            self._change_filters(end + options.settle)
        self._conclude()
        return self.result

    def coordinators(self) -> list[OverlayNode]:
        """The node closest to each topic's key."""
        ring = Ring(self.network.nodes)
        closest = {ring.closest(key_position(key_of_filter(topic, 0)), 1)[0] for topic in self.topics}
        return [self.network.nodes[name] for name in sorted(closest)]

    # The scenario

    def _join(self) -> None:
        members: dict[str, Address | None] = {name: (name, 1) for name in self.network.nodes}
        live = frozenset(members)
        for node in self.nodes:
            # Where nodes die each hears of it in its own time; else all have one table.
            node.join(dict(members) if self.options.kill else members, live)
        moments = self.world.random("subscribing")
        for client in self.subscribers.values():
            self.world.later(moments.uniform(0.0, self.options.settle / 2), partial(self._subscribe, client))
        for client in self.publishers:
            client.connect()

    def _subscribe(self, client: ScaleClient) -> None:
        client.connect()
        client.subscribe(*self.topics)

    def _plan_publications(self, begin: float, end: float) -> None:
        """Each publisher has a moment of its own for each topic, and keeps to it."""
        moments, interval = self.world.random("publishing"), 1 / self.options.rate
        warm = begin + self.options.warm_up
        for client in self.publishers:
            for topic in self.topics:
                at = begin + moments.uniform(0.0, interval)
                while at < end:
                    self.world.later(at, partial(self._publish, client, topic, at >= warm))
                    at += interval

    def _publish(self, client: ScaleClient, topic: str, counts: bool) -> None:
        if not self.nodes[client.node.number].alive:
            return
        number = len(self._publications)
        self._publications.append(_Publication(self.world.now, client.node.number, counts))
        client.publish(topic, number.to_bytes(NUMBER).ljust(self.options.payload, b"."))

    def _injected(self, site: int, payload: bytes) -> None:
        arrived = self._publications[int.from_bytes(payload[:NUMBER])].arrived
        if site in arrived:
            self.result.doubled += 1
        else:
            arrived[site] = self.world.now

    def _kill(self) -> None:
        self._killed_at = self.world.now
        random, count = self.world.random("detection"), self.options.nodes
        noticed = LAN.probe_interval + LAN.suspicion_times(count)[0]
        spread = LAN.gossip_interval * log(count) / log(1 + LAN.gossip_fanout)
        dead = self.coordinators()
        for node in dead:
            node.die()
            for other in self.nodes:
                after = noticed + random.uniform(0.0, spread)
                self.world.later(after, partial(other.hears_of_death, node.name))

    def _change_filters(self, begin: float) -> None:
        """One after another, a site withdraws a filter or asks for it again; nothing else happens."""
        clients = [self.subscribers[site] for site in self.subscribed[: self.options.changes]]
        topic, before = self.topics[0], (self.traffic.interest_packets, self.traffic.other_packets)
        for number, client in enumerate(clients):
            client.unsubscribe(topic)
            self._until(begin + 2 * number * self.options.settle + self.options.settle)
            client.subscribe(topic)
            self._until(begin + 2 * (number + 1) * self.options.settle)
        changes = 2 * len(clients)
        self.result.change_packets = (self.traffic.interest_packets - before[0]) / changes
        self.result.barrier_packets = (self.traffic.other_packets - before[1]) / changes

    def _until(self, end: float) -> None:
        while self.world.elapsed < end:
            self.world.run(min(self.world.elapsed + STEP, end))
            self._progress(self.world.elapsed)

    # Measuring

    def _conclude(self) -> None:
        result = self.result
        dead = {node.number for node in self.nodes if not node.alive}
        sites = frozenset(self.subscribed) - dead
        sums = dict.fromkeys(sites, (0.0, 0))
        for each in self._publications:
            result.published += 1
            if not dead:
                result.missed += len(sites - {each.site} - each.arrived.keys())
            if each.counts:
                for site in sites & each.arrived.keys():
                    total, count = sums[site]
                    sums[site] = total + each.arrived[site] - each.at, count + 1
        result.bytes = [node.bytes_in + node.bytes_out for node in self.nodes]
        result.latencies = [total / count for _, (total, count) in sorted(sums.items()) if count]
        result.latency_sum = sum(total for total, _ in sums.values())
        result.deliveries = sum(count for _, count in sums.values())
        result.control_packets = self.traffic.interest_packets
        result.plan_bytes, result.link_bytes = self.network.plan_bytes, self.traffic.link_bytes
        result.failures = sum(node.core.counters["strategy_failures"] for node in self.nodes)
        result.failure = next((text for _, _, text in self.world.trace if "failed in" in text), "")
        result.links, result.events = self.network.dials, self.world.events
        if self._killed_at is not None:
            killed_at, interval = self._killed_at, 1 / self.options.rate
            surviving = [each for each in self._publications if each.site not in dead]
            reached = [sites & each.arrived.keys() for each in surviving]
            times = sorted(
                each.arrived[site] - killed_at
                for each, found in zip(surviving, reached, strict=True)
                for site in found
            )
            # Of the last interval but one, by when they were published: none of them was on its way then.
            before = sum(
                len(found)
                for each, found in zip(surviving, reached, strict=True)
                if -2 * interval <= each.at - killed_at < -interval
            )
            result.recovered_after = self._recovery(times, before, interval)
            bins = Counter(int((at + self.options.warm_up) / BIN) for at in times)
            last = round((self.options.warm_up + self.options.seconds) / BIN)
            result.timeline = [bins[number] for number in range(last)]

    def _recovery(self, times: list[float], before: int, interval: float) -> float | None:
        """When the deliveries from survivors to survivors within one interval are again what they were
        `before` the kill, which is at 0. Moments are the same in each interval, so nothing else changes their
        number."""
        for step in range(ceil((self.options.seconds - interval) / LOOK)):
            begin = step * LOOK
            if bisect_left(times, begin + interval) - bisect_left(times, begin) >= CLOSE * before:
                return begin
        return None
