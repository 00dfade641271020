"""What any other plug-in is: a listener sees packets and events, may reject or change packets, may publish.

Owns the interfaces of ILDM's session manager, message, event and status listeners (Table 1). Invariant: a
listener pays only for the packets that it names. Must not know: sockets, the node's own classes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from brokerweave.mqtt.packets import Packet, PacketType, Publish
from brokerweave.plugin.options import OptionValue
from brokerweave.plugin.strategy import Timer


class Side(enum.Enum):
    """Which of a pair's two sessions a packet came in on."""

    CLIENT = "client"
    BROKER = "broker"


class SessionState(enum.Enum):
    """ILDM Fig. 5 (a)."""

    CLOSED = "closed"
    ESTABLISHED = "established"
    TERMINATING = "terminating"


class NodeState(enum.Enum):
    """ILDM Fig. 5 (b)."""

    STOPPED = "stopped"
    RUNNING = "running"
    ADDING = "ildm_adding"
    REMOVING = "ildm_removing"


class Session(Protocol):
    """One TCP connection of the node, as a plug-in sees it (ILDM's SessionInfo)."""

    @property
    def id(self) -> int: ...

    @property
    def side(self) -> Side: ...

    @property
    def state(self) -> SessionState: ...

    @property
    def client_id(self) -> str:
        """The MQTT client identifier; empty until CONNECT was read."""

    @property
    def mqtt_version(self) -> int:
        """3, 4 or 5; 0 until CONNECT was read."""


class SessionManager(Protocol):
    """The calls of ILDM's session manager (2.2.1)."""

    def create_session(self, packet: Packet) -> Session:
        """Open one more session to the local broker, with this CONNECT."""

    def close_session(self, session: Session) -> None: ...

    def send(self, session: Session, packet: Packet) -> bool:
        """Write one packet between two others. False if the session is not ESTABLISHED."""

    def paired(self, session: Session) -> Session | None:
        """The other half of the pair; None for a session that a plug-in opened by itself."""


class ListenerContext(Protocol):
    """What a node offers one of its listeners."""

    @property
    def node_id(self) -> str: ...

    @property
    def state(self) -> NodeState: ...

    @property
    def sessions(self) -> SessionManager: ...

    @property
    def options(self) -> Mapping[str, OptionValue]:
        """What the configuration says in the section with the listener's name; read by `option(...)`."""

    def now(self) -> float:
        """Seconds on a clock that never goes back."""

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        """What the callback raises counts as the listener's failure, and ends there."""

    def publish(self, packet: Publish) -> bool:
        """Publish as a local client would: to the local broker, to other sites, into taps.

        The access list sees the user name of the node's own sessions (`broker_username`) and the client id
        `brokerweave-listener-NAME-NODE`. Publications of one listener keep their order, and all other
        listeners are shown them. QoS is at most what the broker offers; properties are left out where it
        does not speak MQTT 5. Packet id and DUP do not matter.

        False, and counted, if too many wait already. Raises `LocalProtocolError` for what MQTT cannot carry.
        """


@dataclass(frozen=True, slots=True)
class Reject:
    """A listener's answer that stops a packet.

    A rejected PUBLISH is acknowledged in the stead of whom it was for, with `reason_code` where MQTT 5 can
    carry it. Any other rejected packet closes the pair; a client whose CONNECT is rejected gets a CONNACK.
    """

    reason_code: int = 0x83
    reason: str = ""


class Listener:
    """Any other plug-in: it sees packets and events, may reject or change what passes, and may publish.

    Cost: every packet named in `packets` is decoded in Python, one by one, for every pair: some 10 µs
    each, against some 0.1 µs for a packet nobody listens to. An empty `packets` costs nothing.
    """

    name: ClassVar[str]
    packets: ClassVar[frozenset[tuple[Side, PacketType]]] = frozenset()

    def __init__(self, context: ListenerContext) -> None:
        self.context = context

    @property
    def sessions(self) -> SessionManager:
        return self.context.sessions

    @property
    def options(self) -> Mapping[str, OptionValue]:
        return self.context.options

    def packet_arrived(self, session: Session, packet: Packet) -> Packet | Reject | None:
        """A packet named in `packets` arrived.

        None lets it pass unchanged, a packet of the same type takes its place, `Reject` stops it. Packet id,
        QoS, DUP and a CONNECT's protocol version stay as they were, whatever the answer says. A PUBLISH is
        shown with its whole topic, never with a topic alias. The next listener sees what this one made.
        """
        return None

    def tcp_down(self, session: Session) -> None:
        """The connection ended without a DISCONNECT."""

    def receive_failed(self, session: Session, error: Exception) -> None:
        """What arrived could not be read as MQTT."""

    def session_established(self, session: Session) -> None:
        """The TCP connection is there; nothing has been read or written."""

    def session_closed(self, session: Session) -> None:
        """Both halves of the pair are closed."""

    def node_stopping(self) -> None:
        """The node is about to stop: what is published now still has the time that `limits.drain` says."""

    def neighbour_adding(self, neighbour: str) -> None:
        """A neighbour was named, or called; it does not know yet what this node knows."""

    def neighbour_removing(self, neighbour: str) -> None:
        """A neighbour is being removed; it was told so, and the others are about to hear."""
