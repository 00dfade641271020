"""The overlay's parts together: who is known to want what, over joins, deaths and restarts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.cooperation.overlay.direct import Direct
from brokerweave.cooperation.overlay.guided import FIRST_LOOK, Guided
from brokerweave.cooperation.overlay.keeper import covers_arc
from brokerweave.cooperation.overlay.ring import CIRCLE
from brokerweave.cooperation.overlay.scribe import CHILD_SECONDS, Scribe
from brokerweave.cooperation.overlay.strategy import HANDED_SECONDS
from brokerweave.plugin import Strategy, TrafficUsage, matches
from tests.unit.cooperation.overlay.network import OverlayNetwork

NAMES = [f"n{number}" for number in range(12)]
KINDS = [(Direct, {}), (Guided, {"fan_out": "2"}), (Guided, {"fan_out": "2", "rotate": False}), (Scribe, {})]


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_reaches_all_who_want_a_topic_once(kind: type[Strategy], options: dict[str, Any]) -> None:
    network = OverlayNetwork(kind, NAMES, **options)
    for name in NAMES[:7]:
        network.nodes[name].subscribed({"a/b": 1})
    network.settle(1.0)
    assert network.publish("n9", "a/b") is None  # nothing is known yet: it waits
    assert network.ask("n9", "a/b") == dict.fromkeys(NAMES[:7], 1)
    assert network.ask("n3", "a/b") == {name: 1 for name in NAMES[:7] if name != "n3"}
    assert network.ask("n3", "a/c") == {}


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_wildcards(kind: type[Strategy], options: dict[str, Any]) -> None:
    network = OverlayNetwork(kind, NAMES, **options)
    filters = ["a/b", "a/+", "a/#", "#", "+/b", "a/b/#", "+/+/c", "x/#"]
    for name, each in zip(NAMES, filters, strict=False):
        network.nodes[name].subscribed({each: 1})
    network.settle(1.0)
    assert set(network.ask("n9", "a/b") or ()) == {"n0", "n1", "n2", "n3", "n4", "n5"}
    assert set(network.ask("n9", "a/b/c") or ()) == {"n2", "n3", "n5", "n6"}
    assert set(network.ask("n9", "x") or ()) == {"n3", "n7"}


def test_publishers_that_hold_a_list_hear_of_changes() -> None:
    network = OverlayNetwork(Direct, NAMES)
    assert network.ask("n1", "t") == {}
    network.nodes["n2"].subscribed({"t": 0})
    network.settle(0.1)
    assert network.publish("n1", "t") == {"n2": 1}
    network.nodes["n2"].unsubscribed(["t"])
    network.settle(0.1)
    assert network.publish("n1", "t") == {}


def test_a_node_knows_how_often_it_has_which_role() -> None:
    network = OverlayNetwork(Direct, NAMES)
    network.nodes["n2"].subscribed({"t": 0, "u": 1})
    network.settle(0.1)
    network.ask("n1", "t")
    roles = {name: node.roles() for name, node in network.nodes.items()}
    totals = {role: sum(each[role] for each in roles.values()) for role in roles["n1"]}
    lists = len(network.nodes["n1"].keys("t"))
    assert totals == {"coordinator": 2, "shadow": 6, "publisher": lists, "subscriber": 2}
    assert (roles["n1"]["publisher"], roles["n2"]["subscriber"]) == (lists, 2)


def test_packets_of_a_change_do_not_grow_with_the_nodes() -> None:
    costs = []
    for count in (10, 40):
        names = [f"n{number}" for number in range(count)]
        network = OverlayNetwork(Direct, names)
        for holder in names[:3]:
            network.ask(holder, "t")
        network.nodes[names[-1]].subscribed({"t": 0})
        costs.append(network.settle(0.1))
    assert max(costs) <= 2 * (1 + 3) + 2 * 3


def test_suback_waits_for_keepers_and_holders() -> None:
    network = OverlayNetwork(Direct, NAMES)
    network.ask("n1", "t")
    done: list[str] = []
    assert not network.nodes["n2"].subscribing("c", {"t": 1}, lambda: done.append("subscribing"))
    network.settle(0.1)
    assert done == ["subscribing"]
    network.nodes["n2"].subscribed({"t": 1})
    assert network.nodes["n2"].granted("c", {"t": 1}, lambda: done.append("granted"))
    assert network.publish("n1", "t") == {"n2": 1}


def test_nobody_waits_for_a_holder_that_died_and_it_hears_of_changes_when_it_is_back() -> None:
    network = OverlayNetwork(Direct, NAMES)
    network.ask("n1", "t")
    others = [name for name in NAMES if name != "n1"]
    for name in others:  # they take it for dead, and it does not know
        network.see(name, others)
    network.nodes["n2"].subscribed({"t": 1})
    network.settle(0.1)
    assert network.nodes["n2"].granted("c", {"t": 1}, lambda: None)
    assert network.publish("n1", "t") == {}
    network.see_all()
    network.settle(0.1)
    assert network.publish("n1", "t") == {"n2": 1}


def test_a_site_that_is_cut_off_keeps_messages_for_all_that_are_away() -> None:
    network = OverlayNetwork(Direct, NAMES)
    network.nodes["n2"].subscribed({"t": 1})
    network.settle(0.1)
    keys = network.nodes["n1"].keys("t")
    keepers = {keeper for key in keys for keeper in network.nodes["n1"].keepers_of_key(key)}
    alone = next(name for name in NAMES if name not in keepers | {"n2"})
    network.see(alone, [alone])  # it has no list
    others = {name for name in NAMES if name != alone}
    assert network.ask(alone, "t") == {"n2": 1}
    assert {hop.neighbour for hop in network.nodes[alone].route("t", None).hops} == others
    assert all(network.nodes[alone].needs(name) for name in others)
    network.see_all()
    network.settle(0.1)
    assert network.ask(alone, "t") == {"n2": 1}
    assert [hop.neighbour for hop in network.nodes[alone].route("t", None).hops] == ["n2"]
    assert not network.nodes[alone].needs("n3")


def test_a_site_is_cut_off_also_if_it_takes_a_silent_keeper_for_live() -> None:
    network = OverlayNetwork(Direct, NAMES)
    ring = network.nodes["n1"]
    kept = {t: [set(ring.keepers_of_key(k)) for k in ring.keys(t)] for t in map(str, range(1_000))}
    topic, silent, alone = next(
        (topic, silent, alone)
        for topic, keepers in kept.items()
        for silent in sorted(set.intersection(*keepers))
        for alone in NAMES
        if not any(alone in each for each in keepers)
    )
    network.see(alone, [alone, silent])
    network.ask(alone, "s")  # the other tells all that it wants
    network.settle(3.0)
    network.see_all()
    network.settle(0.1)
    network.kill(silent)
    network.see(alone, [alone, silent])
    network.ask(alone, topic)
    network.settle(3.0)
    others = set(NAMES) - {alone, silent}
    assert others <= {hop.neighbour for hop in network.nodes[alone].route(topic, None).hops}


def test_members_that_leave_one_after_another_are_not_taken_for_a_cut() -> None:
    network = OverlayNetwork(Direct, NAMES)
    alone = NAMES[0]
    for left in range(1, len(NAMES)):
        network.see(alone, [alone, *NAMES[left + 1 :]])
        network.settle(30.0)
    network.ask(alone, "t")
    assert network.nodes[alone].route("t", None).hops == ()


def test_a_keeper_that_was_restarted_asks_another_for_retained_messages() -> None:
    network = OverlayNetwork(Direct, NAMES)
    network.settle(HANDED_SECONDS + 1.0)
    network.ask("n1", "t")  # all keepers hear from everybody
    coordinator, shadow, *_ = network.nodes["n1"].keepers("t")
    network.nodes[coordinator].subscribing("c", {"t": 1}, lambda: None)
    network.settle(0.1)
    assert not network.contexts[shadow].retained, "its own broker has them"
    network.kill(coordinator)
    network.restart(coordinator)
    network.see_all()
    network.ask("n1", "t")
    network.settle(1.0)
    network.nodes[coordinator].subscribing("c", {"t": 1}, lambda: None)
    network.settle(0.1)
    assert (coordinator, "t") in network.contexts[shadow].retained


def test_a_filter_that_the_broker_refused_is_withdrawn() -> None:
    network = OverlayNetwork(Direct, NAMES)
    network.nodes["n2"].subscribing("c", {"t": 1}, lambda: None)
    network.settle(60.0)
    assert network.ask("n1", "t") == {}
    assert not network.nodes["n2"].registrar.unconfirmed


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize(("kind", "options"), [KINDS[0], KINDS[1], KINDS[3]])
def test_members_come_and_go(kind: type[Strategy], options: dict[str, Any], seed: int) -> None:
    """After any deaths, restarts and splits, who sees the same members knows all who want a topic."""
    random = Random(seed)
    network = OverlayNetwork(kind, NAMES, seed, **options)
    wants: dict[str, set[str]] = {name: set() for name in NAMES}
    topics = ["t", "a/b", "a/c"]
    filters = [*topics, "a/#", "+/b", "#"]
    for _ in range(40):
        name = random.choice(NAMES)
        act = random.randrange(8)
        if act <= 2 and name in network.nodes:
            each = random.choice(filters)
            if each in wants[name]:
                wants[name].discard(each)
                network.nodes[name].unsubscribed([each])
            else:
                wants[name].add(each)
                network.nodes[name].subscribed({each: random.randrange(3)})
        elif act == 3 and name in network.nodes and len(network.nodes) > 4:
            network.kill(name)
            if random.random() < 0.7:
                network.see_all()
        elif act == 4 and name not in network.nodes:
            network.restart(name, disk=random.random() < 0.5)
            for each in list(wants[name]):
                network.nodes[name].subscribed({each: 1})
            network.see_all()
        elif act == 5 and name in network.nodes:
            network.publish(name, random.choice(topics))
        elif act == 6:
            side = set(random.sample(NAMES, 5))
            for each in list(network.nodes):
                up = network.nodes.keys()
                network.see(each, up & side if each in side else up - side)
        else:
            network.see_all()
        for _ in range(random.randrange(60)):
            network.step()
    for name in NAMES:
        if name not in network.nodes:
            network.restart(name, disk=True)
            for each in list(wants[name]):
                network.nodes[name].subscribed({each: 1})
    network.see_all()
    network.settle(10.0 + CHILD_SECONDS)  # a tree is soft state
    for name in NAMES:
        for topic in topics:
            expected = {other: 1 for other in NAMES if other != name and network.nodes[other].wants(topic)}
            assert network.ask(name, topic) == expected, (name, topic)
            assert all(network.nodes[o].wants(topic) == any_matches(wants[o], topic) for o in NAMES)


def any_matches(filters: set[str], topic: str) -> bool:
    return any(matches(each, topic) for each in filters)


def test_a_fan_out_chosen_before_anything_was_measured_is_soon_chosen_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = OverlayNetwork(Guided, [f"n{number}" for number in range(40)], fan_out="auto", bandwidth=1e7)
    for node in list(network.nodes.values())[:30]:
        node.subscribed({"t": 0})
    network.settle(1.0)
    network.ask("n39", "t")
    (before,) = network.nodes["n39"].explain()
    context = network.nodes["n39"].context
    used = TrafficUsage(rate=1.0, payload=20_000.0, sent=0.0)
    monkeypatch.setattr(type(context), "usage", lambda self, topic: used)
    network.settle(FIRST_LOOK)
    (after,) = network.nodes["n39"].explain()
    assert before.startswith("topic t: direct")
    assert after.startswith("topic t: guided")
    assert context.asked_again[-1] == ("t",)


def test_a_topic_that_rests_keeps_its_fan_out(monkeypatch: pytest.MonkeyPatch) -> None:
    network = OverlayNetwork(Guided, [f"n{number}" for number in range(40)], fan_out="auto", bandwidth=1e7)
    for node in list(network.nodes.values())[:30]:
        node.subscribed({"t": 0})
    network.settle(1.0)
    context = network.nodes["n39"].context
    used = TrafficUsage(rate=1.0, payload=20_000.0, sent=0.0)
    with monkeypatch.context() as patched:
        patched.setattr(type(context), "usage", lambda self, topic: used)
        network.ask("n39", "t")
    (before,) = network.nodes["n39"].explain()
    network.settle(60.0)
    (after,) = network.nodes["n39"].explain()
    assert before.split(",")[0] == after.split(",")[0] == "topic t: guided"
    assert "20,000 bytes" in after


@given(st.integers(0, 15), st.integers(1, 16), st.integers(0, 15), st.integers(1, 16))
def test_an_arc_covers_another_if_it_holds_all_of_it(start: int, length: int, at: int, inner: int) -> None:
    """In sixteenths of the ring. Both ends of a whole ring lie on many an arc that is none."""
    unit = CIRCLE // 16
    all_of_it = all((at + step - start) % 16 < length for step in range(inner))
    assert covers_arc(start * unit, length * unit, at * unit, inner * unit) == all_of_it
