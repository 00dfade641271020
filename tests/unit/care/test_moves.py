"""A planned move: the old site of a client drains, then gives, and the new one says how it went."""

from __future__ import annotations

from typing import Any

import pytest

from brokerweave.care.home import State
from brokerweave.care.moves import MoveEnd, MoveResult
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Disconnect,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    Will,
)
from brokerweave.mqtt.properties import Property
from brokerweave.session.move_ticket import PlannedMove
from tests.unit.care.mesh_sites import Guest, care, kill, mesh_of
from tests.unit.node.network import Network

MOVE = PlannedMove("c", "a", "b", b"number")
QUERY = Subscribe(9, (Subscription("t", 1),))


class Moving:
    """A client of a that wants t, and a publisher at p."""

    def __init__(self, copies: int = 2, **connect: Any) -> None:
        self.network: Network = mesh_of("abp", copies)
        self.old = Guest(self.network, "a", "c", **connect)
        self.old.subscribe("t")
        self.publisher = Guest(self.network, "p", "publisher")
        self.network.settle()
        self.patience = care(self.network, "a").sites.patience

    def publish(self, payload: bytes) -> None:
        self.publisher.publish("t", payload)
        self.network.settle()

    def comes(self, move: PlannedMove = MOVE, **connect: Any) -> Guest:
        """The new connection; its SUBSCRIBE follows its CONNECT at once."""
        new = Guest(self.network, move.new, "c", move=move, **connect)
        new.send(QUERY)
        self.network.settle()
        return new

    def subscribed(self, new: Guest) -> None:
        new.broker(SubAck(9, (1,)))
        self.network.settle()

    def state(self, node: str) -> State | None:
        home = care(self.network, node).homes.get("c")
        return home.state if home is not None else None

    @property
    def results(self) -> list[MoveResult]:
        return self.network.nodes["b"].moves


@pytest.fixture
def moving() -> Moving:
    return Moving()


def test_what_is_in_flight_is_answered_before_the_old_site_gives(moving: Moving) -> None:
    moving.publish(b"1")
    moving.old.broker(Publish("t", b"1", 1, packet_id=1))
    new = moving.comes()
    assert moving.state("a") is State.DRAINING
    assert moving.results == []
    moving.old.send(PubAck(1))
    moving.network.settle()
    assert moving.results == [MoveResult(MOVE, MoveEnd.DRAINED)]
    assert moving.old.pair in moving.network.nodes["a"].hung_up
    moving.subscribed(new)
    assert new.payloads() == []
    assert moving.state("a") is None
    assert moving.network.nodes["b"].core.counters["moves_drained"] == 1


def test_nothing_new_goes_to_a_client_that_drains_and_the_new_site_gives_it(moving: Moving) -> None:
    moving.publish(b"1")
    moving.old.broker(Publish("t", b"1", 1, packet_id=1))
    new = moving.comes()
    moving.publish(b"2")
    moving.old.broker(Publish("t", b"2", 1, packet_id=2))
    assert moving.old.payloads() == [b"1"]
    moving.old.send(PubAck(1))
    moving.network.settle()
    moving.subscribed(new)
    assert new.payloads() == [b"2"]


def test_what_the_node_gives_stops_with_the_stream() -> None:
    moving = Moving()
    moving.publish(b"1")
    home = care(moving.network, "a").homes["c"]
    home.delivering.by_broker.clear()
    home.delivering.opened = True
    for number in range(2, 30):
        moving.publish(b"%d" % number)
        home.delivering.by_broker.clear()
    care(moving.network, "a").deliveries.pump(home)
    begun = moving.old.payloads()
    assert 0 < len(begun) < 29
    new = moving.comes()
    moving.old.answer_all()
    moving.network.settle()
    assert moving.old.payloads() == begun
    assert moving.results == [MoveResult(MOVE, MoveEnd.DRAINED)]
    moving.subscribed(new)
    new.answer_all()
    new.answer_all()
    assert (begun + new.payloads())[:29] == [b"%d" % number for number in range(1, 30)]


def test_a_qos_2_delivery_is_in_flight_until_its_pubcomp(moving: Moving) -> None:
    moving.publish(b"1")
    moving.old.broker(Publish("t", b"1", 2, packet_id=1))
    moving.comes()
    moving.old.send(PubRec(1))
    moving.network.settle()
    assert moving.results == []
    moving.old.broker(PubRel(1))
    assert moving.old.packets()[-1] == PubRel(1)
    moving.old.send(PubComp(1))
    moving.network.settle()
    assert moving.results == [MoveResult(MOVE, MoveEnd.DRAINED)]


def test_what_the_client_published_is_acknowledged_first(moving: Moving) -> None:
    moving.old.send(Publish("x", b"mine", 2, packet_id=7))
    moving.comes()
    moving.old.broker(PubRec(7))
    moving.network.settle()
    moving.old.send(PubRel(7))
    moving.network.settle()
    assert moving.results == []
    moving.old.broker(PubComp(7))
    moving.network.settle()
    assert moving.results == [MoveResult(MOVE, MoveEnd.DRAINED)]
    assert [p for p in moving.old.packets() if isinstance(p, PubComp)] == [PubComp(7)]


def test_what_the_broker_delivered_before_its_publisher_was_acknowledged_gets_its_name_first() -> None:
    moving = Moving()
    local = Guest(moving.network, "a", "local")
    local.send(Publish("t", b"here", 1, packet_id=3))
    moving.old.broker(Publish("t", b"here", 1, packet_id=1))
    moving.comes()
    moving.old.send(PubAck(1))
    moving.network.settle()
    assert moving.state("a") is State.DRAINING
    local.broker(PubAck(3))
    moving.network.settle()
    assert moving.results == [MoveResult(MOVE, MoveEnd.DRAINED)]


def test_an_old_site_gives_after_half_of_patience_and_says_what_was_in_flight(moving: Moving) -> None:
    moving.publish(b"1")
    moving.old.broker(Publish("t", b"1", 1, packet_id=1))
    new = moving.comes()
    moving.network.advance(moving.patience / 2)
    assert moving.results == [MoveResult(MOVE, MoveEnd.LATE, 1)]
    moving.subscribed(new)
    assert new.payloads() == [b"1"]
    assert moving.network.nodes["b"].core.counters["moves_late"] == 1


def test_draining_ends_with_the_old_connection(moving: Moving) -> None:
    moving.publish(b"1")
    moving.old.broker(Publish("t", b"1", 1, packet_id=1))
    moving.comes()
    moving.old.pair.ended()
    moving.network.settle()
    assert moving.results == [MoveResult(MOVE, MoveEnd.LATE, 1)]
    assert moving.state("b") is State.HOME


def test_nothing_is_asked_of_the_new_broker_before_the_old_site_has_given(moving: Moving) -> None:
    moving.publish(b"1")
    moving.old.broker(Publish("t", b"1", 1, packet_id=1))
    new = moving.comes()
    asked = moving.network.nodes["b"].to_brokers
    assert asked.get(new.pair, b"") == new.to_broker == b""
    moving.old.send(PubAck(1))
    moving.network.settle()
    assert asked[new.pair] == codec.encode(QUERY, 4)


def test_a_client_stays_if_the_new_site_dies_and_its_stream_goes_on(moving: Moving) -> None:
    moving.publish(b"1")
    moving.old.broker(Publish("t", b"1", 1, packet_id=1))
    moving.comes()
    moving.publish(b"2")
    moving.old.broker(Publish("t", b"2", 1, packet_id=2))
    kill(moving.network, "b")
    moving.network.advance(5.0)
    assert moving.state("a") is State.HOME
    assert moving.old.payloads() == [b"1", b"2"]
    moving.old.send(PubAck(1))
    moving.network.settle()
    assert moving.old.pair not in moving.network.nodes["a"].hung_up


def test_a_third_site_that_claims_the_client_ends_the_drain(moving: Moving) -> None:
    moving.publish(b"1")
    moving.old.broker(Publish("t", b"1", 1, packet_id=1))
    moving.comes()
    third = Guest(moving.network, "p", "c")
    third.subscribe("t")
    moving.network.settle()
    assert moving.old.pair in moving.network.nodes["a"].hung_up
    assert moving.state("p") is State.HOME
    assert moving.state("a") is moving.state("b") is None
    assert third.payloads() == [b"1"]


def test_a_client_that_comes_back_to_its_old_site_ends_the_drain(moving: Moving) -> None:
    moving.publish(b"1")
    moving.old.broker(Publish("t", b"1", 1, packet_id=1))
    moving.comes()
    again = Guest(moving.network, "a", "c")
    moving.old.pair.ended()
    again.subscribe("t")
    moving.network.settle()
    assert moving.state("a") is State.HOME
    assert moving.state("b") is None
    assert again.payloads() == [b"1"]


def test_a_new_connection_that_ends_too_early_is_no_move(moving: Moving) -> None:
    moving.publish(b"1")
    moving.old.broker(Publish("t", b"1", 1, packet_id=1))
    new = moving.comes()
    new.pair.ended()
    moving.network.settle()
    assert moving.results == [MoveResult(MOVE, MoveEnd.REFUSED)]
    moving.old.send(PubAck(1))
    moving.network.settle()
    back = Guest(moving.network, "a", "c")
    back.subscribe("t")
    moving.network.settle()
    assert moving.state("a") is State.HOME
    assert back.payloads() == []


def test_a_move_that_the_new_broker_refuses_leaves_the_client_where_it_is(moving: Moving) -> None:
    pair = moving.network.nodes["b"].core.new_pair()
    pair.announce(MOVE)
    pair.from_client(codec.encode(Connect("c"), 4))
    pair.from_broker(codec.encode(ConnAck(5), 4))
    pair.ended()
    moving.network.settle()
    assert moving.results == [MoveResult(MOVE, MoveEnd.REFUSED)]
    assert moving.state("a") is State.HOME


def test_a_ticket_is_for_one_client_only(moving: Moving) -> None:
    pair = moving.network.nodes["b"].core.new_pair()
    pair.announce(MOVE)
    pair.from_client(codec.encode(Connect("another"), 4))
    assert "another client's" in str(pair.error)


def test_without_a_connection_at_the_old_site_nothing_drains(moving: Moving) -> None:
    moving.old.pair.ended()
    moving.network.settle()
    new = moving.comes()
    assert moving.results == [MoveResult(MOVE, MoveEnd.NOTHING)]
    moving.subscribed(new)
    moving.publish(b"1")
    new.delivered(b"1", 1)
    assert new.payloads() == [b"1"]


def test_a_client_that_is_elsewhere_than_its_ticket_says_is_taken_over_at_once(moving: Moving) -> None:
    moving.publish(b"1")
    moving.old.broker(Publish("t", b"1", 1, packet_id=1))
    moving.comes(PlannedMove("c", "p", "b", b"number"))
    assert [result.outcome for result in moving.results] == [MoveEnd.NOTHING]
    assert moving.old.pair in moving.network.nodes["a"].hung_up


@pytest.mark.parametrize("version", [4, 5])
def test_the_old_session_ends_without_a_will(version: int) -> None:
    expiry = ((Property.SESSION_EXPIRY_INTERVAL, 600),) if version == 5 else ()
    will = Will("w", b"will", 1)
    moving = Moving(version=version, clean_start=False, will=will, properties=expiry)
    moving.comes(version=version)
    at_a, pair = moving.network.nodes["a"], moving.old.pair
    goodbye = codec.decode(at_a.last_words[pair], version)
    assert isinstance(goodbye, Disconnect)
    assert goodbye.reason_code == 0
    assert pair.ended() is False
    if version == 5:
        assert goodbye.properties == ((Property.SESSION_EXPIRY_INTERVAL, 0),)
        assert at_a.cleared == []
    else:
        assert at_a.cleared == [pair]
        clean = codec.decode(pair.clean_connect()[: -len(codec.encode(Disconnect(), 4))], 4)
        assert clean == Connect("c", 4, True)
        assert at_a.core.is_gone(pair)
