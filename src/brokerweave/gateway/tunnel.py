"""One client and its way to a site, which may become another site's while the client is connected.

Owns both directions, and what waits while no site may take it. Invariants: while the client is at rest only
frames that change what has to be known are looked at; bytes leave in the order in which they came; the answer
to a delivery goes to the site that sent it; a publication that has its PUBREC never goes again as a PUBLISH.
Must not know: sockets, clocks, who orders moves.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import NamedTuple

from brokerweave.errors import BrokerweaveError, RemoteProtocolError
from brokerweave.gateway.delivery_ids import DeliveryIds
from brokerweave.gateway.frames import answer_code, disconnect_code, frame_id, with_id
from brokerweave.gateway.host import TunnelHost
from brokerweave.gateway.link import EVERY_TYPE, WATCHED_OF_CLIENT, SiteLink
from brokerweave.gateway.offers import lacks
from brokerweave.gateway.transitions import FLOWING, ClientWay, Event, MoveStep, after
from brokerweave.gateway.wanted import WantedFilters
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Disconnect,
    PacketType,
    PingResp,
    PubComp,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
)
from brokerweave.mqtt.properties import Property, get_int, get_str, without
from brokerweave.mqtt.publish import publish_head, with_qos
from brokerweave.mqtt.scanner import Frame, Scanner

ELSEWHERE = frozenset({0x88, 0x89, 0x8B, 0x97, 0x9C, 0x9D, 0x9F})
"""Reason codes by which a site of MQTT 5 says: not here, or not now."""
NO_SITE = "no site answers"
UNAVAILABLE = 3
"""The same before MQTT 5."""
_ANSWERS = frozenset({PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBCOMP})
_REFUSED = 0x80


class OpenAtClient(NamedTuple):
    deliveries: DeliveryIds
    publications: set[int]
    """They have their PUBREC, and no site waits for PUBREL."""


class Tunnel:
    def __init__(self, host: TunnelHost, max_packet: int, queue: int) -> None:
        self.way = ClientWay.SEEKING
        self.connect: Connect | None = None
        self.connack: ConnAck | None = None
        """What the client was told."""
        self.session_known = True
        """False: it has subscriptions from an earlier connection that nobody remembers here."""
        self.wanted = WantedFilters()
        self.link: SiteLink | None = None
        self.other: SiteLink | None = None
        self.scanner = Scanner(EVERY_TYPE, max_packet)
        self.waiting_bytes = 0
        self._host = host
        self.queue = queue
        self._waiting: deque[Frame] = deque()
        self._ids = DeliveryIds()
        self._finish: set[int] = set()
        """Publications of the client whose site took them, and died before it heard PUBREL."""
        self._unanswered: list[bytes] = []
        """Publications that a site which died has not answered."""
        self._pings = 0
        self._goodbye = b""
        self._leaving = False
        """The client said that it goes."""
        self._departing = False
        """It has gone, and a site is yet to say whether it has it."""
        self.session_at = ""
        """The site that has, or had last, the client's session."""
        self._why = ""

    @property
    def version(self) -> int:
        return self.connect.version if self.connect is not None else 4

    @property
    def fixed(self) -> str:
        """Why the client cannot be moved; empty if it can."""
        if self.connect is None or self.connack is None:
            return "it is not connected yet"
        if any(name is Property.AUTHENTICATION_METHOD for name, _ in self.connect.properties):
            return "it authenticates with AUTH"
        if not self.session_known:
            return "its session is older than this gateway, which does not know its subscriptions"
        if self.link is not None and not self.link.ledger.complete:
            return "too many of its publications are in flight"
        return ""

    @property
    def client_passes(self) -> bool:
        """Whether chunks of the client that concern nobody may pass."""
        return self.way in FLOWING and not self._looks

    @property
    def site_passes(self) -> bool:
        """The same for its site."""
        return self.link is not None and not self._looks

    @property
    def _looks(self) -> bool:
        """Whether each frame has to be looked at."""
        return bool(
            self._ids or self._finish or self._waiting or (self.link is not None and self.link.replay.looks)
        )

    @property
    def full(self) -> bool:
        """Whether the client is not to be read."""
        return self.waiting_bytes > self.queue

    # The client

    def from_client(self, data: bytes) -> None:
        whole = self.client_passes
        self.scanner.wanted = WATCHED_OF_CLIENT if whole else EVERY_TYPE
        out, items = self.scanner.feed(data)
        try:
            for item in items:
                assert isinstance(item, Frame)
                if whole:
                    self._note(item)
                else:
                    self._client_frame(item)
                if self.way is ClientWay.ENDED or self._departing:
                    break
        except RemoteProtocolError:
            self.end()
            return
        if whole and out and self.link is not None:
            self._up(out)
        if self.way is ClientWay.ENDED or self.scanner.error is not None:
            self.end()

    def _up(self, data: bytes) -> None:
        assert self.link is not None
        self.link.ledger.up(data)
        self._host.to_site(self.link, data)

    def _note(self, frame: Frame) -> None:
        """A frame that goes to the site."""
        if frame.type in (PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE):
            packet = codec.decode(frame.data, self.version)
            assert isinstance(packet, Subscribe | Unsubscribe)
            self.wanted.ask(packet)
        elif frame.type == PacketType.PINGREQ:
            self._pings += 1
        elif frame.type == PacketType.DISCONNECT:
            self._leaving = True
        elif frame.type == PacketType.CONNECT:
            raise RemoteProtocolError("a second CONNECT [MQTT-3.1.0-2]", 0x82)

    def _client_frame(self, frame: Frame) -> None:
        if self.connect is None:
            self._connected(frame)
        elif frame.type in _ANSWERS:
            self._answer(frame)
        elif frame.type == PacketType.PUBREL:
            self._release(frame)
        elif frame.type == PacketType.PINGREQ and self.way not in FLOWING:
            self._to_client(codec.encode(PingResp(), self.version))
        elif frame.type == PacketType.DISCONNECT:
            self._leaving = True
            self._goodbye = frame.data
            self.client_gone()
        elif self._has_to_wait(frame):
            self._waiting.append(frame)
            self.waiting_bytes += len(frame.data)
        else:
            self._note(frame)
            self._up(frame.data)

    def _has_to_wait(self, frame: Frame) -> bool:
        if self.way not in FLOWING or self._waiting:
            return True
        if frame.type not in (PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE) or self.link is None:
            return False
        replayed = self.link.replay.ids
        # Before MQTT 5 the retained messages that come now would be taken for those of the replay.
        return bool(replayed) if self.version < 5 else frame_id(frame.data) in replayed

    def _connected(self, frame: Frame) -> None:
        packet = codec.decode(frame.data, 0) if frame.type == PacketType.CONNECT else None
        if not isinstance(packet, Connect):
            raise RemoteProtocolError("CONNECT comes first [MQTT-3.1.0-1]", 0x82)
        # An alias is known to one site only: so nobody is offered any.
        properties = without(packet.properties, Property.TOPIC_ALIAS_MAXIMUM)
        name = packet.client_id
        if not name and packet.version < 5 and packet.clean_start:
            name = self._host.draw_id()  # or it could not be told of
        self.connect = replace(packet, client_id=name, properties=properties)
        self._host.arrived()

    def _answer(self, frame: Frame) -> None:
        """Of the client, to a delivery."""
        number = frame_id(frame.data)
        last = frame.type != PacketType.PUBREC or answer_code(frame.data) >= _REFUSED
        own, release = self._ids.answered(frame.type, number, last)
        if release:
            self._to_client(codec.encode(PubRel(number), self.version))
        if own and self.link is not None:
            self._up(with_id(frame.data, own))

    def _release(self, frame: Frame) -> None:
        number = frame_id(frame.data)
        if number in self._finish:
            self._finish.discard(number)
            self._to_client(codec.encode(PubComp(number), self.version))
        elif self.link is not None:
            self._up(frame.data)
        else:
            self._waiting.append(frame)
            self.waiting_bytes += len(frame.data)

    def client_gone(self) -> None:
        """Its connection ended: a site that has the client hears of it as it would without a gateway. A site
        that was given its CONNECT has to answer first, or it might keep a session that nobody knows of, or
        publish a will of who said good-bye."""
        if self.way in (ClientWay.GREETING, ClientWay.ASKING):
            self._departing = True
        elif self.way is not ClientWay.ENDED:
            self._depart()

    def _depart(self) -> None:
        self._departing = False
        if self.way is ClientWay.DRAINING:
            assert self.link is not None
            assert self.other is not None
            self._release_all(self.link)
            self._finish |= self.link.ledger.received.keys()
            self._ids.leave(self.link.ledger.open)
            self._host.to_site(self.link, codec.encode(Disconnect(), self.version))  # one will is enough
            for frame in self._waiting:
                self._host.to_site(self.other, frame.data)
            self._host.to_site(self.other, self._goodbye)
            self.session_at = self.other.site
        elif self.link is not None:
            self._host.to_site(self.link, self._goodbye)
        self.end()

    def end(self) -> None:
        if self.way is not ClientWay.ENDED:
            self._event(Event.CLIENT_GONE)

    @property
    def open(self) -> OpenAtClient:
        """What other sites than the client's have left open at it."""
        return OpenAtClient(self._ids, self._finish)

    def resume(self, left: OpenAtClient) -> None:
        """It is back in the session that it left with these open: its site does not know of them."""
        self._ids, self._finish = left
        for number in self._ids.release():
            self._to_client(codec.encode(PubRel(number), self.version))

    # Sites

    def order(self) -> None:
        """Move to the site that the host dials then. Raises `LocalProtocolError` if it cannot be."""
        self._event(Event.ORDERED)

    def opened(self, link: SiteLink) -> None:
        self.other = link
        self._event(Event.OPENED)

    def unreachable(self, why: str) -> None:
        self._why = why
        self._event(Event.UNREACHABLE)

    def overdue(self) -> None:
        self._why = "it took too long"
        self._event(Event.OVERDUE)

    def hopeless(self) -> None:
        self._why = NO_SITE
        if self.connect is not None and self.connack is None:
            code = 0x88 if self.version == 5 else UNAVAILABLE
            self._to_client(codec.encode(ConnAck(code), self.version))
        self._event(Event.HOPELESS)

    def lost(self, link: SiteLink) -> None:
        """The site's connection ended by itself."""
        if link is self.link:
            if self.way is ClientWay.AT_REST and (self._leaving or link.dismissed or self.fixed):
                self.end()
            else:
                self._event(Event.OWN_LOST)
        elif link is self.other:
            self.other = None
            self._why = f"{link.site} ended the connection"
            self._event(Event.OTHER_LOST)

    def from_site(self, link: SiteLink, data: bytes) -> None:
        own = link is self.link
        whole = own and not self._looks
        link.watch(every=not whole)
        out, items = link.scanner.feed(data)
        try:
            for item in items:
                assert isinstance(item, Frame)
                if whole and item.type == PacketType.DISCONNECT:
                    out = out[: item.at]
                    self._site_ends(link, item)
                elif whole:
                    self._site_said(link, item)
                elif link is self.link:
                    self._site_frame(link, item)
                elif link is self.other:
                    self._other_frame(link, item)
        except BrokerweaveError as error:
            self._why = str(error)
            self._host.close_site(link)
            self.lost(link)
            return
        if whole and out:
            link.ledger.down(out)
            self._to_client(out)
        if link.dismissed:
            self._to_client(link.dismissed)
        if link.scanner.error is not None:
            self._host.close_site(link)
            self.lost(link)

    def _site_said(self, link: SiteLink, frame: Frame) -> None:
        """A frame of the client's site that goes to the client."""
        if frame.type in (PacketType.SUBACK, PacketType.UNSUBACK):
            packet = codec.decode(frame.data, self.version)
            assert isinstance(packet, SubAck | UnsubAck)
            self.wanted.answered(packet)
        elif frame.type == PacketType.PINGRESP:
            self._pings = max(0, self._pings - 1)

    def _site_ends(self, link: SiteLink, frame: Frame) -> None:
        """It sends the client away: to another site, or for good."""
        link.last_word = disconnect_code(frame.data)
        if self.way is ClientWay.AT_REST and link.last_word not in ELSEWHERE:
            link.dismissed = frame.data

    def _site_frame(self, link: SiteLink, frame: Frame) -> None:
        """The same, while each frame is looked at: it may be the gateway's own, or known by another id."""
        answer = link.replay.heard(link, frame)
        if answer is not None:
            if answer:
                self._host.to_site(link, answer)
            self._flush()
            return
        if frame.type == PacketType.DISCONNECT:
            self._site_ends(link, frame)
            return
        self._site_said(link, frame)
        data = frame.data
        if frame.type == PacketType.PUBLISH and data[0] & 6:
            head = publish_head(data, self.version)
            number = self._ids.delivered(head.packet_id, link.ledger.open)
            link.ledger.down(data)
            if number != head.packet_id:
                data = with_qos(data, self.version, self.version, head.qos, number, head.dup)
        else:
            link.ledger.down(data)
            if frame.type == PacketType.PUBREL:
                data = with_id(data, self._ids.at_client(frame_id(data)))
        self._to_client(data)

    def _other_frame(self, link: SiteLink, frame: Frame) -> None:
        """Of a site that the client goes to, and is not at yet."""
        if frame.type == PacketType.CONNACK and link.connack is None:
            self._judge(link, frame)
        elif frame.type == PacketType.DISCONNECT:
            self._why = f"{link.site} says {disconnect_code(frame.data):#x}"
        elif link.connack is not None:
            link.early.append(frame)
            link.early_bytes += len(frame.data)

    def _judge(self, link: SiteLink, frame: Frame) -> None:
        packet = codec.decode(frame.data, self.version)
        assert isinstance(packet, ConnAck)
        link.connack = packet
        if self.connack is None:
            self._first_answer(link, packet, frame)
            return
        assert self.connect is not None
        missing = lacks(self.connack, packet, self.connect.keep_alive)
        if packet.reason_code or missing:
            reason = f"offers less: {missing}" if missing else "refused the client"
            self._why = f"{link.site} {reason}"
            link.connack = None
            self._event(Event.REFUSED)
        else:
            self._event(Event.ACCEPTED if link.drains else Event.TAKEN_OVER)

    def _first_answer(self, link: SiteLink, packet: ConnAck, frame: Frame) -> None:
        """Nothing was told to the client yet. A site that is not there for anybody is not its answer."""
        away = packet.reason_code in ELSEWHERE if self.version == 5 else packet.reason_code == UNAVAILABLE
        if away:
            self._why = f"{link.site} is not available"
            self._event(Event.REFUSED)
            return
        aliases = self.version == 5 and get_int(packet.properties, Property.TOPIC_ALIAS_MAXIMUM)
        if aliases:
            packet = replace(packet, properties=without(packet.properties, Property.TOPIC_ALIAS_MAXIMUM))
        self._to_client(codec.encode(packet, self.version) if aliases else frame.data)
        if packet.reason_code:
            self.end()
            return
        self.connack = packet
        given = get_str(packet.properties, Property.ASSIGNED_CLIENT_IDENTIFIER)
        if given and self.connect is not None:
            self.connect = replace(self.connect, client_id=given)
        self._event(Event.TAKEN_OVER)

    # Steps

    def _event(self, event: Event) -> None:
        self.way, steps = after(self.way, event)
        for step in steps:
            _STEPS[step](self)
        if self._departing and self.way not in (ClientWay.GREETING, ClientWay.ASKING):
            self._depart()

    def _dial(self) -> None:
        self._host.dial()

    def _seek(self) -> None:
        self._host.seek()

    def _greet(self) -> None:
        link, connect = self.other, self.connect
        assert link is not None
        assert connect is not None
        if self.connack is not None and connect.version == 5:
            connect = replace(connect, clean_start=True)  # what is left there from before would come late
        old = self.link.site if self.link is not None else ""
        self._host.to_site(link, self._host.announcement(link, old) + codec.encode(connect, connect.version))

    def _replay(self) -> None:
        assert self.other is not None
        packets = self.wanted.again(self.version)
        avoid = self.wanted.asked.keys() | (self.link.ledger.sent.keys() if self.link is not None else set())
        data = self.other.replay.begin(packets, avoid, self.version)
        if data:
            self._host.to_site(self.other, data)

    def _leave_old(self) -> None:
        """It is to queue nothing for the client, and its will is not to fire."""
        link, connect = self.link, self.connect
        assert link is not None
        assert connect is not None
        self._release_all(link)
        at_once = ((Property.SESSION_EXPIRY_INTERVAL, 0),) if connect.version == 5 else ()
        self._host.to_site(link, codec.encode(Disconnect(0, at_once), connect.version))
        self._host.close_site(link)
        if connect.version < 5 and not connect.clean_start:
            self._host.clear_session(link.site, connect)

    def _release_all(self, link: SiteLink) -> None:
        """A broker delivers a QoS 2 publication when it is released."""
        for number in link.ledger.received:
            self._host.to_site(link, codec.encode(PubRel(number), self.version))

    def _forget_old(self) -> None:
        """No answer comes from there any more."""
        link, self.link = self.link, None
        assert link is not None
        for number in self._ids.leave(link.ledger.open):
            self._to_client(codec.encode(PubRel(number), self.version))
        for number, released in link.ledger.received.items():
            if released:
                self._to_client(codec.encode(PubComp(number), self.version))
            else:
                self._finish.add(number)
        self._unanswered += link.ledger.sent.values()
        if not link.ledger.complete:
            self._unanswered.append(b"")  # not all were kept: the client has to send them itself
        for _ in range(self._pings):
            self._to_client(codec.encode(PingResp(), self.version))
        self._pings = 0

    def _drop_other(self) -> None:
        link, self.other = self.other, None
        if link is not None:
            self._host.close_site(link)

    def _switch(self) -> None:
        link, self.other = self.other, None
        assert link is not None
        self.link = link
        self.session_at = link.site
        if b"" in self._unanswered:
            self._why = "too many of its publications were in flight"
            self.end()
            return
        for request in reversed(self.wanted.asked.values()):
            data = codec.encode(request, self.version)
            self._waiting.appendleft(Frame(request.type, data))
            self.waiting_bytes += len(data)
        for frame in self._unanswered:
            self._up(bytes((frame[0] | 8,)) + frame[1:])
        self._unanswered = []
        early, link.early = link.early, []
        link.early_bytes = 0
        for each in early:
            self._site_frame(link, each)
        self._flush()

    def _flush(self) -> None:
        """What waited goes on, unless some of it has to wait for the replay."""
        waiting, self._waiting, self.waiting_bytes = self._waiting, deque(), 0
        try:
            while waiting and self.way is not ClientWay.ENDED:
                self._client_frame(waiting.popleft())
        except RemoteProtocolError:
            self.end()

    def _settled(self, step: MoveStep) -> None:
        why, self._why = self._why, ""
        self._host.settled(step, why if step in (MoveStep.REFUSE, MoveStep.FAIL) else "")

    def _end(self) -> None:
        for link in (self.link, self.other):
            if link is not None:
                self._host.close_site(link)
        self.link = self.other = None
        self._host.close_client()

    def _to_client(self, data: bytes) -> None:
        if not self._departing:
            self._host.to_client(data)


_STEPS = {
    MoveStep.DIAL: Tunnel._dial,
    MoveStep.SEEK: Tunnel._seek,
    MoveStep.GREET: Tunnel._greet,
    MoveStep.REPLAY: Tunnel._replay,
    MoveStep.LEAVE_OLD: Tunnel._leave_old,
    MoveStep.FORGET_OLD: Tunnel._forget_old,
    MoveStep.DROP_OTHER: Tunnel._drop_other,
    MoveStep.SWITCH: Tunnel._switch,
    MoveStep.RESUME: Tunnel._flush,
    MoveStep.DONE: lambda tunnel: tunnel._settled(MoveStep.DONE),
    MoveStep.LATE: lambda tunnel: tunnel._settled(MoveStep.LATE),
    MoveStep.REFUSE: lambda tunnel: tunnel._settled(MoveStep.REFUSE),
    MoveStep.FAIL: lambda tunnel: tunnel._settled(MoveStep.FAIL),
    MoveStep.END: Tunnel._end,
}
