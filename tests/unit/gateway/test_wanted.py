"""What a client wants, and what a site offers."""

from __future__ import annotations

import pytest

from brokerweave.gateway.offers import lacks
from brokerweave.gateway.wanted import FILTERS_AT_ONCE, WantedFilters
from brokerweave.mqtt.packets import ConnAck, SubAck, Subscribe, Subscription, UnsubAck, Unsubscribe
from brokerweave.mqtt.properties import Property


def test_only_what_was_granted_is_asked_for_again_without_retained_messages() -> None:
    wanted = WantedFilters()
    identifier = ((Property.SUBSCRIPTION_IDENTIFIER, 7),)
    wanted.ask(Subscribe(1, (Subscription("a", 1), Subscription("no", 1), Subscription("b", 2))))
    wanted.ask(Subscribe(2, (Subscription("c", 0, no_local=True),), identifier))
    wanted.ask(Subscribe(3, (Subscription("asked", 1),)))
    wanted.answered(SubAck(1, (1, 0x80, 2)))
    wanted.answered(SubAck(2, (0,)))
    first, second = wanted.again(5)
    assert [each.topic_filter for each in first.subscriptions] == ["a", "b"]
    assert all(each.retain_handling == 2 for each in first.subscriptions)
    assert second.properties == identifier
    assert second.subscriptions[0].no_local
    assert list(wanted.asked) == [3]
    assert all(each.retain_handling == 0 for packet in wanted.again(4) for each in packet.subscriptions)


def test_what_is_not_wanted_any_more_is_forgotten() -> None:
    wanted = WantedFilters()
    wanted.ask(Subscribe(1, (Subscription("a", 1), Subscription("b", 1))))
    wanted.answered(SubAck(1, (1, 1)))
    wanted.ask(Unsubscribe(2, ("a",)))
    assert list(wanted.granted) == ["a", "b"]
    wanted.answered(UnsubAck(2))
    assert list(wanted.granted) == ["b"]


def test_many_filters_are_asked_for_in_several_packets() -> None:
    wanted = WantedFilters()
    count = 2 * FILTERS_AT_ONCE + 1
    wanted.ask(Subscribe(1, tuple(Subscription(str(each), 1) for each in range(count))))
    wanted.answered(SubAck(1, (1,) * count))
    assert [len(packet.subscriptions) for packet in wanted.again(4)] == [100, 100, 1]


@pytest.mark.parametrize(
    ("told", "offered", "lacking"),
    [
        ((), (), ""),
        (((Property.RECEIVE_MAXIMUM, 20),), ((Property.RECEIVE_MAXIMUM, 30),), ""),
        ((), ((Property.RECEIVE_MAXIMUM, 30),), "receive maximum"),
        ((), ((Property.MAXIMUM_QOS, 1),), "maximum qos"),
        ((), ((Property.MAXIMUM_PACKET_SIZE, 1000),), "maximum packet size"),
        ((), ((Property.RETAIN_AVAILABLE, 0),), "retain available"),
        ((), ((Property.SHARED_SUBSCRIPTION_AVAILABLE, 0),), "shared subscription available"),
        ((), ((Property.SERVER_KEEP_ALIVE, 30),), "server keep alive"),
        (((Property.SERVER_KEEP_ALIVE, 30),), ((Property.SERVER_KEEP_ALIVE, 30),), ""),
        (((Property.SERVER_KEEP_ALIVE, 30),), (), ""),
        ((), ((Property.TOPIC_ALIAS_MAXIMUM, 5),), ""),
    ],
)
def test_a_site_that_offers_less_than_the_client_was_told_is_found_out(
    told: tuple[tuple[Property, int], ...], offered: tuple[tuple[Property, int], ...], lacking: str
) -> None:
    assert lacks(ConnAck(properties=told), ConnAck(properties=offered), 60) == lacking
