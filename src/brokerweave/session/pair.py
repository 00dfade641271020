"""One client's pair of sessions: bytes in from either side, bytes out to the other, and what they mean.

Owns: the two scanners, the phase of the pair, what is held back until the broker accepts the client.
Invariants: what is returned for the other side is the input cut at frame boundaries, unchanged but for frames
a listener rejected, acknowledgements that wait for the cluster, and in a mesh what the node itself delivers
and answers; nothing is forwarded to links before CONNACK accepts the client (nor, in cluster delivery, before
the broker acknowledged it or the client left); a filter counts only when SUBACK grants it. Must not know:
sockets, strategies, links.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import replace

from brokerweave.cooperation.api import Listener, Side
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
from brokerweave.mqtt.properties import Property, get_int, get_str, without
from brokerweave.session.aliases import Aliases
from brokerweave.session.asked import Asked
from brokerweave.session.deliveries import read_answer
from brokerweave.session.handle import SessionHandle
from brokerweave.session.host import Limits, PairHost
from brokerweave.session.judgement import Judgement
from brokerweave.session.kept_back import KeptBack
from brokerweave.session.record import SessionRecord, changed_expiry, expiry_of
from brokerweave.session.recorder import Recorder
from brokerweave.session.redelivery import Redelivery
from brokerweave.session.standing import HeldAck, Stand, Standing
from brokerweave.session.unconfirmed import Unconfirmed, size_of

_FROM_CLIENT = sum(
    1 << t
    for t in (
        PacketType.CONNECT,
        PacketType.SUBSCRIBE,
        PacketType.UNSUBSCRIBE,
        PacketType.PUBREL,
        PacketType.DISCONNECT,
    )
)
_FROM_BROKER = sum(
    1 << t for t in (PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.DISCONNECT)
)
_EVERYTHING = 0xFFFE
_CONNECT_BYTE = bytes((PacketType.CONNECT << 4,))
_EVERY_QOS_ONE_BY_ONE = 1 << 0 | 1 << 1 | 1 << 2
_QOS2_ONE_BY_ONE = 1 << 2
_ACKNOWLEDGED_ONE_BY_ONE = 1 << 1 | 1 << 2
_PUBLISH_ACKS = 1 << PacketType.PUBACK | 1 << PacketType.PUBREC
_ANSWERS = frozenset({PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBCOMP, PacketType.PINGREQ})
"""What the client of a mesh says to the broker, or to the node that sent something in its stead."""
_ANSWERED = frozenset({PacketType.PUBACK, PacketType.PUBREC})
_DELIVERS = frozenset({PacketType.PUBLISH, PacketType.PUBREL})
_TAKEN_OVER = 0x8E
_REFUSED = 0x80
_LARGEST_CONNECT = 1 << 20
"""Bytes: a stranger must not make the node keep more. Five strings of 64 KiB, and properties, fit."""
_HELD = 256
"""Bytes that an item takes in memory beside its contents, about; or small ones would escape the bounds."""
_TURN = 200
"""Frames looked at one by one before others get their turn: a chunk may hold 60,000."""
_WILL_KEPT = 0x04
"""DISCONNECT reason 'disconnect with will message' [MQTT-3.14.2]."""


class Phase(enum.Enum):
    AWAITING_CONNECT = enum.auto()
    CONNECTING = enum.auto()
    ACCEPTED = enum.auto()
    REFUSED = enum.auto()
    ENDED = enum.auto()


class Pair:
    """See the module's docstring. `error` is set once the pair must be closed for a protocol error."""

    __slots__ = (
        "_aliases",
        "_asked",
        "_behind",
        "_downstream",
        "_held",
        "_held_bytes",
        "_host",
        "_judgement",
        "_kept_back",
        "_record",
        "_recorder",
        "_redelivery",
        "_room",
        "_routes",
        "_session_expiry",
        "_standing",
        "_unconfirmed",
        "_upstream",
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
    )

    def __init__(
        self,
        identifier: int,
        host: PairHost,
        routes: RouteCache,
        limits: Limits,
        session_expiry: float,
        listeners: tuple[Listener, ...] = (),
        cluster: bool = False,
        records: bool = False,
        mesh: bool = False,
        room: int | None = None,
    ) -> None:
        """`cluster`: acknowledgements of QoS 1 and 2 wait until the other sites have taken the message.
        `records`: there are taps. `mesh`: the host hears what the client has, and may redeliver; implies
        `cluster`. `room`: how many QoS 2 publications that were not released the broker takes, if that is
        known."""
        self.client = SessionHandle(identifier * 2, Side.CLIENT)
        self.broker = SessionHandle(identifier * 2 + 1, Side.BROKER)
        self.phase = Phase.AWAITING_CONNECT
        self.connect: Connect | None = None
        self.connect_number = 0
        """The host counts CONNECTs: a later one has a higher number."""
        self.broker_left = False
        """Its broker hung up, and no other pair had its session: the broker may have died."""
        self.came = 0
        """When its client came here, as a hybrid time; in a mesh the host sets it."""
        self.expiry = 0.0
        self.error: BrokerweaveError | None = None
        self._host = host
        self._routes = routes
        self.limits = limits
        self._session_expiry = session_expiry
        self._judgement = None
        if listeners:
            self._judgement = Judgement(listeners, self.client, self.broker, host.listener_failed)
        self._upstream = Scanner(_FROM_CLIENT, limits.max_packet, routes)
        self._upstream.single_qos = _EVERY_QOS_ONE_BY_ONE  # until CONNECT says whose they are
        self._downstream = Scanner(_FROM_BROKER, limits.max_packet)
        if self._listens(Side.CLIENT):
            self._upstream.wanted = _EVERYTHING
        if self._listens(Side.BROKER):
            self._downstream.wanted = _EVERYTHING
        self._unconfirmed: Unconfirmed | None = None
        if cluster or mesh:
            self._unconfirmed = Unconfirmed(host, self, self._confirm)
            self._downstream.wanted |= _PUBLISH_ACKS
        self._recorder = Recorder(host, self, limits.client_queue) if records else None
        self._standing: Standing | None = None
        self._behind: Stand | None = None
        self._redelivery: Redelivery | None = None
        if mesh:
            self._downstream.wanted = _EVERYTHING
            self._upstream.wanted |= sum(1 << t for t in _ANSWERS)
            self._standing = Standing()
            self._redelivery = Redelivery(host, self, self._standing, limits.client_queue)
        self._room = room if self._unconfirmed is not None else None
        self._kept_back: KeptBack | None = None
        self._held: list[Routed | Publish | PubRel] | None = None
        self._held_bytes = 0
        self._asked: Asked | None = None
        self._aliases: Aliases | None = None
        self.put_off: tuple[bytes, list[Routed | Frame], int] | None = None
        """What of the client's last chunk is left for `next_turn`; read no more before it."""
        self._record: SessionRecord | None = None
        self._will_discarded = False

    # What the other layers ask

    @property
    def undelivered(self) -> set[bytes]:
        """In a mesh: content of what is on its way to the client, as far as is known here."""
        return self._redelivery.unanswered if self._redelivery is not None else set()

    @property
    def record(self) -> SessionRecord | None:
        """Of its session; None before the broker accepted the client."""
        return self._record

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
        return not self._held and self._asked is None and not self._upstream.pending

    @property
    def unanswered(self) -> list[int]:
        """Packet ids of publications that the broker has yet to acknowledge; only in cluster delivery."""
        if self._unconfirmed is None:
            return []
        return [publish.packet_id for publish, _ in self._unconfirmed.unanswered()]

    def awaits(self, packet_id: int) -> bool:
        return (
            self.phase is Phase.ACCEPTED and self._unconfirmed is not None and packet_id in self._unconfirmed
        )

    @property
    def wants_pause(self) -> bool:
        """True while the client must not be read: too much waits for the broker's answer."""
        asked = self._asked.size if self._asked is not None else 0
        unconfirmed = self._unconfirmed.size if self._unconfirmed is not None else 0
        return max(self._held_bytes, unconfirmed, asked) > self.limits.client_queue

    @property
    def wants_broker_pause(self) -> bool:
        """True while the broker must not be read: too much stands behind a SUBACK."""
        return self._standing is not None and self._standing.size > self.limits.client_queue

    @property
    def upstream_open(self) -> bool:
        """Whether a client's chunk that concerns nobody may go on without asking the pair."""
        return self.phase is Phase.ACCEPTED and self.put_off is None and self.error is None

    @property
    def downstream_open(self) -> bool:
        """The same for the broker's."""
        written = self._recorder is None or not self._recorder.unwritten
        return self.phase is Phase.ACCEPTED and written and not self._standing and self.error is None

    def passage(self, side: Side, attend: Callable[[bytes], None]) -> Passage:
        """What takes a side's chunks, and calls `attend` with those that need a look."""
        return Passage(self._upstream if side is Side.CLIENT else self._downstream, attend)

    def use_routes(self, routes: RouteCache) -> None:
        """Where the client's publications go from now on."""
        self._routes = self._upstream.routes = routes

    # From the client

    @property
    def traffic(self) -> tuple[int, int, int, int]:
        """Publications and bytes from the client, then to it."""
        up, down = self._upstream, self._downstream
        return up.publishes, up.passed, down.publishes, down.passed

    def from_client(self, chunk: bytes) -> bytes:
        """Take what the client sent; return what goes to the broker."""
        if self.phase is Phase.AWAITING_CONNECT and not self._upstream.pending:
            self._check_first(chunk)
        whole, items = self._upstream.feed(chunk)
        if items:
            whole = self._turn(whole, items, 0)
        elif self.phase is Phase.AWAITING_CONNECT and self._upstream.pending > _LARGEST_CONNECT:
            self._fail(Side.CLIENT, RemoteProtocolError("too large a CONNECT", 0x95))
        if self._upstream.error is not None and self.put_off is None:
            self._fail(Side.CLIENT, self._upstream.error)
        if self._redelivery is not None:
            whole += self._redelivery.after_client()
        return whole if self.connect is not None else b""

    def next_turn(self) -> bytes:
        """Take more of what was put off; return what goes to the broker."""
        if self.put_off is None:
            return b""
        whole = self._turn(*self.put_off)
        if self._upstream.error is not None and self.put_off is None:
            self._fail(Side.CLIENT, self._upstream.error)
        if self._redelivery is not None:
            whole += self._redelivery.after_client()
        return whole

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
        self._upstream.single_qos = _ACKNOWLEDGED_ONE_BY_ONE if self._unconfirmed else _QOS2_ONE_BY_ONE
        if self._recorder is not None and connect.version == 5:  # 3.1.1 has no word for refusal
            self._recorder.awaits_answers = self._unconfirmed is None
            self._upstream.single_qos = _ACKNOWLEDGED_ONE_BY_ONE
            self._downstream.wanted |= _PUBLISH_ACKS
        if self._room is not None and connect.version != 5:  # MQTT 5 clients know [MQTT-3.3.4-7]
            self._kept_back = KeptBack(self._room, self.limits.client_queue)
        self.phase = Phase.CONNECTING
        self._host.connect_arrived(self)

    def _client_items(self, whole: bytes, items: list[Routed | Frame], done: int) -> bytes:
        """Act on the client's frames; returns what of `whole` from `done` on goes to the broker."""
        out: list[bytes] = []
        for item in items:
            if isinstance(item, Routed):
                self._forward(item)
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
            if self._kept_back:
                end = item.at + len(item.data)
                out += [whole[done:end], *self._let_go(self._kept_back)]
                done = end
        if not out and not done:
            return whole
        return b"".join((*out, whole[done:]))

    def _let_go(self, kept: KeptBack) -> list[bytes]:
        """Act on what waited for room at the broker, and has it now."""
        before, frames = kept.exceeded, []
        for publish, frame in kept.due():
            self._hold_or_act(publish)
            frames.append(frame)
        if kept.exceeded > before:
            self._host.count("broker_room_exceeded", kept.exceeded - before)
        return frames

    def _client_frame(self, frame: Frame) -> bool:
        """Act on one frame from the client; False if it must not reach the broker."""
        judgement = self._judgement
        if self._redelivery is not None and frame.type in _ANSWERS:
            if not self._redelivery.from_client(frame):
                return False
            if judgement is None:
                return True
        if judgement and not judgement.asked(Side.CLIENT, frame.type) and frame.type not in _ACTED_ON:
            return True
        if frame.type in _ABOUT_FILTERS and len(frame.data) > self.limits.client_queue:
            raise RemoteProtocolError("too many filters in one packet", 0x95)
        packet = codec.decode(frame.data, self.version)
        if judgement is not None and self._rejected(judgement, packet):
            return False
        match packet:
            case Publish() if packet.dup and self._redelivery is not None and self._take_on(packet):
                return False
            case PubRel() if self._unconfirmed is not None and self._unconfirmed.completes(packet):
                return False
            case Publish() | PubRel():
                if self._kept_back is not None and not self._has_room(self._kept_back, packet, frame.data):
                    return False
                self._hold_or_act(packet)
            case Subscribe() | Unsubscribe():
                if self._asked is None:
                    self._asked = Asked()
                self._asked.add(packet, len(frame.data))
                if self._redelivery is not None and isinstance(packet, Subscribe):
                    self._redelivery.subscribed(packet)
                    self._host.subscribing(self)
            case Disconnect():
                self._will_discarded = packet.reason_code != _WILL_KEPT
                self.expiry = changed_expiry(packet.properties, self.expiry)
            case Connect():
                self._begin(packet)
        return True

    @staticmethod
    def _has_room(kept: KeptBack, packet: Publish | PubRel, frame: bytes) -> bool:
        if isinstance(packet, PubRel):
            kept.released(packet.packet_id)
            return True
        return packet.qos != 2 or kept.passes(packet, frame)

    def _hold_or_act(self, packet: Publish | PubRel) -> None:
        if self.phase is Phase.CONNECTING:
            self._hold(packet, size_of(packet))
        elif isinstance(packet, Publish):
            self._publish(packet)
        elif self._record is not None and packet.packet_id in self._record.incoming_qos2:
            self._record.incoming_qos2.discard(packet.packet_id)
            if self._record.stored:
                self._host.released(self, packet.packet_id)

    def _hold(self, item: Routed | Publish | PubRel, size: int) -> None:
        """Keep from the links what came before CONNACK, in order: it is released or dropped as a whole."""
        if self._held is None:
            self._held = []
        self._held.append(item)
        self._held_bytes += size

    def _publish(self, packet: Publish) -> None:
        """One publication that the scanner could not route by itself: QoS 2, an alias, or listened to."""
        if self._aliases is None:
            self._aliases = Aliases(self.limits.client_queue)
        topic = self._aliases.topic_of(packet)
        if packet.qos == 2 and self._already_taken(packet.packet_id):
            self._host.count("publications_resent")
            if self._recorder is not None and not topic.startswith("$"):
                properties = without(packet.properties, Property.TOPIC_ALIAS)
                again = self._routed(replace(packet, topic=topic, properties=properties))
                if again is not None:
                    self._recorder.take_again(again, packet.packet_id)
            return
        if topic.startswith("$"):
            return
        properties = without(packet.properties, Property.TOPIC_ALIAS)
        packet = replace(packet, topic=topic, properties=properties)
        if self._unconfirmed is not None and packet.qos:
            self._unconfirmed.add(packet)
            return
        routed = self._routed(packet)
        if routed is not None:
            self._forward(routed, packet.packet_id)

    def _routed(self, packet: Publish) -> Routed | None:
        group = self._routes.lookup(packet.topic.encode(), packet.retain)
        if group is None:
            return None
        blob = codec.encode(replace(packet, dup=False), self.version)
        routed = Routed(group, 1, blob, packet.qos)
        if packet.dup:
            routed.resent = [0]
        return routed

    def _already_taken(self, packet_id: int) -> bool:
        """A QoS 2 publication sent again before its release is the same one [MQTT-4.3.3-12]."""
        if self._record is None:
            return False
        taken = self._record.incoming_qos2
        if packet_id in taken:
            return True
        if self._unconfirmed is None:  # there it counts when the broker has acknowledged it
            taken.add(packet_id)
        return False

    def _forward(self, routed: Routed, packet_id: int = 0) -> None:
        """`packet_id` of one that came by itself."""
        if self.phase is Phase.ACCEPTED:
            if self._recorder is not None:
                self._recorder.take(routed, packet_id)
            taken = None
            if packet_id and routed.max_qos == 2 and self._record is not None and self._record.stored:
                taken = (self._record.client_id, packet_id)
            blob, sender = routed.blob, None
            if packet_id and self._redelivery is not None and self.client.client_id:
                sender = (self.client.client_id, packet_id)  # its client will send it again, maybe elsewhere
                if routed.resent:
                    blob = bytes((blob[0] | _DUP,)) + blob[1:]
            self._host.forward(routed.group, routed.count, blob, routed.max_qos, self.version, taken, sender)
        elif self.phase is Phase.CONNECTING:
            self._hold(routed, _HELD + len(routed.blob))
        else:
            self._host.count("refused_publications", routed.count)

    # From the broker

    def from_broker(self, chunk: bytes) -> bytes:
        """Take what the broker sent; return what goes to the client."""
        whole, items = self._downstream.feed(chunk)
        if items:
            whole = self._broker_items(whole, items)
        elif self._standing:
            whole = self._standing.through(whole)
        if self._downstream.error is not None:
            self._fail(Side.BROKER, self._downstream.error)
        if self._recorder is not None:
            self._recorder.before_acknowledging()
        return whole

    def _broker_items(self, whole: bytes, items: list[Routed | Frame]) -> bytes:
        """Act on the broker's frames; returns what of `whole` may go to the client now."""
        out: list[bytes] = []
        done = 0
        if self._redelivery is not None:
            self._redelivery.busy = True
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
                if isinstance(goes, Stand):
                    self._stand_at(goes)
                else:
                    done += len(item.data)
                    out.append(goes)
            if self._behind is not None:
                end = item.at + len(item.data)
                out.append(self._pass(whole[done:end]))
                done = end
                self._stand_at(self._behind)
                self._behind = None
        if done or self._standing:
            out.append(self._pass(whole[done:]))
            whole = b"".join(out)
        if self._redelivery is not None:
            self._redelivery.busy = False
            whole += self._redelivery.advance()
        return whole

    def _broker_frame(self, frame: Frame) -> Stand | bytes | None:
        """Act on one frame from the broker. None: it keeps its place in the stream, which may have to stand
        there first; or what goes to the client at once, in its stead."""
        judgement = self._judgement
        overtakes = self._redelivery.from_broker(frame) if self._redelivery is not None else None
        if judgement is None and frame.type in _DELIVERS:
            return overtakes
        if frame.type not in _ACTED_ON and not (judgement and judgement.asked(Side.BROKER, frame.type)):
            return overtakes
        if judgement is None and frame.type in _ANSWERED and self._unconfirmed is not None:
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
        return self._standing.through(data) if self._standing else data

    def _confirm(self, publish: Publish, ack: HeldAck) -> bool:
        """Forward what the broker has acknowledged; False: the client has to wait for `release`."""
        if not ack.resent and self._host.superseded(self):
            self._let_go_of([(publish, 0)], unsure=True)
            return False
        if publish.qos == 2 and self._record is not None and not ack.resent:
            self._record.incoming_qos2.add(publish.packet_id)
        if self._recorder is not None:
            self._tap(self._recorder, publish)
            if ack.resent:
                self._recorder.before_acknowledging()
        group = self._routes.lookup(publish.topic.encode(), publish.retain)
        if self._redelivery is None:  # in a mesh others may have had it from another site
            publish = replace(publish, dup=False)
        return group is None or self._host.forward_confirmed(group, publish, self.version, self, ack)

    def _tap(self, recorder: Recorder, publish: Publish) -> None:
        routed = self._routed(publish)
        if routed is not None:
            recorder.take(routed)

    def release(self, ack: HeldAck) -> None:
        """The cluster has a publication, or is not waited for any longer: its acknowledgement may go."""
        if self._unconfirmed is not None and self.phase is Phase.ACCEPTED:
            self._unconfirmed.release(ack)

    def _stand_at(self, stand: Stand) -> None:
        if self._standing is None:
            self._standing = Standing()
        self._standing.add(stand)

    def go_on(self, stand: Stand) -> None:
        """The filters at a stand are known everywhere, or not waited for any longer; or there is nothing to
        redeliver. Does nothing where a queue is on its way: the stream goes on behind it."""
        if self._standing is not None and self.phase is Phase.ACCEPTED and stand.queue is None:
            data = self._standing.go_on(stand)
            if self._redelivery is not None:
                data += self._redelivery.advance()
            if data:
                self._host.write_client(self, data)

    # What the client missed (in a mesh)

    def stand_behind(self) -> Stand:
        """For the host while it is told of CONNACK (`accepted`) or SUBACK (`granted`): the stream stands
        behind that packet until `redeliver(..., stand)` is through, or `go_on(stand)`."""
        if self._redelivery is None or not self._redelivery.busy:
            raise LocalProtocolError("only in a mesh, at a CONNACK or SUBACK, the stream stands behind it")
        if self._behind is None:
            self._behind = Stand()
        return self._behind

    def redeliver(
        self, publishes: list[Publish], done: Callable[[], None], stand: Stand | None = None
    ) -> None:
        """Send these to the client in their order, at `stand`; without it, behind what came so far.

        Their QoS is that of the delivery; packet ids are the node's. `done` is called when the client has
        answered all of them and the stream goes on; never, if the client leaves before.
        """
        if self._redelivery is None:
            raise LocalProtocolError("only in a mesh a pair redelivers")
        if self.phase is not Phase.ACCEPTED:
            return
        if stand is None:
            if self._redelivery.busy:
                stand = self.stand_behind()
            else:
                stand = Stand()
                self._stand_at(stand)
        self._redelivery.add(stand, publishes, done)
        data = self._redelivery.advance()
        if data:
            self._host.write_client(self, data)

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

    def _take_on(self, packet: Publish) -> bool:
        """Whether the node answers a publication that was sent again, and the broker does not get it."""
        unconfirmed, record = self._unconfirmed, self._record
        if unconfirmed is None or record is None or self.phase is not Phase.ACCEPTED:
            return False
        if packet.packet_id in unconfirmed or (packet.qos == 2 and packet.packet_id in record.incoming_qos2):
            return False  # the broker has to go on with it
        if get_int(packet.properties, Property.TOPIC_ALIAS, 0):
            if packet.topic or self._aliases is None:
                return False  # the broker must learn the alias
            topic = self._aliases.topic_of(packet)
            packet = replace(packet, topic=topic, properties=without(packet.properties, Property.TOPIC_ALIAS))
        if packet.topic.startswith("$") or not self._host.resent(self, packet):
            return False
        self._host.count("publications_resent")
        unconfirmed.answer_resent(packet)
        return True

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
        held, self._held, self._held_bytes = self._held or [], None, 0
        if packet.reason_code != 0:
            self.phase = Phase.REFUSED
            self._host.count("refused_clients")
            self._host.count("refused_publications", sum(_publications(item) for item in held))
            return
        assigned = get_str(packet.properties, Property.ASSIGNED_CLIENT_IDENTIFIER, "")
        if assigned:
            self.client.client_id = self.broker.client_id = assigned
        self.expiry = changed_expiry(packet.properties, self.expiry)
        self.phase = Phase.ACCEPTED
        self._record = self._host.accepted(self, packet.session_present)
        if self._kept_back is not None:
            self._kept_back.resume(self._record.incoming_qos2)
        for item in held:
            if isinstance(item, Routed):
                self._forward(item)
            else:
                self._hold_or_act(item)

    def _suback(self, packet: SubAck) -> Stand | None:
        """Where the stream must stand until the filters are known everywhere; None if it need not."""
        asked = self._asked.answered(packet.packet_id) if self._asked is not None else None
        if not isinstance(asked, Subscribe):
            return None
        granted = [
            (subscription.topic_filter, code)
            for subscription, code in zip(asked.subscriptions, packet.reason_codes, strict=False)
            if code <= 2
        ]
        stand = Stand()
        return stand if granted and not self._host.granted(self, granted, stand) else None

    def _unsuback(self, packet: UnsubAck) -> None:
        asked = self._asked.answered(packet.packet_id) if self._asked is not None else None
        if not isinstance(asked, Unsubscribe):
            return
        codes = packet.reason_codes or (0,) * len(asked.topic_filters)
        gone = [f for f, code in zip(asked.topic_filters, codes, strict=False) if code < 0x80]
        if gone:
            self._host.withdrawn(self, gone)

    # The end

    def ended(self, broker_left: bool = False) -> bool:
        """Either side is gone, so the pair is. True if the client had not said goodbye."""
        broker_left = broker_left and not self._will_discarded
        if self._record is not None and self._record.owner is self:
            self._record.lost = self.broker_left = broker_left
        if self._kept_back:
            self._host.count("unacknowledged_publications", len(self._kept_back))
        if self._unconfirmed is not None and self.phase is Phase.ACCEPTED:
            unsure = broker_left or self._host.superseded(self)
            self._let_go_of(self._unconfirmed.unanswered(), unsure)
        if self._redelivery is not None and (left := self._redelivery.left):
            self._host.count("redelivery_interrupted", left)
        was, self.phase = self.phase, Phase.ENDED
        if was is Phase.ACCEPTED:
            if self._recorder is not None:
                self._recorder.ended(broker_left)
            self._host.ended(self, unexpected=not self._will_discarded)
        if self.connect is not None:
            self._host.closed(self)
        return not self._will_discarded

    def _let_go_of(self, publications: list[tuple[Publish, int]], unsure: bool) -> None:
        """Cluster delivery: the client will not hear any more whether the broker took these.

        They were handed to it, so they go to other sites as in local delivery; unless the broker ended the
        connection, unasked, which is how some refuse a publication, or the client has another connection:
        what it sends again there may be acted on by now.
        """
        if publications:
            self._host.count("unacknowledged_publications", len(publications))
        for publish, since in publications:
            if publish.retain:
                self._host.uncertain(publish.topic, -1 if unsure else since)
            if unsure:
                continue
            if publish.qos == 2 and self._record is not None:
                self._record.incoming_qos2.add(publish.packet_id)
            routed = self._routed(publish)
            if routed is not None:
                self._forward(routed, publish.packet_id)

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


_DUP = 0x08
_ABOUT_FILTERS = (PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE)
_ACTED_ON = frozenset(
    {
        PacketType.CONNECT,
        PacketType.CONNACK,
        PacketType.PUBLISH,
        PacketType.PUBACK,
        PacketType.PUBREC,
        PacketType.PUBREL,
        PacketType.SUBSCRIBE,
        PacketType.SUBACK,
        PacketType.UNSUBSCRIBE,
        PacketType.UNSUBACK,
        PacketType.DISCONNECT,
    }
)


def _place(items: list[Routed | Frame], index: int) -> int:
    """Where a frame begins; what precedes it in `items` lies before it."""
    item = items[index]
    return item.at if isinstance(item, Frame) and index else 0


def _publications(held: Routed | Publish | PubRel) -> int:
    if isinstance(held, Routed):
        return held.count
    return 1 if isinstance(held, Publish) else 0
