"""Subscription flooding: the example of ILDM Fig. 7, covering, QoS, and when routes change."""

from __future__ import annotations

from random import Random

from brokerweave.cooperation import sf
from brokerweave.cooperation.sf import SubscriptionFlooding
from brokerweave.mqtt.packets import Subscribe, Subscription
from brokerweave.mqtt.topics import covers
from brokerweave.plugin import Hop, Route
from tests.unit.cooperation.network import Network, five_nodes
from tests.unit.cooperation.sf_helpers import assert_nothing_is_left, sent, two_nodes


class TestTheFiveNodesOfFigure7:
    def test_the_first_subscription_floods_all_links(self) -> None:
        network = five_nodes(SubscriptionFlooding)
        network.nodes["2"].subscribed({"t": 1})
        assert sorted(sent(network)) == [
            ("2", "1", "+t:1"),
            ("2", "3", "+t:1"),
            ("2", "4", "+t:1"),
            ("3", "5", "+t:1"),
        ]

    def test_the_second_subscription_sends_exactly_one(self) -> None:
        network = five_nodes(SubscriptionFlooding)
        network.nodes["2"].subscribed({"t": 1})
        network.settle()
        network.nodes["3"].subscribed({"t": 1})
        assert sent(network) == [("3", "2", "+t:1")]

    def test_a_publication_crosses_only_the_links_towards_subscribers(self) -> None:
        network = five_nodes(SubscriptionFlooding)
        network.nodes["2"].subscribed({"t": 1})
        network.nodes["3"].subscribed({"t": 1})
        network.settle()
        assert network.publish("5", "t") == ([("5", "3"), ("3", "2")], {"3": 1, "2": 1})

    def test_unsubscribing_leaves_nothing_behind(self) -> None:
        network = five_nodes(SubscriptionFlooding)
        network.nodes["2"].subscribed({"t": 1})
        network.nodes["3"].subscribed({"t": 1})
        network.settle()
        network.nodes["2"].unsubscribed(["t"])
        assert sent(network) == [("2", "3", "-t")]
        assert network.publish("1", "t") == ([("1", "2"), ("2", "3")], {"3": 1})
        network.nodes["3"].unsubscribed(["t"])
        network.settle()
        assert_nothing_is_left(network)

    def test_a_retained_message_goes_to_everybody(self) -> None:
        node = five_nodes(SubscriptionFlooding).nodes["2"]
        assert node.route_retained("t", "3") == Route((Hop("1"), Hop("4")), local=True)


class TestCovering:
    def test_a_covered_filter_is_not_sent(self) -> None:
        network, a, _ = two_nodes()
        a.subscribed({"a/#": 1})
        network.settle()
        a.subscribed({"a/b": 1})
        assert sent(network) == []

    def test_a_covered_filter_with_a_higher_qos_is_sent(self) -> None:
        network, a, _ = two_nodes()
        a.subscribed({"a/#": 1})
        a.subscribed({"a/b": 2})
        assert sent(network) == [("a", "b", "+a/#:1"), ("a", "b", "+a/b:2")]

    def test_what_becomes_uncovered_goes_out_before_the_covering_filter_is_withdrawn(self) -> None:
        network, a, _ = two_nodes()
        a.subscribed({"a/#": 2})
        a.subscribed({"a/+/c": 1})
        a.subscribed({"a/b/c": 1})
        a.subscribed({"a/b": 0})
        network.settle()
        a.unsubscribed(["a/#"])
        assert sent(network) == [("a", "b", "+a/+/c:1 +a/b:0"), ("a", "b", "-a/#")]

    def test_nothing_needs_to_replace_a_filter_that_another_one_covers(self) -> None:
        network, a, _ = two_nodes()
        a.subscribed({"a/+": 1})
        a.subscribed({"#": 1})
        a.subscribed({"a/b": 1})
        network.settle()
        a.unsubscribed(["a/+"])
        assert sent(network) == [("a", "b", "-a/+")]

    def test_only_the_widest_filters_go_into_a_sync(self) -> None:
        network = Network(SubscriptionFlooding, "ab")
        for topic_filter in ("a/b", "a/+", "a", "a/#", "c/d"):
            network.nodes["a"].subscribed({topic_filter: 1})
        network.add("a", "b")
        assert ("a", "b", "whole +a/#:1 +c/d:1") in sent(network)

    def test_of_several_filters_in_one_packet_only_the_widest_are_passed_on(self) -> None:
        network = five_nodes(SubscriptionFlooding)
        asked = Subscribe(1, (Subscription("a/b"), Subscription("a/+"), Subscription("a/#")))
        network.nodes["3"].packet_arrived("5", asked)
        assert ("3", "2", "+a/#:0") in sent(network)

    def test_a_neighbours_own_interest_does_not_stand_in_for_what_it_is_asked(self) -> None:
        network, a, b = two_nodes()
        b.subscribed({"a/#": 2})
        network.settle()
        a.subscribed({"a/b": 0})
        assert sent(network) == [("a", "b", "+a/b:0")]


class TestQos:
    def test_a_higher_qos_is_sent_and_routed(self) -> None:
        network, a, b = two_nodes()
        a.subscribed({"t": 0})
        network.settle()
        a.subscribed({"t": 2})
        assert sent(network) == [("a", "b", "+t:2")]
        assert b.route("t", None) == Route((Hop("a", 2),))

    def test_a_lower_qos_is_sent_after_what_it_uncovers(self) -> None:
        network, a, b = two_nodes()
        a.subscribed({"a/#": 2})
        a.subscribed({"a/b": 1})
        network.settle()
        a.subscribed({"a/#": 0})
        assert sent(network) == [("a", "b", "+a/b:1"), ("a", "b", "+a/#:0")]
        assert b.route("a/b", None) == Route((Hop("a", 1),))

    def test_the_highest_qos_behind_a_neighbour_is_what_counts(self) -> None:
        network = five_nodes(SubscriptionFlooding)
        network.nodes["1"].subscribed({"t": 0})
        network.nodes["4"].subscribed({"t": 2})
        network.settle()
        assert network.nodes["3"].route("t", "5") == Route((Hop("2", 2),))
        network.nodes["4"].unsubscribed(["t"])
        network.settle()
        assert network.nodes["3"].route("t", "5") == Route((Hop("2", 0),))


class TestRouteChanges:
    def test_routes_change_only_when_an_answer_changes(self) -> None:
        network, a, b = two_nodes()
        context = network.contexts["a"]
        b.subscribed({"t": 0})
        network.settle()
        before = context.route_changes
        a.packet_arrived("b", Subscribe(1, (Subscription("t", 0),)))
        a.unsubscribed(["never/asked"])
        a.subscribed({"t": 0})
        assert context.route_changes == before + 1  # the last one: now local clients want it too
        a.subscribed({"t": 2})  # at what QoS is between them and their broker
        assert context.route_changes == before + 1

    def test_routes_change_once_for_a_packet_of_many_filters(self) -> None:
        network, a, _ = two_nodes()
        before = network.contexts["a"].route_changes
        a.packet_arrived("b", Subscribe(1, tuple(Subscription(f"t/{n}") for n in range(9))))
        assert network.contexts["a"].route_changes == before + 1

    def test_routes_do_not_change_when_a_link_fails_and_returns_with_nothing_new(self) -> None:
        network, _, b = two_nodes()
        b.subscribed({"t": 0})
        network.settle()
        before = network.contexts["a"].route_changes
        network.down("a", "b")
        network.up("a", "b")
        network.settle()
        assert network.contexts["a"].route_changes == before

    def test_routes_change_when_a_neighbour_with_interest_is_removed(self) -> None:
        network, _, b = two_nodes()
        b.subscribed({"t": 0})
        network.settle()
        before = network.contexts["a"].route_changes
        network.remove("a", "b")
        assert network.contexts["a"].route_changes == before + 1

    def test_an_unwanted_topic_stays_here(self) -> None:
        _, a, _ = two_nodes()
        assert a.route("t", None) == Route()


def test_the_description_counts_what_is_held_and_what_was_sent() -> None:
    network, a, b = two_nodes()
    a.subscribed({"s": 0})
    b.subscribed({"t": 0})
    network.settle()
    a.unsubscribed(["s"])
    network.settle()
    assert a.describe("b") == {"filters_from": 1, "filters_to": 0}
    assert b.describe("a") == {"filters_from": 0, "filters_to": 1}
    assert a.counters == {"inter_subscribes_sent": 1, "inter_unsubscribes_sent": 1}


def test_the_order_of_broadness_puts_a_filter_before_all_it_covers() -> None:
    levels, random = ["a", "b", "+", "#"], Random(7)
    filters = set()
    for _ in range(300):
        drawn = random.choices(levels, k=random.randint(1, 4))
        filters.add("/".join(drawn[: drawn.index("#") + 1] if "#" in drawn else drawn))
    ordered = sorted(filters, key=sf._breadth)
    for number, narrower in enumerate(ordered):
        for wider in ordered[number + 1 :]:
            assert not covers(wider, narrower) or {wider, narrower} == {"#", "+/#"}, (wider, narrower)
