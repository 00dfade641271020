"""A tunnel to which anything happens, in any order: it never fails, and it keeps what it promises."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from brokerweave.gateway.link import SiteLink
from brokerweave.gateway.transitions import ClientWay
from brokerweave.mqtt.packets import (
    ConnAck,
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
)
from tests.unit.gateway.test_tunnel import Played

NUMBERS = st.integers(1, 4)
CLIENT_PACKETS = st.one_of(
    st.builds(lambda n: Publish("t", b"up", 1, packet_id=n), NUMBERS),
    st.builds(lambda n: Publish("t", b"up", 2, packet_id=n), NUMBERS),
    st.builds(PubAck, NUMBERS),
    st.builds(PubRec, NUMBERS),
    st.builds(PubRel, NUMBERS),
    st.builds(PubComp, NUMBERS),
    st.builds(lambda n: Subscribe(n, (Subscription("t", 1),)), NUMBERS),
    st.just(PingReq()),
)
SITE_PACKETS = st.one_of(
    st.builds(lambda n: Publish("t", b"down", 1, packet_id=n), NUMBERS),
    st.builds(lambda n: Publish("t", b"down", 2, retain=True, packet_id=n), NUMBERS),
    st.builds(PubAck, NUMBERS),
    st.builds(PubRec, NUMBERS),
    st.builds(PubRel, NUMBERS),
    st.builds(PubComp, NUMBERS),
    st.builds(lambda n: SubAck(n, (1,)), st.one_of(NUMBERS, st.just(0xFFFF))),
    st.just(PingResp()),
)
HAPPENINGS = (
    "client",
    "own",
    "other",
    "order",
    "opens",
    "fails",
    "answers",
    "refuses",
    "late",
    "lost",
    "gone",
)


class Faults:
    def __init__(self, version: int) -> None:
        self.played = Played(version)
        self.played.connected()

    def other(self) -> SiteLink | None:
        return self.played.tunnel.other

    def happens(self, what: str, client: Packet, site: Packet, drains: bool) -> None:
        played, tunnel = self.played, self.played.tunnel
        own, other = tunnel.link, tunnel.other
        if what == "client":
            played.says(client)
        elif what == "own" and own is not None:
            played.site_says(own, site)
        elif what == "other" and other is not None:
            played.site_says(other, site)
        elif what == "order" and tunnel.way is ClientWay.AT_REST:
            tunnel.order()
        elif what == "opens" and tunnel.way in (ClientWay.DIALING, ClientWay.SEEKING):
            tunnel.opened(played.link("next", drains=drains))
        elif what == "fails" and tunnel.way in (ClientWay.DIALING, ClientWay.SEEKING):
            tunnel.unreachable("refused")
        elif what == "answers" and other is not None and other.connack is None:
            played.site_says(other, ConnAck())
        elif what == "refuses" and other is not None and other.connack is None:
            played.site_says(other, ConnAck(0x87 if played.version == 5 else 5))
        elif what == "late" and tunnel.way in (ClientWay.GREETING, ClientWay.ASKING, ClientWay.DRAINING):
            tunnel.overdue()
        elif what == "lost" and own is not None:
            tunnel.lost(own)
        elif what == "gone" and other is not None:
            tunnel.lost(other)


@settings(max_examples=400)
@given(
    st.sampled_from([4, 5]),
    st.lists(
        st.tuples(st.sampled_from(HAPPENINGS), CLIENT_PACKETS, SITE_PACKETS, st.booleans()), max_size=40
    ),
)
def test_whatever_happens_the_client_keeps_its_connection_and_gets_a_site_in_the_end(
    version: int, happenings: list[tuple[str, Packet, Packet, bool]]
) -> None:
    faults = Faults(version)
    played, tunnel = faults.played, faults.played.tunnel
    for each in happenings:
        faults.happens(*each)
    assert not played.client_closed
    for _ in range(8):
        if tunnel.way is ClientWay.AT_REST:
            break
        for what in ("opens", "answers", "late"):
            faults.happens(what, PingReq(), PingResp(), True)
    assert tunnel.way is ClientWay.AT_REST
    assert tunnel.link is not None
    assert tunnel.other is None
    played.heard()
    played.says(PingReq())
    played.site_says(tunnel.link, PingResp(), PingResp())
    assert PingResp() in played.heard()
    played.says(Disconnect())
    tunnel.client_gone()
    assert played.client_closed
