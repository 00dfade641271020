"""What a client missed, sent to it alone by the pair of a watched client."""

from __future__ import annotations

from typing import ClassVar

import pytest

from brokerweave.errors import LocalProtocolError
from brokerweave.mqtt import codec
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    PingReq,
    PingResp,
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
from brokerweave.mqtt.properties import Properties, Property
from brokerweave.mqtt.scanner import split
from brokerweave.plugin import Listener, Reject, Session, Side
from tests.unit.session.test_pair import Site

FIRST = 65535
"""The node's packet ids count down from here."""


class Bench(Site):
    """A site whose stream stands behind its SUBACK, if asked to."""

    def __init__(self, version: int, properties: Properties = (), session_present: bool = False) -> None:
        super().__init__(version, watched=True)
        self.done = 0
        self.host.holds_behind = session_present
        self.client(Connect("c", version, properties=properties))
        self.broker(ConnAck(session_present=session_present))
        self.host.to_client.clear()

    def subscribe(self, *behind: Packet) -> bytes:
        self.host.holds_behind = True
        self.client(Subscribe(3, (Subscription("t", 2),)))
        return self.broker(SubAck(3, (2,)), *behind)

    def redeliver(self, *publishes: Publish, late: bool = False) -> None:
        hold_point = None if late else self.host.behind[0]
        self.pair.redeliver(list(publishes), self._done, hold_point)

    def _done(self) -> None:
        self.done += 1

    def written(self) -> list[Packet]:
        """What the node has written to the client since the last time."""
        packets = self.packets(b"".join(self.host.to_client))
        self.host.to_client.clear()
        return packets

    def packets(self, data: bytes) -> list[Packet]:
        return [codec.decode(frame, self.version) for frame in split(data)]

    @property
    def received(self) -> list[bytes]:
        return [content for receipts in self.host.receipts for content in receipts]


@pytest.fixture(params=[4, 5])
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param)


def missed(number: int, qos: int = 1) -> Publish:
    return Publish("t", b"%d" % number, qos)


def sent(number: int, packet_id: int, qos: int = 1) -> Publish:
    return Publish("t", b"%d" % number, qos, packet_id=packet_id)


class TestTheBrokersSignOfLife:
    def test_follows_what_the_broker_delivered_and_is_not_for_the_client(self, bench: Bench) -> None:
        bench.client(PingReq())
        bench.pair.ask_broker(bench._done)
        assert bench.packets(b"".join(bench.host.to_broker)) == [PingReq()]
        assert bench.packets(bench.broker(PingResp())) == []
        assert bench.done == 0  # the client had asked before
        assert bench.packets(bench.broker(PingResp())) == [PingResp()]
        assert bench.done == 1


class TestThePlaceOfAQueue:
    def test_is_behind_suback_and_before_the_live_stream(self, bench: Bench) -> None:
        live = Publish("t", b"live", 1, packet_id=1)
        assert bench.packets(bench.subscribe(live)) == [SubAck(3, (2,))]
        bench.redeliver(missed(1), missed(2))
        assert bench.written() == [sent(1, FIRST), sent(2, FIRST - 1)]
        bench.client(PubAck(FIRST))
        assert (bench.written(), bench.done) == ([], 0)
        bench.client(PubAck(FIRST - 1))
        assert (bench.written(), bench.done) == ([live], 1)
        assert bench.packets(bench.broker(live)) == [live]

    def test_is_behind_a_suback_that_itself_stands(self, bench: Bench) -> None:
        bench.host.barrier = True
        assert bench.subscribe(Publish("t", b"live")) == b""
        bench.redeliver(missed(1))
        assert bench.written() == []
        bench.pair.end_hold(bench.host.hold_points[0])
        assert bench.written() == [SubAck(3, (2,)), sent(1, FIRST)]
        bench.client(PubAck(FIRST))
        assert bench.written() == [Publish("t", b"live")]

    def test_is_the_same_if_the_host_hears_of_it_last(self, bench: Bench) -> None:
        bench.host.barrier = True
        bench.subscribe(Publish("t", b"live"))
        bench.pair.end_hold(bench.host.hold_points[0])
        assert bench.written() == [SubAck(3, (2,))]
        bench.redeliver(missed(1))
        assert bench.written() == [sent(1, FIRST)]

    @pytest.mark.parametrize("version", [4, 5])
    def test_is_behind_connack_of_a_session_that_goes_on(self, version: int) -> None:
        bench = Bench(version, session_present=True)
        assert bench.broker(Publish("t", b"live")) == b""
        bench.redeliver(missed(1, qos=0))
        assert bench.written() == [missed(1, qos=0), Publish("t", b"live")]
        assert bench.done == 1

    def test_is_where_the_stream_is_for_what_comes_late(self, bench: Bench) -> None:
        bench.redeliver(missed(1), late=True)
        assert bench.broker(Publish("t", b"live")) == b""
        bench.redeliver(missed(2), late=True)
        assert bench.written() == [sent(1, FIRST)]
        bench.client(PubAck(FIRST))
        assert bench.written() == [Publish("t", b"live"), sent(2, FIRST - 1)]
        bench.client(PubAck(FIRST - 1))
        assert bench.done == 2

    def test_is_none_if_there_is_nothing_to_redeliver(self, bench: Bench) -> None:
        bench.subscribe(Publish("t", b"live"))
        bench.pair.end_hold(bench.host.behind[0])
        assert bench.written() == [Publish("t", b"live")]
        bench.redeliver(late=True)
        assert bench.done == 1

    def test_is_kept_when_the_host_lets_go_on_what_a_queue_waits_at(self, bench: Bench) -> None:
        bench.subscribe(Publish("t", b"live"))
        bench.redeliver(missed(1))
        bench.pair.end_hold(bench.host.behind[0])
        assert bench.written() == [sent(1, FIRST)]

    def test_belongs_to_one_queue(self, bench: Bench) -> None:
        bench.subscribe()
        bench.redeliver(missed(1))
        with pytest.raises(LocalProtocolError):
            bench.redeliver(missed(2))

    def test_is_asked_for_only_at_a_connack_or_suback(self, bench: Bench) -> None:
        with pytest.raises(LocalProtocolError):
            bench.pair.hold_behind()

    def test_is_for_watched_clients_only(self) -> None:
        site = Site(4)
        site.connect()
        with pytest.raises(LocalProtocolError):
            site.pair.redeliver([], lambda: None)

    def test_may_be_filled_again_by_who_hears_that_it_is_through(self, bench: Bench) -> None:
        bench.subscribe(Publish("t", b"live"))
        again = [missed(2, qos=0)]
        bench.pair.redeliver(
            [missed(1, qos=0)], lambda: bench.redeliver(*again, late=True), bench.host.behind[0]
        )
        assert bench.written() == [missed(1, qos=0), Publish("t", b"live"), missed(2, qos=0)]
        assert bench.done == 1


class TestTheExchanges:
    def test_of_qos_2_are_the_nodes_and_the_broker_hears_nothing_of_them(self, bench: Bench) -> None:
        bench.subscribe()
        bench.redeliver(missed(1, qos=2))
        assert bench.written() == [sent(1, FIRST, qos=2)]
        assert bench.packets(bench.client(PubRec(FIRST))) == [PingReq()]
        assert bench.written() == [PubRel(FIRST)]
        assert bench.received == [content_hash("t", b"1")]
        assert bench.client(PubComp(FIRST)) == b""
        assert bench.done == 1
        assert bench.received == [content_hash("t", b"1")]

    def test_leave_the_others_answers_to_the_broker(self, bench: Bench) -> None:
        bench.broker(Publish("t", b"a", 1, packet_id=7), Publish("t", b"b", 2, packet_id=8))
        bench.subscribe()
        bench.redeliver(missed(1))
        passed = bench.client(PubAck(7), PubAck(FIRST), PubRec(8), Publish("up"))
        assert bench.packets(passed) == [PubAck(7), PubRec(8), Publish("up"), PingReq()]

    def test_never_use_an_id_that_the_broker_has_in_flight(self, bench: Bench) -> None:
        bench.broker(
            Publish("t", b"a", 1, packet_id=FIRST),
            Publish("t", b"b", 2, packet_id=FIRST - 1),
            PubRel(FIRST - 3),  # of a publication that came over an earlier connection
        )
        bench.client(PubRec(FIRST - 1))
        bench.subscribe()
        bench.redeliver(missed(1), missed(2))
        assert bench.written() == [sent(1, FIRST - 2), sent(2, FIRST - 4)]

    def test_wait_while_a_release_of_the_brokers_has_the_id_of_one(self, bench: Bench) -> None:
        bench.subscribe()
        bench.redeliver(missed(1))
        assert bench.broker(PubRel(FIRST)) == b""
        bench.written()
        bench.client(PubAck(FIRST))
        assert bench.written() == [PubRel(FIRST)]

    def test_keep_the_broker_from_taking_the_client_for_dead(self, bench: Bench) -> None:
        bench.subscribe()
        bench.redeliver(missed(1), missed(2), missed(3))
        assert bench.packets(bench.client(PubAck(FIRST))) == [PingReq()]
        assert bench.client(PubAck(FIRST - 1)) == b""  # one at a time
        assert bench.broker(PingResp()) == b""
        assert bench.packets(bench.client(PubAck(FIRST - 2))) == [PingReq()]
        assert bench.broker(PingResp()) == b""
        assert bench.packets(bench.broker(PingResp())) == [PingResp()]

    def test_do_not_keep_the_client_from_hearing_that_somebody_is_there(self, bench: Bench) -> None:
        bench.subscribe(Publish("t", bytes(5000)))
        bench.redeliver(missed(1), missed(2))
        bench.written()
        assert bench.pair.wants_broker_pause
        assert bench.packets(bench.client(PingReq())) == [PingReq()]
        assert bench.written() == [PingResp()]
        assert bench.packets(bench.client(PubAck(FIRST))) == [PingReq()]  # its answers are not read now
        bench.client(PubAck(FIRST - 1))
        bench.written()
        assert bench.broker(PingResp(), PingResp()) == b""
        assert bench.packets(bench.client(PingReq())) == [PingReq()]
        assert bench.written() == []
        assert bench.packets(bench.broker(PingResp())) == [PingResp()]

    def test_of_others_go_on_meanwhile(self, bench: Bench) -> None:
        bench.client(Publish("up", b"", 2, packet_id=1))
        bench.subscribe()
        bench.redeliver(missed(1))
        assert bench.packets(bench.broker(PingResp(), Publish("t"), PubComp(1))) == [PingResp(), PubComp(1)]

    def test_that_the_client_did_not_end_are_not_told_as_received(self, bench: Bench) -> None:
        bench.subscribe(Publish("t", b"live"))
        bench.redeliver(missed(1), missed(2, qos=2), missed(3), missed(4, qos=0))
        bench.client(PubAck(FIRST), PubRec(FIRST - 1))
        bench.pair.ended()
        bench.pair.end_hold(bench.host.behind[0])
        bench.redeliver(missed(5), late=True)
        assert sorted(bench.received) == sorted(content_hash("t", number) for number in (b"1", b"2", b"4"))
        assert bench.host.counters["redelivery_interrupted"] == 1
        assert bench.done == 0


class TestWhatTheClientTakes:
    def test_is_twenty_at_once_before_mqtt_5(self) -> None:
        bench = Bench(4)
        bench.subscribe()
        bench.redeliver(*(missed(number) for number in range(25)))
        assert len(bench.written()) == 20
        bench.client(PubAck(FIRST), PubAck(FIRST - 1))
        assert bench.written() == [sent(20, FIRST - 20), sent(21, FIRST - 21)]

    def test_is_its_receive_maximum_with_what_the_broker_has_in_flight(self) -> None:
        bench = Bench(5, ((Property.RECEIVE_MAXIMUM, 3),))
        bench.broker(Publish("t", b"a", 1, packet_id=1), Publish("t", b"b", 2, packet_id=2))
        bench.subscribe()
        bench.redeliver(missed(1), missed(2, qos=2), missed(3, qos=0))
        assert bench.written() == [sent(1, FIRST)]
        bench.client(PubRec(2))
        assert bench.written() == []
        assert bench.packets(bench.broker(PubRel(2))) == [PubRel(2)]  # or it would have to wait for ever
        bench.client(PubComp(2))
        assert bench.written() == [sent(2, FIRST - 1, qos=2), missed(3, qos=0)]

    def test_is_no_packet_larger_than_it_said(self) -> None:
        bench = Bench(5, ((Property.MAXIMUM_PACKET_SIZE, 100),))
        bench.subscribe()
        bench.redeliver(Publish("t", bytes(200), 1), missed(1))
        assert bench.written() == [sent(1, FIRST - 1)]
        assert bench.host.counters["redelivery_too_large"] == 1
        assert bench.received == [content_hash("t", bytes(200))]

    def test_is_not_more_bytes_than_its_queue_has(self, bench: Bench) -> None:
        bench.subscribe()
        large = bench.pair.limits.client_queue
        bench.redeliver(*(Publish("t", bytes(large), 1) for _ in range(2)))
        assert len(bench.written()) == 1
        bench.client(PubAck(FIRST))
        assert len(bench.written()) == 1

    def test_pauses_the_broker_when_too_much_is_held_behind_a_queue(self, bench: Bench) -> None:
        bench.subscribe(Publish("t", bytes(5000)))
        bench.redeliver(missed(1))
        assert bench.pair.wants_broker_pause
        bench.client(PubAck(FIRST))
        assert not bench.pair.wants_broker_pause

    def test_keeps_properties_but_no_alias_and_says_nothing_of_retaining(self, bench: Bench) -> None:
        kept = ((Property.CONTENT_TYPE, "x"), (Property.USER_PROPERTY, ("a", "b")))
        bench.subscribe()
        aliased = Publish("t", b"1", retain=True, properties=((Property.TOPIC_ALIAS, 1), *kept))
        bench.redeliver(aliased)
        assert bench.written() == [Publish("t", b"1", properties=kept if bench.version == 5 else ())]

    def test_tells_that_it_was_retained_where_the_client_asked_for_that(self) -> None:
        bench = Bench(5)
        bench.client(Subscribe(1, (Subscription("t", 1, retain_as_published=True),)))
        bench.redeliver(Publish("t", b"1", retain=True), late=True)
        assert bench.written() == [Publish("t", b"1", retain=True)]


class Hearing(Listener):
    name: ClassVar[str] = "hearing"
    packets: ClassVar[frozenset[tuple[Side, PacketType]]] = frozenset({(Side.CLIENT, PacketType.PUBACK)})

    def __init__(self) -> None:
        self.heard: list[Packet] = []

    def packet_arrived(self, session: Session, packet: Packet) -> Reject | None:
        self.heard.append(packet)
        return None


def test_a_listener_hears_nothing_of_the_nodes_own_exchanges() -> None:
    listener = Hearing()
    site = Site(4, (listener,), watched=True)
    site.connect()
    site.pair.redeliver([missed(1)], lambda: None)
    assert site.client(PubAck(7), PubAck(FIRST), PingReq()) == b"".join(
        codec.encode(packet, 4) for packet in (PubAck(7), PingReq(), PingReq())
    )
    assert listener.heard == [PubAck(7)]


class TestATakeover:
    """Another site has the client now."""

    def test_tells_an_mqtt_5_client_why_it_is_cut_off(self, bench: Bench) -> None:
        bench.pair.close_taken_over()
        assert bench.written() == ([Disconnect(0x8E)] if bench.version == 5 else [])
        assert bench.host.hung_up == [b""]
        assert bench.host.ends == [True]  # so its will is due, if it has one

    @pytest.mark.parametrize(
        ("version", "delay", "expiry", "session_ends", "due"),
        [
            (4, 0, 0, False, True),
            (5, 0, 100, False, True),
            (5, 10, 100, False, False),  # [MQTT-3.1.3-9]: the session goes on elsewhere
            (5, 10, 0, False, True),
            (5, 10, 100, True, True),
        ],
    )
    def test_sends_a_will_as_a_broker_does(
        self, version: int, delay: int, expiry: int, session_ends: bool, due: bool
    ) -> None:
        site = Site(version, watched=True)
        v5 = version == 5
        site.connect(
            will=Will("w", b"gone", properties=((Property.WILL_DELAY_INTERVAL, delay),) if v5 else ()),
            properties=((Property.SESSION_EXPIRY_INTERVAL, expiry),) if v5 else (),
        )
        site.pair.close_taken_over(session_ends)
        assert site.host.ends == [due]
        assert site.host.hung_up == [b"" if due else codec.encode(Disconnect(), 5)]

    def test_happens_once(self, bench: Bench) -> None:
        bench.pair.close_taken_over()
        bench.pair.close_taken_over()
        assert len(bench.host.hung_up) == 1


class TestWhatTheBrokerDeliversAndTheClientHasFromTheNode:
    def test_goes_no_further_once_and_is_answered_in_the_clients_stead(self, bench: Bench) -> None:
        content = content_hash("t", b"1")
        bench.host.client_has = [content]
        assert bench.packets(bench.broker(sent(1, 5), sent(2, 6))) == [sent(2, 6)]
        assert bench.packets(bench.pair.for_broker) == [PubAck(5)]
        assert (bench.received, bench.pair.for_broker) == ([], b"")
        assert bench.packets(bench.broker(sent(1, 7))) == [sent(1, 7)]

    def test_at_qos_2_the_whole_exchange_stays_with_the_node(self, bench: Bench) -> None:
        bench.host.client_has = [content_hash("t", b"1")]
        assert bench.broker(sent(1, 5, qos=2)) == b""
        assert bench.packets(bench.pair.for_broker) == [PubRec(5)]
        assert bench.broker(PubRel(5)) == b""
        assert bench.packets(bench.pair.for_broker) == [PubComp(5)]
        assert bench.packets(bench.broker(PubRel(6))) == [PubRel(6)]
