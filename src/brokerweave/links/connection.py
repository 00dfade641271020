"""One TCP connection of a link, as bytes in and events out.

Owns the order of things on it: handshake, then batches, acknowledgements and control packets, until one
side leaves; and whether the peer lives. Invariants: before `Established` only packets of a handshake of
at most `HANDSHAKE_BYTES` each are read; after an error nothing more is. Must not know: sockets, clocks,
lanes, routes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from brokerweave.errors import LocalProtocolError, RemoteProtocolError
from brokerweave.links.handshake import Acceptor, Dialer, HandshakeRefused, one_line
from brokerweave.links.lane import Resume
from brokerweave.links.run import Run
from brokerweave.links.wire import BATCH_TOPIC, LINK_VERSION, decode_ack, decode_batch, open_publish
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Disconnect, Packet, PacketType, PingReq, PingResp
from brokerweave.mqtt.properties import Property, get_str
from brokerweave.mqtt.scanner import Frame, Scanner

HANDSHAKE_BYTES = 4096
"""The largest packet that an unauthenticated peer can make this node keep."""

_ALL_TYPES = 0xFFFE
_ADMINISTRATIVE_ACTION = 0x98
_PINGREQ = codec.encode(PingReq(), LINK_VERSION)
_PINGRESP = codec.encode(PingResp(), LINK_VERSION)
_HANDSHAKE_ONLY = (PacketType.CONNECT, PacketType.CONNACK, PacketType.AUTH)
_DEAD_AFTER = 3


@dataclass(frozen=True, slots=True)
class Established:
    """Both sides know who the other is. `resume` is for the lane's `connected`."""

    peer_id: str
    lane: int
    lanes: int
    peer_epoch: int
    resume: Resume


@dataclass(frozen=True, slots=True)
class BatchArrived:
    first: int
    runs: list[Run]


@dataclass(frozen=True, slots=True)
class AckArrived:
    sequence: int


@dataclass(frozen=True, slots=True)
class ControlArrived:
    packet: Packet


@dataclass(frozen=True, slots=True)
class LinkRefused:
    """One of the two refused the other. `retry`: trying again without a change of configuration may help."""

    reason: str
    retry: bool


@dataclass(frozen=True, slots=True)
class PeerLeft:
    """The peer said good-bye. `removed`: its operator took this node from its neighbours."""

    removed: bool
    reason: str = ""


Event: TypeAlias = Established | BatchArrived | AckArrived | ControlArrived | LinkRefused | PeerLeft


class LinkConnection:
    """`ping_interval` is in seconds: a quiet side speaks that often, and is dead after three of silence."""

    __slots__ = (
        "_closed",
        "_early",
        "_handshake",
        "_heard_at",
        "_max_packet",
        "_out",
        "_scanner",
        "_spoke",
        "_spoke_at",
        "established",
        "ping_interval",
    )

    def __init__(
        self,
        handshake: Dialer | Acceptor,
        now: float,
        *,
        ping_interval: float = 5.0,
        max_packet: int = 64 << 20,
    ) -> None:
        self.ping_interval = ping_interval
        self.established = False
        self._handshake = handshake
        self._max_packet = max_packet
        self._scanner: Scanner | None = None
        """Of what follows the handshake."""
        self._early = bytearray()
        self._closed = False
        self._out: list[bytes] = []
        self._spoke = False
        self._spoke_at = now
        self._heard_at = now
        first = handshake.start()
        if first is not None:
            self._write(codec.encode(first, LINK_VERSION))

    @property
    def closed(self) -> bool:
        """Nothing more will be read or can be sent: write what is left and close."""
        return self._closed

    @property
    def said(self) -> Resume | None:
        """Where this side told the other that the lane goes on."""
        return self._handshake.said

    def receive(self, data: bytes, now: float) -> list[Event]:
        """Take the next bytes. Raises RemoteProtocolError if they are malformed: then close."""
        events: list[Event] = []
        try:
            if not self.established and not self._closed:
                data = self._receive_handshake(data, events)
            if self.established and not self._closed:
                self._heard_at = now
                self._receive_frames(data, now, events)
        except RemoteProtocolError:
            self._closed = True
            raise
        return events

    def data_to_send(self) -> bytes:
        if not self._out:
            return b""
        data = b"".join(self._out)
        self._out.clear()
        return data

    def send(self, data: bytes) -> None:
        """Write what a lane's `poll` gave."""
        if not self.established or self._closed:
            raise LocalProtocolError("this connection of the link is not established")
        if data:
            self._write(data)

    def send_control(self, packet: Packet) -> int:
        """How many bytes it is."""
        data = codec.encode(packet, LINK_VERSION)
        self.send(data)
        return len(data)

    def tick(self, now: float) -> bool:
        """To be called several times a ping interval. False: the peer is dead, close the connection.

        A handshake has as long as a silence may last, however busily its bytes trickle in.
        """
        if self._spoke:
            self._spoke = False
            self._spoke_at = now
        elif self.established and not self._closed and now - self._spoke_at >= self.ping_interval:
            self._out.append(_PINGREQ)
            self._spoke_at = now
        return now - self._heard_at < _DEAD_AFTER * self.ping_interval

    def close(self, removed: bool = False) -> None:
        """Say good-bye; `removed`: the neighbour is to stop dialing."""
        if self.established and not self._closed:
            code = _ADMINISTRATIVE_ACTION if removed else 0
            self._write(codec.encode(Disconnect(code), LINK_VERSION))
        self._closed = True

    def _write(self, data: bytes) -> None:
        self._out.append(data)
        self._spoke = True

    def _receive_handshake(self, data: bytes, events: list[Event]) -> bytes:
        """Packet by packet, since what follows the handshake has another bound; returns what follows."""
        self._early += data
        while not self.established and not self._closed:
            size = _first_packet(self._early)
            if size == 0:
                return b""
            packet = codec.decode(bytes(self._early[:size]), LINK_VERSION)
            del self._early[:size]
            events += self._step(packet)
        rest = bytes(self._early)
        self._early.clear()
        return rest

    def _step(self, packet: Packet) -> list[Event]:
        try:
            answer, peer = self._handshake.receive(packet)
        except HandshakeRefused as refused:
            self._closed = True
            if refused.answer is not None:
                self._write(codec.encode(refused.answer, LINK_VERSION))
            return [LinkRefused(refused.reason, refused.transient)]
        if answer is not None:
            self._write(codec.encode(answer, LINK_VERSION))
        if peer is None:
            return []
        self.established = True
        return [Established(peer.node_id, peer.lane, peer.lanes, peer.epoch, peer.resume)]

    def _receive_frames(self, data: bytes, now: float, events: list[Event]) -> None:
        if self._scanner is None:
            self._scanner = Scanner(_ALL_TYPES, self._max_packet)
        _, items = self._scanner.feed(data)
        for item in items:
            assert isinstance(item, Frame)
            if not self._closed:
                self._receive_frame(item, now, events)
        if self._scanner.error is not None and not self._closed:
            raise self._scanner.error

    def _receive_frame(self, frame: Frame, now: float, events: list[Event]) -> None:
        if frame.type == PacketType.PUBLISH:
            opened = open_publish(frame.data)
            if opened is not None:
                topic, payload = opened
                if topic == BATCH_TOPIC:
                    events.append(BatchArrived(*decode_batch(payload, now)))
                else:
                    events.append(AckArrived(decode_ack(payload)))
                return
        packet = codec.decode(frame.data, LINK_VERSION)
        if packet.type in _HANDSHAKE_ONLY:
            raise RemoteProtocolError(f"{packet.type.name} after the handshake", 0x82)
        if isinstance(packet, PingReq):
            self._write(_PINGRESP)
        elif isinstance(packet, Disconnect):
            self._closed = True
            reason = get_str(packet.properties, Property.REASON_STRING)
            events.append(PeerLeft(packet.reason_code == _ADMINISTRATIVE_ACTION, one_line(reason)))
        elif not isinstance(packet, PingResp):
            events.append(ControlArrived(packet))


def _first_packet(data: bytearray) -> int:
    """Size of the packet that `data` begins with; 0 while it is not whole."""
    length = 0
    for size in range(1, 5):
        if size >= len(data):
            return 0
        length |= (data[size] & 0x7F) << 7 * (size - 1)
        if data[size] < 0x80:
            break
    if length > HANDSHAKE_BYTES:
        raise RemoteProtocolError("too large a packet for a handshake", 0x95)
    whole = 1 + size + length
    return whole if whole <= len(data) else 0
