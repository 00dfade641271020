"""What must be true when nothing happens any more.

Owns the conditions for rest (links up, nothing owed, subscriptions known everywhere) and for emptiness (no
interest left when the last subscriber has gone). Each check gives the first problem in words, or nothing.
Must not know: how long it may take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerweave.cooperation.sf import SubscriptionFlooding
from brokerweave.mqtt.topics import covers
from brokerweave.sim import caring
from brokerweave.sim.checker import INJECTOR
from brokerweave.sim.expected_any_way import way

if TYPE_CHECKING:
    from brokerweave.sim.run import Simulation


def unrest(simulation: Simulation) -> str:
    """The first thing that is not at rest."""
    found = _links(simulation) or _queues(simulation) or _pushes(simulation)
    found = found or _clients(simulation) or _interest(simulation)
    if not found and simulation.options.promises.retained:
        found = _retained(simulation)
    return found


def left_behind(simulation: Simulation) -> str:
    """The first thing that the last subscriber left behind."""
    for name, node in simulation.nodes.items():
        interest = node.core.interest
        if interest.filters() or interest.records:
            return f"{name} still has interest {interest.filters()} of {list(interest.records)}"
        strategy = node.core.strategy
        if isinstance(strategy, SubscriptionFlooding):
            for neighbour in node.core.neighbours():
                if strategy.interest_of(neighbour) or strategy.asked_of(neighbour):
                    return f"{name} still holds {strategy.interest_of(neighbour)} for {neighbour}"
    for name, broker in simulation.brokers.items():
        sessions = [client for client in broker.sessions if not client.startswith(INJECTOR)]
        if sessions:
            return f"the broker of {name} still has sessions of {sessions}"
    return ""


def _links(simulation: Simulation) -> str:
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


def _queues(simulation: Simulation) -> str:
    for name, node in simulation.nodes.items():
        for outbox in node.outboxes:
            if outbox.backlog_runs:
                return f"{name} {outbox.place} still owes {outbox.backlog_runs} runs"
    return ""


def _pushes(simulation: Simulation) -> str:
    """In a mesh who keeps something for others' clients tells them, some time after a link is up."""
    for name, node in simulation.nodes.items():
        if caring.pushing(node.core):
            return f"{name} has yet to say what it keeps for others' clients"
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
    for name, node in simulation.nodes.items():
        known = node.core.interest.filters()
        covered = all(known.get(topic_filter, -1) >= qos for topic_filter, qos in wanted[name].items())
        if known != wanted[name] and not (stale and covered):
            return f"{name} knows {known} of its clients, not {wanted[name]}"
        strategy = node.core.strategy
        if isinstance(strategy, SubscriptionFlooding):
            for neighbour in node.core.neighbour_table.ids():
                held = dict(strategy.interest_of(neighbour))
                problem = _differs(held, _beyond(simulation, name, neighbour, wanted), stale)
                if problem:
                    return f"{name} holds {held} for {neighbour}: {problem}"
    return ""


def _retained(simulation: Simulation) -> str:
    """Every broker retains the same, the newest, and no node doubts that."""
    first = simulation.names[0]
    unsure = simulation.checker.retained.unsure_topics()

    def sure(name: str) -> dict[str, bytes]:
        held = simulation.brokers[name].retained_payloads() or {}
        return {topic: payload for topic, payload in held.items() if topic not in unsure}

    for name in simulation.names:
        if len(simulation.nodes[name].core.retained.check):
            return f"{name} still doubts its broker's retained messages"
        if sure(name) != sure(first):
            return f"the broker of {name} retains {sure(name)}, that of {first} {sure(first)}"
    for topic, payload in sure(first).items():
        newer = simulation.checker.retained.newer_than(payload)
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


def _differs(held: dict[str, int], wanted: dict[str, int], stale: bool) -> str:
    """Everything wanted is covered, and nothing is held that nobody wants (unless it may be `stale`)."""
    for topic_filter, qos in held.items():
        if wanted.get(topic_filter, -1) < qos and not stale:
            return f"nobody there wants {topic_filter} at QoS {qos}"
    for topic_filter, qos in wanted.items():
        if not any(covers(f, topic_filter) and q >= qos for f, q in held.items()):
            return f"{topic_filter} at QoS {qos} is missing"
    return ""
