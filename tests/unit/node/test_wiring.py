"""Rings and meshes of node cores in virtual time: each message once and in order, whatever link fails."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from random import Random

import pytest

from brokerweave.cooperation.pf import PublicationFlooding
from brokerweave.cooperation.sf import SubscriptionFlooding
from brokerweave.errors import RemoteProtocolError
from brokerweave.mqtt.packets import Publish
from brokerweave.node.link_news import RECORDS_TOPIC
from brokerweave.node.wiring import SETTLED_TOPIC, TALK_TOPIC
from brokerweave.plugin import Strategy
from tests.unit.node.cyclic import World

Edge = tuple[str, str]
RING = [("a", "b"), ("b", "c"), ("c", "a")]
MESH = list(combinations("abcde", 2))
STRATEGIES = (PublicationFlooding, SubscriptionFlooding)
LIMITS = ("tree_settle_limits", "tree_view_limits")

both = pytest.mark.parametrize("strategy", STRATEGIES)


def settled(edges: Sequence[Edge], strategy: type[Strategy] = SubscriptionFlooding, seed: int = 1) -> World:
    world = World(seed, strategy)
    world.wire(edges)
    world.run(10)
    for node in world.nodes.values():
        node.subscribe("t/#")
    world.run(10)
    assert all(node.core.wiring.settled for node in world.nodes.values())
    return world


def tree_links(world: World) -> list[Edge]:
    return [(a, b) for a, b in sorted(world.links) if world.core(a).wiring.role(b) == "active"]


def check(world: World, ordered: bool = True) -> None:
    """Everything published came to every other site, once, and in order per publisher and topic."""
    for name, node in world.nodes.items():
        for other, publisher in world.nodes.items():
            for topic in {topic for topic, _ in publisher.published if name != other}:
                sent = [message for message in publisher.published if message[0] == topic]
                got = [message for message in node.taken if message in set(sent)]
                assert sorted(got) == sorted(sent)
                assert got == sent or not ordered


def counted(world: World, counter: str) -> int:
    return sum(node.core.counters[counter] for node in world.nodes.values())


@both
@pytest.mark.parametrize("edges", [RING, MESH], ids=["ring", "mesh"])
def test_a_message_crosses_each_tree_link_once_and_no_other(
    edges: list[Edge], strategy: type[Strategy]
) -> None:
    world = settled(edges, strategy)
    for _ in range(20):
        world.nodes["a"].publish("t/1")
    world.run(5)
    check(world)
    assert len(tree_links(world)) == len(world.nodes) - 1
    assert sum(world.messages.values()) == 20 * (len(world.nodes) - 1)


@pytest.mark.thorough
@both
@pytest.mark.parametrize("edges", [RING, MESH], ids=["ring", "mesh"])
@pytest.mark.parametrize("seed", range(4))
def test_when_a_tree_link_fails_under_way_another_takes_over_and_nothing_is_lost_doubled_or_moved(
    edges: list[Edge], strategy: type[Strategy], seed: int
) -> None:
    world = settled(edges, strategy, seed)
    cut = world.random.choice(tree_links(world))
    for number in range(200):
        for node in world.nodes.values():
            node.publish(f"t/{number % 3}")
        world.run(0.02)
        if number == 100:
            world.cut(*cut)
    world.run(10)
    check(world)
    assert len(tree_links(world)) == len(world.nodes) - 1
    assert sum(counted(world, limit) for limit in LIMITS) == 0


def test_when_everything_is_quiet_nothing_is_sent() -> None:
    world = settled(MESH)
    world.cut(*tree_links(world)[0])
    world.run(10)
    before = world.control_packets
    world.run(1000)
    assert world.control_packets == before


def test_unsubscribing_leaves_no_interest_behind_after_links_failed_and_returned() -> None:
    world = settled(MESH)
    cut = tree_links(world)[:2]
    for edge in cut:
        world.cut(*edge)
    world.run(3)
    for edge in cut:
        world.link(*edge)
    world.run(10)
    for node in world.nodes.values():
        node.unsubscribe("t/#")
    world.run(5)
    for node in world.nodes.values():
        described = [node.core.strategy.describe(n.id) for n in node.core.neighbour_table.all()]
        assert all(row == {"filters_from": 0, "filters_to": 0} for row in described)


def test_what_is_pending_for_a_dead_hub_reaches_those_behind_it_and_waits_for_the_hub() -> None:
    world = settled([("hub", "x"), ("hub", "y")])
    world.link("x", "y")
    world.run(5)
    world.nodes["x"].publish("t/before")
    world.cut("hub", "x")
    world.cut("hub", "y")
    world.nodes["x"].publish("t/after")
    world.run(5)
    assert [topic for topic, _ in world.nodes["y"].taken] == ["t/before", "t/after"]
    assert world.core("x").wiring.role("hub") == "owed"
    world.link("hub", "y")
    world.run(5)
    check(world)
    assert world.core("x").neighbour_table["hub"].backlog_bytes == 0


def test_what_waited_for_a_link_that_returns_and_stands_by_goes_by_the_tree() -> None:
    world = settled([("hub", "x"), ("hub", "y")])
    world.link("x", "y")
    world.run(5)
    world.cut("hub", "x")
    world.cut("hub", "y")
    world.run(1)
    for _ in range(3):
        world.nodes["x"].publish("t/1")
    world.run(1)
    before = world.messages["x", "hub"]
    world.link("hub", "y")
    world.run(0.1)
    world.link("hub", "x")
    world.run(5)
    assert world.core("x").wiring.role("hub") == "standby"
    assert world.core("x").neighbour_table["hub"].backlog_bytes == 0
    assert world.messages["x", "hub"] == before
    check(world)
    world.cut("hub", "y")
    world.run(5)
    world.nodes["x"].publish("t/1")
    world.run(5)
    assert world.messages["x", "hub"] == before + 1  # the lane is as good as before
    check(world)


def test_a_neighbour_that_an_operator_removes_gets_its_pending_messages_another_way() -> None:
    world = settled(RING)
    a, b = tree_links(world)[0]
    for _ in range(5):
        world.nodes[a].publish("t/1")
    world.remove(a, b)
    world.run(5)
    check(world)
    assert counted(world, "dropped_neighbour_removed") == 0


def test_a_link_that_flaps_costs_a_bounded_number_of_packets() -> None:
    world = settled(MESH)
    a, b = tree_links(world)[0]
    before = world.control_packets
    for _ in range(100):
        world.cut(a, b)
        world.run(0.5)
        world.link(a, b)
        world.run(0.5)
    world.run(5)
    # Per second two ends say at most five times each what others pass on over ten links.
    assert world.control_packets - before < 100 * (2 * 5 * 20 + 60)
    assert all(node.core.wiring.settled for node in world.nodes.values())


@pytest.mark.thorough
@both
@pytest.mark.parametrize("seed", range(6))
def test_links_that_fail_and_return_one_after_the_other_break_no_promise(
    strategy: type[Strategy], seed: int
) -> None:
    random = Random(seed)
    world = settled(_random_edges(random), strategy, seed)
    down: list[Edge] = []
    for number in range(240):
        for name in ("a", "b"):
            world.nodes[name].publish(f"t/{number % 3}")
        if number % 60 == 59:
            if down and random.random() < 0.5:
                world.link(*down.pop())
            elif edge := _spare(random, world):
                world.cut(*edge)
                down.append(edge)
        world.run(random.random() * 0.05)
    for edge in down:
        world.link(*edge)
    world.run(20)
    check(world)


@pytest.mark.thorough
@both
@pytest.mark.parametrize("seed", range(10))
def test_links_that_fail_and_return_at_once_lose_and_double_nothing(
    strategy: type[Strategy], seed: int
) -> None:
    random = Random(seed)
    world = settled(_random_edges(random), strategy, seed)
    down: list[Edge] = []
    for number in range(150):
        for name in ("a", "b"):
            world.nodes[name].publish(f"t/{number % 3}")
        if random.random() < 0.1 and world.links:
            down.append(random.choice(sorted(world.links)))
            world.cut(*down[-1])
        elif down and random.random() < 0.1:
            world.link(*down.pop(0))
        world.run(random.random() * 0.1)
    for edge in down:
        world.link(*edge)
    world.run(30)
    check(world, ordered=False)
    assert all(node.core.wiring.settled for node in world.nodes.values())


def _random_edges(random: Random) -> list[Edge]:
    names = "abcdefg"[: random.randrange(3, 8)]
    edges = {(random.choice(names[:i]), names[i]) for i in range(1, len(names))}
    edges |= {(a, b) for a, b in combinations(names, 2) if random.random() < 0.3}
    return sorted(edges)


def _spare(random: Random, world: World) -> Edge | None:
    """A link without which everybody is still in reach."""
    for edge in random.sample(sorted(world.links), len(world.links)):
        found = {"a"}
        for _ in world.nodes:
            found |= {n for link in world.links - {edge} if found & set(link) for n in link}
        if len(found) == len(world.nodes):
            return edge
    return None


@pytest.mark.parametrize("topic", [RECORDS_TOPIC, TALK_TOPIC, SETTLED_TOPIC])
@pytest.mark.parametrize("payload", [b"", b"\xff" * 17, b"\xff" * 40])
def test_nonsense_from_a_neighbour_is_refused(topic: str, payload: bytes) -> None:
    world = settled(RING)
    with pytest.raises(RemoteProtocolError):
        world.core("a").control_arrived("b", Publish(topic, payload))
