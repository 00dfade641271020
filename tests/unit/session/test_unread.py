"""What the node cannot read: it goes to the other side as it is, means nothing here, and is counted."""

from __future__ import annotations

from typing import ClassVar

import pytest

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    PingReq,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    Will,
)
from brokerweave.mqtt.properties import Property
from brokerweave.plugin import Listener, ListenerContext, Session, Side
from brokerweave.session.phase import Phase
from tests.support.listening import FakeListenerContext
from tests.unit.session.test_pair import Site, site

__all__ = ["site"]

BROKEN = b"\xc0\xff\xff\xff\xff\x01"
"""No frame can be cut off here: a length takes at most four bytes."""
CONNECT_LEVEL_6 = b"\x10\x0d\x00\x04MQTT\x06\x02\x00\x3c\x00\x01c"
ALIAS = ((Property.TOPIC_ALIAS, 3),)

# Each is one whole frame that MQTT forbids, from an accepted client of MQTT 5.
UNREADABLE: dict[str, bytes] = {
    "packet type 0": b"\x00\x00",
    "a second CONNECT": codec.encode(Connect("c", 5), 5),
    "PUBLISH of QoS 3": b"\x36\x06\x00\x01a\x00\x01\x00",
    "PUBLISH with a topic beyond its end": b"\x30\x03\x00\x05a",
    "PUBLISH with a property that it cannot have": b"\x30\x09\x00\x01a\x05\x11\x00\x00\x00\x00",
    "PUBLISH of QoS 2 to a wildcard": b"\x34\x06\x00\x01#\x00\x01\x00",
    "PUBLISH with topic alias 0": b"\x30\x07\x00\x01a\x03\x23\x00\x00",
    "PUBLISH with an alias that nobody knows": codec.encode(Publish("", properties=ALIAS), 5),
    "SUBSCRIBE with reserved flags": b"\x80\x07\x00\x01\x00\x00\x01a\x00",
    "SUBSCRIBE that asks for nothing": b"\x82\x03\x00\x01\x00",
    "SUBSCRIBE with packet identifier 0": b"\x82\x07\x00\x00\x00\x00\x01a\x00",
    "SUBSCRIBE with a wrong filter": b"\x82\x08\x00\x01\x00\x00\x02#a\x00",
    "UNSUBSCRIBE that names no filter": b"\xa2\x03\x00\x01\x00",
    "PUBREL with reserved flags": b"\x60\x02\x00\x01",
    "DISCONNECT with a property that it cannot have": b"\xe0\x05\x00\x03\x23\x00\x01",
}


@pytest.mark.parametrize("cluster", [False, True], ids=["local", "cluster"])
@pytest.mark.parametrize("frame", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_frame_that_cannot_be_read_goes_on_and_the_next_one_is_read(frame: bytes, cluster: bool) -> None:
    site = Site(5, cluster=cluster)
    site.connect()
    good = codec.encode(Publish("t"), 5)
    assert site.pair.from_client(good + frame + good) == good + frame + good
    assert site.topics == ["t", "t"]
    assert site.pair.error is None
    assert site.host.counters == {"unread_packets": 1}


def test_a_payload_format_that_nobody_knows_is_none_of_the_nodes_business() -> None:
    site = Site(5)
    site.connect()
    odd = Publish("t", b"x", 2, packet_id=1, properties=((Property.PAYLOAD_FORMAT_INDICATOR, 0xED),))
    assert site.client(odd) == codec.encode(odd, 5)
    assert site.host.forwarded == [odd]


def test_a_publication_that_cannot_be_read_makes_aliases_unknown() -> None:
    """It may have given one of them another topic."""
    site = Site(5)
    site.connect()
    site.client(Publish("old", properties=ALIAS))
    site.pair.from_client(b"\x30\x07\x00\x01\xff\x03\x23\x00\x03")
    by_alias = Publish("", b"2", properties=ALIAS)
    assert site.client(by_alias) == codec.encode(by_alias, 5)
    assert site.client(Publish("new", properties=ALIAS), by_alias)
    assert site.topics == ["old", "new", "new"]
    assert site.host.counters == {"unread_packets": 2}


def test_an_unknown_alias_before_connack_does_not_spoil_the_session() -> None:
    site = Site(5)
    site.client(Connect("c", 5), Publish("", properties=ALIAS), Publish("t"))
    assert site.broker(ConnAck()) == codec.encode(ConnAck(), 5)
    assert (site.pair.phase, site.topics) == (Phase.ACCEPTED, ["t"])
    assert site.host.counters == {"unread_packets": 1}


@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_stream_without_frames_goes_on_as_it_comes(site: Site, size: int) -> None:
    site.connect(will=Will("w", b"gone"))
    good = codec.encode(Publish("t"), site.version)
    stream = good + BROKEN + good * 20
    passed = b"".join(site.pair.from_client(stream[at : at + size]) for at in range(0, len(stream), size))
    assert passed == stream
    assert site.topics == ["t"], "what comes behind is not forwarded"
    assert site.pair.error is None
    assert site.host.counters == {"unread_streams": 1}
    goodbye = Disconnect(0x81 if site.version == 5 else 0)
    assert site.broker(goodbye) == codec.encode(goodbye, site.version)
    site.pair.ended(broker_left=True)
    assert site.host.ends == [True], "its will is due"


def test_the_brokers_stream_is_still_read_when_the_clients_is_not(site: Site) -> None:
    site.connect()
    site.client(Subscribe(1, (Subscription("a", 1),)))
    site.pair.from_client(BROKEN)
    site.broker(SubAck(1, (1,)))
    assert site.host.granted_filters == [("a", 1)]


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00",
        b"\x30\x05\x00\x01tab",
        b"\xc0\x00",
        CONNECT_LEVEL_6,
        BROKEN,
        b"\x10" + BROKEN[1:],
    ],
    ids=["http", "type 0", "publish", "ping", "level 6", "no frame", "connect without length"],
)
def test_what_is_no_connect_is_judged_by_the_broker(first: bytes) -> None:
    site = Site()
    rest = codec.encode(Publish("t"), 4)
    assert site.pair.from_client(first + rest[:3]) == first + rest[:3]
    assert (len(site.host.unread_connects), site.host.connects) == (1, 0)
    assert site.pair.from_client(rest[3:]) == rest[3:]
    answer = codec.encode(ConnAck(1), 4) + b"anything"
    assert site.pair.from_broker(answer) == answer
    assert site.host.forwarded == []
    assert site.host.counters == {"unread_sessions": 1}
    site.pair.ended(broker_left=True)
    assert site.host.ends == []


def test_many_packets_behind_a_connect_that_cannot_be_read_all_go_on() -> None:
    site = Site()
    chunk = CONNECT_LEVEL_6 + codec.encode(Publish("t", qos=2, packet_id=1), 4) * 1000 + b"\x30\x05\x00"
    parts = [site.pair.from_client(chunk)]
    while site.pair.put_off is not None:
        parts.append(site.pair.next_turn())
    assert b"".join(parts) == chunk
    assert site.host.forwarded == []


def test_a_connack_that_cannot_be_read_makes_the_session_unknown(site: Site) -> None:
    early = Publish("t")
    site.client(Connect("c", site.version), early)
    odd = b"\x20\x02\xff\x00"
    assert site.pair.from_broker(odd) == odd
    assert site.client(early) == codec.encode(early, site.version)
    assert site.host.forwarded == []
    assert site.host.counters == {"unread_sessions": 1, "refused_publications": 1}


@pytest.mark.parametrize(
    "odd", [b"\x20\x03\x00\x00\x00", b"\x90\x03\x00\x01\x00", b"\x00\x00", BROKEN + b"more"]
)
def test_what_the_broker_sends_is_for_the_client_to_judge(site: Site, odd: bytes) -> None:
    site.connect()
    before = codec.encode(Publish("t"), site.version)
    assert site.pair.from_broker(before + odd) == before + odd
    assert site.pair.from_broker(before) == before
    assert site.pair.error is None


def test_the_brokers_disconnect_overtakes_what_is_held() -> None:
    site = Site(5)
    site.host.barrier = True
    site.connect()
    site.client(Subscribe(3, (Subscription("a", 0),)))
    assert site.broker(SubAck(3, (0,)), Publish("x")) == b""
    assert site.broker(Disconnect(0x81)) == codec.encode(Disconnect(0x81), 5)


class Curious(Listener):
    name: ClassVar[str] = "curious"
    packets = frozenset({(Side.CLIENT, PacketType.PUBLISH)})

    def __init__(self, context: ListenerContext) -> None:
        super().__init__(context)
        self.seen: list[Packet] = []
        self.failures: list[Exception] = []

    def packet_arrived(self, session: Session, packet: Packet) -> None:
        self.seen.append(packet)

    def receive_failed(self, session: Session, error: Exception) -> None:
        self.failures.append(error)


def test_a_listener_hears_that_something_passed_unread() -> None:
    listener = Curious(FakeListenerContext())
    site = Site(5, (listener,))
    site.connect()
    chunk = b"\x36\x06\x00\x01a\x00\x01\x00" + codec.encode(PingReq(), 5) + codec.encode(Publish("t"), 5)
    assert site.pair.from_client(chunk) == chunk
    assert listener.seen == [Publish("t")]
    assert len(listener.failures) == 1
