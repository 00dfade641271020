"""Publication flooding over the network of ILDM Fig. 6."""

from brokerweave.cooperation.pf import PublicationFlooding
from brokerweave.plugin import Hop, Route
from tests.unit.cooperation.network import five_nodes


def test_a_publication_crosses_every_link_once_whoever_subscribed() -> None:
    network = five_nodes(PublicationFlooding)
    network.nodes["2"].subscribed({"t": 0})
    crossed, reached = network.publish("5", "t")
    assert sorted(crossed) == [("2", "1"), ("2", "4"), ("3", "2"), ("5", "3")]
    assert set(reached) == set("12345")


def test_nothing_is_sent_when_clients_subscribe_or_neighbours_come() -> None:
    network = five_nodes(PublicationFlooding)
    network.nodes["2"].subscribed({"t": 1})
    network.nodes["2"].unsubscribed(["t"])
    assert network.settle() == []


def test_messages_stay_pending_for_a_neighbour_whose_link_is_down() -> None:
    network = five_nodes(PublicationFlooding)
    network.down("2", "4")
    assert Hop("4") in network.nodes["2"].route("t", None).hops


def test_a_neighbour_that_is_gone_for_good_gets_nothing() -> None:
    network = five_nodes(PublicationFlooding)
    network.remove("3", "5")
    assert network.nodes["5"].route("t", None) == Route((), local=True)


def test_a_retained_message_goes_where_any_other_goes() -> None:
    node = five_nodes(PublicationFlooding).nodes["2"]
    assert node.route_retained("t", "3") == node.route("t", "3")
