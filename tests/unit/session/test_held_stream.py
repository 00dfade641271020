"""A client's first publication at QoS 1 or 2 that waits for the node, in order with what the client sends."""

from __future__ import annotations

import pytest

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    Publish,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from brokerweave.mqtt.properties import Property
from brokerweave.mqtt.scanner import RouteCache
from brokerweave.session.pair import Pair
from tests.unit.session.test_pair import Host, Limits, everything_is_wanted

BEFORE = (Subscribe(1, (Subscription("a", 1),)), Publish("t"))
FIRST = Publish("u", b"1", 1, packet_id=5)
BEHIND = (
    Publish("v"),
    Publish("w", qos=2, packet_id=7),
    PubRel(7),
)
AHEAD = (PubAck(3), Subscribe(2, (Subscription("b", 1),)), PingReq(), Unsubscribe(3, ("b",)))
"""Of what comes behind it, what does not wait."""


def encoded(*packets: Packet, version: int = 4) -> bytes:
    return b"".join(codec.encode(packet, version) for packet in packets)


class Holding:
    """A client of a node that takes no publications yet."""

    def __init__(
        self,
        version: int = 4,
        *,
        accepted: bool = True,
        cluster: bool = False,
        watched: bool = False,
        asks_first: bool = False,
    ) -> None:
        self.version = version
        self.host = Host(lets_publish=False)
        routes = RouteCache(everything_is_wanted)
        self.pair = Pair(
            1,
            self.host,
            routes,
            Limits(),
            100.0,
            cluster=cluster,
            watched=watched,
            asks_first=asks_first,
            asks_to_publish=True,
        )
        if accepted:
            self.client(Connect("c", version, keep_alive=10))
            self.broker(ConnAck())

    def client(self, *packets: Packet) -> bytes:
        return self.pair.from_client(encoded(*packets, version=self.version))

    def broker(self, *packets: Packet) -> bytes:
        return self.pair.from_broker(encoded(*packets, version=self.version))

    def let_go(self) -> None:
        self.host.lets_publish = True
        self.pair.publish_now()

    @property
    def written(self) -> bytes:
        return b"".join(self.host.to_broker)

    @property
    def forwarded(self) -> list[str]:
        return [publish.topic for publish in self.host.forwarded]


@pytest.fixture(params=["local", "cluster", "watched"])
def holding(request: pytest.FixtureRequest) -> Holding:
    return Holding(cluster=request.param == "cluster", watched=request.param == "watched")


def test_what_comes_before_it_goes_on_and_what_comes_behind_follows_it_in_order(holding: Holding) -> None:
    assert holding.client(*BEFORE, FIRST, *BEHIND) == encoded(*BEFORE)
    assert holding.forwarded == ["t"]
    assert not holding.pair.upstream_open
    assert not holding.pair.wants_pause
    assert holding.client(Publish("x", qos=1, packet_id=9)) == b""
    holding.let_go()
    assert holding.written == encoded(FIRST, *BEHIND, Publish("x", qos=1, packet_id=9))
    assert holding.pair.upstream_open
    assert holding.client(Publish("y", qos=1, packet_id=10)) == encoded(Publish("y", qos=1, packet_id=10))


def test_nothing_of_it_is_forwarded_before_it_goes() -> None:
    holding = Holding()
    holding.client(FIRST, *BEHIND)
    assert holding.forwarded == []
    holding.let_go()
    assert holding.forwarded == ["u", "v", "w"]


def test_in_cluster_delivery_it_counts_when_the_broker_has_acknowledged_it() -> None:
    holding = Holding(cluster=True)
    holding.client(FIRST)
    assert holding.pair.unanswered == []
    holding.let_go()
    assert [publish.topic for publish in holding.pair.unanswered] == ["u"]
    holding.broker(PubAck(5))
    assert holding.forwarded == ["u"]


@pytest.mark.parametrize("cut", range(1, len(encoded(FIRST, *BEHIND))))
def test_it_may_come_in_any_pieces(cut: int) -> None:
    holding, data = Holding(), encoded(FIRST, *BEHIND)
    out = holding.pair.from_client(data[:cut]) + holding.pair.from_client(data[cut:])
    assert out == b""
    holding.let_go()
    assert holding.written == data
    frames, size = holding.pair.traffic[:2]
    assert (frames, size) == (3, len(encoded(Connect("c", keep_alive=10))) + len(data))


def test_what_publishes_nothing_overtakes_it_in_order(holding: Holding) -> None:
    pairs: list[tuple[Packet, Packet]] = list(zip(AHEAD, (*BEHIND, FIRST), strict=True))
    mixed = [packet for pair in pairs for packet in pair]
    assert holding.client(FIRST, *mixed) == encoded(*AHEAD)
    assert holding.broker(SubAck(2, (1,))) == encoded(SubAck(2, (1,)))
    assert holding.host.granted_filters == [("b", 1)]
    holding.let_go()
    assert holding.written == encoded(FIRST, *BEHIND, FIRST)


def test_a_ping_overtakes_it_so_that_client_and_broker_know_of_each_other(holding: Holding) -> None:
    assert holding.client(FIRST, PingReq(), *BEHIND) == encoded(PingReq())
    assert holding.broker(PingResp()) == encoded(PingResp())
    ping = encoded(PingReq())
    assert holding.pair.from_client(encoded(FIRST)[:3] + b"") == b""
    assert holding.pair.from_client(encoded(FIRST)[3:] + ping[:1]) == b""
    assert holding.pair.from_client(ping[1:]) == ping
    holding.let_go()
    assert holding.written == encoded(FIRST, *BEHIND, FIRST)


def test_a_client_that_leaves_does_so_at_once_and_what_waited_goes_nowhere(holding: Holding) -> None:
    assert holding.client(FIRST, *BEHIND, Disconnect()) == encoded(Disconnect())
    holding.let_go()
    assert holding.written == b""
    assert not holding.pair.ended()  # so no will is due
    assert holding.forwarded == []


def test_a_client_is_read_until_too_much_of_it_waits() -> None:
    holding = Holding()
    holding.client(FIRST)
    assert not holding.pair.wants_pause
    holding.client(Publish("t", bytes(holding.pair.limits.client_queue), 1, packet_id=6))
    assert holding.pair.wants_pause
    holding.let_go()
    assert not holding.pair.wants_pause


def test_a_client_of_which_the_node_cannot_hold_more_ends_and_its_broker_hears_nothing_of_it() -> None:
    holding = Holding(5)
    holding.host.room_to_hold = 10
    assert holding.client(*BEFORE, Publish("t", bytes(20), 1, packet_id=6)) == encoded(*BEFORE, version=5)
    assert getattr(holding.pair.error, "reason_code", 0) == 0x97


def test_one_that_came_with_connect_waits_for_the_broker_to_accept_the_client() -> None:
    holding = Holding(accepted=False)
    assert holding.client(Connect("c"), FIRST, PingReq()) == encoded(Connect("c"), PingReq())
    assert not holding.pair.bare
    holding.let_go()
    assert holding.written == b""
    holding.broker(ConnAck())
    assert holding.written == encoded(FIRST)


def test_what_was_put_off_of_a_large_chunk_follows(holding: Holding) -> None:
    many = [Publish("2", qos=2, packet_id=number) for number in range(1, 1000)]
    early = [Subscribe(1, (Subscription("a", 1),))] * 300
    data = encoded(*early, *many)
    out = holding.pair.from_client(data)
    while holding.pair.put_off is not None:
        out += holding.pair.next_turn()
    assert out == encoded(*early)
    holding.let_go()
    assert holding.written == encoded(*many)


def test_where_a_subscribe_may_have_to_wait_itself_it_does_so_in_its_turn() -> None:
    holding, subscribe = Holding(asks_first=True), AHEAD[1]
    holding.host.lets_subscribe = False
    assert holding.client(FIRST, subscribe, *BEHIND) == b""
    holding.let_go()
    assert holding.written == encoded(FIRST)
    holding.pair.subscribe_now()
    assert holding.written == encoded(FIRST, subscribe, *BEHIND)


def test_one_behind_a_subscribe_that_waits_is_held_in_its_turn() -> None:
    holding = Holding(asks_first=True)
    holding.host.lets_subscribe = False
    holding.client(BEFORE[0], FIRST)
    holding.client(*BEHIND[:2])
    holding.pair.subscribe_now()
    assert holding.written == encoded(BEFORE[0])
    holding.let_go()
    assert holding.written == encoded(BEFORE[0], FIRST, *BEHIND[:2])


def test_a_pair_that_ended_publishes_no_more(holding: Holding) -> None:
    holding.client(FIRST)
    holding.pair.ended()
    holding.let_go()
    assert holding.written == b""
    assert holding.forwarded == []


def test_what_cannot_be_cut_into_frames_behind_it_goes_to_the_broker_behind_it() -> None:
    holding = Holding()
    garbage = b"\x30\xff\xff\xff\xff\xff"
    holding.client(FIRST)
    assert holding.pair.from_client(garbage) == b""
    assert holding.pair.from_client(b"\x01") == b""
    holding.let_go()
    assert holding.written == encoded(FIRST) + garbage + b"\x01"


def test_with_such_bytes_in_the_same_chunk_the_client_is_refused() -> None:
    holding = Holding()
    assert holding.pair.from_client(encoded(*BEFORE, FIRST) + b"\x30\xff\xff\xff\xff\xff") == encoded(*BEFORE)
    assert getattr(holding.pair.error, "reason_code", 0) == 0x89


def test_once_the_node_takes_publications_it_is_not_asked_again() -> None:
    holding = Holding()
    holding.host.lets_publish = True
    assert holding.client(FIRST) == encoded(FIRST)
    holding.host.lets_publish = False
    assert holding.client(FIRST) == encoded(FIRST)


@pytest.mark.parametrize("kind", ["local", "cluster"])
def test_topics_that_stay_at_the_broker_do_not_wait(kind: str) -> None:
    holding = Holding(cluster=kind == "cluster")
    mine = Publish("$own", qos=1, packet_id=8)
    assert holding.client(mine) == encoded(mine)


def test_the_broker_says_for_how_long_a_client_may_be_silent() -> None:
    holding = Holding(5, accepted=False)
    holding.client(Connect("c", 5, keep_alive=60))
    assert holding.pair.keep_alive == 60
    holding.broker(ConnAck(properties=((Property.SERVER_KEEP_ALIVE, 5),)))
    assert holding.pair.keep_alive == 5
