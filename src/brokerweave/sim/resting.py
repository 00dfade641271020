"""What must be true when nothing happens any more.

Owns the conditions for rest (links up, nothing pending, subscriptions known everywhere) and for emptiness (no
filters left after the last subscriber has gone). Each check returns the first problem in words, or nothing.
Must not know: how long it may take.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from brokerweave.mqtt.topics import matches
from brokerweave.sim.checker import INJECTOR
from brokerweave.sim.expected_any_way import way
from brokerweave.sim.schedule import PLANNED, TOPICS
from brokerweave.sim.ways import find

if TYPE_CHECKING:
    from brokerweave.sim.run import Simulation


def unrest(simulation: Simulation) -> str:
    """The first thing that is not at rest."""
    found = _links(simulation) or _queues(simulation) or _clients(simulation)
    if simulation.view is None:
        found = found or _interest(simulation)
    if not found and simulation.region is not None:
        found = simulation.region.unsettled()
    if not found and simulation.options.promises.retained:
        found = _retained(simulation)
    return found


def left_behind(simulation: Simulation) -> str:
    """The first thing that the last subscriber left behind."""
    for name, node in simulation.nodes.items():
        interest = node.core.interest
        if interest.filters() or interest.records:
            return f"{name} still has interest {interest.filters()} of {list(interest.records)}"
        if (simulation.traits.selective or simulation.on_demand) and not simulation.cares:
            for neighbour in node.core.neighbours():
                described = node.core.strategy.describe(neighbour)
                if described.get("filters_from") or described.get("filters_to"):
                    return f"{name} still holds filters of {neighbour}: {described}"
            if not simulation.on_demand and any((sent := _hops(simulation, name)).values()):
                return f"{name} still sends to neighbours: {sent}"
    if simulation.on_demand and (found := _queues(simulation) or _ways(simulation)):
        return found
    for name, broker in simulation.brokers.items():
        sessions = [client for client in broker.sessions if not client.startswith(INJECTOR)]
        sessions = [client for client in sessions if not _may_have_left(simulation, client, name)]
        if sessions:
            return f"the broker of {name} still has sessions of {sessions}"
    return ""


def _may_have_left(simulation: Simulation, client: str, site: str) -> bool:
    """Whether a session stays that its client left as planned, while its site was out of reach, or its broker
    down (row "session" of docs/guarantees.md)."""
    faults = simulation.options.faults
    amid_faults = bool(faults & PLANNED and faults - PLANNED)
    return amid_faults and simulation.clients[client].site != site


def _links(simulation: Simulation) -> str:
    if simulation.on_demand:
        return _members(simulation)
    for name, node in simulation.nodes.items():
        wanted = simulation.topology.neighbours(name)
        known = sorted(node.core.neighbour_table.ids())
        if known != wanted:
            return f"{name} has the neighbours {known}, not {wanted}"
        for neighbour in node.core.neighbour_table.all():
            if not all(neighbour.connected):
                return f"the link from {name} to {neighbour.id} is down"
    if simulation.cyclic:
        tree = simulation.tree()
        if tree is None or len(tree.nodes) != len(simulation.names):
            return "not all nodes see one settled tree"
        for name, node in simulation.nodes.items():
            if sorted(node.core.neighbours()) != sorted(tree.neighbours(name)):
                return f"{name} counts on {node.core.neighbours()}, not on {tree.neighbours(name)}"
    return ""


def _members(simulation: Simulation) -> str:
    for name, node in simulation.nodes.items():
        live = node.core.cluster.live
        if live != frozenset(simulation.names):
            return f"{name} takes {sorted(live)} for the live members"
    return ""


def _queues(simulation: Simulation) -> str:
    for name, node in simulation.nodes.items():
        for outbox in node.outboxes:
            if outbox.backlog_runs:
                return f"{name} {outbox.place} still has {outbox.backlog_runs} pending runs"
        if node.core.waiting:
            return f"{name} still waits for the routes of {node.core.waiting.queues()}"
    return ""


def _clients(simulation: Simulation) -> str:
    for client in simulation.clients.values():
        if not client.connected:
            return f"{client.name} is not connected"
        if client.busy:
            return f"{client.name} has unacknowledged messages"
        session = simulation.brokers[client.site].sessions.get(client.name)
        if session is None or session.filters != client.wanted:
            return f"{client.name}'s filters are not at its broker"
        if session.queue or session.sent:
            return f"messages wait for {client.name} at its broker"
    return ""


def _interest(simulation: Simulation) -> str:
    """Subscriptions are known as a fresh start would know them (ILDM 3.2)."""
    wanted: dict[str, dict[str, int]] = {name: {} for name in simulation.names}
    for client in simulation.clients.values():
        for topic_filter, qos in client.wanted.items():
            here = wanted[client.site]
            here[topic_filter] = max(qos, here.get(topic_filter, 0))
    # A node whose disk failed when it ended may have come back with a filter that was withdrawn meanwhile; it
    # goes when its client's session ends (docs/guarantees.md, failing disk).
    stale = any(end.disk_failed for ends in simulation.facts.ends.values() for end in ends)
    exact = simulation.traits.selective
    for name, node in simulation.nodes.items():
        known = node.core.interest.filters()
        covered = all(known.get(topic_filter, -1) >= qos for topic_filter, qos in wanted[name].items())
        if known != wanted[name] and not (stale and covered):
            return f"{name} knows {known} of its clients, not {wanted[name]}"
        if simulation.on_demand:
            continue
        sent = _hops(simulation, name)
        for neighbour in node.core.neighbour_table.ids():
            beyond = _beyond(simulation, name, neighbour, wanted)
            problem = _differs(sent, neighbour, beyond, exact=exact and not stale)
            if problem:
                return f"{name} routes {sent}: {problem}"
    return _ways(simulation, wanted, exact=exact and not stale) if simulation.on_demand else ""


def _ways(
    simulation: Simulation, wanted: Mapping[str, Mapping[str, int]] = MappingProxyType({}), exact: bool = True
) -> str:
    """From every node each topic leads to the sites where it is wanted, and if `exact` to no other."""
    exact = exact and simulation.traits.selective
    # All are asked before one is judged: a node may have to ask others first, and they take their time.
    ways = {(n, topic): find(simulation.nodes, n, topic) for n in simulation.names for topic in TOPICS}
    for name in simulation.names:
        for topic in TOPICS:
            way = ways[name, topic]
            if not way.known:
                return f"{name}, or a node on the way from there, does not know where {topic} goes"
            for site in simulation.names:
                asked = wanted.get(site, {})
                qos = max((qos for each, qos in asked.items() if matches(each, topic)), default=-1)
                if site != name and way.sites.get(site, -1) < qos:
                    return f"{topic}, wanted at {site} at QoS {qos}, goes from {name} to {way.sites} only"
                if exact and site in way.sites and qos < 0:
                    return f"{topic} goes from {name} to {site}, where nobody wants it"
    return ""


def _hops(simulation: Simulation, name: str) -> dict[str, dict[str, int]]:
    """By topic: the neighbours that a node sends it to for subscribers, each with its QoS."""
    strategy = simulation.nodes[name].core.strategy
    return {
        topic: {hop.neighbour: hop.qos for hop in strategy.route(topic, None).hops if hop.qos >= 0}
        for topic in TOPICS
    }


def _retained(simulation: Simulation) -> str:
    """Every broker retains the newest message, and no topic is doubtful at a node."""
    if simulation.on_demand and not simulation.retained_everywhere:
        return _retained_where_wanted(simulation)
    first = simulation.names[0]
    rules = simulation.view.retained if simulation.view is not None else simulation.checker.retained
    unsure = rules.unsure_topics()

    def sure(name: str) -> dict[str, bytes]:
        held = simulation.brokers[name].retained_payloads() or {}
        return {topic: payload for topic, payload in held.items() if topic not in unsure}

    for name in simulation.names:
        if len(simulation.nodes[name].core.retained.check):
            return f"{name} still checks its broker's retained messages"
        if sure(name) != sure(first):
            return f"the broker of {name} retains {sure(name)}, that of {first} {sure(first)}"
    for topic, payload in sure(first).items():
        newer = rules.newer_than(payload)
        if newer is not None:
            return f"{topic} ends with {payload!r}, though {newer!r} came after it"
    return ""


def _retained_where_wanted(simulation: Simulation) -> str:
    """All brokers of sites where a topic is wanted retain the same message of it, or none."""
    rules = simulation.checker.retained
    unsure = rules.unsure_topics()
    for name, node in simulation.nodes.items():
        if len(node.core.retained.check):
            return f"{name} still checks its broker's retained messages"
    for topic in (topic for topic in TOPICS if topic not in unsure):
        held: dict[str, bytes | None] = {}
        for client in simulation.clients.values():
            if any(matches(topic_filter, topic) for topic_filter in client.wanted):
                broker = simulation.brokers[client.site]
                held[client.site] = (broker.retained_payloads() or {}).get(topic)
        if len(set(held.values())) > 1:
            return f"the brokers of sites that want {topic} retain {held}"
        payload = next(iter(held.values()), None)
        newer = rules.newer_than(payload) if payload is not None else None
        if newer is not None:
            return f"{topic} ends with {payload!r}, though {newer!r} came after it"
    return ""


def _beyond(
    simulation: Simulation, name: str, neighbour: str, wanted: dict[str, dict[str, int]]
) -> dict[str, int]:
    """What is wanted at `neighbour` and all nodes behind it, seen from `name`."""
    found: dict[str, int] = {}
    tree = simulation.tree()
    for other in simulation.names:
        path = simulation.topology.path(name, other)
        if simulation.cyclic:
            path = way(tree, name, other) if tree is not None else None
        if path is not None and len(path) > 1 and path[1] == neighbour:
            for topic_filter, qos in wanted[other].items():
                found[topic_filter] = max(qos, found.get(topic_filter, 0))
    return found


def _differs(sent: dict[str, dict[str, int]], neighbour: str, wanted: dict[str, int], *, exact: bool) -> str:
    """Each topic goes to the neighbour if it is wanted there, and if `exact` only then."""
    for topic, hops in sent.items():
        qos = max((qos for each, qos in wanted.items() if matches(each, topic)), default=-1)
        if hops.get(neighbour, -1) < qos:
            return f"{topic} at QoS {qos} is missing for {neighbour}"
        if exact and hops.get(neighbour, -1) > qos:
            return f"nobody at {neighbour} wants {topic} at QoS {hops[neighbour]}"
    return ""
