"""A listener for tests: it does what clients ask for by topic, and tells them what it was told.

Runs inside a node, so it speaks with the test through the session manager alone.
"""

from __future__ import annotations

import json
from typing import ClassVar

from brokerweave.mqtt.packets import Connect, Disconnect, Packet, PacketType, Publish, Subscribe, Subscription
from brokerweave.plugin import Listener, Reject, Session, SessionManager, Side


class Recorder(Listener):
    """`do/open`, `do/subscribe`, `do/leave`, `do/close`: with a session of its own. `do/tell`: the events."""

    name: ClassVar[str] = "recorder"
    packets: ClassVar[frozenset[tuple[Side, PacketType]]] = frozenset(
        {
            (Side.CLIENT, PacketType.PUBLISH),
            (Side.BROKER, PacketType.CONNACK),
            (Side.BROKER, PacketType.PUBLISH),
        }
    )

    def __init__(self, sessions: SessionManager) -> None:
        super().__init__(sessions)
        self.events: list[str] = []
        self.own: Session | None = None

    def packet_arrived(self, session: Session, packet: Packet) -> Reject | None:
        if session is self.own:
            self._note(type(packet).__name__.lower(), session)
        elif isinstance(packet, Publish) and session.side is Side.CLIENT:
            self._do(packet.topic, session)
        return None

    def _do(self, topic: str, client: Session) -> None:
        if topic == "do/open":
            self.events = []
            self.own = self.sessions.create_session(Connect("recorder"))
        elif topic == "do/tell":
            other = self.sessions.paired(client)
            told = {"events": self.events, "paired": other is not None and other.side.value}
            self.sessions.send(client, Publish("told", json.dumps(told).encode()))
        elif self.own is not None and topic == "do/subscribe":
            self.sessions.send(self.own, Subscribe(1, (Subscription("to/the/recorder"),)))
        elif self.own is not None and topic == "do/leave":
            self.sessions.send(self.own, Disconnect())
        elif self.own is not None and topic == "do/close":
            self.sessions.close_session(self.own)

    def _note(self, event: str, session: Session) -> None:
        if session.client_id == "recorder":
            self.events.append(f"{event} {session.state.value}")

    def tcp_down(self, session: Session) -> None:
        self._note("tcp_down", session)

    def receive_failed(self, session: Session, error: Exception) -> None:
        self._note("receive_failed", session)

    def session_established(self, session: Session) -> None:
        self._note("session_established", session)

    def session_closed(self, session: Session) -> None:
        self._note("session_closed", session)


class Clumsy(Listener):
    """Raises when a session closes."""

    name: ClassVar[str] = "clumsy"

    def session_closed(self, session: Session) -> None:
        raise ZeroDivisionError
