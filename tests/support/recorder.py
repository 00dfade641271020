"""Listeners for tests: they run inside a node.

`Recorder` and `Flood` do what clients ask for by topic, and the first tells them what it was told. `Diary`
writes every call into a file.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, ClassVar

from brokerweave.mqtt.packets import Connect, Disconnect, Packet, PacketType, Publish, Subscribe, Subscription
from brokerweave.plugin import Listener, ListenerContext, Reject, Session, Side


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

    def __init__(self, context: ListenerContext) -> None:
        super().__init__(context)
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


class Flood(Listener):
    """`do/flood` with a number N: publishes 0 to N-1 at once. `do/retain`: publishes it, retained."""

    name: ClassVar[str] = "flood"
    packets: ClassVar[frozenset[tuple[Side, PacketType]]] = frozenset({(Side.CLIENT, PacketType.PUBLISH)})

    def packet_arrived(self, session: Session, packet: Packet) -> Reject | None:
        if isinstance(packet, Publish) and packet.topic == "do/flood":
            for number in range(int(packet.payload)):
                self.context.publish(Publish("flood/number", str(number).encode(), 1))
        elif isinstance(packet, Publish) and packet.topic == "do/retain":
            self.context.publish(Publish("flood/kept", packet.payload, 2, retain=True))
        return None


class Diary(Listener):
    """Each callback of ILDM's Table 1 as a line of JSON in the file that `DIARY_FILE` names."""

    name: ClassVar[str] = "diary"
    packets: ClassVar[frozenset[tuple[Side, PacketType]]] = frozenset(
        {(Side.CLIENT, PacketType.CONNECT), (Side.BROKER, PacketType.CONNACK)}
    )

    def __init__(self, context: ListenerContext) -> None:
        super().__init__(context)
        self._note("made")

    def packet_arrived(self, session: Session, packet: Packet) -> Reject | None:
        self._note("packet_arrived", session, packet=packet.type.name)
        return None

    def tcp_down(self, session: Session) -> None:
        self._note("tcp_down", session)

    def receive_failed(self, session: Session, error: Exception) -> None:
        self._note("receive_failed", session)

    def session_established(self, session: Session) -> None:
        self._note("session_established", session)

    def session_closed(self, session: Session) -> None:
        other = self.sessions.paired(session)
        self._note("session_closed", session, paired=other.state.value if other is not None else None)

    def node_stopping(self) -> None:
        self._note("node_stopping")
        self.context.publish(Publish("diary/last", self.context.node_id.encode(), qos=1))

    def neighbour_adding(self, neighbour: str) -> None:
        self._note("neighbour_adding", neighbour=neighbour)

    def neighbour_removing(self, neighbour: str) -> None:
        self._note("neighbour_removing", neighbour=neighbour)

    def _note(self, event: str, session: Session | None = None, **more: Any) -> None:
        note = {"event": event, "node": self.context.state.value, **more}
        if session is not None:
            note |= {"id": session.id, "client": session.client_id, "side": session.side.value}
            note |= {"state": session.state.value}
        with Path(os.environ["DIARY_FILE"]).open("a") as file:
            file.write(json.dumps(note) + "\n")
