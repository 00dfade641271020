"""One run: builds sites from a seed, carries out a schedule, and checks what must hold in the end.

Owns the order of a run: traffic and faults; then everything heals and must come to rest within a bound, with
every promise kept; then all clients leave, and nothing may be left behind. A run is a pure function of its
seed, options and schedule. Must not know: many runs, how results are shown.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from brokerweave.errors import ConfigError
from brokerweave.mqtt.topics import matches
from brokerweave.node.tree import Tree
from brokerweave.plugin import Linking, NetworkShape, OptionValue, Strategy, registry
from brokerweave.session import proxy_header
from brokerweave.session.move_ticket import NUMBER_BYTES, PlannedMove, make
from brokerweave.sim import schedule, topology, ways
from brokerweave.sim.acting import Actor
from brokerweave.sim.broker import ModelBroker
from brokerweave.sim.checker import Checker
from brokerweave.sim.client import ModelClient, identity
from brokerweave.sim.expected import Expected
from brokerweave.sim.expected_any_way import ExpectedAnyWay
from brokerweave.sim.expected_by_members import ExpectedByMembers
from brokerweave.sim.expected_in_one_hop import ExpectedInOneHop
from brokerweave.sim.facts import Facts
from brokerweave.sim.gateways import faults as gateway_faults
from brokerweave.sim.gateways.region import GatewayRegion
from brokerweave.sim.linking import Socket
from brokerweave.sim.member import ClusterNetwork, SimMember
from brokerweave.sim.node import KEY, NodeOptions, SimNode
from brokerweave.sim.pipes import StreamNetwork
from brokerweave.sim.promises import Broken, Promises
from brokerweave.sim.resting import left_behind, unrest
from brokerweave.sim.schedule import Action
from brokerweave.sim.users_view.allowances import ALLOWANCES
from brokerweave.sim.users_view.faults import FaultLog
from brokerweave.sim.users_view.history import History
from brokerweave.sim.users_view.view import UsersView
from brokerweave.sim.world import VirtualHost, World

CARE = {"copies": 2, "window": 30.0, "client_bytes": 1 << 20, "max_bytes": 8 << 20}
"""Options of a strategy whose nodes keep messages for clients that lose their site."""
LAID = {NetworkShape.STAR: topology.STAR, NetworkShape.FULL: topology.FULL}
"""How nodes are linked where the strategy does not leave that open."""
LOOK_SECONDS = 0.5
TICKET_SECONDS = 1e6
"""Nodes' clocks may jump."""
CLUSTER_TIMEOUT = 2.0
REST_BOUND = 60.0
"""Seconds after the last fault in which everything must have come to rest."""
SILENT_SECONDS = 3.0
"""What has been on its way for that long has arrived."""
APART_SECONDS = 0.1
"""Between two of the last publications: small queues hold few at once."""
LEAVE_BOUND = 20.0
CALM_SECONDS = 4.0
"""How long a fault that is over can still be felt: a dead link is noticed after three pings."""
IDLE_CLOSE, MAX_LINKS = (60.0, 60.0, 2.0), (256, 256, 3)
"""Of nodes that are linked on demand: as a seed decides."""
PATIENCE = 10.0
"""How many times longer acknowledgements wait for others where links wait for one another's end."""
SPLIT_SEEDS = 0.3
"""The part of the seeds in which partitions have two sides of several such nodes."""
LOSS = (0.0, 0.02, 0.05)
"""The part of membership's datagrams that is lost."""
_WIDE, _NEAR = 0.02, 0.0005


@dataclass(frozen=True, slots=True)
class SimOptions:
    strategy: str = registry.DEFAULT
    nodes: int = 4
    faults: frozenset[str] = frozenset(schedule.FAULTS)
    duration: float = 20.0
    wiring: str = "tree"
    cycles: bool = False
    """Nodes take care of cycles (`[links] cycles = "stand-by"`) also where the wiring has none."""
    equal: bool = False
    """Clients speak MQTT 5, brokers pass user properties, and all publications have one payload."""
    promises: Promises = field(default_factory=Promises)
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    """Of the strategy; they win over what a run sets by itself."""


@dataclass(slots=True)
class SeedOutcome:
    seed: int
    problem: str = ""
    """Empty if everything held."""
    at: float = 0.0
    actions: list[Action] = field(default_factory=list)
    trace: list[str] = field(default_factory=list)
    allowances: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    possible: int = 0
    """How many allowances there are, where they are listed."""


class Simulation:
    """Sites, clients and what watches them."""

    def __init__(self, seed: int, options: SimOptions) -> None:
        self.world = world = World(str(seed))
        self.options = options
        random = world.random("sites")
        self.names = [chr(ord("a") + n) if n < 26 else f"n{n}" for n in range(options.nodes)]
        self.topology = topology.Topology(self.names)
        self.network = StreamNetwork(world, _delay_of_movers if schedule.MOVE in options.faults else _delay)
        strategy = registry.strategy(options.strategy)
        self.traits = traits = strategy.traits
        self.cares = cares = traits.keeps_for_absent
        laid = topology.decide(options.wiring, world.random("wiring"))
        wiring = LAID.get(traits.wiring, laid)
        self.on_demand = strategy.linking is Linking.ON_DEMAND
        """Nodes are members of a cluster, with membership of their own, and linked as they need it."""
        self.retained_everywhere = strategy.retained_everywhere
        if self.on_demand:
            wiring = topology.FULL
        self.gone: set[str] = set()
        """Sites whose brokers died with their sessions, and are not back yet: a balancer avoids them."""
        self.is_tree = wiring not in topology.CYCLIC
        self.cyclic = (
            (options.cycles or not self.is_tree) and traits.wiring is NetworkShape.TREE and not self.on_demand
        )
        """Whether nodes take care of cycles."""
        self.expected = Expected(self.topology, self.leads, self.calm, self.firm)
        if self.cyclic:
            self.expected = ExpectedAnyWay(
                self.topology, self.leads, self.calm, self.firm, self.tree, self.linked
            )
        elif self.on_demand:
            self.expected = ExpectedByMembers(
                self.topology, self.calm, self._way, self._knows, self._quiet, self._in_time
            )
        elif traits.wiring is NetworkShape.FULL:
            self.expected = ExpectedInOneHop(self.topology, self.leads, self.calm, self.firm)
        self._calm_at = world.now + CALM_SECONDS
        cluster = random.random() < 0.3 or cares
        self.facts = Facts(
            world,
            options.promises,
            self.expected.allowances,
            cluster=cluster,
            cyclic=self.cyclic,
            returns=strategy.returns,
            relays=strategy.follow is not Strategy.follow,
            best_effort=strategy.traits.best_effort,
        )
        if self.on_demand:  # nodes may wait for room for their links, and for each other
            self.facts.late_answers = lambda node: self.nodes[node].core.counters["cluster_timeouts"]
        self.checker = Checker(self.facts, self.expected)
        copies = kept_copies(seed)
        self.view: UsersView | None = None
        if cares:
            history = History(lambda: world.now)
            history.at_broker = self._sent_by_broker
            history.ready = lambda site: self.nodes[site].ready
            faults = FaultLog(lambda: world.now, self.names, copies, CLUSTER_TIMEOUT)
            history.disturbed = lambda since: faults.any_between(since - CALM_SECONDS, world.now)
            self.view = UsersView(history, faults)
        demand = world.random("links on demand")
        closing = {"idle_close": demand.choice(IDLE_CLOSE), "max_links": demand.choice(MAX_LINKS)}
        crowded = self.on_demand and closing["max_links"] < options.nodes - 1
        self.patience = patience = PATIENCE if crowded else 1.0
        self.cluster = ClusterNetwork(world, self.network, demand.choice(LOSS))
        self._timeouts: dict[str, int] = {}
        self._moves = 0
        self.nodes: dict[str, SimNode] = {}
        self.brokers: dict[str, ModelBroker] = {}
        for name in self.names:
            node_options = NodeOptions(
                strategy,
                injector_version=random.choice((4, 5)) if not options.equal else 5,
                passes_user_properties=options.equal,
                cluster_timeout=CLUSTER_TIMEOUT * patience if cluster else None,
                barrier_timeout=0.5 * patience if random.random() < 0.8 or cares else None,
                cycles=self.cyclic,
                idle_close=closing["idle_close"],
                max_links=int(closing["max_links"]),
                options={**({**CARE, "copies": copies} if cares else {}), **options.options},
            )
            self._build_site(name, node_options)
        for dialer, dialed in topology.lay(self.names, wiring, random):
            self.topology.add(dialer, dialed)
            if self.on_demand:
                continue
            self.nodes[dialer].neighbours.append(dialed)
            if random.random() < 0.5 or cares:  # such nodes name all others: docs/mesh.md
                self.nodes[dialed].neighbours.append(dialer)
        plans = schedule.plan_clients(world.random("clients"), self.names)
        self.clients = {
            plan.name: ModelClient(
                world,
                self.network,
                self.view.history if self.view is not None else self.checker,
                plan.name,
                plan.site,
                plan.version if not options.equal else 5,
                plan.persistent,
                plan.will_topic,
                plan.will_delay,
                equal=options.equal,
            )
            for plan in plans
        }
        self.plans = plans
        self.region: GatewayRegion | None = None
        """Gateways, where there are any."""
        if self.view is not None and options.faults & {schedule.GATEWAY, schedule.GATEWAY_DEATHS}:
            self.region = GatewayRegion(world, self.network, self.view.history, self.names, self._is_well)
            for client in self.clients.values():
                if self.region.is_behind():
                    self.region.takes(client)
        if cares:
            for client in self.clients.values():
                client.balance = self._balance
                client.header = self._header

    def _is_well(self, site: str) -> bool:
        return site not in self.gone and self.nodes[site].up and self.brokers[site].host.up

    def _sent_by_broker(self, site: str, client: str) -> set[bytes]:
        session = self.brokers[site].sessions.get(client)
        return {identity(message) for message in session.sent.values() if message} if session else set()

    def _balance(self, client: ModelClient) -> str:
        """As a balancer does that knows which sites are well."""
        if client.site not in self.gone:
            return client.site
        well = [name for name in self.names if self._is_well(name)]
        return self.world.random(f"balance/{client.name}/{self.world.now}").choice(well or [client.site])

    def _header(self, client: ModelClient, site: str) -> bytes:
        """What a gateway would write before CONNECT."""
        self._moves += 1
        move = PlannedMove(client.name, client.site, site, self._moves.to_bytes(NUMBER_BYTES, "big"))
        ticket = make(KEY, move, self.world.now + TICKET_SECONDS)
        return proxy_header.encode(None, None, (proxy_header.TICKET, ticket))

    def _build_site(self, name: str, options: NodeOptions) -> None:
        world, checker = self.world, self.checker
        host = VirtualHost(world, f"{name}/broker")
        host.start()
        if self.view is not None:
            broker = ModelBroker(host)
        else:
            broker = ModelBroker(
                host,
                lambda client, message: checker.took(name, client, message),
                lambda client, message: checker.passed_on(name, client, message),
                checker.session_forgotten,
            )
        self.brokers[name] = broker
        self.network.listen(f"{name}/broker", host, broker.accept)
        self.facts.barriers[name] = options.barrier_timeout is not None
        self.nodes[name] = SimNode(world, self.network, self.view or checker, name, options)
        self.nodes[name].read_broker = broker.retained_payloads
        if self.on_demand:
            random = world.random(f"member/{name}")
            self.nodes[name].member = SimMember(self.nodes[name].host, self.cluster, self.names, random)

    def calm(self) -> bool:
        """Whether no fault or change of a link can still be felt."""
        return self.world.now > self._calm_at

    def disturb(self, lasts: float = 0.0) -> None:
        self._calm_at = max(self._calm_at, self.world.now + lasts + CALM_SECONDS)

    def tree(self) -> Tree | None:
        """The tree, if all nodes that are up see the same one, and are done with it."""
        wirings = [node.core.wiring for node in self.nodes.values() if node.up]
        if len({wiring.view for wiring in wirings}) != 1 or not all(wiring.settled for wiring in wirings):
            return None
        return wirings[0].seen

    def firm(self, name: str) -> bool:
        return self.nodes[name].core.wiring.settled

    def linked(self, one: str, other: str) -> bool:
        """Whether both ends of a link say that it is up."""
        ends = ((self.nodes[one], other), (self.nodes[other], one))
        tables = [(node.core.neighbour_table, there) for node, there in ends if node.up]
        return len(tables) == 2 and all(there in table and table[there].up for table, there in tables)

    def _way(self, name: str, topic: str) -> ways.Way | None:
        """For `ExpectedByMembers`: where a topic goes from a node."""
        return ways.find(self.nodes, name, topic) if self.nodes[name].up else None

    def _knows(self, site: str, client: str, topic_filter: str) -> bool:
        record = self.nodes[site].core.interest.records.get(client) if self.nodes[site].up else None
        return record is not None and topic_filter in record.filters

    def _quiet(self) -> bool:
        """Whether no node has anything to tell another, and nothing is on its way between two."""
        up = [node for node in self.nodes.values() if node.up]
        return not any(
            node.links.has_to_write
            or any(other.name in node.core.waiting_controls for other in up)
            or any(socket.end.in_flight for socket in node.links.sockets)
            for node in up
        )

    def _in_time(self, site: str) -> bool:
        """Whether no SUBACK of a site went out late since it was last asked, and all are members of one
        cluster."""
        late = self.nodes[site].core.counters["barrier_timeouts"]
        before, self._timeouts[site] = self._timeouts.get(site, 0), late
        every = frozenset(self.names)
        return late == before and all(n.up and n.core.cluster.live == every for n in self.nodes.values())

    def leads(
        self, name: str, to: str | None, client: str, topic_filter: str, qos: int, for_good: bool
    ) -> bool:
        """For `Expected`: whether a node routes what a filter matches towards `to`."""
        node = self.nodes[name]
        if not node.up or (for_good and to is not None and not self._sound(node, self.nodes[to])):
            return False
        for topic in schedule.TOPICS:
            if matches(topic_filter, topic):
                route = node.core.strategy.route(topic, None)
                if to is None:
                    if not route.local:
                        return False
                elif not any(hop.neighbour == to and hop.qos >= qos for hop in route.hops):
                    return False
        if to is not None:
            return True
        # Not for another's sake: a node that lost its disk knows no session that goes on (row "session").
        record = node.core.interest.records.get(client)
        return record is not None and topic_filter in record.filters

    def _sound(self, node: SimNode, other: SimNode) -> bool:
        """Whether the link is up at both ends, and nothing is on its way from `other` to `node`."""
        if not other.up:
            return False
        here, there = node.links.carriers.get(other.name, 0), other.links.carriers.get(node.name, 0)
        if not isinstance(here, Socket) or not isinstance(there, Socket) or here.end.peer is not there.end:
            return False
        waiting = other.links.has_to_write or there.end.in_flight or there.end.severed
        return not (here.end.closed or there.end.closed or waiting)


def kept_copies(seed: int) -> int:
    return 2 + seed % 2


def plan(seed: int, options: SimOptions) -> list[Action]:
    """The schedule that a seed and options make."""
    if options.wiring not in topology.WIRINGS:
        raise ConfigError(f"wiring {options.wiring!r} is not known; known are {', '.join(topology.WIRINGS)}")
    world = World(str(seed))
    names = [chr(ord("a") + n) if n < 26 else f"n{n}" for n in range(options.nodes)]
    clients = schedule.plan_clients(world.random("clients"), names)
    actions = schedule.make(world.random("schedule"), names, clients, options.faults, options.duration)
    strategy = registry.strategy(options.strategy)
    on_demand = strategy.linking is Linking.ON_DEMAND
    traits = strategy.traits
    if traits.wiring in LAID or on_demand:
        actions = [action for action in actions if action.kind != "move"]
    if traits.keeps_for_absent and schedule.MOVE in options.faults:
        actions += schedule.planned_moves(world.random("moves"), names, clients, options.duration)
    if traits.keeps_for_absent and options.faults & {schedule.GATEWAY, schedule.GATEWAY_DEATHS}:
        deadly, random = schedule.GATEWAY_DEATHS in options.faults, world.random("orders")
        actions += gateway_faults.orders(random, names, clients, options.duration, deadly)
    if traits.keeps_for_absent and options.faults - {*schedule.PLANNED, schedule.GATEWAY_DEATHS}:
        copies, random = kept_copies(seed), world.random("deaths")
        actions += schedule.site_deaths(random, names, copies, options.duration)
    splits = world.random("splits")
    if schedule.SPLIT in options.faults or (
        on_demand and "partition" in options.faults and splits.random() < SPLIT_SEEDS
    ):
        actions += schedule.splits(splits, names, options.duration)
    actions += schedule.deletions(world.random("deletions"), clients, options.duration)
    return sorted(actions, key=lambda action: action.at)


def run(seed: int, options: SimOptions, actions: list[Action] | None = None) -> SeedOutcome:
    """Carry out a schedule, the seed's own unless another is given."""
    actions = plan(seed, options) if actions is None else actions
    simulation = Simulation(seed, options)
    outcome = SeedOutcome(seed, actions=actions)
    try:
        play(simulation, actions)
        _check(simulation)
        _leave(simulation)
    except Broken as broken:
        outcome.problem = str(broken)
    except Exception as error:
        # Whatever a pure layer raises that its callers do not expect is what this is here to find.
        last = traceback.extract_tb(error.__traceback__)[-1]
        outcome.problem = (
            f"{type(error).__name__}: {error} ({last.filename.rsplit('/', 1)[-1]}:{last.lineno})"
        )
    outcome.at = simulation.world.elapsed
    outcome.trace = simulation.world.lines()
    outcome.allowances = dict(simulation.facts.allowances)
    outcome.possible = len(ALLOWANCES) if simulation.view is not None else 0
    outcome.counts = {
        **simulation.facts.counts,
        **sum((node.moves for node in simulation.nodes.values()), Counter()),
        **(simulation.view.counts() if simulation.view is not None else {}),
        **(simulation.region.counts if simulation.region is not None else {}),
        **({} if simulation.view is not None else _expectations(simulation)),
        "events": simulation.world.events,
    }
    return outcome


def play(simulation: Simulation, actions: list[Action]) -> None:
    """Carry out a schedule, heal everything, and wait until nothing happens any more."""
    world = simulation.world
    actor = Actor(simulation)
    for action in actions:
        world.later(action.at, lambda action=action: actor.do(action))  # type: ignore[misc]
    for name, node in simulation.nodes.items():
        world.later(world.random(f"start/{name}").random() * 0.3, lambda node=node: node.up or node.start())  # type: ignore[misc]

    def look() -> None:
        simulation.expected.look()
        world.later(LOOK_SECONDS, look)

    world.later(LOOK_SECONDS, look)
    world.checks = [node.check for node in simulation.nodes.values()]
    if simulation.region is not None:
        simulation.region.start()
        world.checks.append(simulation.region.check)
    world.run(simulation.options.duration)
    actor.heal()
    _wait(simulation, "did not come to rest", REST_BOUND * simulation.patience, lambda: unrest(simulation))
    if simulation.view is not None:
        _wait_for_silence(simulation, simulation.view)
        _publish_everywhere(simulation)
        _wait_for_silence(simulation, simulation.view)


def _check(simulation: Simulation) -> None:
    if simulation.view is None:
        _check_expected(simulation)
        return
    if simulation.region is not None:
        simulation.region.judge()
    broken = simulation.view.judge(simulation.facts.allowances)
    if broken:
        raise Broken(broken[0] + (f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""))


def _leave(simulation: Simulation) -> None:
    """All clients go for good, and nothing may be left behind."""
    world = simulation.world
    for client in simulation.clients.values():
        client.end_session()
    world.run(world.elapsed + 2.0)
    for step in ("leave", "arrive", "leave"):  # a persistent session ends when its client comes back clean
        for client in simulation.clients.values():
            getattr(client, step)()
        world.run(world.elapsed + 2.0)
    _wait(
        simulation,
        "something is left behind",
        LEAVE_BOUND * simulation.patience,
        lambda: left_behind(simulation),
    )


def _wait(simulation: Simulation, what: str, bound: float, problem: Callable[[], str]) -> None:
    world = simulation.world
    deadline = world.elapsed + bound
    found = problem()
    while found:
        if world.elapsed >= deadline:
            raise Broken(f"{what} within {bound:.0f} s: {found}")
        world.run(world.elapsed + LOOK_SECONDS)
        found = problem()


def _expectations(simulation: Simulation) -> dict[str, int]:
    return {"promised": simulation.expected.promised, "unsettled": simulation.expected.unsettled}


def _wait_for_silence(simulation: Simulation, view: UsersView) -> None:
    world, bound = simulation.world, simulation.world.elapsed + REST_BOUND
    arrived = -1
    while arrived != (arrived := view.history.arrived) and world.elapsed < bound:
        world.run(world.elapsed + SILENT_SECONDS)


def _publish_everywhere(simulation: Simulation) -> None:
    """On every topic, at every site that has clients: now nothing excuses a loss."""
    for topic in schedule.TOPICS:
        for client in {client.site: client for client in simulation.clients.values()}.values():
            client.publish(topic, 1, False)
            simulation.world.run(simulation.world.elapsed + APART_SECONDS)


def _check_expected(simulation: Simulation) -> None:
    facts = simulation.facts
    for payload, delivery in simulation.expected.open():
        if facts.deliveries[delivery.client, payload] or not facts.publications[payload].acknowledged:
            continue
        if facts.publications[payload].is_will and not facts.had(delivery.path[0], payload):
            # Row "will" of docs/guarantees.md.
            facts.allowances["lost: a will of a node that was killed"] += 1
            continue
        had = [node for node in delivery.path if facts.had(node, payload)] or [delivery.path[0]]
        holders = had[-1:]
        if simulation.cyclic or simulation.on_demand:
            holders = simulation.names  # what way it took is not told
        elif any(end.mid_write for end in facts.ends[had[-1]]):
            holders = had[-2:]  # killed while it took the message: the one before may still have had it
        causes = [delivery.allowance] if delivery.allowance else []
        causes += [cause for node, cause in facts.drops[payload] if node in holders]
        if not causes and facts.may_be_lost(payload):
            causes.append("on its way while nodes or links failed")
        if not causes:
            raise Broken(
                f"{payload!r} ({facts.publications[payload].topic}) never reached {delivery.client} "
                f"({delivery.topic_filter} at {delivery.path[-1]}); {had[-1]} had it last"
            )
        facts.allowances[f"lost: {causes[-1]}"] += 1


def _delay(one: str, other: str) -> float:
    """Seconds. Nodes are far from each other; a broker and a client are near their node."""
    return _NEAR if "/" in one + other or "-" in one + other else _WIDE


def _delay_of_movers(one: str, other: str) -> float:
    """Of clients that move half are far from all sites: much is in flight to them."""
    return _WIDE if one.endswith("-2") or other.endswith("-2") else _delay(one, other)


__all__ = ["SeedOutcome", "SimOptions", "Simulation", "plan", "play", "replace", "run"]
