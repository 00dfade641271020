"""The session manager that plug-ins call (ILDM 2.2.1), over the node's real connections.

Owns the sessions that plug-ins open to the broker by themselves. Invariant: what a plug-in does with a
session can end that session only.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import Protocol, cast

from brokerweave.config import NodeConfig
from brokerweave.errors import BrokerweaveError, LocalProtocolError
from brokerweave.mqtt import codec
from brokerweave.mqtt.frames import Frame, Scanner
from brokerweave.mqtt.packets import Connect, Disconnect, Packet
from brokerweave.node.core import NodeCore
from brokerweave.plugin import Listener, Session, SessionState, Side
from brokerweave.runtime.dialing import dial
from brokerweave.runtime.relay import ClientConnection
from brokerweave.session import proxy_header
from brokerweave.session.handle import SessionHandle
from brokerweave.session.pair import Pair

log = logging.getLogger("brokerweave.plugins")


class SessionsHost(Protocol):
    @property
    def core(self) -> NodeCore: ...

    @property
    def config(self) -> NodeConfig: ...

    @property
    def relays(self) -> dict[Pair, ClientConnection]: ...


class RuntimeSessions:
    """Implements `plugin.SessionManager`."""

    def __init__(self, host: SessionsHost) -> None:
        self._host = host
        self._ids = itertools.count(-1, -1)
        self._own: dict[int, _OwnSession] = {}

    def create_session(self, packet: Packet) -> Session:
        if not isinstance(packet, Connect):
            raise LocalProtocolError("a session begins with CONNECT")
        handle = SessionHandle(next(self._ids), Side.BROKER)
        handle.client_id, handle.mqtt_version = packet.client_id, packet.version
        own = self._own[handle.id] = _OwnSession(self, handle, packet)
        own.task = asyncio.get_running_loop().create_task(own.open(self._host.config))
        return handle

    def close_session(self, session: Session) -> None:
        own, relay = self._own.get(session.id), self._relay(session)
        if own is not None:
            own.close()
        elif relay is not None:
            relay.end()

    def send(self, session: Session, packet: Packet) -> bool:
        if session.state is not SessionState.ESTABLISHED:
            return False
        data = codec.encode(packet, session.mqtt_version)
        own, relay = self._own.get(session.id), self._relay(session)
        if own is not None:
            own.leaving = own.leaving or isinstance(packet, Disconnect)
            own.write(data)
        elif relay is not None and session.side is Side.CLIENT:
            relay.write(data)
        elif relay is not None:
            relay.write_broker(data)
        return own is not None or relay is not None

    def paired(self, session: Session) -> Session | None:
        relay = self._relay(session)
        if relay is None:
            return None
        return relay.pair.broker if session.side is Side.CLIENT else relay.pair.client

    def _relay(self, session: Session) -> ClientConnection | None:
        return next(
            (r for p, r in self._host.relays.items() if session.id in (p.client.id, p.broker.id)), None
        )

    def arrived(self, session: Session, packet: Packet) -> None:
        def show(listener: Listener) -> None:
            if (Side.BROKER, packet.type) in listener.packets:
                listener.packet_arrived(session, packet)

        self._host.core.plugins.tell(show)

    def established(self, session: Session) -> None:
        self._host.core.plugins.tell(lambda listener: listener.session_established(session))

    def failed(self, session: Session, error: BrokerweaveError) -> None:
        log.warning("a plug-in's session to the broker: %s", error)
        self._host.core.plugins.tell(lambda listener: listener.receive_failed(session, error))

    def went_down(self, session: Session) -> None:
        self._host.core.plugins.tell(lambda listener: listener.tcp_down(session))

    def ended(self, session: Session) -> None:
        self._own.pop(session.id, None)
        self._host.core.plugins.tell(lambda listener: listener.session_closed(session))


class _OwnSession(asyncio.Protocol):
    """A session to the broker that belongs to no client."""

    def __init__(self, sessions: RuntimeSessions, handle: SessionHandle, connect: Connect) -> None:
        self.task: asyncio.Task[None] | None = None
        self.leaving = False
        """The plug-in has sent DISCONNECT, so the end of the connection is no failure."""
        self._sessions = sessions
        self._handle = handle
        self._connect = connect
        self._scanner: Scanner | None = None
        self._proxied = False
        self._transport: asyncio.Transport | None = None

    async def open(self, config: NodeConfig) -> None:
        self._scanner = Scanner(0xFFFE, config.limits.max_packet)
        self._proxied = config.node.proxy_protocol
        try:
            async with asyncio.timeout(config.limits.broker_timeout):
                await dial(config.node.broker, lambda: self)
        except (OSError, TimeoutError) as error:
            log.warning("a plug-in's session to the broker: %s", error)
            self._sessions.ended(self._handle)

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, base)  # uvloop's has the methods, not the class
        self._transport = transport
        self._handle.move(SessionState.ESTABLISHED)
        if self._proxied:
            transport.write(proxy_header.own(transport.get_extra_info))
        transport.write(codec.encode(self._connect, self._connect.version))
        self._sessions.established(self._handle)

    def data_received(self, data: bytes) -> None:
        assert self._scanner is not None
        _, items = self._scanner.feed(data)
        try:
            for item in items:
                if isinstance(item, Frame):
                    self._sessions.arrived(self._handle, codec.decode(item.data, self._handle.mqtt_version))
            if self._scanner.error is not None:
                raise self._scanner.error
        except BrokerweaveError as error:
            self._sessions.failed(self._handle, error)
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._handle.state is SessionState.ESTABLISHED:
            if not self.leaving:
                self._sessions.went_down(self._handle)
            self._handle.move(SessionState.TERMINATING)
        self._handle.move(SessionState.CLOSED)
        self._sessions.ended(self._handle)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None and self._handle.state is SessionState.ESTABLISHED:
            self._handle.move(SessionState.TERMINATING)
            self._transport.close()
