"""One client's pair of sessions: bytes in from either side, bytes out to the other, and what they mean.

Owns the two scanners, the phase of the pair, and which frame goes to whom of those who know what it means.
Invariants: what is returned for the other side is the input cut at frame boundaries, unchanged but for frames
a listener rejected or changed, acknowledgements that wait for the cluster, what the node itself delivers and
answers, and stamps between the node and its broker, which the client never sees; a filter counts only when
SUBACK grants it; what cannot be read goes on as it is, means nothing here, and is counted. Must not know:
sockets, strategies, links, what becomes of a publication.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from brokerweave.errors import BrokerweaveError, LocalProtocolError, Refused, RemoteProtocolError
from brokerweave.mqtt import codec
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
from brokerweave.mqtt.scanner import Frame, RouteCache, Routed, Scanner
from brokerweave.mqtt.stamp import GROWTH
from brokerweave.plugin import Listener, Side
from brokerweave.session import attention
from brokerweave.session.asked import Asked
from brokerweave.session.attention import ABOUT_FILTERS, ACTED_ON, ANSWERED, ANSWERS, DELIVERS
from brokerweave.session.deliveries import read_answer
from brokerweave.session.handle import SessionHandle
from brokerweave.session.held_stream import HeldStream, NotReady
from brokerweave.session.hold_points import HeldAck, HoldPoint, HoldPoints
from brokerweave.session.host import PairHost, SessionLimits
from brokerweave.session.judgement import Judgement
from brokerweave.session.move_ticket import PlannedMove
from brokerweave.session.phase import Phase
from brokerweave.session.publications import NoRoom, Publications
from brokerweave.session.record import SessionRecord, changed_expiry, expiry_of
from brokerweave.session.redelivery import Queue, Redelivery
from brokerweave.session.waiting_subscribe import WaitingSubscribe

_CONNECT_BYTE = bytes((PacketType.CONNECT << 4,))
_LARGEST_CONNECT = 1 << 20
"""Bytes: an unauthenticated client must not make the node keep more. Five strings of 64 KiB, and properties,
fit."""
_TURN = 200
"""Frames looked at one by one before others get their turn: a chunk may hold 60,000."""
_LARGEST = 268_435_455 + 5
"""Bytes of a packet, by MQTT's lengths: what a broker takes that declares no less."""
_TAKEN_OVER = 0x8E
USE_ANOTHER_SERVER = 0x9C
_NOT_AUTHORIZED = 0x05
"""CONNACK's return code before MQTT 5."""
_PROTOCOL_ERROR = 0x81
_QOS = 0x06
"""Of a PUBLISH's first byte."""
_WILL_KEPT = 0x04
"""DISCONNECT reason 'disconnect with will message' [MQTT-3.14.2]."""


class Pair:
    """See the module's docstring. `error` is set once the pair must be closed: the node refuses to go on."""

    __slots__ = (
        "_asked",
        "_asks_first",
        "_asks_to_publish",
        "_broken",
        "_broker_takes",
        "_downstream",
        "_drained",
        "_held",
        "_hold_points",
        "_host",
        "_judgement",
        "_publications",
        "_recorder",
        "_redelivery",
        "_scanned_twice",
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
        "keep_alive",
        "limits",
        "move",
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
        asks_to_publish: bool = False,
    ) -> None:
        """`cluster`: acknowledgements of QoS 1 and 2 wait until the other sites have taken the message.
        `records`: there are taps. `watched`: the host hears what the client has, and may redeliver; implies
        `cluster`. `room`: how many QoS 2 publications that were not released the broker takes, if that is
        known. `asks_first`: the host is asked before a SUBSCRIBE goes to the broker. `asks_to_publish`: also
        before a PUBLISH of QoS 1 or 2 does, until it lets the first one go."""
        self.client = SessionHandle(identifier * 2, Side.CLIENT, self)
        self.broker = SessionHandle(identifier * 2 + 1, Side.BROKER, self)
        self.phase = Phase.AWAITING_CONNECT
        self.connect: Connect | None = None
        self.connect_number = 0
        """The host counts CONNECTs: a later one has a higher number."""
        self.broker_left = False
        """Its broker hung up, and no other pair had its session: the broker may have died."""
        self.came = 0
        """When its client came here, as a hybrid time; the host sets it."""
        self.expiry = 0.0
        self.keep_alive = 0
        """Seconds of silence after which the broker may ask where the client is; 0: it does not."""
        self.error: BrokerweaveError | None = None
        self.limits = limits
        self.put_off: tuple[bytes, list[Routed | Frame], int] | None = None
        """What of the client's last chunk is left for `next_turn`; read no more before it."""
        self.record: SessionRecord | None = None
        """Of its session; None before the broker accepted the client."""
        self.resumed = False
        """The broker goes on with a session of the client: it knows which QoS 2 publications it has."""
        self.move: PlannedMove | None = None
        """What its client announced with the connection, until it is known how that went."""
        self._drained: Callable[[], None] | None = None
        self._host = host
        self._session_expiry = session_expiry
        self._will_discarded = False
        self._broker_takes = _LARGEST
        self._broken: set[Side] = set()
        """Whose bytes go on unread: no frame can be cut off."""
        self._judgement = None
        if listeners:
            self._judgement = Judgement(
                listeners,
                self.client,
                self.broker,
                host.listener_failed,
                limits.max_packet,
                limits.client_queue,
            )
        cluster = cluster or watched
        self._publications = Publications(
            host, self, routes, cluster=cluster, records=records, watched=watched, room=room
        )
        self._unconfirmed = self._publications.unconfirmed
        self._recorder = self._publications.recorder
        wanted = attention.from_client(self._listened(Side.CLIENT), watched)
        self._upstream = Scanner(wanted, limits.max_packet, routes)
        self._upstream.single_qos = attention.EVERY_QOS
        wanted = attention.from_broker(self._listened(Side.BROKER), cluster, watched)
        self._downstream = Scanner(wanted, limits.max_packet)
        self._asked: Asked | None = None
        self._asks_first = asks_first
        self._waiting: WaitingSubscribe | None = None
        self._asks_to_publish = asks_to_publish
        self._held: HeldStream | None = None
        self._scanned_twice = 0, 0
        """Publications and bytes: what the scanner had seen when it was held."""
        self._hold_points: HoldPoints | None = None
        self._redelivery: Redelivery | None = None
        if watched:
            self._hold_points = HoldPoints()
            self._redelivery = Redelivery(host, self, self._hold_points, limits.client_queue)

    # What the other layers ask

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
        held = self._publications.held or self._held is not None
        return not held and self._asked is None and not self._upstream.pending

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
        answer, or for the node to know the others."""
        if self._waiting is not None:
            return True
        if self._held is not None:
            return self._held.size > self.limits.client_queue
        asked = self._asked.size if self._asked is not None else 0
        unconfirmed = self._unconfirmed.size if self._unconfirmed is not None else 0
        return max(self._publications.held_bytes, unconfirmed, asked) > self.limits.client_queue

    @property
    def wants_broker_pause(self) -> bool:
        """True while the broker must not be read: too much is held behind a SUBACK."""
        return self._hold_points is not None and self._hold_points.size > self.limits.client_queue

    @property
    def upstream_open(self) -> bool:
        """Whether a client's chunk that concerns nobody may go on without asking the pair."""
        free = self.put_off is None and self._waiting is None and self._held is None
        return self.phase is Phase.ACCEPTED and free and self.error is None

    @property
    def downstream_open(self) -> bool:
        """The same for the broker's."""
        written = self._recorder is None or not self._recorder.unwritten
        return self.phase is Phase.ACCEPTED and written and not self._hold_points and self.error is None

    def scanner(self, side: Side) -> Scanner:
        """What knows which of a side's chunks concern nobody."""
        return self._upstream if side is Side.CLIENT else self._downstream

    def use_routes(self, routes: RouteCache) -> None:
        """Where the client's publications go from now on."""
        self._publications.routes = self._upstream.routes = routes

    @property
    def traffic(self) -> tuple[int, int, int, int]:
        """Publications and bytes from the client, then to it."""
        up, down = self._upstream, self._downstream
        publishes, passed = self._scanned_twice
        return up.publishes - publishes, up.passed - passed, down.publishes, down.passed

    # From the client

    def from_client(self, chunk: bytes) -> bytes:
        """Take what the client sent; return what goes to the broker."""
        if self._waiting is not None:
            self._waiting.chunks.append(chunk)
            return b""
        if self._held is not None:
            return self._turned(self._hold(self._held, chunk))
        if self.phase is Phase.AWAITING_CONNECT and not self._upstream.pending:
            self._check_first(chunk)
        if self.error is not None:
            return b""
        if Side.CLIENT in self._broken:
            return self._upstream.take_rest() + chunk
        whole, items = self._upstream.feed(chunk)
        if items:
            whole = self._turn(whole, items, 0)
        elif self.phase is Phase.AWAITING_CONNECT and self._upstream.pending > _LARGEST_CONNECT:
            self._fail(Side.CLIENT, Refused("too large a CONNECT", 0x95))
        whole = self._turned(whole)
        return whole if self.phase is not Phase.AWAITING_CONNECT else b""

    def next_turn(self) -> bytes:
        """Take more of what was put off; return what goes to the broker."""
        if self.put_off is None:
            return b""
        return self._turned(self._turn(*self.put_off))

    def _turned(self, whole: bytes) -> bytes:
        """What goes to the broker after some of a chunk's items were acted on."""
        if self.put_off is None and self._waiting is None and self._held is None and self.error is None:
            whole += self._rest(Side.CLIENT)
        if self._redelivery is not None and Side.CLIENT not in self._broken:
            whole += self._redelivery.after_client()
        self._look_drained()
        return whole

    def _turn(self, whole: bytes, items: list[Routed | Frame], start: int) -> bytes:
        """Act on some of a chunk's items, cut at a frame, and put off the rest."""
        if Side.CLIENT in self._broken:
            self.put_off = None
            return whole[_place(items, start) :]
        end = start + _TURN
        while end < len(items) and not isinstance(items[end], Frame):
            end += 1
        if end < len(items):
            self.put_off = whole, items, end
            return self._client_items(whole[: _place(items, end)], items[start:end], _place(items, start))
        self.put_off = None
        return self._client_items(whole, items[start:] if start else items, _place(items, start))

    def _check_first(self, chunk: bytes) -> None:
        """Do not wait for more of what cannot be MQTT [MQTT-3.1.0-1]: the broker closes at its first byte."""
        if chunk[:1] != _CONNECT_BYTE:
            self._connect_unread(chunk, RemoteProtocolError("the first packet is not CONNECT"))

    def _begin(self, connect: Connect) -> None:
        if self.connect is not None:
            raise RemoteProtocolError("a client sent CONNECT twice")  # [MQTT-3.1.0-2]
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
        elif self._asks_to_publish:
            self._upstream.single_qos = attention.ACKNOWLEDGED
        self.keep_alive = connect.keep_alive
        self.phase = Phase.CONNECTING
        self._host.connect_arrived(self)

    def _client_items(self, whole: bytes, items: list[Routed | Frame], done: int) -> bytes:
        """Act on the client's frames; returns what of `whole` from `done` on goes to the broker."""
        out: list[bytes] = []
        publications = self._publications
        for index, item in enumerate(items):
            if isinstance(item, Routed):
                if not publications.forward(item):
                    self._fail(Side.CLIENT, NoRoom())
                    return b""
                continue
            if self._asks_to_publish and not self._may_publish(item):
                out.append(whole[done : item.at])
                out.append(self._hold_from(whole, item.at))
                return b"".join(out)
            try:
                goes = self._client_frame(item)
            except Refused as refusal:
                self._fail(Side.CLIENT, refusal)
                goes = item
            except RemoteProtocolError as error:
                self._unread(Side.CLIENT, item, error)
                goes = item
            if Side.CLIENT in self._broken:
                break
            if self.error is not None:
                if self._listened(Side.CLIENT) or isinstance(self.error, NoRoom):
                    whole = whole[: item.at]  # nobody has judged the rest
                break
            if goes is not item:
                out.append(whole[done : item.at])
                done = item.at + len(item.data)
                if goes is not None:
                    out.append(goes.data)
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

    def _client_frame(self, frame: Frame) -> Frame | None:
        """Act on one frame from the client; what reaches the broker in its place, if anything does."""
        if self._redelivery is not None and frame.type in ANSWERS:
            if not self._redelivery.from_client(frame):
                return None
            if not self._hears(Side.CLIENT, frame):
                return frame
        if self._redelivery is not None and frame.type == PacketType.PUBLISH:
            frame, stamped = self._redelivery.unstamped(frame)
            if stamped is not None:  # its own deliveries have none: it is copied from another broker client's
                self._host.count("stamps_refused")
        if frame.type in ABOUT_FILTERS and len(frame.data) > self.limits.client_queue:
            raise Refused("too many filters in one packet", 0x95)
        judgement = self._judgement
        judged = self._judged(judgement, Side.CLIENT, frame) if judgement is not None else (None, frame)
        if judged is None:
            return None
        packet, frame = judged
        if packet is None:
            packet = codec.decode(frame.data, self.version)
        match packet:
            case Publish():
                if not self._publications.take(packet, frame.data):
                    return None
                return self._stamped(packet, frame) if self._redelivery is not None and packet.qos else frame
            case PubRel():
                return frame if self._publications.take(packet, frame.data) else None
            case Subscribe() | Unsubscribe():
                if self._asked is None:
                    self._asked = Asked()
                self._asked.add(packet, len(frame.data))
                if self._redelivery is not None and isinstance(packet, Subscribe):
                    self._redelivery.subscribed(packet)
                    self._host.subscribing(self)
                if self._asks_first and isinstance(packet, Subscribe):
                    return frame if self._may_subscribe(packet, frame.data) else None
            case Disconnect():
                self._will_discarded = packet.reason_code != _WILL_KEPT
                self.expiry = changed_expiry(packet.properties, self.expiry)
            case Connect():
                self._begin(packet)
        return frame

    def _stamped(self, publish: Publish, frame: Frame) -> Frame:
        """A publication as the broker gets it: under its name, if it has one and deliveries can tell."""
        if self.version < 5 or self.phase is not Phase.ACCEPTED:  # what the broker takes is not known yet
            return frame
        name = self._host.publication_name(self, publish)
        if not name:
            return frame
        if len(frame.data) + GROWTH > self._broker_takes:  # [MQTT-3.2.2-15]
            self._host.count("unstamped_too_large")
            return frame
        return Frame(frame.type, self._host.stamps.stamp(frame.data, name), frame.at)

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
        out = [waiting.frame, self._turned(self._client_items(waiting.whole, waiting.items, waiting.done))]
        while self.put_off is not None and self._waiting is None and self.error is None:
            out.append(self.next_turn())
        out += [self.from_client(chunk) for chunk in waiting.chunks]
        self._host.write_broker(self, b"".join(out))

    # A publication that waits until the node knows the others

    def _may_publish(self, frame: Frame) -> bool:
        """False: it is held, and with it what the client sends behind it."""
        if frame.type != PacketType.PUBLISH or not frame.data[0] & _QOS:
            return True
        if not self._host.may_publish(self):
            return False
        self._asks_to_publish = False
        if not self._downstream.wanted & attention.PUBLISH_ACKS:
            self._upstream.single_qos = attention.QOS_2
        return True

    def _hold_from(self, whole: bytes, at: int) -> bytes:
        """Hold what begins there, and what the scanner has of the next frame. Nobody has acted on it: it is
        scanned again when it goes. Returns what of it goes to the broker now."""
        if self._upstream.error is not None:
            self._host.count("refused_at_start")
            self._fail(Side.CLIENT, NotReady())  # behind it is what cannot be cut into frames
            return b""
        if self.put_off is not None:
            whole, self.put_off = self.put_off[0], None
        held = self._held = HeldStream(self.limits.max_packet, subscribes=not self._asks_first)
        out = self._hold(held, whole[at:])
        publishes, passed = self._scanned_twice
        self._scanned_twice = publishes + held.scanned[0], passed + held.scanned[1]
        return out + self._hold(held, self._upstream.take_rest())

    def _hold(self, held: HeldStream, chunk: bytes) -> bytes:
        try:
            self._host.holds(self, len(chunk))
        except Refused as refusal:
            self._fail(Side.CLIENT, refusal)
            return b""
        ahead = [Frame(frame.type, frame.data, 0) for frame in held.feed(chunk)]
        return b"".join(self._client_items(frame.data, [frame], 0) for frame in ahead)

    def publish_now(self) -> None:
        """The publication that is held may go to the broker, and what is held behind it."""
        held = self._held
        if held is None or held.left or self.phase is not Phase.ACCEPTED:
            if held is not None:
                held.may_go = True
            return
        self._held = None
        out = [self.from_client(held.take())]
        while self.put_off is not None and self.error is None:
            out.append(self.next_turn())
        self._host.write_broker(self, b"".join(out))
        if self.error is not None:
            self._host.count("protocol_errors")
            self.close_refused(self.error)

    # From the broker

    def from_broker(self, chunk: bytes) -> bytes:
        """Take what the broker sent; return what goes to the client."""
        if Side.BROKER in self._broken:
            whole = self._pass(chunk)
        else:
            whole, items = self._downstream.feed(chunk)
            whole = self._broker_items(whole, items) if items else self._pass(whole)
            whole += self._pass(self._rest(Side.BROKER))
        if self._recorder is not None:
            self._recorder.before_acknowledging()
        self._look_drained()
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
                frame, goes = self._broker_frame(item)
            except Refused as refusal:
                self._fail(Side.BROKER, refusal)
                break
            except RemoteProtocolError as error:
                self._unread(Side.BROKER, item, error)
                frame, goes = item, None
            if Side.BROKER in self._broken:
                break
            if self.error is not None:
                whole = whole[: item.at]  # rejected, and nobody has judged the rest
                break
            if goes is not None or frame is not item:
                out.append(self._pass(whole[done : item.at]))
                done = item.at + len(item.data)
                if isinstance(goes, bytes):
                    out.append(goes)
                else:
                    if goes is not None:
                        self._hold_at(goes)
                    out.append(self._pass(frame.data))
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

    def _broker_frame(self, frame: Frame) -> tuple[Frame, HoldPoint | bytes | None]:
        """Act on one frame from the broker: what takes its place in the stream, which may have to stand there
        first. Or, as bytes, what goes to the client at once instead."""
        redelivery = self._redelivery
        judgement = self._judgement
        stamped: bytes | None = None
        if redelivery is not None and frame.type == PacketType.PUBLISH:
            frame, stamped = redelivery.unstamped(frame)
        judged = self._judged(judgement, Side.BROKER, frame) if judgement is not None else (None, frame)
        if judged is None:
            if redelivery is not None and frame.type == PacketType.PUBLISH:
                redelivery.refused(frame, stamped)
            return frame, b""
        packet, goes = judged
        # What holders keep for the client is named by what the broker delivers, changed or not.
        overtakes = redelivery.from_broker(frame, stamped) if redelivery is not None else None
        if overtakes:
            overtakes = goes.data
        if frame.type == PacketType.PUBCOMP and self._unconfirmed is not None:
            self._unconfirmed.completed(read_answer(frame.data, self.version)[0])
        if packet is None:
            if frame.type in DELIVERS or frame.type not in ACTED_ON:
                return goes, overtakes
            if frame.type in ANSWERED and self._unconfirmed is not None:
                answer = read_answer(frame.data, self.version)
                return goes, b"" if self._unconfirmed.answered(*answer, frame.data) else overtakes
            packet = codec.decode(frame.data, self.version)
        match packet:
            case ConnAck():
                self._connack(packet)
            case SubAck():
                return goes, self._suback(packet)
            case UnsubAck():
                self._unsuback(packet)
            case PubAck() | PubRec() if self._unconfirmed is not None:
                answer = packet.packet_id, packet.reason_code
                return goes, b"" if self._unconfirmed.answered(*answer, goes.data) else overtakes
            case PubAck() | PubRec() if self._recorder is not None:
                self._recorder.answered(packet.packet_id, packet.reason_code)
            case Disconnect():
                return goes, goes.data  # the broker closes: what is held before it would go nowhere
        return goes, overtakes

    def _pass(self, data: bytes) -> bytes:
        return self._hold_points.through(data) if self._hold_points else data

    def release(self, ack: HeldAck) -> None:
        """The cluster has a publication, or is not waited for any longer: its acknowledgement may go."""
        if self._unconfirmed is not None and self.phase is Phase.ACCEPTED:
            self._unconfirmed.release(ack)
            self._look_drained()

    def _hold_at(self, hold_point: HoldPoint) -> None:
        if self._hold_points is None:
            self._hold_points = HoldPoints()
        self._hold_points.add(hold_point)

    def end_hold(self, hold_point: HoldPoint) -> None:
        """The filters of a hold point are known everywhere, or not waited for any longer; or there is nothing
        to redeliver. Does nothing where a queue is on its way: the stream goes on behind it."""
        if self._redelivery is not None and self._redelivery.stopped:
            hold_point.over = hold_point.queue is None
        elif self._hold_points is not None and self.phase is Phase.ACCEPTED and hold_point.queue is None:
            data = self._hold_points.end_hold(hold_point)
            if self._redelivery is not None:
                data += self._redelivery.advance()
            if data:
                self._host.write_client(self, data)

    # What the client missed (if watched)

    def hold_behind(self) -> HoldPoint:
        """For the host while it is told of CONNACK (`accepted`) or SUBACK (`granted`): the stream is held
        behind that packet until `redeliver(..., hold_point)` is through, or `end_hold(hold_point)`."""
        if self._redelivery is None:
            raise LocalProtocolError("the stream is held behind a packet for a watched client only")
        return self._redelivery.hold_behind()

    def redeliver(
        self,
        publishes: list[Publish],
        done: Callable[[], None],
        hold_point: HoldPoint | None = None,
        stamps: Sequence[bytes] | None = None,
    ) -> None:
        """Send these to the client in their order, at `hold_point`; without it, behind what came so far.

        Their QoS is that of the delivery; packet ids are the node's. `stamps`: the client's receipts are told
        under these, as if they had come with them. `done` is called when the client has answered all of
        them and the stream goes on; never, if the client leaves before.
        """
        if self._redelivery is None:
            raise LocalProtocolError("only a watched client is redelivered to")
        if self.phase is Phase.ACCEPTED:
            self._redelivery.send(Queue(publishes, done, stamps), hold_point)

    def ask_broker(self, done: Callable[[], object]) -> None:
        """Ask the broker for a sign of life: when `done` is called, all that it had delivered before is here.
        Never, if the pair ends before, or while the broker is not read."""
        if self._redelivery is not None and self.phase is Phase.ACCEPTED:
            self._redelivery.ask_broker(done)

    @property
    def for_broker(self) -> bytes:
        """After `from_broker`: what the broker is to hear in the client's stead; once."""
        if self._redelivery is None or not self._redelivery.for_broker:
            return b""
        answers, self._redelivery.for_broker = self._redelivery.for_broker, []
        return b"".join(answers)

    # A planned move

    def announce(self, move: PlannedMove) -> None:
        """The client comes from another site, as planned; said before its CONNECT. What it wants the host is
        asked for before the broker is."""
        self.move, self._asks_first = move, True

    @property
    def in_flight(self) -> int:
        """Publications that were begun, either way, and are not done; only of a watched client."""
        ours = self._unconfirmed.in_flight if self._unconfirmed is not None else 0
        return ours + (self._redelivery.in_flight if self._redelivery is not None else 0)

    def drain(self, done: Callable[[], None]) -> None:
        """Send a watched client nothing new, and let what is in flight be answered. `done` is called once,
        when nothing is; never, if the stream goes on, or the pair ends, before."""
        if self._redelivery is not None and self.phase is Phase.ACCEPTED:
            self._redelivery.stop()
            self._drained = done
            self._look_drained()

    def _look_drained(self) -> None:
        if self._drained is not None and not self.in_flight:
            done, self._drained = self._drained, None
            done()

    def go_on(self) -> None:
        """The client stays after all."""
        self._drained = None
        if self._redelivery is not None and self.phase is Phase.ACCEPTED:
            data = self._redelivery.go_on()
            if data:
                self._host.write_client(self, data)

    def close_moved(self) -> None:
        """The client is at another site, as planned: its session here ends, and no will is due."""
        stays = self.expiry > 0 and (self.version < 5 or self.phase is Phase.ENDED)
        self.expiry = 0.0
        if self.phase is Phase.ACCEPTED:
            self._will_discarded, goodbye = True, Disconnect()
            if self.version == 5:
                goodbye = Disconnect(properties=((Property.SESSION_EXPIRY_INTERVAL, 0),))
                self._host.write_client(self, codec.encode(Disconnect(_TAKEN_OVER), 5))
            self._host.hang_up(self, codec.encode(goodbye, self.version))
        if stays:
            self._host.clear_session(self)

    def clean_connect(self) -> bytes:
        """What ends the session that the client left at the broker, on a connection of its own."""
        assert self.connect is not None
        name, version = self.client.client_id, self.version
        clean = replace(self.connect, client_id=name, clean_start=True, will=None, properties=())
        return codec.encode(clean, version) + codec.encode(Disconnect(), version)

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

    def close_redirected(self, server: str) -> None:
        """The node stops, and the client is told where to go instead: its session stays, no will is due."""
        if self.phase is Phase.ACCEPTED:
            self._will_discarded = True
            if self.version == 5:
                elsewhere = Disconnect(USE_ANOTHER_SERVER, ((Property.SERVER_REFERENCE, server),))
                self._host.write_client(self, codec.encode(elsewhere, 5))
            self._host.hang_up(self, codec.encode(Disconnect(), self.version))

    def close_refused(self, refusal: BrokerweaveError) -> None:
        """What the client published cannot be acknowledged; it may be sent again, here or elsewhere."""
        if self.phase is Phase.ACCEPTED:
            if self.version == 5:
                code = getattr(refusal, "reason_code", _PROTOCOL_ERROR)
                self._host.write_client(self, codec.encode(Disconnect(code), 5))
            self._host.hang_up(self, b"")

    def _connack(self, packet: ConnAck) -> None:
        if self.phase is not Phase.CONNECTING:
            raise RemoteProtocolError("the broker sent CONNACK twice")
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
        self.keep_alive = get_int(packet.properties, Property.SERVER_KEEP_ALIVE, self.keep_alive)
        self._broker_takes = get_int(packet.properties, Property.MAXIMUM_PACKET_SIZE, _LARGEST)
        self.phase = Phase.ACCEPTED
        self.resumed = packet.session_present
        self.record = self._host.accepted(self, packet.session_present)
        self._publications.accepted(self.record, held)
        if self._waiting is not None and self._waiting.may_go:
            self.subscribe_now()
        if self._held is not None and self._held.may_go:
            self.publish_now()

    def _suback(self, packet: SubAck) -> HoldPoint | None:
        """Where the stream is held until the filters are known everywhere; None if it need not be."""
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
            if self._redelivery is not None:
                self.record.shown = (self.record.shown or frozenset()) | self._redelivery.shown
        self._publications.ended(broker_left)
        if self._redelivery is not None and (left := self._redelivery.left):
            self._host.count("redelivery_interrupted", left)
        was, self.phase = self.phase, Phase.ENDED
        if was is Phase.ACCEPTED:
            self._host.ended(self, unexpected=not self._will_discarded)
        if self.connect is not None:
            self._host.closed(self)
        return not self._will_discarded

    # What cannot be read: the broker is the judge

    def _unread(self, side: Side, frame: Frame, error: RemoteProtocolError) -> None:
        """One frame cannot be read: it goes on, and counts for nothing."""
        if self.phase is Phase.AWAITING_CONNECT:
            self._connect_unread(frame.data, error)
        elif self.phase is Phase.CONNECTING and frame.type == PacketType.CONNACK:
            self._session_unread(error)
        else:
            if side is Side.CLIENT and frame.type == PacketType.PUBLISH:
                self._publications.unread()
            self._host.count("unread_packets")
            self._tell_failure(side, error)

    def _connect_unread(self, connect: bytes, error: RemoteProtocolError) -> None:
        try:
            self._host.connect_unread(self, connect)
        except Refused as refusal:
            self._fail(Side.CLIENT, refusal)
        else:
            self._session_unread(error)

    def _session_unread(self, error: RemoteProtocolError) -> None:
        """All of both streams goes on as it comes: nobody here knows what it is about."""
        self._publications.refused(self._publications.take_held())
        self.phase = Phase.UNREAD
        self._broken = {Side.CLIENT, Side.BROKER}
        self._host.count("unread_sessions")
        self._tell_failure(Side.CLIENT, error)

    def _rest(self, side: Side) -> bytes:
        """What follows a side's last whole frame, where there is no further one: it goes on unread."""
        scanner = self.scanner(side)
        if scanner.error is not None and side not in self._broken:
            if isinstance(scanner.error, Refused):
                self._fail(side, scanner.error)
            elif self.phase is Phase.AWAITING_CONNECT:
                self._connect_unread(b"", scanner.error)
            else:
                self._broken.add(side)
                self._host.count("unread_streams")
                self._tell_failure(side, scanner.error)
        return scanner.take_rest() if side in self._broken else b""

    def _fail(self, side: Side, error: BrokerweaveError) -> None:
        if self.error is None:
            self.error = error
            self._tell_failure(side, error)

    def _tell_failure(self, side: Side, error: BrokerweaveError) -> None:
        if self._judgement is not None:
            self._judgement.failed(side, error)

    # Listeners

    def _listened(self, side: Side) -> int:
        """What listeners named of a side's, as a scanner's mask."""
        return self._judgement.wanted(side) if self._judgement is not None else 0

    def _hears(self, side: Side, frame: Frame) -> bool:
        return self._judgement is not None and (side, frame.type) in self._judgement.asked

    def _judged(self, judgement: Judgement, side: Side, frame: Frame) -> tuple[Packet | None, Frame] | None:
        """What listeners make of a frame, with its packet if one of them asked for it. None: it does not
        pass, and the sender was told."""
        answer: Packet | None = None
        if frame.type == PacketType.PUBREL:
            answer = judgement.completes(side, frame, self.version)
        if answer is None:
            if not self._hears(side, frame):
                return None, frame
            packet, goes = judgement.judge(side, frame, self.version)
            if isinstance(goes, Frame):
                return packet, goes
            self._host.count("rejected_by_listener")
            if isinstance(packet, Publish):
                answer = judgement.answer(side, packet, goes, self.version)
            else:
                if isinstance(packet, Connect):
                    code = goes.reason_code if packet.version == 5 else _NOT_AUTHORIZED
                    self._host.write_client(self, codec.encode(ConnAck(code), packet.version))
                self._fail(side, Refused(goes.reason, goes.reason_code))
        if answer is not None:
            write = self._host.write_client if side is Side.CLIENT else self._host.write_broker
            write(self, codec.encode(answer, self.version))
        return None


def _place(items: list[Routed | Frame], index: int) -> int:
    """Where a frame begins; what precedes it in `items` lies before it."""
    item = items[index]
    return item.at if isinstance(item, Frame) and index else 0
