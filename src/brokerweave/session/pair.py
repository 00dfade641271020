"""One client's pair of sessions: bytes in from either side, bytes out to the other, and what they mean.

Owns the two scanners, the phase of the pair, and which frame goes to whom of those who know what it means.
Invariants: what is returned for the other side is the input cut at frame boundaries, unchanged but for frames
a listener rejected, acknowledgements that wait for the cluster, and what the node itself delivers
and answers; a filter counts only when SUBACK grants it. Must not know: sockets, strategies, links, what
becomes of a publication.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerweave.errors import BrokerweaveError, LocalProtocolError, RemoteProtocolError
from brokerweave.mqtt import codec
from brokerweave.mqtt.frames import Frame, Passage, RouteCache, Routed, Scanner
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    PubAck,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    UnsubAck,
    Unsubscribe,
    Will,
)
from brokerweave.mqtt.properties import Property, get_int, get_str
from brokerweave.plugin import Listener, Side
from brokerweave.session import attention
from brokerweave.session.asked import Asked
from brokerweave.session.attention import ABOUT_FILTERS, ACTED_ON, ANSWERED, ANSWERS, DELIVERS
from brokerweave.session.deliveries import read_answer
from brokerweave.session.handle import SessionHandle
from brokerweave.session.hold_points import HeldAck, HoldPoint, HoldPoints
from brokerweave.session.host import PairHost, SessionLimits
from brokerweave.session.judgement import Judgement
from brokerweave.session.phase import Phase
from brokerweave.session.publications import Publications
from brokerweave.session.record import SessionRecord, changed_expiry, expiry_of
from brokerweave.session.redelivery import Redelivery
from brokerweave.session.waiting_subscribe import WaitingSubscribe

_CONNECT_BYTE = bytes((PacketType.CONNECT << 4,))
_LARGEST_CONNECT = 1 << 20
"""Bytes: a stranger must not make the node keep more. Five strings of 64 KiB, and properties, fit."""
_TURN = 200
"""Frames looked at one by one before others get their turn: a chunk may hold 60,000."""
_TAKEN_OVER = 0x8E
_WILL_KEPT = 0x04
"""DISCONNECT reason 'disconnect with will message' [MQTT-3.14.2]."""


class Pair:
    """See the module's docstring. `error` is set once the pair must be closed for a protocol error."""

    __slots__ = (
        "_asked",
        "_asks_first",
        "_downstream",
        "_hold_points",
        "_host",
        "_judgement",
        "_publications",
        "_recorder",
        "_redelivery",
        "_session_expiry",
        "_unconfirmed",
        "_upstream",
        "_waiting",
        "_will_discarded",
        "broker",
        "broker_left",
        "came",
        "client",
        "connect",
        "connect_number",
        "error",
        "expiry",
        "limits",
        "phase",
        "put_off",
        "record",
        "resumed",
    )

    def __init__(
        self,
        identifier: int,
        host: PairHost,
        routes: RouteCache,
        limits: SessionLimits,
        session_expiry: float,
        listeners: tuple[Listener, ...] = (),
        cluster: bool = False,
        records: bool = False,
        watched: bool = False,
        room: int | None = None,
        asks_first: bool = False,
    ) -> None:
        """`cluster`: acknowledgements of QoS 1 and 2 wait until the other sites have taken the message.
        `records`: there are taps. `watched`: the host hears what the client has, and may redeliver; implies
        `cluster`. `room`: how many QoS 2 publications that were not released the broker takes, if that is
        known. `asks_first`: the host is asked before a SUBSCRIBE goes to the broker."""
        self.client = SessionHandle(identifier * 2, Side.CLIENT)
        self.broker = SessionHandle(identifier * 2 + 1, Side.BROKER)
        self.phase = Phase.AWAITING_CONNECT
        self.connect: Connect | None = None
        self.connect_number = 0
        """The host counts CONNECTs: a later one has a higher number."""
        self.broker_left = False
        """Its broker hung up, and no other pair had its session: the broker may have died."""
        self.came = 0
        """When its client came here, as a hybrid time; the host sets it."""
        self.expiry = 0.0
        self.error: BrokerweaveError | None = None
        self.limits = limits
        self.put_off: tuple[bytes, list[Routed | Frame], int] | None = None
        """What of the client's last chunk is left for `next_turn`; read no more before it."""
        self.record: SessionRecord | None = None
        """Of its session; None before the broker accepted the client."""
        self.resumed = False
        """The broker goes on with a session of the client: it knows which QoS 2 publications it has."""
        self._host = host
        self._session_expiry = session_expiry
        self._will_discarded = False
        self._judgement = None
        if listeners:
            self._judgement = Judgement(listeners, self.client, self.broker, host.listener_failed)
        cluster = cluster or watched
        self._publications = Publications(
            host, self, routes, cluster=cluster, records=records, watched=watched, room=room
        )
        self._unconfirmed = self._publications.unconfirmed
        self._recorder = self._publications.recorder
        wanted = attention.from_client(self._listens(Side.CLIENT), watched)
        self._upstream = Scanner(wanted, limits.max_packet, routes)
        self._upstream.single_qos = attention.EVERY_QOS
        wanted = attention.from_broker(self._listens(Side.BROKER), cluster, watched)
        self._downstream = Scanner(wanted, limits.max_packet)
        self._asked: Asked | None = None
        self._asks_first = asks_first
        self._waiting: WaitingSubscribe | None = None
        self._hold_points: HoldPoints | None = None
        self._redelivery: Redelivery | None = None
        if watched:
            self._hold_points = HoldPoints()
            self._redelivery = Redelivery(host, self, self._hold_points, limits.client_queue)

    # What the other layers ask

    @property
    def undelivered(self) -> set[bytes]:
        """If watched: content of what is on its way to the client, as far as is known here."""
        return self._redelivery.unanswered if self._redelivery is not None else set()

    @property
    def held_contents(self) -> set[bytes]:
        """If watched: content of what the broker delivered, and stands."""
        return self._hold_points.contents if self._hold_points is not None else set()

    @property
    def will(self) -> Will | None:
        return self.connect.will if self.connect else None

    @property
    def leaving(self) -> bool:
        """The client said goodbye, or the pair is about to end for an error."""
        return self._will_discarded or self.error is not None

    @property
    def version(self) -> int:
        return self.client.mqtt_version

    @property
    def bare(self) -> bool:
        """The client has sent nothing but CONNECT that anybody would miss."""
        return not self._publications.held and self._asked is None and not self._upstream.pending

    @property
    def unanswered(self) -> list[Publish]:
        """Publications that the broker has yet to acknowledge; only in cluster delivery."""
        if self._unconfirmed is None:
            return []
        return [publish for publish, _ in self._unconfirmed.unanswered()]

    def awaits(self, packet_id: int) -> bool:
        return (
            self.phase is Phase.ACCEPTED and self._unconfirmed is not None and packet_id in self._unconfirmed
        )

    @property
    def wants_pause(self) -> bool:
        """True while the client must not be read: its SUBSCRIBE waits, or too much for the broker's
        answer."""
        if self._waiting is not None:
            return True
        asked = self._asked.size if self._asked is not None else 0
        unconfirmed = self._unconfirmed.size if self._unconfirmed is not None else 0
        return max(self._publications.held_bytes, unconfirmed, asked) > self.limits.client_queue

    @property
    def wants_broker_pause(self) -> bool:
        """True while the broker must not be read: too much stands behind a SUBACK."""
        return self._hold_points is not None and self._hold_points.size > self.limits.client_queue

    @property
    def upstream_open(self) -> bool:
        """Whether a client's chunk that concerns nobody may go on without asking the pair."""
        free = self.put_off is None and self._waiting is None
        return self.phase is Phase.ACCEPTED and free and self.error is None

    @property
    def downstream_open(self) -> bool:
        """The same for the broker's."""
        written = self._recorder is None or not self._recorder.unwritten
        return self.phase is Phase.ACCEPTED and written and not self._hold_points and self.error is None

    def passage(self, side: Side, attend: Callable[[bytes], None]) -> Passage:
        """What takes a side's chunks, and calls `attend` with those that need a look."""
        return Passage(self._upstream if side is Side.CLIENT else self._downstream, attend)

    def use_routes(self, routes: RouteCache) -> None:
        """Where the client's publications go from now on."""
        self._publications.routes = self._upstream.routes = routes

    @property
    def traffic(self) -> tuple[int, int, int, int]:
        """Publications and bytes from the client, then to it."""
        up, down = self._upstream, self._downstream
        return up.publishes, up.passed, down.publishes, down.passed

    # From the client

    def from_client(self, chunk: bytes) -> bytes:
        """Take what the client sent; return what goes to the broker."""
        if self._waiting is not None:
            self._waiting.chunks.append(chunk)
            return b""
        if self.phase is Phase.AWAITING_CONNECT and not self._upstream.pending:
            self._check_first(chunk)
        whole, items = self._upstream.feed(chunk)
        if items:
            whole = self._turn(whole, items, 0)
        elif self.phase is Phase.AWAITING_CONNECT and self._upstream.pending > _LARGEST_CONNECT:
            self._fail(Side.CLIENT, RemoteProtocolError("too large a CONNECT", 0x95))
        self._check_upstream()
        if self._redelivery is not None:
            whole += self._redelivery.after_client()
        return whole if self.connect is not None else b""

    def next_turn(self) -> bytes:
        """Take more of what was put off; return what goes to the broker."""
        if self.put_off is None:
            return b""
        whole = self._turn(*self.put_off)
        self._check_upstream()
        if self._redelivery is not None:
            whole += self._redelivery.after_client()
        return whole

    def _check_upstream(self) -> None:
        """What the client sent may be malformed behind the frames that were acted on."""
        if self._upstream.error is not None and self.put_off is None and self._waiting is None:
            self._fail(Side.CLIENT, self._upstream.error)

    def _turn(self, whole: bytes, items: list[Routed | Frame], start: int) -> bytes:
        """Act on some of a chunk's items, cut at a frame, and put off the rest."""
        end = start + _TURN
        while end < len(items) and not isinstance(items[end], Frame):
            end += 1
        if end < len(items):
            self.put_off = whole, items, end
            return self._client_items(whole[: _place(items, end)], items[start:end], _place(items, start))
        self.put_off = None
        return self._client_items(whole, items[start:] if start else items, _place(items, start))

    def _check_first(self, chunk: bytes) -> None:
        """Do not wait for more of what cannot be MQTT [MQTT-3.1.0-1]."""
        if chunk[:1] != _CONNECT_BYTE:
            self._fail(
                Side.CLIENT,
                RemoteProtocolError("the first packet is not CONNECT: is this an MQTT client?", 0x82),
            )

    def _begin(self, connect: Connect) -> None:
        if self.connect is not None:
            raise RemoteProtocolError("a client sent CONNECT twice", 0x82)  # [MQTT-3.1.0-2]
        self.connect = connect
        self.expiry = expiry_of(connect, self._session_expiry)
        for half in (self.client, self.broker):
            half.client_id = connect.client_id
            half.mqtt_version = connect.version
        self._upstream.version = self._downstream.version = connect.version
        if self._redelivery is not None:
            self._redelivery.begin(connect)
        self._upstream.single_qos = attention.QOS_2
        if self._publications.begin(connect.version):
            self._upstream.single_qos = attention.ACKNOWLEDGED
            self._downstream.wanted |= attention.PUBLISH_ACKS
        self.phase = Phase.CONNECTING
        self._host.connect_arrived(self)

    def _client_items(self, whole: bytes, items: list[Routed | Frame], done: int) -> bytes:
        """Act on the client's frames; returns what of `whole` from `done` on goes to the broker."""
        out: list[bytes] = []
        publications = self._publications
        for index, item in enumerate(items):
            if isinstance(item, Routed):
                publications.forward(item)
                continue
            try:
                passes = self._client_frame(item)
            except RemoteProtocolError as error:
                self._fail(Side.CLIENT, error)
                passes = True
            if self.error is not None:
                if self._listens(Side.CLIENT):
                    whole = whole[: item.at]  # nobody has judged the rest
                break
            if not passes:
                out.append(whole[done : item.at])
                done = item.at + len(item.data)
            if self._waiting is not None:
                self._wait(self._waiting, whole, items[index + 1 :], done)
                return b"".join(out)
            if publications.kept_back:
                end = item.at + len(item.data)
                out += [whole[done:end], *publications.let_go(publications.kept_back)]
                done = end
        if not out and not done:
            return whole
        return b"".join((*out, whole[done:]))

    def _client_frame(self, frame: Frame) -> bool:
        """Act on one frame from the client; False if it must not reach the broker."""
        judgement = self._judgement
        if self._redelivery is not None and frame.type in ANSWERS:
            if not self._redelivery.from_client(frame):
                return False
            if judgement is None:
                return True
        if judgement and not judgement.asked(Side.CLIENT, frame.type) and frame.type not in ACTED_ON:
            return True
        if frame.type in ABOUT_FILTERS and len(frame.data) > self.limits.client_queue:
            raise RemoteProtocolError("too many filters in one packet", 0x95)
        packet = codec.decode(frame.data, self.version)
        if judgement is not None and self._rejected(judgement, packet):
            return False
        match packet:
            case Publish() | PubRel():
                return self._publications.take(packet, frame.data)
            case Subscribe() | Unsubscribe():
                if self._asked is None:
                    self._asked = Asked()
                self._asked.add(packet, len(frame.data))
                if self._redelivery is not None and isinstance(packet, Subscribe):
                    self._redelivery.subscribed(packet)
                    self._host.subscribing(self)
                if self._asks_first and isinstance(packet, Subscribe):
                    return self._may_subscribe(packet, frame.data)
            case Disconnect():
                self._will_discarded = packet.reason_code != _WILL_KEPT
                self.expiry = changed_expiry(packet.properties, self.expiry)
            case Connect():
                self._begin(packet)
        return True

    # A SUBSCRIBE that waits

    def _may_subscribe(self, packet: Subscribe, frame: bytes) -> bool:
        """False: it waits, and with it what the client sends behind it."""
        filters = {each.topic_filter: each.qos for each in packet.subscriptions}
        if self._host.may_subscribe(self, filters):
            return True
        self._waiting = WaitingSubscribe(frame, b"", [], 0, None)
        return False

    def _wait(self, waiting: WaitingSubscribe, whole: bytes, items: list[Routed | Frame], done: int) -> None:
        waiting.whole, waiting.items, waiting.done = whole, items, done
        waiting.put_off, self.put_off = self.put_off, None

    def subscribe_now(self) -> None:
        """The SUBSCRIBE that waits may go to the broker, and what waits behind it."""
        waiting = self._waiting
        if waiting is None or self.phase is not Phase.ACCEPTED:
            if waiting is not None:
                waiting.may_go = True
            return
        self._waiting, self.put_off = None, waiting.put_off
        out = [waiting.frame, self._client_items(waiting.whole, waiting.items, waiting.done)]
        while self.put_off is not None and self._waiting is None and self.error is None:
            out.append(self.next_turn())
        out += [self.from_client(chunk) for chunk in waiting.chunks]
        self._check_upstream()
        self._host.write_broker(self, b"".join(out))

    # From the broker

    def from_broker(self, chunk: bytes) -> bytes:
        """Take what the broker sent; return what goes to the client."""
        whole, items = self._downstream.feed(chunk)
        if items:
            whole = self._broker_items(whole, items)
        elif self._hold_points:
            whole = self._hold_points.through(whole)
        if self._downstream.error is not None:
            self._fail(Side.BROKER, self._downstream.error)
        if self._recorder is not None:
            self._recorder.before_acknowledging()
        return whole

    def _broker_items(self, whole: bytes, items: list[Routed | Frame]) -> bytes:
        """Act on the broker's frames; returns what of `whole` may go to the client now."""
        out: list[bytes] = []
        done = 0
        redelivery = self._redelivery
        if redelivery is not None:
            redelivery.busy = True
        for item in items:
            assert isinstance(item, Frame)
            try:
                goes = self._broker_frame(item)
            except RemoteProtocolError as error:
                self._fail(Side.BROKER, error)
                break
            if goes is not None:
                out.append(self._pass(whole[done : item.at]))
                done = item.at
                if isinstance(goes, HoldPoint):
                    self._hold_at(goes)
                else:
                    done += len(item.data)
                    out.append(goes)
            if redelivery is not None and redelivery.behind is not None:
                end = item.at + len(item.data)
                out.append(self._pass(whole[done:end]))
                done = end
                self._hold_at(redelivery.behind)
                redelivery.behind = None
        if done or self._hold_points:
            out.append(self._pass(whole[done:]))
            whole = b"".join(out)
        if redelivery is not None:
            redelivery.busy = False
            whole += redelivery.advance()
        return whole

    def _broker_frame(self, frame: Frame) -> HoldPoint | bytes | None:
        """Act on one frame from the broker. None: it keeps its place in the stream, which may have to stand
        there first; or what goes to the client at once, in its stead."""
        judgement = self._judgement
        overtakes = self._redelivery.from_broker(frame) if self._redelivery is not None else None
        if judgement is None and frame.type in DELIVERS:
            return overtakes
        if frame.type not in ACTED_ON and not (judgement and judgement.asked(Side.BROKER, frame.type)):
            return overtakes
        if judgement is None and frame.type in ANSWERED and self._unconfirmed is not None:
            answer = read_answer(frame.data, self.version)
            return b"" if self._unconfirmed.answered(*answer, frame.data) else overtakes
        packet = codec.decode(frame.data, self.version)
        if judgement is not None:
            judgement.verdict(Side.BROKER, packet)
        match packet:
            case ConnAck():
                self._connack(packet)
            case SubAck():
                return self._suback(packet)
            case UnsubAck():
                self._unsuback(packet)
            case PubAck() | PubRec() if self._unconfirmed is not None:
                answer = packet.packet_id, packet.reason_code
                return b"" if self._unconfirmed.answered(*answer, frame.data) else overtakes
            case PubAck() | PubRec() if self._recorder is not None:
                self._recorder.answered(packet.packet_id, packet.reason_code)
        return overtakes

    def _pass(self, data: bytes) -> bytes:
        return self._hold_points.through(data) if self._hold_points else data

    def release(self, ack: HeldAck) -> None:
        """The cluster has a publication, or is not waited for any longer: its acknowledgement may go."""
        if self._unconfirmed is not None and self.phase is Phase.ACCEPTED:
            self._unconfirmed.release(ack)

    def _hold_at(self, hold_point: HoldPoint) -> None:
        if self._hold_points is None:
            self._hold_points = HoldPoints()
        self._hold_points.add(hold_point)

    def end_hold(self, hold_point: HoldPoint) -> None:
        """The filters at a stand are known everywhere, or not waited for any longer; or there is nothing to
        redeliver. Does nothing where a queue is on its way: the stream goes on behind it."""
        if self._hold_points is not None and self.phase is Phase.ACCEPTED and hold_point.queue is None:
            data = self._hold_points.end_hold(hold_point)
            if self._redelivery is not None:
                data += self._redelivery.advance()
            if data:
                self._host.write_client(self, data)

    # What the client missed (if watched)

    def hold_behind(self) -> HoldPoint:
        """For the host while it is told of CONNACK (`accepted`) or SUBACK (`granted`): the stream stands
        behind that packet until `redeliver(..., hold_point)` is through, or `end_hold(hold_point)`."""
        if self._redelivery is None:
            raise LocalProtocolError("only of a watched client the stream stands behind a packet")
        return self._redelivery.hold_behind()

    def redeliver(
        self, publishes: list[Publish], done: Callable[[], None], hold_point: HoldPoint | None = None
    ) -> None:
        """Send these to the client in their order, at `hold_point`; without it, behind what came so far.

        Their QoS is that of the delivery; packet ids are the node's. `done` is called when the client has
        answered all of them and the stream goes on; never, if the client leaves before.
        """
        if self._redelivery is None:
            raise LocalProtocolError("only a watched client is redelivered to")
        if self.phase is Phase.ACCEPTED:
            self._redelivery.send(publishes, done, hold_point)

    def ask_broker(self, done: Callable[[], object]) -> None:
        """Ask the broker for a sign of life: when `done` is called, all that it had delivered before is here.
        Never, if the pair ends before, or while the broker is not read."""
        if self._redelivery is not None and self.phase is Phase.ACCEPTED:
            self._redelivery.ask_broker(done)

    def suppress(self, unwanted: dict[bytes, int]) -> None:
        """What the broker delivers of this content, as often as it says, the client has from the node."""
        if self._redelivery is not None:
            self._redelivery.unwanted = unwanted

    @property
    def for_broker(self) -> bytes:
        """After `from_broker`: what the broker is to hear in the client's stead; once."""
        if self._redelivery is None or not self._redelivery.for_broker:
            return b""
        answers, self._redelivery.for_broker = self._redelivery.for_broker, []
        return b"".join(answers)

    def close_taken_over(self, session_ends: bool = False) -> None:
        """Another site has the client now; `session_ends` if it began a new session there.

        Its will is due as when a broker's own session is taken over: not if it has a delay and the session
        goes on [MQTT-3.1.4-3], [MQTT-3.1.2-8].
        """
        if self.phase is Phase.ENDED:
            return
        if self.version == 5 and self.phase is Phase.ACCEPTED:
            self._host.write_client(self, codec.encode(Disconnect(_TAKEN_OVER), 5))
        last_words = b""
        delay = get_int(self.will.properties, Property.WILL_DELAY_INTERVAL, 0) if self.will else 0
        if min(delay, self.expiry) > 0 and not session_ends:
            self._will_discarded = True
            last_words = codec.encode(Disconnect(), 5)
        self._host.hang_up(self, last_words)

    def _connack(self, packet: ConnAck) -> None:
        if self.phase is not Phase.CONNECTING:
            raise RemoteProtocolError("the broker sent CONNACK twice", 0x82)
        held = self._publications.take_held()
        if packet.reason_code != 0:
            self.phase = Phase.REFUSED
            self._host.count("refused_clients")
            self._publications.refused(held)
            return
        assigned = get_str(packet.properties, Property.ASSIGNED_CLIENT_IDENTIFIER, "")
        if assigned:
            self.client.client_id = self.broker.client_id = assigned
        self.expiry = changed_expiry(packet.properties, self.expiry)
        self.phase = Phase.ACCEPTED
        self.resumed = packet.session_present
        self.record = self._host.accepted(self, packet.session_present)
        self._publications.accepted(self.record, held)
        if self._waiting is not None and self._waiting.may_go:
            self.subscribe_now()

    def _suback(self, packet: SubAck) -> HoldPoint | None:
        """Where the stream must stand until the filters are known everywhere; None if it need not."""
        granted = self._asked.granted(packet) if self._asked is not None else []
        hold_point = HoldPoint()
        return hold_point if granted and not self._host.granted(self, granted, hold_point) else None

    def _unsuback(self, packet: UnsubAck) -> None:
        gone = self._asked.withdrawn(packet) if self._asked is not None else []
        if gone:
            self._host.withdrawn(self, gone)

    # The end

    def ended(self, broker_left: bool = False) -> bool:
        """Either side is gone, so the pair is. True if the client had not said goodbye."""
        broker_left = broker_left and not self._will_discarded
        if self.record is not None and self.record.owner is self:
            self.record.lost = self.broker_left = broker_left
        self._publications.ended(broker_left)
        if self._redelivery is not None and (left := self._redelivery.left):
            self._host.count("redelivery_interrupted", left)
        was, self.phase = self.phase, Phase.ENDED
        if was is Phase.ACCEPTED:
            self._host.ended(self, unexpected=not self._will_discarded)
        if self.connect is not None:
            self._host.closed(self)
        return not self._will_discarded

    def _fail(self, side: Side, error: BrokerweaveError) -> None:
        if self.error is None:
            self.error = error
            if self._judgement is not None:
                self._judgement.failed(side, error)

    # Listeners

    def _listens(self, side: Side) -> bool:
        return self._judgement is not None and self._judgement.listens(side)

    def _rejected(self, judgement: Judgement, packet: Packet) -> bool:
        """Whether a packet of the client must not reach the broker; the client is told so."""
        answer: Packet | None = judgement.completes(packet) if isinstance(packet, PubRel) else None
        if answer is None:
            rejection = judgement.verdict(Side.CLIENT, packet)
            if rejection is None:
                return False
            self._host.count("rejected_by_listener")
            if not isinstance(packet, Publish):
                self._fail(Side.CLIENT, RemoteProtocolError(rejection.reason, rejection.reason_code))
                return True
            answer = judgement.answer(packet, rejection, self.version)
        if answer is not None:
            self._host.write_client(self, codec.encode(answer, self.version))
        return True


def _place(items: list[Routed | Frame], index: int) -> int:
    """Where a frame begins; what precedes it in `items` lies before it."""
    item = items[index]
    return item.at if isinstance(item, Frame) and index else 0
