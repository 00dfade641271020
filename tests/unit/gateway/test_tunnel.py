"""A client's tunnel: at rest, while it moves, and when its site dies. Sites and client are played by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerweave.errors import LocalProtocolError
from brokerweave.gateway.link import EVERY_TYPE, SiteLink
from brokerweave.gateway.transitions import ClientWay, MoveStep
from brokerweave.gateway.tunnel import Tunnel
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
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
    UnsubAck,
    Unsubscribe,
)
from brokerweave.mqtt.properties import Property
from brokerweave.mqtt.scanner import Frame, Scanner

TICKET = b"(ticket)"
ROUND = Unsubscribe(0xFFFF, ("brokerweave/replay",))
ONE = Subscribe(1, (Subscription("t", 2),))


def nowhere(file: int, data: bytes) -> int:
    return len(data)


class Played:
    """Implements `TunnelHost`."""

    def __init__(self, version: int = 4, *, connect: Connect | None = None, queue: int = 10_000) -> None:
        self.version = version
        self.tunnel = Tunnel(self, 100_000, queue)
        self.client = b""
        self.sent: dict[SiteLink, bytes] = {}
        self.closed: list[str] = []
        self.cleared: list[str] = []
        self.results: list[tuple[MoveStep, str]] = []
        self.seeks = self.dials = 0
        self.client_closed = False
        self.connect = connect or Connect("c", version)

    # Of the tunnel's host

    def to_client(self, data: bytes) -> None:
        self.client += data

    def to_site(self, link: SiteLink, data: bytes) -> None:
        self.sent[link] = self.sent.get(link, b"") + data

    def close_site(self, link: SiteLink) -> None:
        self.closed.append(link.site)

    def close_client(self) -> None:
        self.client_closed = True

    def arrived(self) -> None:
        self.seek()

    def seek(self) -> None:
        self.seeks += 1

    def dial(self) -> None:
        self.dials += 1

    def announcement(self, link: SiteLink, old: str) -> bytes:
        return TICKET if old and link.drains else b""

    def clear_session(self, site: str, connect: Connect) -> None:
        self.cleared.append(site)

    def draw_id(self) -> str:
        return "drawn"

    def settled(self, step: MoveStep, why: str) -> None:
        self.results.append((step, why))

    # What the test plays

    def says(self, *packets: Packet) -> None:
        self.tunnel.from_client(self.encoded(*packets))

    def site_says(self, link: SiteLink, *packets: Packet) -> None:
        self.tunnel.from_site(link, self.encoded(*packets))

    def encoded(self, *packets: Packet) -> bytes:
        return b"".join(codec.encode(each, self.version) for each in packets)

    def heard(self) -> list[Packet]:
        """What the client got since it was last asked."""
        data, self.client = self.client, b""
        return self.read(data)

    def at(self, link: SiteLink) -> list[Packet]:
        """What a site got since it was last asked."""
        return self.read(self.sent.pop(link, b"").removeprefix(TICKET))

    def read(self, data: bytes) -> list[Packet]:
        scanner = Scanner(EVERY_TYPE, 100_000)
        scanner.version = self.version
        whole, items = scanner.feed(data)
        assert whole == data
        return [codec.decode(each.data, self.version) for each in items if isinstance(each, Frame)]

    def link(self, site: str, *, drains: bool = True) -> SiteLink:
        return SiteLink(site, drains, 100_000, 10_000, nowhere)

    def connected(self, *packets: Packet, connack: ConnAck | None = None) -> SiteLink:
        """At site a, and subscribed."""
        link = self.link("a")
        self.says(self.connect, ONE, *packets)
        self.tunnel.opened(link)
        self.site_says(link, connack or ConnAck())
        self.site_says(link, SubAck(1, (2,)))
        self.heard()
        self.at(link)
        self.results.clear()
        return link

    def moving(self, *, drains: bool = True, connack: ConnAck | None = None) -> SiteLink:
        """On the way to site b, which has answered."""
        self.tunnel.order()
        link = self.link("b", drains=drains)
        self.tunnel.opened(link)
        self.site_says(link, connack or ConnAck())
        return link


VERSIONS = pytest.mark.parametrize("version", [4, 5])


@VERSIONS
def test_at_rest_everything_passes_unchanged(version: int) -> None:
    played = Played(version)
    link = played.connected()
    there = (Publish("t", b"1", 1, packet_id=3), PingReq(), Publish("t", b"0"))
    back = (PubAck(3), PingResp(), Publish("t", b"2", 2, packet_id=9))
    played.says(*there)
    played.site_says(link, *back)
    assert played.at(link) == list(there)
    assert played.heard() == list(back)
    assert played.tunnel.client_passes
    assert played.tunnel.site_passes


@VERSIONS
def test_what_a_client_sends_before_its_connack_waits(version: int) -> None:
    played = Played(version)
    link = played.link("a")
    played.says(played.connect, Publish("t", b"1", 1, packet_id=1))
    played.tunnel.opened(link)
    assert played.at(link) == [played.connect]
    played.site_says(link, ConnAck())
    assert played.at(link) == [Publish("t", b"1", 1, packet_id=1)]
    assert played.heard() == [ConnAck()]


@VERSIONS
def test_a_site_that_is_not_available_is_not_the_clients_answer(version: int) -> None:
    played = Played(version)
    played.says(played.connect)
    first = played.link("a")
    played.tunnel.opened(first)
    played.site_says(first, ConnAck(0x88 if version == 5 else 3))
    assert (played.seeks, played.heard(), played.closed) == (2, [], ["a"])
    second = played.link("b")
    played.tunnel.opened(second)
    played.site_says(second, ConnAck(0x87 if version == 5 else 5))
    assert played.heard() == [ConnAck(0x87 if version == 5 else 5)]
    assert played.client_closed


def test_no_topic_aliases_are_offered_to_either_side() -> None:
    alias = ((Property.TOPIC_ALIAS_MAXIMUM, 10), (Property.RECEIVE_MAXIMUM, 5))
    played = Played(5, connect=Connect("c", 5, properties=alias))
    played.says(played.connect)
    link = played.link("a")
    played.tunnel.opened(link)
    played.site_says(link, ConnAck(properties=alias))
    rest = ((Property.RECEIVE_MAXIMUM, 5),)
    assert played.at(link) == [Connect("c", 5, properties=rest)]
    assert played.heard() == [ConnAck(properties=rest)]


def test_a_client_without_an_id_gets_one_to_be_known_by() -> None:
    played = Played(4, connect=Connect("", 4))
    link = played.connected()
    assert played.tunnel.connect == Connect("drawn", 4)
    assert link.site == "a"


def test_an_id_that_the_broker_assigned_goes_into_the_next_connect() -> None:
    played = Played(5, connect=Connect("", 5))
    played.connected(connack=ConnAck(properties=((Property.ASSIGNED_CLIENT_IDENTIFIER, "auto-1"),)))
    new = played.moving()
    assert played.at(new)[0] == Connect("auto-1", 5)


@VERSIONS
def test_in_a_planned_move_the_old_site_is_answered_until_it_ends(version: int) -> None:
    played = Played(version)
    old = played.connected(Publish("t", b"1", 2, packet_id=7))
    played.site_says(old, Publish("t", b"in flight", 1, packet_id=3), PubRec(7))
    played.heard()
    played.tunnel.order()
    new = played.link("b")
    played.tunnel.opened(new)
    assert played.sent[new].startswith(TICKET)
    assert played.at(new) == [replace(played.connect)]
    played.says(PubAck(3), PubRel(7), Publish("t", b"later", 1, packet_id=8))
    assert played.at(old) == [PubAck(3), PubRel(7)], "answers go to who waits for them, nothing new does"
    played.site_says(new, ConnAck())
    (again,) = played.at(new)
    assert isinstance(again, Subscribe)
    assert again.subscriptions == (Subscription("t", 2, retain_handling=2 if version == 5 else 0),)
    played.site_says(old, PubComp(7))
    assert played.heard() == [PubComp(7)]
    played.tunnel.lost(old)
    assert played.at(new) == [Publish("t", b"later", 1, packet_id=8)]
    played.site_says(new, SubAck(again.packet_id, (2,)))
    assert played.heard() == [], "the client knows of no other site"
    assert played.results == [(MoveStep.DONE, "")]
    played.site_says(new, Publish("t", b"2", 1, packet_id=3))
    assert played.heard() == [Publish("t", b"2", 1, packet_id=3)]


@VERSIONS
def test_what_the_new_site_says_too_early_comes_after_the_old_sites_last_word(version: int) -> None:
    played = Played(version)
    old = played.connected()
    new = played.moving()
    played.site_says(new, Publish("t", b"second", 1, packet_id=1))
    played.site_says(old, Publish("t", b"first", 0))
    played.tunnel.lost(old)
    assert [each.payload for each in played.heard() if isinstance(each, Publish)] == [b"first", b"second"]


@VERSIONS
def test_unacknowledged_publications_go_again_with_dup_and_those_received_do_not(version: int) -> None:
    played = Played(version)
    old = played.connected()
    one, two = Publish("t", b"1", 1, packet_id=1), Publish("t", b"2", 2, packet_id=2)
    taken, released = Publish("t", b"3", 2, packet_id=3), Publish("t", b"4", 2, packet_id=4)
    played.says(one, two, taken, released)
    played.site_says(old, PubRec(3), PubRec(4))
    played.says(PubRel(4))
    played.heard()
    new = played.moving()
    (_, _) = played.at(new)
    played.tunnel.lost(old)
    assert played.at(new) == [replace(one, dup=True), replace(two, dup=True)]
    assert played.heard() == [PubComp(4)], "released there: it is done"
    played.says(PubRel(3))
    assert played.heard() == [PubComp(3)]
    assert PubRel(3) not in played.at(new)


@VERSIONS
def test_a_ping_is_answered_during_a_move(version: int) -> None:
    played = Played(version)
    old = played.connected()
    new = played.moving()
    played.says(PingReq())
    assert played.heard() == [PingResp()]
    assert PingReq() not in [*played.at(old), *played.at(new)]


def test_a_ping_that_a_dead_site_did_not_answer_is_answered() -> None:
    played = Played()
    old = played.connected()
    played.says(PingReq())
    played.tunnel.lost(old)
    assert played.heard() == [PingResp()]


def test_ids_of_both_sites_do_not_meet_at_the_client() -> None:
    played = Played()
    old = played.connected()
    played.site_says(old, Publish("t", b"old", 2, packet_id=3))
    new = played.moving()
    played.tunnel.lost(old)
    played.heard()
    played.at(new)
    played.site_says(new, Publish("t", b"new", 2, packet_id=3))
    (delivered,) = played.heard()
    assert isinstance(delivered, Publish)
    assert delivered.packet_id != 3
    played.says(PubRec(3), PubRec(delivered.packet_id))
    assert played.heard() == [PubRel(3)], "for the site that is gone"
    assert played.at(new) == [PubRec(3)]
    played.site_says(new, PubRel(3))
    assert played.heard() == [PubRel(delivered.packet_id)]
    played.says(PubComp(3), PubComp(delivered.packet_id))
    assert played.at(new) == [PubComp(3)]
    played.site_says(new, SubAck(0xFFFF, (2,)), UnsubAck(0xFFFF))
    played.says(Publish("t"))
    assert played.tunnel.client_passes


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_before_mqtt_5_retained_messages_of_the_replay_are_dropped_and_answered(qos: int) -> None:
    played = Played(4)
    old = played.connected()
    new = played.moving()
    again = played.at(new)[-1]
    assert isinstance(again, Subscribe)
    played.tunnel.lost(old)
    number = 4 if qos else 0
    kept = Publish("t", b"kept", qos, retain=True, packet_id=number)
    played.site_says(new, SubAck(again.packet_id, (2,)), kept)
    answers: list[list[Packet]] = [[], [PubAck(4)], [PubRec(4)]]
    assert played.at(new) == [ROUND, *answers[qos]]
    if qos == 2:
        played.site_says(new, PubRel(4))
        assert played.at(new) == [PubComp(4)]
    played.site_says(new, PingResp(), UnsubAck(0xFFFF))
    assert played.at(new) == [ROUND], "more may follow what was answered"
    played.says(Subscribe(7, (Subscription("u", 1),)))
    assert played.at(new) == [], "what is retained there is for the client"
    played.site_says(new, UnsubAck(0xFFFF), Publish("t", b"live"))
    assert played.heard() == [PingResp(), Publish("t", b"live")]
    assert played.at(new) == [Subscribe(7, (Subscription("u", 1),))]
    played.site_says(new, SubAck(7, (1,)), Publish("u", b"kept", retain=True))
    assert played.heard() == [SubAck(7, (1,)), Publish("u", b"kept", retain=True)]
    played.says(Publish("t"))
    assert played.tunnel.client_passes


def test_a_site_that_offers_less_does_not_get_the_client() -> None:
    played = Played(5)
    old = played.connected()
    played.tunnel.order()
    new = played.link("b")
    played.tunnel.opened(new)
    played.says(Publish("t", b"waits", 1, packet_id=2))
    played.site_says(new, ConnAck(properties=((Property.MAXIMUM_QOS, 0),)))
    assert played.results == [(MoveStep.REFUSE, "b offers less: maximum qos")]
    assert played.closed == ["b"]
    assert played.at(old) == [Publish("t", b"waits", 1, packet_id=2)]
    assert played.tunnel.way is ClientWay.AT_REST


@VERSIONS
@pytest.mark.parametrize("clean", [True, False])
def test_emmas_procedure_ends_the_old_session_and_its_will(version: int, clean: bool) -> None:
    expiry = ((Property.SESSION_EXPIRY_INTERVAL, 600),) if version == 5 and not clean else ()
    played = Played(version, connect=Connect("c", version, clean, properties=expiry))
    old = played.connected()
    played.says(Publish("t", b"taken", 2, packet_id=6))
    played.site_says(old, PubRec(6))
    played.at(old)
    new = played.moving(drains=False)
    goodbye = Disconnect(0, ((Property.SESSION_EXPIRY_INTERVAL, 0),) if version == 5 else ())
    assert played.at(old) == [PubRel(6), goodbye], "what it has taken it is to deliver"
    assert played.closed == ["a"]
    assert played.cleared == (["a"] if version == 4 and not clean else [])
    first, again = played.at(new)
    assert isinstance(first, Connect)
    assert first.clean_start is (version == 5 or clean)
    assert isinstance(again, Subscribe)
    assert played.results == [(MoveStep.DONE, "")]


def test_a_client_whose_site_died_waits_for_the_next_one() -> None:
    played = Played()
    old = played.connected()
    played.says(Publish("t", b"1", 1, packet_id=1))
    played.tunnel.lost(old)
    played.says(Publish("t", b"2", 1, packet_id=2))
    assert played.seeks == 2
    played.tunnel.unreachable("a: refused")
    assert played.seeks == 3
    new = played.link("b")
    played.tunnel.opened(new)
    played.site_says(new, ConnAck())
    connect, again, *rest = played.at(new)
    assert (connect, type(again)) == (played.connect, Subscribe)
    assert rest == [Publish("t", b"1", 1, dup=True, packet_id=1), Publish("t", b"2", 1, packet_id=2)]
    assert played.results == [(MoveStep.DONE, "")]


def test_a_request_without_an_answer_is_asked_again_at_the_new_site() -> None:
    played = Played()
    old = played.connected()
    asked = Subscribe(5, (Subscription("more", 1),))
    played.says(asked)
    new = played.moving()
    played.at(new)
    played.tunnel.lost(old)
    played.site_says(new, SubAck(0xFFFF, (2,)), UnsubAck(0xFFFF))
    assert played.at(new) == [ROUND, asked]
    played.site_says(new, SubAck(5, (1,)))
    assert played.heard() == [SubAck(5, (1,))]


def test_a_client_that_the_site_sends_away_for_good_is_not_taken_elsewhere() -> None:
    played = Played(5)
    old = played.connected()
    played.site_says(old, Disconnect(0x8E))
    played.tunnel.lost(old)
    assert played.heard() == [Disconnect(0x8E)]
    assert played.client_closed


def test_a_site_that_shuts_down_is_not_the_clients_end() -> None:
    played = Played(5)
    old = played.connected()
    played.site_says(old, Disconnect(0x8B))
    played.tunnel.lost(old)
    assert played.heard() == []
    assert played.tunnel.way is ClientWay.SEEKING


def test_a_client_that_leaves_is_not_searched_a_site() -> None:
    played = Played()
    old = played.connected()
    played.says(Disconnect())
    assert played.at(old) == [Disconnect()]
    played.tunnel.lost(old)
    assert played.client_closed
    assert played.seeks == 1


def test_a_client_that_leaves_in_a_move_leaves_both_sites() -> None:
    played = Played()
    old = played.connected()
    new = played.moving()
    played.at(new)
    played.says(Disconnect())
    assert played.at(old) == played.at(new) == [Disconnect()]
    assert played.closed == ["a", "b"]
    assert played.results == [(MoveStep.FAIL, "")]


def test_a_client_that_is_lost_in_a_move_has_one_will() -> None:
    played = Played()
    old = played.connected()
    new = played.moving()
    played.at(new)
    played.tunnel.client_gone()
    assert played.at(old) == [Disconnect()]
    assert played.at(new) == []


def test_a_client_without_a_site_is_let_go_in_the_end() -> None:
    played = Played()
    played.tunnel.lost(played.connected())
    played.tunnel.hopeless()
    assert played.client_closed
    assert played.results == [(MoveStep.FAIL, "no site answers")]


def test_a_new_client_hears_that_no_site_answers() -> None:
    played = Played()
    played.says(played.connect)
    played.tunnel.hopeless()
    assert played.heard() == [ConnAck(3)]
    assert played.client_closed


def test_too_much_that_waits_stops_the_client() -> None:
    played = Played(queue=100)
    played.connected()
    played.moving()
    played.says(Publish("t", b"x" * 200, 1, packet_id=2))
    assert played.tunnel.full


def test_a_client_that_was_not_answered_for_too_much_is_let_go_and_sends_it_itself() -> None:
    played = Played()
    old = played.connected()
    played.says(Publish("t", b"x" * 20_000, 1, packet_id=2))
    assert played.tunnel.fixed
    played.tunnel.lost(old)
    assert played.client_closed


def test_two_orders_at_once_are_an_error() -> None:
    played = Played()
    played.connected()
    played.moving()
    with pytest.raises(LocalProtocolError):
        played.tunnel.order()


@pytest.mark.parametrize("data", [b"\x30\x00", b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff\xff"])
def test_what_is_no_connect_ends_the_connection(data: bytes) -> None:
    played = Played()
    played.tunnel.from_client(data)
    played.tunnel.from_client(bytes(100))
    assert played.client_closed


MALFORMED = pytest.mark.parametrize("data", [b"\x40\x00", b"\x62\x01\x00", b"\x82\x02\x00\x01"])


@MALFORMED
def test_a_malformed_packet_in_a_move_ends_its_clients_connection(data: bytes) -> None:
    played = Played()
    old = played.connected()
    new = played.moving()
    played.tunnel.from_client(data)
    if not played.client_closed:
        played.tunnel.lost(old)
        played.site_says(new, SubAck(0xFFFF, (2,)), UnsubAck(0xFFFF))
    assert played.client_closed


@VERSIONS
def test_a_client_that_leaves_before_a_site_has_answered_leaves_that_one_when_it_has(version: int) -> None:
    played = Played(version)
    old = played.connected()
    played.tunnel.order()
    new = played.link("b")
    played.tunnel.opened(new)
    played.says(Publish("t", b"last"), Disconnect(), Publish("t", b"too late"))
    played.tunnel.client_gone()
    assert played.at(old) == []
    played.at(new)
    played.site_says(new, ConnAck())
    assert played.at(old) == [Disconnect()]
    assert played.at(new)[-2:] == [Publish("t", b"last"), Disconnect()]
    assert played.client_closed
    assert played.tunnel.session_at == "b"
    assert played.heard() == []


def test_what_the_old_site_left_open_is_finished_when_a_client_that_left_comes_back() -> None:
    played = Played()
    old = played.connected()
    played.site_says(old, Publish("t", b"1", 2, packet_id=8), Publish("t", b"2", 2, packet_id=9))
    played.says(PubRec(9), Publish("u", b"3", 2, packet_id=4))
    played.site_says(old, PubRec(4))
    played.moving()
    played.at(old)
    played.tunnel.client_gone()
    assert played.at(old) == [PubRel(4), Disconnect()]
    left = played.tunnel.open
    again = Played()
    site = again.connected()
    again.tunnel.resume(left)
    assert again.heard() == [PubRel(8), PubRel(9)]
    again.site_says(site, Publish("t", b"4", 2, packet_id=8))
    (delivered,) = again.heard()
    assert isinstance(delivered, Publish)
    assert delivered.packet_id not in (8, 9)
    again.says(PubComp(8), PubComp(9), PubRel(4))
    assert again.heard() == [PubComp(4)]
    assert again.at(site) == []


def test_a_client_that_leaves_before_a_site_has_refused_it_leaves_its_own_site() -> None:
    played = Played()
    old = played.connected()
    played.tunnel.order()
    new = played.link("b")
    played.tunnel.opened(new)
    played.says(Disconnect())
    played.site_says(new, ConnAck(5))
    assert played.at(old) == [Disconnect()]
    assert played.client_closed
    assert played.tunnel.session_at == "a"


@MALFORMED
def test_a_malformed_packet_of_a_site_does_not_end_its_clients_connection(data: bytes) -> None:
    played = Played()
    played.connected()
    new = played.moving()
    played.tunnel.from_site(new, data)
    assert not played.client_closed
    assert played.tunnel.link is not None


@pytest.mark.parametrize("drains", [False, True])
def test_what_an_earlier_session_left_at_the_new_site_is_discarded(drains: bool) -> None:
    expiry = ((Property.SESSION_EXPIRY_INTERVAL, 600),)
    played = Played(5, connect=Connect("c", 5, clean_start=False, properties=expiry))
    played.connected()
    new = played.moving(drains=drains)
    assert played.at(new)[0] == Connect("c", 5, clean_start=True, properties=expiry)
