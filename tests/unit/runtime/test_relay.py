"""The end of a pair as listeners see it: its sessions are TERMINATING until both connections are closed."""

from __future__ import annotations

from typing import ClassVar, cast
from unittest.mock import Mock

import pytest

from brokerweave.care.interface import Care
from brokerweave.config import LimitsSection
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import ConnAck, Connect, Disconnect, PingResp
from brokerweave.mqtt.scanner import RouteCache
from brokerweave.node.counters import Counters
from brokerweave.node.plugins import Plugins
from brokerweave.plugin import Listener, Session, SessionState, Side
from brokerweave.runtime.relay import BrokerConnection, ClientConnection
from brokerweave.runtime.sessions import RuntimeSessions, SessionsHost
from brokerweave.runtime.traffic import Traffic
from brokerweave.session.move_ticket import Tickets
from brokerweave.session.pair import Pair
from tests.support.listening import FakeListenerContext
from tests.unit.session.test_pair import Host


class Transport:
    """Closes when the test says so."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def get_extra_info(self, name: str) -> Mock:
        return Mock(fileno=lambda: -1)  # nothing is written past the transport

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int) -> None: ...


class Watching(Listener):
    name: ClassVar[str] = "watching"

    def __init__(self) -> None:
        super().__init__(FakeListenerContext())
        self.calls: list[tuple[str, Side, SessionState]] = []

    def tcp_down(self, session: Session) -> None:
        self.calls.append(("tcp_down", session.side, session.state))

    def session_established(self, session: Session) -> None:
        self.calls.append(("established", session.side, session.state))

    def session_closed(self, session: Session) -> None:
        self.calls.append(("closed", session.side, session.state))


class Node(Host):
    """What a relay and a pair ask of a node."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = LimitsSection()
        self.care = Care()
        self.relays: dict[Pair, ClientConnection] = {}
        self.closing: set[ClientConnection] = set()
        self.traffic = Traffic()
        self.connections_full = False
        self.listener = Watching()
        self.plugins = Plugins((self.listener,), Counters(), print)
        self.core = self
        self.tickets = Tickets(b"", "n")

    def new_pair(self) -> Pair:
        return Pair(3, self, RouteCache(lambda topic, retain: None), self.limits, 0.0)

    def now(self) -> float:
        return 0.0

    def call_later(self, *_: object) -> Mock:
        return Mock()

    def dial_broker(self, relay: ClientConnection) -> None: ...


class Connected:
    def __init__(self) -> None:
        self.node = Node()
        self.client, self.broker = Transport(), Transport()
        self.relay = ClientConnection(self.node)  # type: ignore[arg-type]
        self.relay.connection_made(self.client)  # type: ignore[arg-type]
        self.relay.data_received(codec.encode(Connect("c"), 4))
        self.other = BrokerConnection(self.relay)
        self.other.connection_made(self.broker)  # type: ignore[arg-type]
        self.relay.broker_connected(self.other)
        self.other.data_received(codec.encode(ConnAck(), 4))

    @property
    def states(self) -> set[SessionState]:
        return {self.relay.pair.client.state, self.relay.pair.broker.state}

    def calls(self, *names: str) -> list[tuple[str, Side, SessionState]]:
        return [call for call in self.node.listener.calls if call[0] in names]


BOTH = (Side.CLIENT, Side.BROKER)


@pytest.mark.parametrize("first", BOTH)
def test_sessions_terminate_until_both_connections_are_closed(first: Side) -> None:
    made = Connected()
    assert made.states == {SessionState.ESTABLISHED}
    halves = [made.relay, made.other] if first is Side.CLIENT else [made.other, made.relay]
    halves[0].connection_lost(None)
    assert made.states == {SessionState.TERMINATING}
    assert made.calls("tcp_down") == [("tcp_down", side, SessionState.ESTABLISHED) for side in BOTH]
    assert made.client.closed
    assert made.broker.closed
    assert made.node.closing == {made.relay}
    assert not made.calls("closed")
    halves[1].connection_lost(None)
    assert made.states == {SessionState.CLOSED}
    assert made.calls("closed") == [("closed", side, SessionState.CLOSED) for side in BOTH]
    assert not made.node.closing


def test_an_end_that_the_client_announced_is_no_failure() -> None:
    made = Connected()
    made.relay.data_received(codec.encode(Disconnect(), 4))
    made.relay.connection_lost(None)
    made.other.connection_lost(None)
    assert made.states == {SessionState.CLOSED}
    assert not made.calls("tcp_down")


def test_a_client_that_leaves_before_the_broker_answers_has_one_session_that_ends() -> None:
    node, transport = Node(), Transport()
    relay = ClientConnection(node)  # type: ignore[arg-type]
    relay.connection_made(transport)  # type: ignore[arg-type]
    relay.connection_lost(None)
    late = BrokerConnection(relay)
    late.connection_made(Transport())  # type: ignore[arg-type]
    relay.broker_connected(late)
    late.connection_lost(None)
    assert [call[:2] for call in node.listener.calls] == [
        ("established", Side.CLIENT),
        ("tcp_down", Side.CLIENT),
        ("closed", Side.CLIENT),
    ]


def test_the_session_manager_finds_a_pair_by_its_session() -> None:
    made = Connected()
    sessions = RuntimeSessions(cast(SessionsHost, made.node))
    pair = made.relay.pair
    assert sessions.paired(pair.client) is pair.broker
    assert sessions.paired(pair.broker) is pair.client
    assert sessions.send(pair.client, PingResp())
    assert made.client.written.endswith(codec.encode(PingResp(), 4))
    sessions.close_session(pair.broker)
    assert made.states == {SessionState.TERMINATING}
    assert sessions.paired(pair.client) is pair.broker
    assert not sessions.send(pair.client, PingResp())
