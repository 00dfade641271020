"""Messages that relays pass on by a plan: kept until all behind have them, and in order when plans change."""

from __future__ import annotations

from typing import Any

import pytest

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import ConnAck, Connect, Publish
from tests.unit.node.demand import Cluster, member
from tests.unit.node.network import Client
from tests.unit.node.routing_strategies import Relays

IDLE = 8.0


def cluster_of(names: str, ways: str, **settings: Any) -> Cluster:
    """What a's clients publish to `t` goes these ways; all links that they need are open."""
    cluster = Cluster(names, strategy=Relays, idle_close=IDLE, **settings)
    give(cluster, "a", "t", ways)
    Client(cluster, "a", "first").publish("t", 0, b"first")
    cluster.settle()
    for node in cluster.nodes.values():
        core = node.core
        assert len(core.relayed) == len(core.confirmations) == 0
        core.injectors[0].outbox.take(1 << 20)
    cluster.advance(0.1)  # acknowledgements of QoS 0 may come late
    return cluster


def strategy(cluster: Cluster, node: str) -> Relays:
    found = cluster.nodes[node].core.strategy
    assert isinstance(found, Relays)
    return found


def give(cluster: Cluster, node: str, topic: str, ways: str | None) -> None:
    strategy(cluster, node).give(topic, ways)


def payloads(cluster: Cluster, node: str) -> list[bytes]:
    """What reached a node's injector since the last look."""
    return [publish.payload for publish in cluster.nodes[node].injected_publishes()]


def unconfirmed(cluster: Cluster) -> dict[str, int]:
    for node in cluster.nodes.values():
        node.core.check()
    return {name: len(node.core.relayed) for name, node in cluster.nodes.items() if len(node.core.relayed)}


def die(cluster: Cluster, name: str) -> None:
    """First its links fail, then membership says that it is dead."""
    cluster.away.add(name)
    for ends in [ends for ends in cluster.wires if ends[0] == name]:
        cluster.cut(*ends)
    cluster.settle()
    for other, members in cluster.members.items():
        if other != name:
            members.member_died(member(name))
    cluster.settle()


def come_back(cluster: Cluster, name: str) -> None:
    cluster.away.discard(name)
    for other, members in cluster.members.items():
        if other != name:
            members.member_joined(member(name))
    cluster.settle()


class TestConfirming:
    @pytest.mark.parametrize("qos", [0, 1, 2])
    def test_a_relay_confirms_when_all_behind_it_have(self, qos: int) -> None:
        cluster = cluster_of("abcd", "b/c/d")
        cluster.stuck.add(("c", "d"))
        publisher = Client(cluster, "a", "p")
        publisher.publish("t", qos, b"1")
        cluster.settle()
        assert unconfirmed(cluster) == {"a": 1, "b": 1, "c": 1}
        assert len(publisher.got()) == (qos > 0), "the client waits for the broker only"
        cluster.stuck.clear()
        cluster.settle()
        assert unconfirmed(cluster) == {}
        assert [payloads(cluster, node) for node in "bcd"] == [[b"1"]] * 3

    def test_costs_one_confirmation_for_a_run_however_many_messages_it_has(self) -> None:
        cluster = cluster_of("abc", "b/c")
        client = Client(cluster, "a", "p")
        client.pair.from_client(b"".join(codec.encode(Publish("t", b"%d" % n), 4) for n in range(100)))
        cluster.stuck.add(("c", "b"))
        cluster.settle()
        assert unconfirmed(cluster) == {"a": 1, "b": 1}
        assert len(payloads(cluster, "c")) == 100

    def test_a_run_that_a_relay_cuts_is_confirmed_when_all_its_parts_are(self) -> None:
        cluster = cluster_of("abcd", "b/c")
        give(cluster, "a", "u", "b/c")
        give(cluster, "b", "u", "d")
        Client(cluster, "b", "p").publish("u")  # opens the link
        cluster.settle()
        cluster.stuck.add(("b", "d"))
        client = Client(cluster, "a", "p")
        client.pair.from_client(b"".join(codec.encode(Publish(t, b"1"), 4) for t in "ttu"))
        cluster.settle()
        assert payloads(cluster, "c") == [b"1", b"1"]
        assert unconfirmed(cluster) == {"a": 1, "b": 1}
        cluster.stuck.clear()
        cluster.settle()
        assert unconfirmed(cluster) == {}

    def test_what_waits_for_its_route_at_a_relay_is_not_confirmed_yet(self) -> None:
        cluster = cluster_of("abcd", "b/c")
        give(cluster, "a", "u", "b/c")
        give(cluster, "b", "u", None)
        client = Client(cluster, "a", "p")
        client.pair.from_client(b"".join(codec.encode(Publish(t, b"1"), 4) for t in "utu"))
        cluster.settle()
        assert payloads(cluster, "c") == [b"1"]
        assert unconfirmed(cluster) == {"a": 1}
        cluster.cut("a", "b")
        cluster.settle()  # a asks for what it has not heard of
        assert unconfirmed(cluster) == {"a": 1}
        give(cluster, "b", "u", "c;d")
        cluster.settle()
        assert [payloads(cluster, node) for node in "cd"] == [[b"1", b"1"]] * 2
        assert unconfirmed(cluster) == {}

    def test_a_confirmation_that_was_lost_with_its_link_is_asked_for(self) -> None:
        cluster = cluster_of("abc", "b/c")
        cluster.stuck.add(("b", "a"))
        Client(cluster, "a", "p").publish("t", 1, b"1")
        cluster.settle()
        assert payloads(cluster, "c") == [b"1"]
        cluster.cut("a", "b")
        assert unconfirmed(cluster) == {"a": 1}
        cluster.stuck.clear()
        cluster.settle()
        assert unconfirmed(cluster) == {}
        assert payloads(cluster, "c") == []
        assert strategy(cluster, "a").bypassed == []

    def test_a_relay_waits_for_one_behind_it_whose_link_failed_and_who_lives(self) -> None:
        cluster = cluster_of("abc", "b/c")
        cluster.away.add("c")
        cluster.cut("b", "c")
        Client(cluster, "a", "p").publish("t", 1, b"1")
        cluster.settle()
        assert unconfirmed(cluster) == {"a": 1, "b": 1}
        die(cluster, "b")
        cluster.away.discard("c")
        cluster.settle()
        assert payloads(cluster, "c") == [b"1"]

    def test_a_link_stays_open_until_the_relay_has_confirmed(self) -> None:
        cluster = cluster_of("abc", "b/c")
        cluster.stuck.add(("c", "b"))
        Client(cluster, "a", "p").publish("t", 0, b"1")
        for _ in range(int(3 * IDLE)):
            cluster.advance(1.0)
        assert frozenset("ab") in cluster.links
        cluster.stuck.clear()
        for _ in range(int(3 * IDLE)):
            cluster.advance(1.0)
        assert cluster.links == set()
        assert unconfirmed(cluster) == {}

    def test_without_plans_nothing_is_confirmed(self) -> None:
        cluster = cluster_of("abc", "b;c")
        cluster.stuck.update([("b", "a"), ("c", "a")])
        Client(cluster, "a", "p").publish("t", 1, b"1")
        cluster.settle()
        assert unconfirmed(cluster) == {}


class TestDeath:
    def test_of_a_relay_before_it_passed_a_message_on(self) -> None:
        cluster = cluster_of("abcde", "b/c/d,e")
        cluster.stuck.update([("b", "c"), ("b", "e")])
        client = Client(cluster, "a", "p")
        for number in range(3):
            client.publish("t", 1, b"%d" % number)
        client.publish("t", 0, b"lost")
        cluster.settle()
        cluster.advance(0.1)
        assert cluster.nodes["a"].core.neighbour_table["b"].backlog_bytes == 0, "the relay acknowledged it"
        die(cluster, "b")
        assert [payloads(cluster, node) for node in "cde"] == [[b"0", b"1", b"2"]] * 3
        assert unconfirmed(cluster) == {"b": 8}
        assert strategy(cluster, "a").bypassed == [("t", "b", b"c/d;e")]
        assert cluster.nodes["a"].core.counters["relayed_bypassed"] == 3
        come_back(cluster, "b")
        cluster.stuck.clear()
        cluster.settle()
        assert unconfirmed(cluster) == {}
        assert [payloads(cluster, node) for node in "cde"] == [[b"lost"]] * 3

    def test_of_a_relay_that_qos_0_waits_for_lets_those_behind_have_it_in_its_turn(self) -> None:
        cluster = cluster_of("abc", "b/c")
        cluster.away.add("b")
        cluster.cut("b", "a")
        client = Client(cluster, "a", "p")
        client.publish("t", 0, b"1")
        cluster.settle()
        die(cluster, "b")
        give(cluster, "a", "t", "c")
        client.publish("t", 0, b"2")
        cluster.settle()
        assert payloads(cluster, "c") == [b"1", b"2"]
        come_back(cluster, "b")
        assert payloads(cluster, "b") == [b"1"]
        assert payloads(cluster, "c") == [], "it knows what b passes on late"

    def test_of_a_relay_after_it_passed_a_message_on(self) -> None:
        cluster = cluster_of("abcd", "b/c,d")
        cluster.stuck.add(("b", "a"))
        Client(cluster, "a", "p").publish("t", 2, b"1")
        cluster.settle()
        assert [payloads(cluster, node) for node in "cd"] == [[b"1"]] * 2
        die(cluster, "b")
        assert len(strategy(cluster, "a").bypassed) == 1
        assert [payloads(cluster, node) for node in "cd"] == [[], []]
        assert unconfirmed(cluster) == {}

    def test_of_a_relay_further_on_is_the_affair_of_the_relay_before_it(self) -> None:
        cluster = cluster_of("abcd", "b/c/d", cluster_timeout=30.0)
        cluster.stuck.add(("c", "d"))
        client = Client(cluster, "a", "p")
        client.publish("t", 1, b"1")
        cluster.settle()
        cluster.stuck.add(("d", "b"))
        die(cluster, "c")
        assert payloads(cluster, "d") == [b"1"]
        assert strategy(cluster, "a").bypassed == []
        assert client.got() == [], "d has yet to confirm it"
        assert unconfirmed(cluster) == {"a": 1, "b": 1, "c": 1}
        cluster.stuck.clear()
        cluster.settle()
        assert client.got() == ["PubAck"]
        assert unconfirmed(cluster) == {"c": 1}, "it is dead"

    def test_of_one_that_had_the_message_from_a_relay_that_died_before(self) -> None:
        cluster = cluster_of("abcd", "b/c/d")
        cluster.stuck.update([("c", "d"), ("c", "b")])
        Client(cluster, "a", "p").publish("t", 1, b"1")
        cluster.settle()
        die(cluster, "b")
        assert unconfirmed(cluster)["a"] == 1, "c had it, and d has not"
        die(cluster, "c")
        assert payloads(cluster, "d") == [b"1"]

    def test_with_nobody_to_serve_is_counted(self) -> None:
        cluster = cluster_of("abc", "b/c")
        cluster.stuck.add(("b", "c"))
        Client(cluster, "a", "p").publish("t", 1, b"1")
        cluster.settle()
        strategy(cluster, "a").bypass = lambda *_: strategy(cluster, "a")._along(None)  # type: ignore[method-assign]
        die(cluster, "b")
        assert cluster.nodes["a"].core.counters["relayed_unserved"] == 1
        assert "a" not in unconfirmed(cluster)

    def test_of_the_link_only_asks_nobody(self) -> None:
        cluster = cluster_of("abc", "b/c")
        cluster.stuck.add(("b", "c"))
        Client(cluster, "a", "p").publish("t", 1, b"1")
        cluster.settle()
        cluster.away.add("b")
        cluster.cut("a", "b")
        cluster.settle()
        assert unconfirmed(cluster)["a"] == 1
        assert strategy(cluster, "a").bypassed == []

    def test_what_only_the_outbox_has_as_after_a_restart_is_served_first(self) -> None:
        cluster = cluster_of("abc", "b/c", relayed=1_000)
        cluster.stuck.add(("a", "b"))
        client = Client(cluster, "a", "p")
        for number in range(3):
            client.publish("t", 1, b"%d" % number + bytes(200))
        cluster.settle()
        assert unconfirmed(cluster) == {"a": 2}
        die(cluster, "b")
        assert [payload[:1] for payload in payloads(cluster, "c")] == [b"0", b"1", b"2"]

    def test_what_still_goes_to_a_dead_relay_is_served_once_each(self) -> None:
        cluster = cluster_of("abc", "b/c")
        client = Client(cluster, "a", "p")
        cluster.stuck.add(("a", "b"))
        client.publish("t", 1, b"0")
        die(cluster, "b")  # the strategy has yet to hear of it
        for number in range(1, 10):
            client.publish("t", 1, b"%d" % number)
            cluster.settle()
        assert payloads(cluster, "c") == [b"%d" % number for number in range(10)]
        assert cluster.nodes["a"].core.counters["relayed_bypassed"] == 10

    def test_what_is_kept_is_bounded_and_the_oldest_given_up_counted(self) -> None:
        cluster = cluster_of("abc", "b/c", relayed=2_000)
        cluster.stuck.add(("b", "c"))
        client = Client(cluster, "a", "p")
        for number in range(5):
            client.publish("t", 1, b"%d" % number + bytes(500))
        cluster.settle()
        cluster.advance(0.1)
        assert unconfirmed(cluster)["a"] == 2
        assert cluster.nodes["a"].core.counters["relayed_given_up"] == 3
        die(cluster, "b")
        assert [payload[:1] for payload in payloads(cluster, "c")] == [b"3", b"4"]


class TestChangeOfPlan:
    @pytest.mark.parametrize("qos", [0, 1, 2])
    @pytest.mark.parametrize(
        ("old", "new", "slow"),
        [("b/c", "d/c", "bc"), ("b/c", "c", "bc"), ("c", "b/c", "ac"), ("b/c;d", "b;d/c", "bc")],
    )
    def test_what_went_the_old_way_arrives_before_what_goes_the_new(
        self, qos: int, old: str, new: str, slow: str
    ) -> None:
        cluster = cluster_of("abcd", old)
        cluster.stuck.add((slow[0], slow[1]))
        client = Client(cluster, "a", "p")
        client.publish("t", qos, b"1")
        if qos:
            cluster.settle()
        give(cluster, "a", "t", new)
        for number in (b"2", b"3"):
            client.publish("t", qos, number)
        cluster.settle()
        assert payloads(cluster, "c") == []
        assert cluster.nodes["a"].core.waiting.runs == 2
        cluster.stuck.clear()
        for _ in range(5):
            cluster.advance(0.1)
        assert payloads(cluster, "c") == [b"1", b"2", b"3"]
        assert cluster.nodes["a"].core.counters["drain_timeouts"] == 0
        assert unconfirmed(cluster) == {}

    def test_other_topics_do_not_wait(self) -> None:
        cluster = cluster_of("abcd", "b/c")
        give(cluster, "a", "u", "d/c")
        cluster.stuck.add(("b", "c"))
        client = Client(cluster, "a", "p")
        client.publish("t", 1, b"1")
        give(cluster, "a", "t", "d/c")
        client.publish("u", 1, b"2")
        client.publish("t", 1, b"3")
        cluster.settle()
        assert payloads(cluster, "c") == [b"2"]

    @pytest.mark.parametrize(
        ("old", "new"), [("b/c", "b/c"), ("c", "c;d"), ("b;c", "d"), ("b/c", "b/c;d"), ("", "b/c")]
    )
    def test_nothing_waits_where_the_old_ways_stay_or_there_are_no_plans(self, old: str, new: str) -> None:
        cluster = cluster_of("abcd", old)
        cluster.stuck.update([("b", "a"), ("c", "a")])
        client = Client(cluster, "a", "p")
        client.publish("t", 1, b"1")
        cluster.settle()
        give(cluster, "a", "t", new)
        client.publish("t", 1, b"2")
        assert cluster.nodes["a"].core.waiting.runs == 0

    def test_nothing_waits_where_all_is_confirmed(self) -> None:
        cluster = cluster_of("abcd", "b/c")
        give(cluster, "a", "t", "d/c")
        Client(cluster, "a", "p").publish("t", 1, b"2")
        assert cluster.nodes["a"].core.waiting.runs == 0

    def test_it_waits_no_longer_than_its_limit(self) -> None:
        cluster = cluster_of("abcd", "b/c", drain_timeout=2.0)
        cluster.stuck.add(("b", "c"))
        client = Client(cluster, "a", "p")
        client.publish("t", 1, b"1")
        give(cluster, "a", "t", "d/c")
        client.publish("t", 1, b"2")
        cluster.advance(1.9)
        assert payloads(cluster, "c") == []
        cluster.advance(0.2)
        assert payloads(cluster, "c") == [b"2"]
        client.publish("t", 1, b"3")
        assert cluster.nodes["a"].core.waiting.runs == 0
        assert cluster.nodes["a"].core.counters["drain_timeouts"] == 1

    def test_a_change_that_is_undone_ends_the_wait_and_the_next_one_waits_again(self) -> None:
        cluster = cluster_of("abcd", "b/c")
        cluster.stuck.add(("b", "c"))
        client = Client(cluster, "a", "p")
        client.publish("t", 1, b"1")
        for ways, waits in (("d/c", 1), ("b/c", 0), ("d/c", 1)):
            give(cluster, "a", "t", ways)
            client.publish("t", 1, ways.encode())
            cluster.settle()
            assert cluster.nodes["a"].core.waiting.runs == waits
        cluster.stuck.clear()
        cluster.settle()
        assert payloads(cluster, "c") == [b"1", b"d/c", b"b/c", b"d/c"]

    def test_where_the_old_relay_dies_what_others_get_in_its_place_goes_first(self) -> None:
        cluster = cluster_of("abcd", "b/c")
        cluster.stuck.update([("b", "c"), ("a", "c")])
        client = Client(cluster, "a", "p")
        client.publish("t", 1, b"1")
        cluster.settle()
        die(cluster, "b")
        give(cluster, "a", "t", "d/c")
        client.publish("t", 1, b"2")
        cluster.settle()
        assert payloads(cluster, "c") == []
        cluster.stuck.clear()
        cluster.settle()
        assert payloads(cluster, "c") == [b"1", b"2"]

    def test_a_relay_drains_its_own_old_way(self) -> None:
        cluster = cluster_of("abcde", "b/c/d")
        cluster.stuck.add(("c", "d"))
        client = Client(cluster, "a", "p")
        client.publish("t", 1, b"1")
        cluster.settle()
        give(cluster, "b", "t", "e/d")
        client.publish("t", 1, b"2")
        cluster.settle()
        assert payloads(cluster, "d") == []
        cluster.stuck.clear()
        cluster.settle()
        assert payloads(cluster, "d") == [b"1", b"2"]
        assert unconfirmed(cluster) == {}

    def test_what_waited_for_the_broker_meanwhile_goes_the_new_way(self) -> None:
        cluster = cluster_of("abcd", "b/c")
        node = cluster.nodes["a"]
        pair = node.core.new_pair()
        pair.from_client(codec.encode(Connect("held", 4), 4))
        pair.from_client(codec.encode(Publish("t", b"held", 1, packet_id=1), 4))
        give(cluster, "a", "t", "d/c")
        Client(cluster, "a", "p").publish("t", 1, b"2")
        pair.from_broker(codec.encode(ConnAck(), 4))
        cluster.settle()
        assert [sorted(payloads(cluster, there)) for there in "bcd"] == [[], [b"2", b"held"], [b"2", b"held"]]


class TestAway:
    def test_messages_wait_for_a_member_that_is_needed_though_it_never_was_a_neighbour(self) -> None:
        cluster = Cluster("ab", strategy=Relays)
        cluster.members["a"].member_died(member("b"))
        cluster.away.add("b")
        strategy(cluster, "a").needed.add("b")
        give(cluster, "a", "t", "b")
        Client(cluster, "a", "p").publish("t", 1, b"1")
        cluster.settle()
        assert cluster.nodes["a"].core.counters.drops() == {}
        come_back(cluster, "b")
        assert payloads(cluster, "b") == [b"1"]

    def test_they_wait_as_long_as_for_any_neighbour(self) -> None:
        cluster = Cluster("ab", strategy=Relays)
        cluster.members["a"].member_died(member("b"))
        strategy(cluster, "a").needed.add("b")
        give(cluster, "a", "t", "b")
        Client(cluster, "a", "p").publish("t", 1, b"1")
        cluster.advance(cluster.nodes["a"].core.settings.forget_after + 1)
        assert cluster.nodes["a"].core.neighbours() == ()
        assert cluster.nodes["a"].core.counters.drops() == {"neighbour_removed": 1}
        cluster.members["a"].member_joined(member("b"))

    def test_a_neighbour_from_before_a_restart_has_its_messages_though_membership_has_not_found_it(
        self,
    ) -> None:
        cluster = Cluster("ab", strategy=Relays)
        cluster.members["a"].member_died(member("b"))
        core = cluster.nodes["a"].core
        core.recall("b", {})
        give(cluster, "a", "t", "b")
        Client(cluster, "a", "p").publish("t", 1, b"1")
        cluster.settle()
        come_back(cluster, "b")
        assert payloads(cluster, "b") == [b"1"]


class TestRetainedHandover:
    def test_says_when_the_neighbour_has_all_of_them(self) -> None:
        cluster = cluster_of("ab", "b")
        give(cluster, "a", "t", "")
        client = Client(cluster, "a", "p")
        for topic in ("x/1", "x/2", "y"):
            client.publish(topic, 1, b"1", retain=True)
        client.publish("x/2", 1, b"", retain=True)
        context, done = strategy(cluster, "a").context, list[str]()
        assert sorted(context.retained_topics()) == ["x/1", "x/2", "y"]
        cluster.stuck.add(("b", "a"))
        context.send_retained("b", "x/#", lambda: done.append("x"))
        context.send_retained("b", "nothing", lambda: done.append("nothing"))
        assert done == []
        cluster.advance(1.0)
        assert done == ["nothing"]
        cluster.stuck.clear()
        for _ in range(2):
            cluster.advance(1.0)
        assert done == ["nothing", "x"]
        assert sorted(cluster.nodes["b"].core.retained_topics()) == ["x/1", "x/2"]

    def test_says_nothing_of_a_neighbour_that_was_removed(self) -> None:
        cluster = cluster_of("ab", "b")
        give(cluster, "a", "t", "")
        Client(cluster, "a", "p").publish("x", 1, b"1", retain=True)
        cluster.stuck.add(("b", "a"))
        done: list[str] = []
        strategy(cluster, "a").context.send_retained("b", "x", lambda: done.append("x"))
        cluster.cut("a", "b")
        cluster.nodes["a"].core.remove_neighbour("b")
        for _ in range(10):
            cluster.advance(1.0)
        assert done == []
