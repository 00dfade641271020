"""Links that open when something is pending for a member, and close when nothing is."""

from __future__ import annotations

from typing import ClassVar

import pytest

from brokerweave.links.connection import LinkRefused
from brokerweave.links.handshake import HandshakeRefused, Hello
from brokerweave.links.lane import Resume
from brokerweave.mqtt.packets import Packet, Publish
from brokerweave.node import carriers as carriers_module
from brokerweave.node.carriers import Carriers
from brokerweave.plugin import Hop, Linking, Route, Strategy
from tests.unit.node.demand import Cluster, member
from tests.unit.node.network import Client
from tests.unit.node.test_carriers import WELCOME, Host, dialed

IDLE = 8.0


class ByName(Strategy):
    """A publication goes to the node that its topic names; a filter is told to the node that it names."""

    name: ClassVar[str] = "by name"
    linking: ClassVar[Linking] = Linking.ON_DEMAND

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.heard: list[str] = []
        self.events: list[str] = []

    def route(self, topic: str, came_from: str | None) -> Route:
        there = topic.split("/")[0]
        return Route(() if came_from or there == self.context.node_id else (Hop(there),), local=True)

    def subscribed(self, filters: object) -> None:
        for topic_filter in filters:  # type: ignore[attr-defined]
            self.context.send(topic_filter.split("/")[0], Publish(topic_filter), wait=True)

    def packet_arrived(self, neighbour: str, packet: Packet) -> None:
        assert isinstance(packet, Publish)
        self.heard.append(packet.topic)

    def neighbour_up(self, neighbour: str) -> None:
        self.events.append(f"up {neighbour}")

    def neighbour_down(self, neighbour: str) -> None:
        self.events.append(f"down {neighbour}")

    def neighbour_removed(self, neighbour: str) -> None:
        self.events.append(f"removed {neighbour}")


def link(ends: str) -> frozenset[str]:
    return frozenset(ends)


def cluster_of(names: str, **settings: object) -> Cluster:
    cluster = Cluster(names, strategy=ByName, **{"idle_close": IDLE, **settings})
    cluster.settle()
    return cluster


def asked(cluster: Cluster, name: str) -> ByName:
    strategy = cluster.nodes[name].core.strategy
    assert isinstance(strategy, ByName)
    return strategy


def rest(cluster: Cluster, seconds: float) -> None:
    for _ in range(int(seconds)):
        cluster.advance(1.0)


def test_members_are_no_neighbours_before_something_is_for_them() -> None:
    cluster = cluster_of("abc")
    assert cluster.links == set()
    assert asked(cluster, "a").context.neighbours() == ()
    assert asked(cluster, "a").context.members() == {"a", "b", "c"}


def test_a_publication_opens_the_link_to_where_its_route_leads_and_arrives() -> None:
    cluster = cluster_of("abc")
    Client(cluster, "a", "p").publish("b/1", 1)
    cluster.settle()
    assert cluster.links == {link("ab")}
    assert cluster.nodes["b"].injected() == ["b/1"]


def test_a_control_packet_that_waits_opens_the_link_and_one_that_does_not_is_dropped() -> None:
    cluster = cluster_of("abc")
    asked(cluster, "a").context.send("c", Publish("not this"))
    cluster.settle()
    assert cluster.links == set()
    Client(cluster, "a", "s").subscribe("b/x")
    cluster.settle()
    assert cluster.links == {link("ab")}
    assert asked(cluster, "b").heard == ["b/x"]


def test_where_both_dial_at_once_there_is_one_link_and_nothing_is_lost() -> None:
    cluster = cluster_of("ab")
    Client(cluster, "a", "p").publish("b/1", 1)
    Client(cluster, "b", "p").publish("a/1", 1)
    cluster.settle()
    assert cluster.opened == [link("ab")]
    assert cluster.nodes["b"].injected() == ["b/1"]
    assert cluster.nodes["a"].injected() == ["a/1"]


def test_an_idle_link_closes_and_is_opened_again_by_either_side() -> None:
    cluster = cluster_of("ab")
    Client(cluster, "a", "p").publish("b/1", 1)
    cluster.settle()
    rest(cluster, IDLE - 1)
    assert cluster.links == {link("ab")}
    rest(cluster, IDLE / 2)
    assert cluster.links == set()
    assert asked(cluster, "a").events == ["up b"], "it did not fail"
    Client(cluster, "b", "p").publish("a/1", 1)
    cluster.settle()
    assert cluster.nodes["a"].injected() == ["a/1"]
    assert [node.core.counters["idle_links_closed"] for node in cluster.nodes.values()] == [1, 1]


def test_a_link_that_is_used_stays_open() -> None:
    cluster = cluster_of("ab")
    client = Client(cluster, "a", "p")
    for _ in range(10):
        client.publish("b/1", 1)
        rest(cluster, IDLE / 2)
    assert cluster.opened == [link("ab")]


def test_control_packets_count_as_use() -> None:
    cluster = cluster_of("ab")
    Client(cluster, "a", "s").subscribe("b/x")
    cluster.settle()
    for _ in range(6):
        asked(cluster, "b").context.send("a", Publish("a/y"))
        rest(cluster, IDLE / 2)
    assert cluster.opened == [link("ab")]


def test_a_link_over_which_something_is_pending_does_not_close() -> None:
    cluster = cluster_of("ab")
    client = Client(cluster, "a", "p")
    client.publish("b/1", 1)
    cluster.settle()
    cluster.stuck.add(("b", "a"))  # no acknowledgement comes back
    client.publish("b/2", 1)
    rest(cluster, 3 * IDLE)
    assert cluster.links == {link("ab")}
    cluster.stuck.clear()
    rest(cluster, 2 * IDLE)
    assert cluster.links == set()


def test_the_other_side_may_refuse_to_close_and_what_waited_for_its_answer_goes_out() -> None:
    cluster = cluster_of("ab")
    Client(cluster, "a", "p").publish("b/1", 1)
    cluster.settle()
    cluster.shells["b"].configured.add("a")  # its link is kept there whatever happens
    rest(cluster, IDLE - 1)
    cluster.stuck.add(("b", "a"))
    rest(cluster, IDLE)  # a asks, and hears no answer
    Client(cluster, "a", "s").subscribe("b/x")
    cluster.settle()
    assert asked(cluster, "b").heard == []
    cluster.stuck.clear()
    cluster.settle()
    assert asked(cluster, "b").heard == ["b/x"]
    assert cluster.opened == [link("ab")]


def test_a_packet_that_waits_as_the_link_closes_opens_it_again() -> None:
    cluster = cluster_of("ab")
    Client(cluster, "a", "p").publish("b/1", 1)
    cluster.settle()
    rest(cluster, IDLE - 1)
    cluster.stuck.add(("a", "b"))
    rest(cluster, IDLE / 2)  # a has asked, b has yet to hear it
    Client(cluster, "a", "s").subscribe("b/x")
    cluster.settle()
    cluster.stuck.clear()
    cluster.settle()
    assert cluster.opened == [link("ab"), link("ab")]
    assert asked(cluster, "b").heard == ["b/x"]


class TestSubacks:
    def test_wait_until_what_waits_for_a_link_has_arrived(self) -> None:
        cluster = cluster_of("ab", barrier_timeout=5.0)
        cluster.away.add("b")
        client = Client(cluster, "a", "s")
        client.subscribe("b/x")
        cluster.settle()
        assert client.got() == []
        cluster.away.clear()
        cluster.settle()
        assert client.got() == ["SubAck"]
        assert asked(cluster, "b").heard == ["b/x"]
        assert cluster.nodes["a"].core.counters["barrier_timeouts"] == 0

    def test_do_not_wait_for_what_arrived_before_an_idle_link_closed(self) -> None:
        cluster = cluster_of("ab", barrier_timeout=5.0)
        asked(cluster, "a").context.send("b", Publish("b/x"), wait=True)
        cluster.settle()
        rest(cluster, 2 * IDLE)
        assert cluster.links == set()
        client = Client(cluster, "a", "s")
        client.subscribe("a/x")
        assert client.got() == ["SubAck"]

    def test_of_nodes_that_tell_each_other_in_a_circle_do_not_wait_for_each_other(self) -> None:
        cluster = cluster_of("abc", barrier_timeout=5.0)
        clients = [Client(cluster, name, "s") for name in "abc"]
        for client, there in zip(clients, "bca", strict=True):
            client.subscribe(f"{there}/x")
        cluster.settle()
        assert [client.got() for client in clients] == [["SubAck"]] * 3

    def test_do_not_wait_for_a_member_that_died(self) -> None:
        cluster = cluster_of("ab", barrier_timeout=5.0)
        Client(cluster, "a", "p").publish("b/1", 1)
        cluster.settle()
        cluster.members["a"].member_died(member("b"))
        cluster.settle()
        client = Client(cluster, "a", "s")
        client.subscribe("b/x")
        assert client.got() == ["SubAck"]


class TestAcknowledgements:
    def test_wait_for_a_member_whose_link_has_yet_to_open(self) -> None:
        cluster = cluster_of("ab", cluster_timeout=5.0)
        cluster.away.add("b")
        client = Client(cluster, "a", "p")
        client.publish("b/1", 1)
        cluster.settle()
        assert client.got() == []
        cluster.away.clear()
        cluster.settle()
        assert client.got() == ["PubAck"]
        assert cluster.nodes["a"].core.counters["cluster_timeouts"] == 0

    def test_wait_for_no_member_that_died(self) -> None:
        cluster = cluster_of("ab", cluster_timeout=5.0)
        cluster.away.add("b")
        client = Client(cluster, "a", "p")
        client.publish("b/1", 1)
        cluster.members["a"].member_died(member("b"))
        cluster.settle()
        assert client.got() == ["PubAck"]


class TestTooMany:
    def test_the_link_that_is_idle_longest_makes_room(self) -> None:
        cluster = cluster_of("abcd", max_links=2)
        client = Client(cluster, "a", "p")
        for there in "bcb":
            client.publish(f"{there}/1", 1)
            rest(cluster, 3.0)
        client.publish("d/1", 1)
        cluster.settle()
        rest(cluster, 1.0)
        assert cluster.links == {link("ab"), link("ad")}
        assert cluster.nodes["d"].injected() == ["d/1"]
        assert cluster.nodes["a"].core.counters["links_waited"] == 1

    def test_where_none_is_idle_messages_wait_for_one_to_be(self) -> None:
        cluster = cluster_of("abc", max_links=1)
        client = Client(cluster, "a", "p")
        client.publish("b/1", 1)
        cluster.settle()
        cluster.stuck.add(("b", "a"))
        client.publish("b/2", 1)
        client.publish("c/1", 1)
        rest(cluster, 2 * IDLE)
        assert cluster.links == {link("ab")}
        demand = cluster.nodes["a"].core.demand
        assert demand is not None
        assert demand.waiting == 1
        cluster.stuck.clear()
        rest(cluster, IDLE)
        assert cluster.links == {link("ac")}
        assert cluster.nodes["c"].injected() == ["c/1"]

    def test_one_that_is_full_is_called_again(self) -> None:
        cluster = cluster_of("abc", max_links=1)
        Client(cluster, "a", "p").publish("b/1", 1)
        cluster.settle()
        Client(cluster, "c", "p").publish("b/2", 1)
        cluster.settle()
        rest(cluster, 3.0)
        assert cluster.links == {link("bc")}
        assert sorted(cluster.nodes["b"].injected()) == ["b/1", "b/2"]

    def test_nodes_that_dial_each_other_in_a_circle_come_to_links(self) -> None:
        cluster = cluster_of("abcde", max_links=1)
        for name, there in zip("abcde", "bcdea", strict=True):
            Client(cluster, name, "p").publish(f"{there}/1", 1)
        cluster.settle()
        rest(cluster, 5.0)
        assert {name: node.injected() for name, node in cluster.nodes.items()} == {
            n: [f"{n}/1"] for n in "abcde"
        }

    def test_one_that_cannot_be_reached_does_not_keep_others_waiting_for_ever(self) -> None:
        cluster = cluster_of("abc", max_links=1)
        cluster.away.add("b")
        client = Client(cluster, "a", "p")
        client.publish("b/1", 1)
        client.publish("c/1", 1)
        rest(cluster, 2 * IDLE)
        assert cluster.nodes["c"].injected() == ["c/1"]
        cluster.away.clear()
        rest(cluster, 2 * IDLE)
        assert cluster.nodes["b"].injected() == ["b/1"]


class TestDeath:
    def test_keeps_what_is_pending_until_the_member_is_back(self) -> None:
        cluster = cluster_of("ab")
        cluster.members["a"].member_died(member("b"))
        client = Client(cluster, "a", "p")
        client.publish("b/1", 1)
        cluster.settle()
        assert cluster.links == set()
        assert cluster.nodes["a"].core.counters.drops() == {"neighbour_removed": 1}  # it never was one
        cluster.members["a"].member_joined(member("b"))
        client.publish("b/2", 1)
        cluster.settle()
        cluster.shells["b"].dialing.clear()
        cluster.cut("a", "b")
        cluster.away.add("b")
        cluster.members["a"].member_died(member("b"))
        client.publish("b/3", 1)
        rest(cluster, 3 * IDLE)
        assert cluster.shells["a"].dialing == set()
        cluster.away.clear()
        cluster.members["a"].member_joined(member("b"))
        cluster.settle()
        assert cluster.nodes["b"].injected() == ["b/2", "b/3"]

    def test_of_a_member_forgets_it_as_any_neighbour_but_not_while_it_lives(self) -> None:
        cluster = cluster_of("ab")
        Client(cluster, "a", "p").publish("b/1", 1)
        cluster.settle()
        forget_after = cluster.nodes["a"].core.settings.forget_after
        rest(cluster, 2 * IDLE)
        cluster.advance(forget_after)
        cluster.advance(forget_after - 1)
        assert asked(cluster, "a").context.neighbours() == ("b",)
        cluster.members["a"].member_died(member("b"))
        cluster.advance(forget_after - 1)
        assert asked(cluster, "a").context.neighbours() == ("b",)
        cluster.advance(2.0)
        assert asked(cluster, "a").context.neighbours() == ()
        assert asked(cluster, "a").events[-1] == "removed b"

    def test_of_one_that_left_removes_it_when_nothing_is_pending(self) -> None:
        cluster = cluster_of("ab")
        Client(cluster, "a", "p").publish("b/1", 1)
        cluster.settle()
        cluster.members["a"].member_left(member("b"))
        rest(cluster, 3.0)
        assert asked(cluster, "a").context.neighbours() == ()


def test_a_node_at_rest_has_no_timer_of_its_links() -> None:
    cluster = cluster_of("ab")
    Client(cluster, "a", "p").publish("b/1", 1)
    cluster.settle()
    rest(cluster, 3 * IDLE)
    assert cluster.links == set()
    due = [at for at, _, timer, _ in cluster.timers if not timer.cancelled and at < cluster.time + 2 * IDLE]
    assert due == []


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_neighbour_that_somebody_named_is_neither_dialed_nor_closed_here(name: str) -> None:
    cluster = cluster_of("ab")
    other = "b" if name == "a" else "a"
    cluster.shells[name].configured.add(other)
    cluster.shells[other].configured.add(name)
    cluster.link("a", "b")
    cluster.settle()
    rest(cluster, 3 * IDLE)
    assert cluster.links == {link("ab")}


class Greets(ByName):
    """Tells every member that comes, as soon as it hears of it."""

    name: ClassVar[str] = "greets"

    def members_changed(self, live: frozenset[str]) -> None:
        for each in sorted(live - {self.context.node_id}):
            self.context.send(each, Publish(f"hello/{self.context.node_id}"), wait=True)


def test_what_is_told_to_a_member_when_it_joins_reaches_it() -> None:
    cluster = Cluster("ab", strategy=Greets, idle_close=IDLE)
    cluster.settle()
    assert "hello/a" in asked(cluster, "b").heard
    assert "hello/b" in asked(cluster, "a").heard
    assert cluster.nodes["a"].core.counters["dropped_controls"] == 0


def test_what_a_strategy_kept_of_a_neighbour_is_kept_over_a_second_restart() -> None:
    core = cluster_of("ab").nodes["a"].core
    core.recall("b", {"b/x": 1})
    assert core.kept["b"] == {"b/x": 1}


def test_a_connection_whose_forerunner_ends_the_link_does_not_carry_it() -> None:
    """Or nobody would dial its other lanes."""
    cluster = cluster_of("ab")
    core = cluster.nodes["a"].core
    assert core.demand is not None
    carriers, host = Carriers(core, Host()), cluster.shells["a"]
    cluster.away.add("b")
    core.send("b", Publish("b/x"), wait=True)
    first, second = dialed(core), dialed(core)
    carriers.handle(first, WELCOME)
    assert carriers.get("b", 0) is first
    carriers.handle(second, WELCOME)
    assert "b" not in host.dialing
    assert second.connection.closed
    assert carriers.get("b", 0) is None
    assert not core.is_up("b")


def test_a_refusal_that_ends_by_itself_is_counted_and_nobody_is_warned() -> None:
    core = cluster_of("ab").nodes["a"].core
    core.add_neighbour("b")
    carriers, heard = Carriers(core, Host()), list[str]()
    carriers.refused = lambda name, reason: heard.append(reason)
    carriers.handle(dialed(core), LinkRefused("node b refused: node b is dialing a itself", retry=True))
    assert heard == []
    assert core.counters["links_postponed"] == 1
    carriers.handle(dialed(core), LinkRefused("the keys differ", retry=False))
    assert heard == ["the keys differ"]
    assert core.counters["link_refusals"] == 1


def test_live_members_are_admitted_however_many_there_are_and_others_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(carriers_module, "MOST_NEIGHBOURS", 2)
    core = cluster_of("abcdef").nodes["a"].core
    carriers = Carriers(core, Host())

    def call(name: str) -> None:
        carriers.admit(Hello(name, 1, ByName.name, 0, 1, Resume(1, 1)))

    for name in "bcxdyef":  # x and y are nobody's members
        call(name)
    with pytest.raises(HandshakeRefused, match="too many neighbours"):
        call("z")
    call("x")
    assert set(core.neighbour_table.ids()) == set("bcdefxy")
