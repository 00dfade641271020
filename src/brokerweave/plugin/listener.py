"""What any other plug-in is: a listener sees packets and events, and may reject what clients send.

Owns the interfaces of ILDM's session manager, message, event and status listeners (Table 1). Invariant: a
listener pays only for the packets that it names. Must not know: sockets, the node's own classes.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar, Protocol

from brokerweave.mqtt.packets import Packet, PacketType


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
        """The other half of the pair."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A listener's answer that stops a packet.

    A rejected PUBLISH is acknowledged in the broker's stead, with `reason_code` where MQTT 5 can carry
    it; any other rejected packet closes the pair.
    """

    reason_code: int = 0x83
    reason: str = ""


class Listener:
    """Any other plug-in: it sees packets and events, and may reject what clients send.

    Cost: every packet named in `packets` is decoded in Python, one by one, for every pair: some 10 µs
    each, against some 0.1 µs for a packet nobody listens to. An empty `packets` costs nothing.
    """

    name: ClassVar[str]
    packets: ClassVar[frozenset[tuple[Side, PacketType]]] = frozenset()

    def __init__(self, sessions: SessionManager) -> None:
        self.sessions = sessions

    def packet_arrived(self, session: Session, packet: Packet) -> Reject | None:
        """A packet named in `packets` arrived. None lets it pass unchanged."""
        return None

    def tcp_down(self, session: Session) -> None:
        """The connection ended without a DISCONNECT."""

    def receive_failed(self, session: Session, error: Exception) -> None:
        """What arrived could not be read as MQTT."""

    def session_established(self, session: Session) -> None: ...

    def session_closed(self, session: Session) -> None: ...

    def node_stopping(self) -> None: ...

    def neighbour_adding(self, neighbour: str) -> None: ...

    def neighbour_removing(self, neighbour: str) -> None: ...
