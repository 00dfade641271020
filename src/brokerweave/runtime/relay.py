"""The sockets of one pair: a client's connection and the one the node opens to the broker for it.

Owns the two transports, back-pressure between them, and the pair's end. Invariants: each chunk read costs
one scan and one write; a side that does not read pauses the other side's reading at `client_queue` bytes
and nobody else; the death of either side ends both at once, and their sessions are TERMINATING until both
connections are closed. Must not know: routing, links.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from operator import methodcaller
from typing import Protocol, cast

from brokerweave.config import LimitsSection
from brokerweave.errors import RemoteProtocolError
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import ConnAck, Disconnect
from brokerweave.mqtt.properties import Property
from brokerweave.node.core import NodeCore
from brokerweave.plugin import SessionState, Side
from brokerweave.runtime.passage import Passage
from brokerweave.runtime.sockets import has_ended, lead, write_now
from brokerweave.runtime.traffic import Traffic
from brokerweave.session import proxy_header
from brokerweave.session.beginning import Beginning
from brokerweave.session.handle import SessionHandle
from brokerweave.session.pair import USE_ANOTHER_SERVER, Pair
from brokerweave.session.phase import Phase

log = logging.getLogger("brokerweave.relay")

SERVER_UNAVAILABLE_3 = 0x03
SERVER_UNAVAILABLE_5 = 0x88
SERVER_SHUTTING_DOWN = 0x8B


class RelayHost(Protocol):
    """What a relay needs of the client listener."""

    @property
    def core(self) -> NodeCore: ...

    @property
    def limits(self) -> LimitsSection: ...

    @property
    def relays(self) -> dict[Pair, ClientConnection]: ...

    @property
    def closing(self) -> set[ClientConnection]:
        """Those that have ended, and are not closed yet."""

    @property
    def traffic(self) -> Traffic: ...

    @property
    def connections_full(self) -> bool: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.Handle: ...

    def dial_broker(self, relay: ClientConnection) -> None:
        """Connect to the broker, then call `broker_connected`, or `broker_unreachable`."""


class ClientConnection(asyncio.Protocol):
    """The client's half, and the owner of the pair."""

    data_received: Passage

    __slots__ = (
        "_beginning",
        "_broker",
        "_deadline",
        "_early",
        "_feed",
        "_file",
        "_heard",
        "_host",
        "_open",
        "_passage",
        "_transport",
        "_turn_due",
        "_write_paused",
        "data_received",
        "pair",
        "read_paused",
    )

    def __init__(self, host: RelayHost, pair: Pair | None = None) -> None:
        self._host = host
        self._open = 0
        self._transport: asyncio.Transport | None = None
        self._broker: BrokerConnection | None = None
        self._file = -1
        self._early: list[bytes] = []
        self._write_paused = False
        self._turn_due = False
        self._heard = False
        self.read_paused = False
        self._deadline: asyncio.Handle | None = None
        self.pair = pair or host.core.new_pair()
        self._beginning = Beginning()
        self._feed: Callable[[bytes], bytes] = self._begin
        self._passage = Passage(self.pair.scanner(Side.CLIENT), self._attend)
        self.data_received = self._passage

    # asyncio.Protocol

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, base)  # uvloop's has the methods, not the class
        host = self._host
        if host.connections_full:
            host.core.count("refused_connections_full")
            transport.abort()
            return
        self._transport = transport
        self._open += 1
        self._file = transport.get_extra_info("socket").fileno()
        transport.set_write_buffer_limits(high=host.limits.client_queue)
        host.relays[self.pair] = self
        host.core.count("accepted_connections")
        self.pair.client.move(SessionState.ESTABLISHED)
        host.core.plugins.tell(lambda listener: listener.session_established(self.pair.client))
        self._deadline = host.call_later(host.limits.connect_timeout, self._connect_overdue)

    def _attend(self, data: bytes) -> None:
        self._fed(self._feed(data))
        self.open_passages()

    def _begin(self, data: bytes) -> bytes:
        """The first bytes: a header of the PROXY protocol may come before CONNECT."""
        core, beginning = self._host.core, self._beginning
        try:
            rest = beginning.feed(data, core.tickets, core.now())
        except RemoteProtocolError as error:
            core.count("refused_headers")
            log.warning("a connection from %s: %s", self._peer(), error)
            self.end()
            return b""
        if rest is None:
            return b""
        if beginning.move is not None:
            self.pair.announce(beginning.move)
        self._feed = self.pair.from_client
        return self._feed(rest)

    def _peer(self) -> object:
        return self._transport.get_extra_info("peername") if self._transport is not None else None

    def open_passages(self) -> None:
        """The pair had a look at something: see whether it needs to look at the next."""
        if self._broker is not None:
            self._passage.open = self.pair.upstream_open and self._feed != self._hear
            self._broker.passage.open = self.pair.downstream_open

    def _fed(self, out: bytes) -> None:
        """The pair took something: `out` goes to the broker, and then it may be too much, or wrong."""
        broker = self._broker
        if broker is not None:
            if out:
                broker.write(out)
        elif out:
            self._early.append(out)
        pair = self.pair
        if pair.error is not None:
            self._fail()
        elif pair.wants_pause and self._transport is not None:
            self.read_paused = True
            self._transport.pause_reading()
        elif pair.put_off is not None:
            self.pause_reading()
            if broker is not None and not broker.write_paused:
                self.resume_reading()

    def _next_turn(self) -> None:
        """Others had their turn: go on with what the client sent."""
        self._turn_due = False
        broker, pair = self._broker, self.pair
        if pair.phase is not Phase.ENDED and broker is not None and not broker.write_paused:
            if pair.put_off is not None and not pair.wants_pause:
                self._fed(pair.next_turn())
            if pair.put_off is None:
                self.resume_reading()

    def pause_writing(self) -> None:
        """The client does not read: stop reading the broker on its behalf."""
        self._host.core.count("client_pauses")
        self._write_paused = True
        if self._broker is not None:
            self._broker.pause_reading()
            self._watch()

    def _watch(self) -> None:
        """While the broker is not read, nobody hears it end the session of a client that is silent too long:
        keep the time ourselves [MQTT-3.1.2-22]. Where CONNECT was not read, its keep-alive is not known."""
        connect, transport = self.pair.connect, self._transport
        silence = 1.5 * connect.keep_alive if connect is not None else self._host.limits.connect_timeout
        if silence and transport is not None:
            self._heard = False
            self._feed = self._hear
            self._passage.open = False
            waiting = transport.get_write_buffer_size()
            self._set_deadline(silence, lambda: self._watched(waiting))

    def _hear(self, data: bytes) -> bytes:
        self._heard = True
        self._feed = self.pair.from_client
        return self._feed(data)

    def _watched(self, waiting: int) -> None:
        """The client lives if it sent or took anything meanwhile."""
        if self._heard or (
            self._transport is not None and self._transport.get_write_buffer_size() != waiting
        ):
            self._watch()
        else:
            self._host.core.count("client_stalls")
            self.end()

    def _set_deadline(self, seconds: float, overdue: Callable[[], None]) -> None:
        self._drop_deadline()
        self._deadline = self._host.call_later(seconds, overdue)

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def resume_writing(self) -> None:
        self._write_paused = False
        self._drop_deadline()
        if self._broker is not None and not self._broker.held_back:
            self._broker.resume_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.end()
        self._closed()

    # The broker's half calls

    def broker_connected(self, broker: BrokerConnection) -> None:
        if self.pair.phase is Phase.ENDED:
            broker.close()
            return
        self._broker = broker
        self._open += 1
        broker.lead(self._passage)
        self.lead(broker.passage)
        self.pair.broker.move(SessionState.ESTABLISHED)
        self._host.core.plugins.tell(lambda listener: listener.session_established(self.pair.broker))
        broker.write(b"".join(self._early))
        self._early = []
        self._set_deadline(self._host.limits.broker_timeout, self.broker_unreachable)
        self.resume_reading()

    def broker_lost(self, broker: BrokerConnection) -> None:
        self.end(broker_left=True)
        if broker is self._broker:
            self._closed()

    def broker_unreachable(self) -> None:
        """Tell the client properly that the broker is away; it may try again later."""
        self._host.core.count("broker_unreachable")
        if self.pair.phase is Phase.CONNECTING:
            code = SERVER_UNAVAILABLE_5 if self.pair.version == 5 else SERVER_UNAVAILABLE_3
            self.write(codec.encode(ConnAck(code), self.pair.version))
        self.end()

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing() and not self.pair.wants_pause:
            self.read_paused = False
            if self.pair.put_off is None:
                self._transport.resume_reading()
            elif not self._turn_due:
                self._turn_due = True
                self._host.call_later(0, self._next_turn)

    def write(self, data: bytes) -> None:
        if self._transport is not None:
            write_now(self._transport, self._file, data)

    def lead(self, passage: Passage) -> None:
        """Let a passage write to the client."""
        if self._transport is not None:
            lead(passage, self._transport, self._file)

    def write_own(self, data: bytes) -> None:
        """Write what the pair had kept back, or an answer of our own; the broker may be read again."""
        self.write(data)
        if self._broker is not None and self._broker.held_back and not self.pair.wants_broker_pause:
            self._broker.held_back = False
            if not self._write_paused:
                self._broker.resume_reading()

    def write_broker(self, data: bytes) -> None:
        """Write what waited, or a question of our own; the client may be read again."""
        if self._broker is not None:
            self._broker.write(data)
            if self.read_paused and not self._broker.write_paused:
                self.resume_reading()

    # The client listener calls

    def proxy_header(self) -> bytes:
        """Who the client is, for a broker that takes the PROXY protocol."""
        if self._transport is None:
            return proxy_header.LOCAL
        source = self._beginning.source or self._peer()
        return proxy_header.encode(source, self._transport.get_extra_info("sockname"))

    def connect_arrived(self) -> None:
        """CONNECT was read. Read no more until the broker session is established: nothing piles up here."""
        self._drop_deadline()
        self.pause_reading()
        self._host.dial_broker(self)

    def end_forsaken(self) -> bool:
        """End a client that has hung up before it was accepted, and asked for nothing. Where clients are
        followed it may be at another site by now: a CONNECT that a busy node came to late must not call it
        away from there."""
        follows = self._host.core.care.watches_deliveries
        if not (follows and self.pair.bare and has_ended(self._file)):
            return False
        self._host.core.count("forsaken_connects")
        self.end()
        return True

    @property
    def is_own(self) -> bool:
        """The node itself is the client: such a connection comes from no address."""
        return not self._peer()

    def refuse_redirected(self, server: str) -> None:
        """The node stops, and the client that connects is to go elsewhere."""
        self._host.core.count("redirected_clients")
        elsewhere = ConnAck(SERVER_UNAVAILABLE_3)
        if self.pair.version == 5:
            elsewhere = ConnAck(USE_ANOTHER_SERVER, properties=((Property.SERVER_REFERENCE, server),))
        self.write(codec.encode(elsewhere, self.pair.version))
        self.end()

    def shut_down(self, redirect: str | None) -> None:
        """The node stops: MQTT 5 clients are told so, and where to go if that is known; the pair ends."""
        if redirect and not self.is_own and self.pair.phase is Phase.ACCEPTED:
            self._host.core.count("redirected_clients")
            self.pair.close_redirected(redirect)
            return
        if self.pair.version == 5 and self.pair.phase is Phase.ACCEPTED:
            self.write(codec.encode(Disconnect(SERVER_SHUTTING_DOWN), 5))
        self.end()

    def hang_up(self, last_words: bytes) -> None:
        """Another site has the client."""
        if last_words:
            self.write_broker(last_words)
        self.end()

    def end(self, broker_left: bool = False) -> None:
        """End both halves, once. What is already written to either still goes out."""
        pair = self.pair
        if pair.phase is Phase.ENDED:
            return
        unexpected = pair.ended(broker_left)
        self._drop_deadline()
        if self._host.relays.pop(pair, None) is not None:
            self._host.traffic.ended(pair)
        if self._transport is not None:
            self.close_in_time(self._transport)
        if self._broker is not None:
            self._broker.close()
        if self._open:
            self._host.closing.add(self)
        for handle in self._sessions(SessionState.ESTABLISHED):
            if unexpected:
                self._host.core.plugins.tell(methodcaller("tcp_down", handle))
            handle.move(SessionState.TERMINATING)

    def _closed(self) -> None:
        """One of the connections is closed; the sessions are when both are."""
        self._open -= 1
        if self._open > 0:
            return
        self._host.closing.discard(self)
        ended = self._sessions(SessionState.TERMINATING)
        for handle in ended:
            handle.move(SessionState.CLOSED)
        for handle in ended:
            self._host.core.plugins.tell(methodcaller("session_closed", handle))

    def _sessions(self, state: SessionState) -> list[SessionHandle]:
        return [handle for handle in (self.pair.client, self.pair.broker) if handle.state is state]

    def close_in_time(self, transport: asyncio.Transport) -> None:
        """Let what is written go out, but do not keep it for ever for somebody who does not read."""
        transport.close()
        if transport.get_write_buffer_size():
            self._host.call_later(self._host.limits.drain, transport.abort)

    def _connect_overdue(self) -> None:
        self._deadline = None
        self._host.core.count("connect_timeouts")
        self.end()

    def _fail(self) -> None:
        """The node refuses to go on. Say why where MQTT 5 can, and end this pair only."""
        pair = self.pair
        error = pair.error
        self._host.core.count("protocol_errors")
        log.info("client %r: %s", pair.client.client_id, error)
        if pair.version == 5 and pair.phase is Phase.ACCEPTED:
            self.write(codec.encode(Disconnect(getattr(error, "reason_code", 0x81)), 5))
        self.end()

    def check(self) -> None:
        """The broker's half fed the pair: it may have failed, or no longer need the pause."""
        if not self._write_paused:
            self._drop_deadline()  # the broker answers
        if self.pair.error is not None:
            self._fail()
        elif self._broker is not None and not self._broker.write_paused:
            self.resume_reading()


class BrokerConnection(asyncio.Protocol):
    """The broker's half."""

    data_received: Passage

    __slots__ = (
        "_client",
        "_feed",
        "_file",
        "_transport",
        "data_received",
        "held_back",
        "passage",
        "write_paused",
    )

    def __init__(self, client: ClientConnection) -> None:
        self._client = client
        self.passage = Passage(client.pair.scanner(Side.BROKER), self._attend)
        self.data_received = self.passage
        self._feed = client.pair.from_broker
        self._file = -1
        self._transport: asyncio.Transport | None = None
        self.write_paused = False
        self.held_back = False
        """Not read because too much is held behind a SUBACK."""

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, base)  # uvloop's has the methods, not the class
        self._transport = transport
        self._file = transport.get_extra_info("socket").fileno()
        transport.set_write_buffer_limits(high=self._client.pair.limits.client_queue)

    def _attend(self, data: bytes) -> None:
        client = self._client
        pair = client.pair
        watched = pair.phase is not Phase.ACCEPTED or client.read_paused
        if pair.phase is Phase.CONNECTING and client.end_forsaken():
            return
        out = self._feed(data)
        if out:
            client.write(out)
        if answers := pair.for_broker:
            self.write(answers)
        if watched or pair.error is not None:
            client.check()
        if pair.wants_broker_pause:
            self.held_back = True
            self.pause_reading()
        client.open_passages()

    def pause_writing(self) -> None:
        """The broker does not read: stop reading the client."""
        self.write_paused = True
        self._client.pause_reading()

    def resume_writing(self) -> None:
        self.write_paused = False
        self._client.resume_reading()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.broker_lost(self)

    def write(self, data: bytes) -> None:
        assert self._transport is not None
        write_now(self._transport, self._file, data)

    def lead(self, passage: Passage) -> None:
        """Let a passage write to the broker."""
        assert self._transport is not None
        lead(passage, self._transport, self._file)

    def pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._client.close_in_time(self._transport)
