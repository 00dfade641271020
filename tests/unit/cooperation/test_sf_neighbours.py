"""Subscription flooding when neighbours come, fail, return and go: ILDM Fig. 8, and what is sent then."""

from __future__ import annotations

import pytest

from brokerweave.cooperation import sf
from brokerweave.cooperation.sf import SubscriptionFlooding
from brokerweave.errors import RemoteProtocolError
from brokerweave.mqtt.packets import Packet, PingReq, Subscribe, Subscription, Unsubscribe
from brokerweave.plugin import Hop, Route
from tests.unit.cooperation.network import Network, five_nodes
from tests.unit.cooperation.sf_helpers import assert_nothing_is_left, sent, strategy, sync, two_nodes, words


class TestNeighboursThatComeAndGo:
    def figure_8(self) -> Network:
        network = Network(SubscriptionFlooding, "1234")
        network.add("1", "2")
        network.add("2", "3")
        network.nodes["1"].subscribed({"t1": 0})
        network.nodes["3"].subscribed({"t2": 0})
        network.nodes["4"].subscribed({"t3": 0})
        network.settle()
        return network

    def test_both_sides_of_a_new_link_share_what_they_know(self) -> None:
        network = self.figure_8()
        network.add("2", "4")
        assert sorted(sent(network)) == [
            ("2", "1", "+t3:0"),
            ("2", "3", "+t3:0"),
            ("2", "4", "whole +t1:0 +t2:0"),
            ("4", "2", "whole +t3:0"),
        ]
        assert network.publish("1", "t3") == ([("1", "2"), ("2", "4")], {"4": 0})

    def test_removing_a_neighbour_withdraws_its_interest_everywhere(self) -> None:
        network = self.figure_8()
        network.add("2", "4")
        network.settle()
        network.remove("2", "4")
        assert sorted(sent(network)) == [("2", "1", "-t3"), ("2", "3", "-t3")]
        assert network.publish("1", "t3") == ([], {})
        assert strategy(network, "4").interest_of("2") == []

    def test_interest_is_kept_and_messages_stay_pending_while_a_link_is_down(self) -> None:
        network, a, b = two_nodes()
        b.subscribed({"t": 1})
        a.subscribed({"s": 1})
        network.settle()
        assert a.asked_of("b") == [("s", 1)]
        network.down("a", "b")
        assert a.route("t", None) == Route((Hop("b", 1),))
        assert a.interest_of("b") == [("t", 1)]
        assert a.asked_of("b") == []

    def test_what_changed_while_a_link_was_down_is_made_good_when_it_returns(self) -> None:
        network, a, b = two_nodes()
        b.subscribed({"old": 1})
        b.subscribed({"kept": 1})
        network.settle()
        network.down("a", "b")
        b.unsubscribed(["old"])
        b.subscribed({"new": 2})
        assert sent(network) == []
        network.up("a", "b")
        network.settle()
        assert a.interest_of("b") == [("kept", 1), ("new", 2)]

    def test_a_link_that_comes_up_again_unnoticed_shares_everything_again(self) -> None:
        network, a, _ = two_nodes()
        a.subscribed({"t": 1})
        network.settle()
        network.up("a", "b")
        assert ("a", "b", "whole +t:1") in sent(network)

    def test_a_neighbour_that_wants_nothing_any_more_says_so(self) -> None:
        network, _, b = two_nodes()
        b.subscribed({"old": 1})
        network.settle()
        network.down("a", "b")
        b.unsubscribed(["old"])
        network.up("a", "b")
        assert ("b", "a", "whole -#") in sent(network)
        assert_nothing_is_left(network)

    def test_a_dropped_filter_of_a_sync_is_withdrawn_further_on(self) -> None:
        network = Network(SubscriptionFlooding, "abc")
        network.add("a", "b")
        network.add("b", "c")
        network.nodes["a"].subscribed({"old": 0})
        network.settle()
        network.down("a", "b")
        network.nodes["a"].unsubscribed(["old"])
        network.nodes["a"].subscribed({"new": 0})
        network.up("a", "b")
        assert [(x, y, w) for x, y, w in sent(network) if x == "b" and y == "c"] == [
            ("b", "c", "+new:0"),
            ("b", "c", "-old"),
        ]

    def test_a_large_sync_goes_in_parts_and_keeps_what_is_wanted_all_along(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sf, "PACKET_FILTERS", 2)
        network, a, b = two_nodes()
        for number in range(5):
            b.subscribed({f"t/{number}": 1})
        b.subscribed({"gone": 1})
        network.settle()
        network.down("a", "b")
        b.unsubscribed(["gone"])
        network.up("a", "b")
        parts = [words(p).split()[0] for x, _, p in network.log if x == "b"]
        assert parts == ["begin", "more", "end"]
        while network.step():
            assert all(a.route(f"t/{n}", None) == Route((Hop("b", 1),)) for n in range(5))
        assert a.interest_of("b") == [(f"t/{n}", 1) for n in range(5)]

    def test_a_sync_cut_short_drops_nothing_and_the_next_one_is_whole(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        network, a, b = two_nodes()
        for topic in "stu":
            b.subscribed({topic: 1})
        network.settle()
        monkeypatch.setattr(sf, "PACKET_FILTERS", 1)
        a.packet_arrived("b", Subscribe(1, (Subscription("s", 2),), sync("begin")))
        network.down("a", "b")
        assert a.interest_of("b") == [("s", 2), ("t", 1), ("u", 1)]
        network.up("a", "b")
        network.settle()
        assert a.interest_of("b") == [("s", 1), ("t", 1), ("u", 1)]

    def test_a_lower_qos_in_a_sync_counts_only_when_the_sync_is_complete(self) -> None:
        _, a, _ = two_nodes()
        a.packet_arrived("b", Subscribe(1, (Subscription("a/+", 2),)))
        a.packet_arrived("b", Subscribe(1, (Subscription("a/+", 0),), sync("begin")))
        assert a.route("a/b", None) == Route((Hop("b", 2),))
        a.packet_arrived("b", Subscribe(1, (Subscription("a/b", 2),), sync("end")))
        assert a.route("a/b", None) == Route((Hop("b", 2),))
        assert a.route("a/c", None) == Route((Hop("b", 0),))


class TestPackets:
    def test_no_packet_is_larger_than_its_bounds(self) -> None:
        network = Network(SubscriptionFlooding, "ab")
        for number in range(2_500):
            network.nodes["a"].subscribed({f"{number}/" + "x" * (200 if number < 500 else 1): 0})
        network.add("a", "b")
        packets = [p for x, _, p in network.settle() if x == "a" and isinstance(p, Subscribe)]
        sizes = [sum(len(s.topic_filter) + 3 for s in p.subscriptions) for p in packets]
        assert sum(len(p.subscriptions) for p in packets) == 2_500
        assert max(sizes) <= sf.PACKET_BYTES
        assert max(len(p.subscriptions) for p in packets) == sf.PACKET_FILTERS

    def test_a_packet_of_many_filters_is_passed_on_as_one(self) -> None:
        network = five_nodes(SubscriptionFlooding)
        many = tuple(Subscription(f"t/{n}") for n in range(9))
        network.nodes["3"].packet_arrived("5", Subscribe(1, many))
        assert len([1 for a, _, _ in network.settle() if a == "3"]) == 1

    @pytest.mark.parametrize(
        "packet",
        [
            PingReq(),
            Subscribe(1, (Subscription("t"),), sync("more")),
            Subscribe(1, (Subscription("t"),), sync("end")),
            Subscribe(1, (Subscription("t"),), sync("half")),
            Unsubscribe(1, ("#",), sync("begin")),
            Unsubscribe(1, ("t",), sync("whole")),
        ],
    )
    def test_an_unexpected_packet_is_the_neighbours_fault_and_changes_nothing(self, packet: Packet) -> None:
        _, a, _ = two_nodes()
        with pytest.raises(RemoteProtocolError):
            a.packet_arrived("b", packet)
        assert a.interest_of("b") == []

    @pytest.mark.parametrize("packet", [Subscribe(1, (Subscription("u"),)), Unsubscribe(1, ("t",))])
    def test_nothing_may_come_between_the_parts_of_a_sync(self, packet: Packet) -> None:
        _, a, _ = two_nodes()
        a.packet_arrived("b", Subscribe(1, (Subscription("t"),), sync("begin")))
        with pytest.raises(RemoteProtocolError):
            a.packet_arrived("b", packet)

    @pytest.mark.parametrize("stranger", ["c", ""])
    def test_an_unknown_neighbour_is_refused(self, stranger: str) -> None:
        _, a, _ = two_nodes()
        with pytest.raises(RemoteProtocolError):
            a.packet_arrived(stranger, Subscribe(1, (Subscription("t"),)))

    def test_withdrawing_what_was_never_asked_is_harmless(self) -> None:
        _, a, _ = two_nodes()
        a.packet_arrived("b", Unsubscribe(1, ("t",)))
        assert a.interest_of("b") == []
