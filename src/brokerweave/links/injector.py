"""The injector: a node's own MQTT session to its broker, through which it publishes what came from elsewhere.

Bytes in, bytes out: the caller owns the connection and the clock. Owns: connecting (version, session,
refusal), keep-alive, time limits, and what kind of end a connection had. What is written when, and careful
mode, are in `sender`. Invariants: nothing is written before the broker's CONNACK; a broker's misbehaviour
raises RemoteProtocolError and the caller reconnects; whatever happens, messages stay in the outbox until
they came to their end. Must not know: sockets, where runs come from.

The life of a connection: `connected` (write what it gives), then `receive`, `poll` and `tick` in any order,
then `disconnected`, exactly once for each `connected`. A connection that could not be opened is not reported
at all. All times are on the clock that `Run.born` is on.

Exactly once to the broker holds while this object lives and, with a `progress` that is kept, over a crash of
the node. Without one, a restart starts a new session, and what was in flight is sent again.
"""

from __future__ import annotations

import enum

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.abilities import BrokerAbilities
from brokerweave.links.dead_letters import DeadLetters
from brokerweave.links.names import Names
from brokerweave.links.outbox import Outbox
from brokerweave.links.progress import Progress
from brokerweave.links.run import Run
from brokerweave.links.sender import InjectorCounters, Sender
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Disconnect,
    PacketType,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
)
from brokerweave.mqtt.properties import Properties, Property, get_int, get_str
from brokerweave.mqtt.scanner import Frame, Scanner
from brokerweave.mqtt.stamp import Stamps

__all__ = ["BrokerAbilities", "Injector", "InjectorCounters", "InjectorState"]

POLL_BYTES = 256 << 10
"""About how much one `poll` gives."""
MAX_ANSWER = 64 << 10
"""Bytes: the largest packet a broker may send us. Its answers are small."""

_ALL_TYPES = 0xFFFE
_UNSUPPORTED_VERSION = (0x84, 0x01)
_BLAMELESS = frozenset((0x00, 0x89, 0x8B, 0x8D, 0x8E, 0x98, 0x9C, 0x9D, 0xA0))
"""DISCONNECT reasons that no message can be the cause of: shutting down, busy, taken over, moved ..."""
_REFUSALS = {
    0x01: "it does not speak this MQTT version",
    0x02: "it rejects the client id",
    0x03: "it is not available",
    0x04: "bad user name or password",
    0x05: "not authorized",
    0x84: "it does not speak this MQTT version",
    0x85: "it rejects the client id",
    0x86: "bad user name or password",
    0x87: "not authorized",
    0x88: "it is not available",
    0x89: "it is busy",
    0x8A: "banned",
}


class InjectorState(enum.Enum):
    DOWN = "down"
    CONNECTING = "connecting"
    READY = "ready"
    REFUSED = "refused"


class Injector:
    """`reason` says in one line why the state is not READY; `limits` is what holds for this connection.

    `wants_reconnect`: the caller should close the connection (and call `disconnected`, then connect again).
    """

    def __init__(
        self,
        client_id: str,
        abilities: BrokerAbilities,
        outbox: Outbox,
        dead_letters: DeadLetters,
        *,
        username: str | None = None,
        password: bytes | None = None,
        keep_alive: int = 30,
        ack_timeout: float = 30.0,
        session_expiry: int = 3600,
        progress: Progress | None = None,
    ) -> None:
        self.client_id = client_id
        self.abilities = abilities
        self.outbox = outbox
        self.state = InjectorState.DOWN
        self.reason = "not connected yet"
        self.wants_reconnect = False
        self._sender = Sender(outbox, dead_letters, abilities, progress)
        self._progress = progress
        self._username = username
        self._password = password
        self._asked_keep_alive = keep_alive
        self._ack_timeout = ack_timeout
        self._session_expiry = session_expiry
        self._version = abilities.version
        self._version_proven = False
        self._has_session = progress is not None and progress.session
        self._purging = False
        self._clean = True
        self._blameless = False
        self._keep_alive = float(keep_alive)
        self._scanner = Scanner(_ALL_TYPES, MAX_ANSWER)
        self._control: list[bytes] = []
        self._last_sent = self._last_received = 0.0

    # What the node asks

    def submit(self, run: Run, number: int = 0) -> bool:
        """Keep a run until the broker has it; `number` as for the outbox. False: it was full, and counted."""
        return self.outbox.append(run, number)

    def stamp_with(self, names: Names | None, stamps: Stamps) -> None:
        """Give each message of QoS 1 or 2 a stamp, if the broker passes user properties."""
        self._sender.stamp_with(names, stamps)

    @property
    def counters(self) -> InjectorCounters:
        return self._sender.counters

    @property
    def limits(self) -> BrokerAbilities:
        return self._sender.limits

    @property
    def backlog_bytes(self) -> int:
        return self.outbox.backlog_bytes

    @property
    def idle(self) -> bool:
        """Whether everything submitted has come to its end."""
        return self.outbox.backlog_runs == 0

    @property
    def in_flight(self) -> int:
        return self._sender.unanswered

    @property
    def careful(self) -> bool:
        return self._sender.careful

    def learn(self, abilities: BrokerAbilities) -> None:
        """What a probe found out. Only before the first connection: later CONNACKs know better."""
        self.abilities = abilities
        self._sender.limits = abilities
        self._version = abilities.version
        self._version_proven = True  # else one lost connection would cost MQTT 5, and all properties

    # The life of a connection

    def connected(self, now: float) -> bytes:
        """A connection was opened: the CONNECT to write."""
        self.state = InjectorState.CONNECTING
        self.reason = "waiting for the broker's CONNACK"
        self.wants_reconnect = False
        self._blameless = False
        self._scanner = Scanner(_ALL_TYPES, MAX_ANSWER)
        self._control = []
        self._last_sent = self._last_received = now
        persistent = self.abilities.persistent_sessions
        # A session left by an earlier start knows packet identifiers that we do not: it must go. MQTT 5
        # can begin a new one that stays; 3.1.1 cannot, so there it is dropped by a connection of its own.
        self._clean = not persistent or self._purging or (self._version == 5 and not self._has_session)
        properties: Properties = ()
        if persistent and self._version == 5:
            properties = ((Property.SESSION_EXPIRY_INTERVAL, self._session_expiry),)
        packet = Connect(
            self.client_id,
            self._version,
            self._clean,
            self._asked_keep_alive,
            self._username,
            self._password,
            properties=properties,
        )
        return codec.encode(packet, self._version)

    def receive(self, data: bytes, now: float) -> None:
        """Bytes came from the broker. RemoteProtocolError: close the connection."""
        self._last_received = now
        _, items = self._scanner.feed(data)
        try:
            for item in items:
                if isinstance(item, Frame):
                    self._frame(item, now)
            if self._scanner.error is not None:
                raise self._scanner.error
        except RemoteProtocolError as error:
            self._give_up_connection(f"the broker breaks the protocol: {error}", blameless=False)
            raise

    def poll(self, now: float, budget: int = POLL_BYTES) -> bytes:
        """What may be written now. Call it after `receive`, `submit` and `tick`, until it gives nothing."""
        parts, self._control = self._control, []
        if self.state is InjectorState.READY and not self.wants_reconnect:
            self._fill(parts, now, budget)
        if self._progress is not None:
            self._progress.flush()  # what was done must be kept before the next step leaves
        return b"".join(parts)

    def _fill(self, parts: list[bytes], now: float, budget: int) -> None:
        used = 0
        while used < budget:
            part = self._sender.next(now)
            if part is None:
                break
            parts.append(part)
            used += len(part) or 64  # what ends unwritten takes time too
        if parts:
            self._last_sent = now

    def tick(self, now: float) -> None:
        """Call about once a second."""
        if self.state is InjectorState.CONNECTING:
            if now - self._last_sent >= self._ack_timeout:
                self._give_up_connection("the broker does not answer CONNECT", blameless=True)
            return
        if self.state is not InjectorState.READY or self.wants_reconnect:
            return
        self._sender.forget_old_suspects(now)
        pinged, moved = self._sender.oldest_ping, self._sender.oldest_move()
        if pinged is not None and now - pinged >= self._ack_timeout:
            self._give_up_connection("the broker does not answer PINGREQ", blameless=True)
        elif moved is not None and now - moved >= self._ack_timeout:
            # If it answered anything since, the message is what it cannot get over; else it hangs as a whole.
            self._give_up_connection(
                "the broker does not acknowledge a message", blameless=self._last_received <= moved
            )
        elif pinged is None and now - min(self._last_received, self._last_sent) >= self._keep_alive / 2:
            self._last_sent = now  # [MQTT-3.1.2-23]
            self._control.append(self._sender.ping(now))

    def close(self) -> bytes:
        """The DISCONNECT to write before the caller closes the connection by its own will."""
        self._blameless = True
        self.reason = "closed by this node"
        return codec.encode(Disconnect(), self._version) if self.state is InjectorState.READY else b""

    def disconnected(self, now: float) -> None:
        """The connection is gone, whoever ended it."""
        if self.state is InjectorState.CONNECTING:
            self._closed_before_connack()
        if self.state is InjectorState.READY:
            if not self.wants_reconnect and not self._blameless:
                self.reason = "the broker closed the connection"
            self._sender.interrupted(now, None if self._blameless else self.reason)
        if self.state is not InjectorState.REFUSED:
            self.state = InjectorState.DOWN

    # What the broker says

    def _frame(self, frame: Frame, now: float) -> None:
        if self.state is not InjectorState.READY:
            self._first_frame(frame, now)
            return
        packet = codec.decode(frame.data, self._version)
        if isinstance(packet, PubAck):
            self._sender.puback(packet.packet_id, packet.reason_code, now)
        elif isinstance(packet, PubRec):
            answer = self._sender.pubrec(packet.packet_id, packet.reason_code, self._version, now)
            self._control.append(answer)
        elif isinstance(packet, PubComp):
            self._sender.pubcomp(packet.packet_id, now)
        elif isinstance(packet, PingResp):
            self._sender.pong()
        elif isinstance(packet, Disconnect):
            reason = (
                get_str(packet.properties, Property.REASON_STRING) or f"reason 0x{packet.reason_code:02x}"
            )
            self._give_up_connection(
                f"the broker disconnected: {reason}", blameless=packet.reason_code in _BLAMELESS
            )
        elif not isinstance(packet, Publish):  # some brokers subscribe their clients to things: ignored
            raise RemoteProtocolError(f"the broker sent {packet.type.name} to a publisher", 0x82)

    def _first_frame(self, frame: Frame, now: float) -> None:
        if self.state is not InjectorState.CONNECTING or self.wants_reconnect:
            return
        if frame.type != PacketType.CONNACK:  # [MQTT-3.2.0-1]
            raise RemoteProtocolError("the broker's first packet is not CONNACK", 0x82)
        # A 3.1.1 broker refuses MQTT 5 in the form it knows.
        version = 4 if len(frame.data) == 4 and frame.data[3] else self._version
        packet = codec.decode(frame.data, version)
        if not isinstance(packet, ConnAck):
            raise RemoteProtocolError("the broker's first packet is not CONNACK", 0x82)
        if packet.reason_code:
            self._refused(packet)
        else:
            self._accepted(packet, now)

    def _refused(self, packet: ConnAck) -> None:
        code = packet.reason_code
        why = get_str(packet.properties, Property.REASON_STRING) or _REFUSALS.get(
            code, f"reason 0x{code:02x}"
        )
        self.state = InjectorState.REFUSED
        self.reason = f"the broker refused the connection: {why}"
        self.wants_reconnect = True
        if self._version == 5 and code in _UNSUPPORTED_VERSION:
            self._version = 4

    def _accepted(self, packet: ConnAck, now: float) -> None:
        self._version_proven = True
        present = packet.session_present and not self._clean
        if self._purging or (present and not self._has_session):
            # 3.1.1: the session of an earlier start was dropped just now, or is to be dropped next.
            self._has_session = self._purging
            self._purging = not self._purging
            self.wants_reconnect = True
            self.reason = "dropping the session of an earlier start"
            return
        self._has_session = True
        self.client_id = get_str(packet.properties, Property.ASSIGNED_CLIENT_IDENTIFIER) or self.client_id
        keep_alive = get_int(packet.properties, Property.SERVER_KEEP_ALIVE, self._asked_keep_alive)
        self._keep_alive = float(keep_alive or self._asked_keep_alive)
        self._sender.limits = self.abilities.corrected(self._version, packet.properties)
        self.state = InjectorState.READY
        self.reason = ""
        self._control.append(self._sender.resume(present, now))

    def _closed_before_connack(self) -> None:
        """Some old brokers just close on a version they do not know. Once it was accepted it is not that."""
        if self.wants_reconnect:
            return
        self.reason = "the broker closed the connection before CONNACK"
        if not self._version_proven and self.abilities.version == 5:
            self._version = 9 - self._version

    def _give_up_connection(self, reason: str, blameless: bool) -> None:
        self.wants_reconnect = True
        self.reason = reason
        self._blameless = self._blameless or blameless
