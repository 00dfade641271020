"""How cost grows: one scenario over a tree of 2 to 100,000 sites in virtual time, and what it cost.

Owns the scenario: links come up, clients subscribe, filters change while clients publish, a link in the
middle fails and returns, everything comes to rest, one client asks for something new. In a mesh a whole site
is cut off, declared dead, and returns, and its clients go to another site; this module announces that in
place of membership (`sim.membership` measures its cost). Invariants: a run is a pure function of its options;
what is published at rest reaches every site that wants it, and nothing reaches a site twice, or the run
reports it. Must not know: real time, memory, how results are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import accumulate, groupby
from random import Random
from typing import Any

from brokerweave.errors import ConfigError
from brokerweave.mqtt.trie import FilterTrie
from brokerweave.plugin import NetworkShape, registry
from brokerweave.session.pair import Pair
from brokerweave.sim.scale_node import ScaleClient, ScaleLink, ScaleNode, ScaleTraffic
from brokerweave.sim.scale_shapes import HUB, SHAPES, FullMesh, TreeShape
from brokerweave.sim.world import World

BARRIER_TIMEOUT = 0.5
"""As in the configuration's default."""
ZONE = 10
"""Topics in a zone; a wide filter asks for one zone."""
TRIES = 100
"""Choices for each filter that a client holds: it may be that there are not so many different ones."""
STEP = 0.01
"""How much of the run passes between two reports of progress."""

# The scenario, in parts of its duration.
LINKED, SUBSCRIBED, CUT, CALM, RETURN, PROBE, WITHDRAW = 0.01, 0.10, 0.65, 0.70, 0.75, 0.875, 0.95

# In a mesh, in seconds after a site was cut off: its clients are elsewhere, and all hold it for dead.
MOVED_AFTER, DEAD_AFTER = 1.0, 2.0


@dataclass(frozen=True, slots=True)
class ScaleOptions:
    nodes: int = 100
    shape: str = "binary"
    strategy: str = registry.DEFAULT
    duration: float = 600.0
    clients: int = 1
    """At each node."""
    holds: int = 2
    """Filters that a client holds."""
    filters: int = 50
    """Different filters that clients choose from, the n-th being chosen n times as rarely as the first."""
    wide: float = 0.0
    """The part of the choices that is a wildcard for a whole zone of ten topics."""
    churn: float = 2.0
    """Clients a second, of all together, that change what they want."""
    publications: float = 0.2
    """A second, of all clients together."""
    delay: float = 0.01
    """Seconds, of each link, one way."""
    barrier: bool = True
    """`subscribe = "barrier"`, as by default."""
    seed: int = 1

    def check(self) -> None:
        if self.shape not in SHAPES:
            raise ConfigError(f"--shape should be one of {', '.join(SHAPES)}; not {self.shape!r}")
        if self.nodes < 2 or self.clients < 1:
            raise ConfigError("a run needs two nodes and a client at each")


@dataclass(slots=True)
class ScalePhase:
    """What links carried while something went on."""

    changes: int = 0
    """Filters that clients asked for or withdrew."""
    filters_sent: int = 0
    """Filters in inter-subscribes and inter-unsubscribes, each counted on each link; in a mesh, packets
    in which a site tells what it wants."""
    interest_packets: int = 0
    barrier_packets: int = 0
    settled_after: float | None = None
    """Virtual seconds from its one event until no node heard anything new; None: not in time, or many."""


@dataclass(slots=True)
class ScaleResult:
    options: dict[str, Any]
    hops: int = 0
    """From one end of the tree to the other."""
    subscribing: ScalePhase = field(default_factory=ScalePhase)
    churn: ScalePhase = field(default_factory=ScalePhase)
    returned: ScalePhase = field(default_factory=ScalePhase)
    probe: ScalePhase = field(default_factory=ScalePhase)
    probe_known: int = 0
    """Nodes that know the way to the probe's filter, all of them if it settled (PF knows no filters)."""
    suback_after: float = 0.0
    barrier_timeouts: int = 0
    published: int = 0
    crossings: int = 0
    """Of all publications together."""
    wanted: int = 0
    """Sites, summed over publications, other than the publisher's own that wanted them."""
    checked: int = 0
    """Publications made at rest."""
    missed: int = 0
    """Sites that such a publication did not reach though it was wanted there."""
    doubled: int = 0
    """Sites that any publication reached twice."""
    table_mean: float = 0.0
    """Filters that a node knows of its neighbours, before the link fails."""
    table_max: int = 0
    link_bytes: int = 0
    events: int = 0


class _Wishes:
    """What clients want and publish: filters chosen by rank, from one seed."""

    def __init__(self, options: ScaleOptions, random: Random) -> None:
        self._random = random
        self._wide = options.wide
        zones = -(-options.filters // ZONE)
        self._zones = [f"zone/{zone}/#" for zone in range(zones)]
        self.topics = [f"zone/{n // ZONE}/{n % ZONE}" for n in range(options.filters)]
        random.shuffle(self.topics)
        self._weights = list(accumulate(1 / rank for rank in range(1, options.filters + 1)))

    def topic(self) -> str:
        return self._random.choices(self.topics, cum_weights=self._weights)[0]

    def filter(self) -> str:
        if self._wide and self._random.random() < self._wide:
            return self._random.choice(self._zones)
        return self.topic()


class ScaleRun:
    def __init__(self, options: ScaleOptions, progress: Callable[[float], None] = lambda part: None) -> None:
        options.check()
        self.options = options
        self.result = ScaleResult(asdict(options))
        self.world = world = World(str(options.seed))
        self.random = world.random("scale")
        self.traffic = ScaleTraffic()
        self.traffic.injected = self._injected
        self.traffic.suback = self._suback
        self._progress = progress
        self._wishes = _Wishes(options, world.random("wishes"))
        self._wanted: FilterTrie = FilterTrie()
        self._changes = 0
        self._arrived: list[bytearray] = []
        """For each publication, how often it reached each site."""
        self._expected: list[frozenset[int]] = []
        """For each publication made at rest, the sites that want it; of others nothing."""
        self._reached = 0.0
        self._at_rest = False
        self._prober: ScaleClient | None = None
        self._asked_at = 0.0
        strategy = registry.strategy(options.strategy).in_one_process()
        self.traits = strategy.traits
        timeout = BARRIER_TIMEOUT if options.barrier else None
        self.nodes = [
            ScaleNode(world, self.traffic, self.random, number, strategy, timeout)
            for number in range(options.nodes)
        ]
        self.full = self.traits.wiring is NetworkShape.FULL
        self.tree: TreeShape | FullMesh
        if self.full:
            self.tree = FullMesh(options.nodes)
            self._all_live()
        else:
            shape = HUB if self.traits.wiring is NetworkShape.STAR else options.shape
            self.tree = TreeShape(options.nodes, shape, world.random("tree"))
        self.result.hops = self.tree.diameter()
        self.links = [
            ScaleLink(self.nodes[child], self.nodes[parent], options.delay)
            for child, parent in self.tree.edges()
        ]
        self.clients = [
            ScaleClient(node, f"c{node.number}-{number}")
            for node in self.nodes
            for number in range(options.clients)
        ]
        self._by_name = {client.name: client for client in self.clients}

    # The scenario

    def run(self) -> ScaleResult:
        result, at = self.result, self._at
        self._begin()
        self._stream(self.options.churn, SUBSCRIBED, CALM, self._churn)
        self._stream(self.options.publications, SUBSCRIBED, 1.0, self._publish)
        self._until(LINKED)
        self._measure(result.subscribing, SUBSCRIBED)
        self._measure(result.churn, CUT)
        self._count_tables()
        self._cut()
        self._until(RETURN)
        self._measure(result.returned, PROBE, self._reconnect)
        self._settle(result.returned, at(RETURN), at(PROBE))
        self._at_rest = result.returned.settled_after is not None
        self._measure(result.probe, WITHDRAW, self._probe)
        self._settle(result.probe, at(PROBE), at(WITHDRAW))
        self._finish_probe()
        self._until(1.0)
        self._at_rest = False
        # Give the last publications the time they need; nothing else happens any more.
        self.world.run(self.options.duration + 1.0 + 2 * self.result.hops * self.options.delay)
        self._conclude()
        return result

    def _begin(self) -> None:
        arrivals = [partial(self._arrive, client) for client in self.clients]
        if self.full:
            # Where each new client is told to all, a thousand that come one by one tell a million times what
            # links tell anyway when they come up.
            self._spread(0.0, LINKED, arrivals)
            # Nodes join one after another, each linked with all before it.
            for number, links in groupby(self.links, key=lambda link: link.nodes[0].number):
                joins = LINKED + (SUBSCRIBED - LINKED) * number / self.options.nodes
                self.world.later(self._at(joins), partial(_establish, list(links)))
        else:
            self._spread(0.0, LINKED, [each.connect for each in self.links])
            self._spread(LINKED, SUBSCRIBED, arrivals)

    def _failing(self) -> list[ScaleLink]:
        if isinstance(self.tree, TreeShape):
            return [self.links[self.tree.middle()]]
        return [link for link in self.links if self.nodes[0] in link.nodes]

    def _cut(self) -> None:
        for link in self._failing():
            link.cut()
        if self.full:
            self.world.later(MOVED_AFTER, self._move_clients)
            self.world.later(DEAD_AFTER, self._hold_for_dead)

    def _reconnect(self) -> None:
        if self.full:
            self._all_live()
        for link in self._failing():
            link.connect()

    def _all_live(self) -> None:
        for node in self.nodes:
            node.members_are(each.name for each in self.nodes)

    def _hold_for_dead(self) -> None:
        dead, *others = self.nodes
        dead.members_are(())
        for node in others:
            node.members_are(each.name for each in others)

    def _move_clients(self) -> None:
        """The clients of the site that is cut off come to other sites."""
        for number, client in enumerate(self.clients[: self.options.clients]):
            filters = sorted(client.filters)
            client.lose()
            client.node = self.nodes[1 + number % (self.options.nodes - 1)]
            client.connect()
            client.subscribe(*filters)

    def _at(self, part: float) -> float:
        return part * self.options.duration

    def _until(self, part: float) -> None:
        while self._reached < part:
            self._reached = min(part, self._reached + STEP)
            self.world.run(self._at(self._reached))
            self._progress(self._reached)

    def _spread(self, start: float, end: float, actions: Sequence[Callable[[], None]]) -> None:
        for action in actions:
            self.world.later(self._at(self.random.uniform(start, end)), action)

    def _stream(self, rate: float, start: float, end: float, action: Callable[[], None]) -> None:
        for at in self._moments(rate, self._at(start), self._at(end)):
            self.world.later(at, action)

    def _moments(self, rate: float, start: float, end: float) -> Iterator[float]:
        while rate and (start := start + self.random.expovariate(rate)) < end:
            yield start

    # What clients do

    def _arrive(self, client: ScaleClient) -> None:
        client.connect()
        for _ in range(TRIES * self.options.holds):
            if len(client.filters) >= min(self.options.holds, self.options.filters):
                break
            self._ask(client)

    def _ask(self, client: ScaleClient) -> None:
        topic_filter = self._wishes.filter()
        if topic_filter not in client.filters:
            self._changes += 1
            self._wanted.add(topic_filter, client.name, 0)
            client.subscribe(topic_filter)

    def _withdraw(self, client: ScaleClient, topic_filter: str) -> None:
        self._changes += 1
        self._wanted.discard(topic_filter, client.name)

    def _churn(self) -> None:
        """Of five clients four exchange a filter for another; the fifth leaves, and another comes instead."""
        client = self.random.choice(self.clients)
        if self.random.random() < 0.8:
            old = self.random.choice(sorted(client.filters))
            self._withdraw(client, old)
            client.unsubscribe(old)
            self._ask(client)
            if not client.filters:
                self._ask(client)  # it happened to choose the same one again
        else:
            for each in sorted(client.filters):
                self._withdraw(client, each)
            client.leave()
            self._arrive(client)

    def _publish(self) -> None:
        client, topic = self.random.choice(self.clients), self._wishes.topic()
        here = client.node.number
        names = self._wanted.match(topic)
        sites = frozenset(self._by_name[name].node.number for name in names) - {here}
        self.result.published += 1
        self.result.wanted += len(sites)
        self._expected.append(sites if self._at_rest else frozenset())
        self.result.checked += self._at_rest
        self._arrived.append(bytearray(self.options.nodes))
        client.publish(topic, b"%d" % (len(self._arrived) - 1))

    def _injected(self, site: int, payload: bytes) -> None:
        arrived = self._arrived[int(payload)]
        arrived[site] = min(arrived[site] + 1, 255)

    # One filter that nobody else wants

    def _probe(self) -> None:
        self._prober = prober = self.clients[self.tree.farthest() * self.options.clients]
        self._asked_at = self.world.now
        self._changes += 1
        if prober.subscribe("probe"):
            self._suback(prober.pair)

    def _suback(self, pair: Pair) -> None:
        if self._prober is not None and pair is self._prober.pair and not self.result.suback_after:
            self.result.suback_after = round(self.world.now - self._asked_at, 6)

    def _finish_probe(self) -> None:
        assert self._prober is not None
        if self.traits.selective:
            routes = (node.core.strategy.route("probe", None) for node in self.nodes)
            self.result.probe_known = sum(bool(route.hops or route.local) for route in routes)
        self._prober.unsubscribe("probe")

    # Measuring

    def _measure(self, phase: ScalePhase, end: float, begin: Callable[[], None] = lambda: None) -> None:
        """Let time pass and note what it took."""
        before = self._sums()
        begin()
        self._until(end)
        changes, filters, interest, other = (b - a for a, b in zip(before, self._sums(), strict=True))
        phase.changes, phase.filters_sent = changes, filters
        phase.interest_packets, phase.barrier_packets = interest, other

    def _sums(self) -> tuple[int, int, int, int]:
        counters = [node.core.strategy.counters for node in self.nodes]
        sent = sum(each[name] for each in counters for name in self.traits.counts_told)
        return self._changes, sent, self.traffic.interest_packets, self.traffic.other_packets

    def _settle(self, phase: ScalePhase, since: float, until: float) -> None:
        """How long news travelled; none if it still does."""
        last = max(self.traffic.interest_at - self._zero - since, 0.0)
        if until - since - last > 4 * self.options.delay:
            phase.settled_after = round(last, 6)

    @property
    def _zero(self) -> float:
        return self.world.now - self.world.elapsed

    def _count_tables(self) -> None:
        sizes = [sum(_filters_of(node, n) for n in node.core.neighbours()) for node in self.nodes]
        self.result.table_mean = round(sum(sizes) / len(sizes), 3)
        self.result.table_max = max(sizes)

    def _conclude(self) -> None:
        result = self.result
        for expected, arrived in zip(self._expected, self._arrived, strict=True):
            result.missed += sum(not arrived[site] for site in expected)
            result.doubled += sum(map((1).__lt__, arrived))
        result.crossings = self.traffic.crossings
        result.link_bytes = self.traffic.link_bytes
        result.events = self.world.events
        result.barrier_timeouts = sum(node.core.counters["barrier_timeouts"] for node in self.nodes)


def _establish(links: Iterable[ScaleLink]) -> None:
    for link in links:
        link.establish()


def _filters_of(node: ScaleNode, neighbour: str) -> int:
    """Filters that a node knows of a neighbour."""
    return node.core.strategy.describe(neighbour).get("filters_from", 0)
