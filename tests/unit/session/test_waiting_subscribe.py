"""A SUBSCRIBE that waits, in order with what the client sends before and behind it."""

from __future__ import annotations

import pytest

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Packet,
    PingReq,
    Publish,
    PubRel,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from brokerweave.mqtt.scanner import RouteCache
from brokerweave.session.pair import Pair
from tests.unit.session.test_pair import Host, Limits, everything_is_wanted

SUBSCRIBE = Subscribe(1, (Subscription("a", 1), Subscription("b", 0)))
BEFORE = (Publish("t"), PingReq())
BEHIND = (Publish("u"), Publish("v", qos=2, packet_id=7), PubRel(7), PingReq(), Unsubscribe(2, ("a",)))


def encoded(*packets: Packet) -> bytes:
    return b"".join(codec.encode(packet, 4) for packet in packets)


class Waiting:
    def __init__(self, *, accepted: bool = True) -> None:
        self.host = Host(lets_subscribe=False)
        routes = RouteCache(everything_is_wanted)
        self.pair = Pair(1, self.host, routes, Limits(), 100.0, asks_first=True)
        if accepted:
            self.pair.from_client(encoded(Connect("c")))
            self.pair.from_broker(encoded(ConnAck()))

    @property
    def written(self) -> bytes:
        return b"".join(self.host.to_broker)

    @property
    def forwarded(self) -> list[str]:
        return [publish.topic for publish in self.host.forwarded]


@pytest.fixture
def waiting() -> Waiting:
    return Waiting()


def test_it_goes_to_the_broker_when_it_may_and_what_came_behind_it_follows_in_order(waiting: Waiting) -> None:
    out = waiting.pair.from_client(encoded(*BEFORE, SUBSCRIBE, *BEHIND))
    assert out == encoded(*BEFORE)
    assert waiting.host.asked == [{"a": 1, "b": 0}]
    assert waiting.forwarded == ["t"]
    assert waiting.pair.wants_pause
    assert not waiting.pair.upstream_open
    waiting.pair.subscribe_now()
    assert waiting.written == encoded(SUBSCRIBE, *BEHIND)
    assert waiting.forwarded == ["t", "u", "v"]
    assert not waiting.pair.wants_pause
    assert waiting.pair.upstream_open


def test_chunks_that_were_read_already_wait_as_well(waiting: Waiting) -> None:
    data = encoded(SUBSCRIBE, *BEHIND)
    assert waiting.pair.from_client(data[:-3]) == b""
    assert waiting.pair.from_client(data[-3:]) == b""
    waiting.pair.subscribe_now()
    assert waiting.written == data


def test_a_second_one_behind_it_waits_in_its_turn(waiting: Waiting) -> None:
    second = Subscribe(3, (Subscription("c", 2),))
    waiting.pair.from_client(encoded(SUBSCRIBE, PingReq(), second, *BEHIND))
    waiting.pair.from_client(encoded(PingReq()))
    waiting.pair.subscribe_now()
    assert waiting.written == encoded(SUBSCRIBE, PingReq())
    assert waiting.host.asked[1:] == [{"c": 2}]
    waiting.pair.subscribe_now()
    assert waiting.written == encoded(SUBSCRIBE, PingReq(), second, *BEHIND, PingReq())


def test_what_was_put_off_of_a_large_chunk_follows(waiting: Waiting) -> None:
    many = [Publish("2", qos=2, packet_id=number) for number in range(1, 1000)]
    data = encoded(SUBSCRIBE, *many)
    assert waiting.pair.from_client(data) == b""
    assert waiting.pair.put_off is None  # nobody goes on with it before
    waiting.pair.subscribe_now()
    assert waiting.written == data


def test_one_that_came_with_connect_waits_for_the_broker_to_accept_the_client() -> None:
    waiting = Waiting(accepted=False)
    assert waiting.pair.from_client(encoded(Connect("c"), SUBSCRIBE, PingReq())) == encoded(Connect("c"))
    waiting.pair.subscribe_now()
    assert waiting.written == b""
    waiting.pair.from_broker(encoded(ConnAck()))
    assert waiting.written == encoded(SUBSCRIBE, PingReq())


def test_a_pair_that_ended_subscribes_no_more(waiting: Waiting) -> None:
    waiting.pair.from_client(encoded(SUBSCRIBE))
    waiting.pair.ended()
    waiting.pair.subscribe_now()
    assert waiting.written == b""


def test_what_cannot_be_read_behind_it_goes_to_the_broker_behind_it(waiting: Waiting) -> None:
    garbage = b"\x30\xff\xff\xff\xff\xff"
    assert waiting.pair.from_client(encoded(SUBSCRIBE) + garbage) == b""
    waiting.pair.from_client(b"\x01\x02")
    assert "unread_streams" not in waiting.host.counters
    waiting.pair.subscribe_now()
    assert waiting.written == encoded(SUBSCRIBE) + garbage + b"\x01\x02"
    assert waiting.host.counters["unread_streams"] == 1
    assert waiting.pair.from_client(b"\x03") == b"\x03"


def test_nobody_is_asked_where_nobody_wants_to_be() -> None:
    host = Host(lets_subscribe=False)
    pair = Pair(1, host, RouteCache(everything_is_wanted), Limits(), 100.0)
    pair.from_client(encoded(Connect("c")))
    pair.from_broker(encoded(ConnAck()))
    assert pair.from_client(encoded(SUBSCRIBE)) == encoded(SUBSCRIBE)
    assert host.asked == []
