"""Node cores in a row, joined in memory."""

from __future__ import annotations

import pytest

from brokerweave.links.abilities import BrokerAbilities
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import ConnAck, Connect, Publish, Will
from tests.unit.links.runs import run
from tests.unit.node.network import Client, Network


@pytest.fixture
def row() -> Network:
    return row_of_three()


def row_of_three(**settings: float | None) -> Network:
    network = Network()
    network.add("a", "b", "c", **settings)
    network.link("a", "b")
    network.link("b", "c")
    network.settle()
    return network


def test_a_publication_reaches_the_broker_of_an_interested_site_only(row: Network) -> None:
    Client(row, "c", "subscriber").subscribe("t/#")
    row.settle()
    Client(row, "a", "publisher").publish("t/1", qos=1)
    row.settle()
    assert [row.nodes[n].injected() for n in "abc"] == [[], [], ["t/1"]]


def test_a_retained_publication_reaches_every_broker(row: Network) -> None:
    publisher = Client(row, "a", "publisher")
    publisher.pair.from_client(b"\x31\x03\x00\x01t")
    row.settle()
    assert [row.nodes[n].injected() for n in "abc"] == [[], ["t"], ["t"]]


def test_a_message_for_a_neighbour_that_is_away_waits_for_its_return(row: Network) -> None:
    Client(row, "c", "subscriber").subscribe("t")
    row.settle()
    row.cut("b", "c")
    Client(row, "a", "publisher").publish("t", qos=1)
    row.settle()
    assert row.nodes["b"].core.neighbour_table["c"].backlog_bytes > 0
    row.link("b", "c")
    row.settle()
    assert row.nodes["c"].injected() == ["t"]
    row.advance(0.1)
    assert row.nodes["b"].core.neighbour_table["c"].backlog_bytes == 0


def test_a_neighbour_away_for_too_long_is_forgotten_and_its_messages_counted(row: Network) -> None:
    Client(row, "c", "subscriber").subscribe("t")
    row.settle()
    row.cut("b", "c")
    Client(row, "a", "publisher").publish("t", qos=1)
    row.settle()
    row.advance(1001.0)
    core = row.nodes["b"].core
    assert core.neighbours() == ("a",)
    assert core.counters["dropped_neighbour_removed"] == 1
    assert core.counters["neighbours_forgotten"] == 1


def test_the_interest_of_a_clean_session_ends_with_its_connection(row: Network) -> None:
    subscriber = Client(row, "c", "subscriber")
    subscriber.subscribe("t")
    row.settle()
    subscriber.end()
    row.settle()
    Client(row, "a", "publisher").publish("t")
    row.settle()
    assert row.nodes["c"].injected() == []


def test_the_interest_of_a_persistent_session_outlives_its_connection_until_it_expires(row: Network) -> None:
    subscriber = Client(row, "c", "subscriber", clean_start=False)
    subscriber.subscribe("t")
    subscriber.end()
    row.settle()
    publisher = Client(row, "a", "publisher")
    publisher.publish("t")
    row.settle()
    assert row.nodes["c"].injected() == ["t"]
    row.advance(101.0)
    publisher.publish("t")
    row.settle()
    assert row.nodes["c"].injected() == []


def test_a_will_goes_to_other_sites_when_its_client_vanishes(row: Network) -> None:
    Client(row, "c", "subscriber").subscribe("gone")
    row.settle()
    Client(row, "a", "mortal", will=Will("gone", b"x", qos=1)).end()
    row.settle()
    assert row.nodes["c"].injected() == ["gone"]


def test_a_taken_over_session_keeps_its_filters(row: Network) -> None:
    old = Client(row, "c", "same", clean_start=False)
    old.subscribe("t")
    new = Client(row, "c", "same")
    new.subscribe("u")
    old.end()
    row.settle()
    assert set(row.nodes["c"].core.interest.filters()) == {"u"}


def test_qos0_publications_that_arrive_one_by_one_travel_in_one_run(row: Network) -> None:
    Client(row, "b", "subscriber").subscribe("#", 1)
    row.settle()
    publisher = Client(row, "a", "publisher")
    for _ in range(10):
        publisher.publish("t")
    publisher.publish("u", qos=1)
    publisher.publish("t")
    row.settle()
    outbox = row.nodes["b"].core.injectors[0].outbox
    assert outbox.backlog_runs == 3
    assert row.nodes["b"].injected() == ["t"] * 10 + ["u", "t"]


def test_what_was_routed_to_a_neighbour_that_is_removed_before_the_write_is_counted(row: Network) -> None:
    Client(row, "b", "subscriber").subscribe("t")
    row.settle()
    Client(row, "a", "publisher").publish("t")
    core = row.nodes["a"].core
    core.remove_neighbour("b")
    core.publisher.settle()
    assert core.counters["dropped_neighbour_removed"] == 1


class TestTheBarrier:
    def test_holds_suback_until_the_farthest_node_knows_the_filter(self) -> None:
        row = row_of_three(barrier_timeout=0.5)
        row.stuck.add(("c", "b"))
        subscriber = Client(row, "a", "subscriber")
        subscriber.subscribe("t")
        row.settle()
        assert subscriber.got() == []
        row.stuck.clear()
        row.settle()
        assert subscriber.got() == ["SubAck"]
        Client(row, "c", "publisher").publish("t")
        row.settle()
        assert row.nodes["a"].injected() == ["t"]

    def test_costs_nothing_where_a_known_filter_covers_the_new_one(self) -> None:
        row = row_of_three(barrier_timeout=0.5)
        subscriber = Client(row, "a", "subscriber")
        subscriber.subscribe("t/#")
        row.settle()
        row.stuck |= {("a", "b"), ("b", "a")}
        subscriber.subscribe("t/1")
        assert subscriber.got() == ["SubAck", "SubAck"]

    def test_waits_for_a_covering_filter_that_is_still_on_its_way(self) -> None:
        row = row_of_three(barrier_timeout=0.5)
        row.stuck.add(("a", "b"))
        first, second = Client(row, "a", "first"), Client(row, "a", "second")
        first.subscribe("t/#")
        second.subscribe("t/1")
        row.settle()
        assert (first.got(), second.got()) == ([], [])
        row.stuck.clear()
        row.settle()
        assert (first.got(), second.got()) == (["SubAck"], ["SubAck"])

    def test_is_given_up_after_its_timeout_and_counted(self) -> None:
        row = row_of_three(barrier_timeout=0.5)
        row.stuck.add(("b", "a"))
        subscriber = Client(row, "a", "subscriber")
        subscriber.subscribe("t")
        row.advance(0.4)
        assert subscriber.got() == []
        row.advance(0.2)
        assert subscriber.got() == ["SubAck"]
        core = row.nodes["a"].core
        assert core.counters["barrier_timeouts"] == 1
        assert core.barrier.waiting == 0

    def test_does_not_wait_for_a_neighbour_that_goes_away(self) -> None:
        row = row_of_three(barrier_timeout=0.5)
        row.stuck.add(("b", "a"))
        subscriber = Client(row, "a", "subscriber")
        subscriber.subscribe("t")
        row.settle()
        row.cut("a", "b")
        assert subscriber.got() == ["SubAck"]


class TestClusterDelivery:
    @pytest.mark.parametrize(("qos", "ack"), [(1, "PubAck"), (2, "PubRec")])
    def test_holds_the_acknowledgement_until_every_interested_node_has_the_message(
        self, qos: int, ack: str
    ) -> None:
        row = row_of_three(cluster_timeout=5.0)
        Client(row, "c", "subscriber").subscribe("t", 2)
        row.settle()
        row.stuck.add(("b", "c"))
        publisher = Client(row, "a", "publisher")
        publisher.publish("t", qos)
        row.settle()
        assert publisher.got() == []
        row.stuck.clear()
        row.settle()
        assert publisher.got() == [ack]
        assert row.nodes["c"].injected() == ["t"]
        assert all(len(node.core.confirmations) == 0 for node in row.nodes.values())

    def test_leaves_nothing_behind_at_a_node_on_the_way(self) -> None:
        row = row_of_three(cluster_timeout=5.0)
        Client(row, "c", "subscriber").subscribe("t", 1)
        row.settle()
        before = sum(not timer.cancelled for _, _, timer, _ in row.timers)
        publisher = Client(row, "a", "publisher")
        for _ in range(20):
            publisher.publish("t", 1)
        row.settle()
        assert publisher.got() == ["PubAck"] * 20
        row.advance(1.0)
        assert sum(not timer.cancelled for _, _, timer, _ in row.timers) == before

    def test_does_not_wait_where_nobody_is_interested(self) -> None:
        row = row_of_three(cluster_timeout=5.0)
        publisher = Client(row, "a", "publisher")
        publisher.publish("t", 1)
        assert publisher.got() == ["PubAck"]

    def test_does_not_wait_for_a_neighbour_that_is_away_but_owes_it_the_message(self) -> None:
        row = row_of_three(cluster_timeout=5.0)
        Client(row, "c", "subscriber").subscribe("t", 1)
        row.settle()
        row.cut("b", "c")
        publisher = Client(row, "a", "publisher")
        publisher.publish("t", 1)
        row.settle()
        assert publisher.got() == ["PubAck"]
        row.link("b", "c")
        row.settle()
        assert row.nodes["c"].injected() == ["t"]

    def test_stops_waiting_when_the_neighbour_goes_away_meanwhile(self) -> None:
        row = row_of_three(cluster_timeout=5.0)
        Client(row, "c", "subscriber").subscribe("t", 1)
        row.settle()
        row.stuck.add(("b", "c"))
        publisher = Client(row, "a", "publisher")
        publisher.publish("t", 1)
        row.settle()
        row.cut("b", "c")
        row.settle()
        assert publisher.got() == ["PubAck"]

    def test_is_given_up_after_its_timeout_and_counted(self) -> None:
        row = row_of_three(cluster_timeout=5.0)
        Client(row, "c", "subscriber").subscribe("t", 1)
        row.settle()
        row.stuck.add(("b", "c"))
        publisher = Client(row, "a", "publisher")
        publisher.publish("t", 1)
        row.advance(5.1)
        assert publisher.got() == ["PubAck"]
        assert row.nodes["a"].core.counters["cluster_timeouts"] == 1
        assert len(row.nodes["a"].core.confirmations) == 0

    @pytest.mark.parametrize(("fuller", "next_hop"), [("a", "b"), ("b", "c")])
    def test_does_not_wait_for_what_was_dropped_at_once_and_counts_it(
        self, fuller: str, next_hop: str
    ) -> None:
        row = row_of_three(cluster_timeout=5.0)
        Client(row, "c", "subscriber").subscribe("t", 1)
        row.settle()
        row.nodes[fuller].core.neighbour_table[next_hop].lanes[0].outbox.memory_bytes = 0
        publisher = Client(row, "a", "publisher")
        publisher.publish("t", 1)
        row.settle()
        assert publisher.got() == ["PubAck"]
        assert row.nodes[fuller].core.counters["cluster_drops"] == 1
        assert all(len(node.core.confirmations) == 0 for node in row.nodes.values())
        assert row.nodes["a"].core.counters["cluster_timeouts"] == 0


def test_a_node_that_hears_of_another_one_with_its_own_id_says_so() -> None:
    network = Network()
    network.add("a", "b")
    network.link("a", "b")
    network.settle()
    core = network.nodes["a"].core
    core.arrivals.batch_arrived("b", 0, 1, [run(origin="a", epoch=1)])
    assert network.nodes["a"].warnings == [], "what it published itself may come back"
    core.arrivals.batch_arrived("b", 0, 2, [run(origin="a", epoch=2)])
    assert "another node has the id a" in network.nodes["a"].warnings[0]


def test_in_cluster_delivery_a_client_is_kept_within_what_the_broker_says_that_it_takes() -> None:
    network = Network()
    network.add("a", cluster_timeout=1.0)
    core = network.nodes["a"].core
    core.injectors[0].learn(BrokerAbilities(version=5, receive_maximum=2))
    publisher = core.new_pair()
    publisher.from_client(codec.encode(Connect("c", 4), 4))
    publisher.from_broker(codec.encode(ConnAck(), 4))
    frames = [codec.encode(Publish("t", b"", 2, packet_id=number), 4) for number in (1, 2, 3)]
    assert publisher.from_client(b"".join(frames)) == frames[0] + frames[1]
