"""The client listener: accepts clients, and connects each to the broker.

Owns the relay of each client, and what all of them sent and got. Invariants: no more than `max_connections`
are in at once; a client's way to the broker ends in `broker_connected`, in `broker_unreachable`, or in the
end of its relay. Must not know: what a client says, routing, links.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Protocol

from brokerweave.care.moves import MoveResult
from brokerweave.config import Address, LimitsSection, NodeConfig
from brokerweave.node.core import NodeCore
from brokerweave.plugin import Listener
from brokerweave.runtime.accepting import Accepting
from brokerweave.runtime.dialing import dial, open_streams
from brokerweave.runtime.relay import BrokerConnection, ClientConnection
from brokerweave.runtime.traffic import Traffic
from brokerweave.session import proxy_header
from brokerweave.session.pair import Pair

log = logging.getLogger("brokerweave.node")


class ClientListenerHost(Protocol):
    @property
    def config(self) -> NodeConfig:
        """As it is now: limits may be read again while the node runs."""

    @property
    def core(self) -> NodeCore: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.Handle: ...

    def task_failed(self, task: str, error: BaseException) -> None: ...


class ClientListener:
    """Implements `runtime.relay.RelayHost`, and of `node.core.NodeHost` what concerns clients."""

    def __init__(self, host: ClientListenerHost) -> None:
        self.relays: dict[Pair, ClientConnection] = {}
        self.closing: set[ClientConnection] = set()
        self.stopping = False
        """The node has got SIGTERM, and serves those who are here a while longer."""
        self.traffic = Traffic()
        self.call_later = host.call_later
        self._host = host
        self._tasks: set[asyncio.Task[None]] = set()
        self._accepting = Accepting(lambda: ClientConnection(self))

    async def listen(self) -> None:
        await self._accepting.listen(*self.config.node.listen)

    async def connect_own(
        self, shown_to: tuple[Listener, ...]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection on which the node itself is the client; its packets are shown to these listeners."""
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
        pair = self.core.new_pair(shown_to)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: ClientConnection(self, pair), theirs)
        return await asyncio.open_unix_connection(sock=ours)

    @property
    def address(self) -> Address:
        """Where a client on this machine comes in."""
        return self._accepting.nearby

    def close(self) -> None:
        """Let nobody in any more, and everybody out."""
        self._accepting.close()
        for relay in list(self.relays.values()):
            relay.shut_down(self.config.node.redirect)

    # What relays ask

    @property
    def config(self) -> NodeConfig:
        return self._host.config

    @property
    def core(self) -> NodeCore:
        return self._host.core

    @property
    def limits(self) -> LimitsSection:
        return self._host.config.limits

    @property
    def connections_full(self) -> bool:
        return len(self.relays) >= self.limits.max_connections

    def dial_broker(self, relay: ClientConnection) -> None:
        self._run(self._dial_broker(relay))

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _dial_broker(self, relay: ClientConnection) -> None:
        broker = self.config.node.broker
        if self.core.may_have_stale_session(relay.pair):
            await self._clear_session(relay.pair)
        try:
            async with asyncio.timeout(self.limits.broker_timeout):
                connection = await dial(broker, lambda: BrokerConnection(relay))
        except (OSError, TimeoutError) as error:
            log.info("broker %s: %s", broker, error)
            relay.broker_unreachable()
        except Exception as error:
            self._host.task_failed("a client's way to the broker", error)
            relay.end()
        else:
            if self.config.node.proxy_protocol:
                connection.write(relay.proxy_header())
            relay.broker_connected(connection)

    async def _clear_session(self, pair: Pair) -> None:
        """Connect in a client's stead, unless it is back, and leave again."""
        try:
            async with asyncio.timeout(self.limits.broker_timeout):
                reader, writer = await open_streams(self.config.node.broker)
                try:
                    if self.core.is_gone(pair):
                        if self.config.node.proxy_protocol:
                            writer.write(proxy_header.own(writer.get_extra_info))
                        writer.write(pair.clean_connect())
                        await reader.read()
                finally:
                    writer.close()
        except (OSError, TimeoutError) as error:
            self.core.count("sessions_not_cleared")
            log.warning("the session that %r left at the broker stays: %s", pair.client.client_id, error)

    # What the core asks

    def clear_session(self, pair: Pair) -> None:
        self._run(self._clear_session(pair))

    def move_ended(self, result: MoveResult) -> None:
        move, outcome = result.move, result.outcome.value
        log.info(
            "client %r moves from %s: %s, %d in flight", move.client, move.old, outcome, result.in_flight
        )

    def open_broker(self, pair: Pair) -> None:
        relay, redirect = self.relays[pair], self.config.node.redirect
        if self.stopping and redirect and not relay.is_own:
            relay.refuse_redirected(redirect)
        else:
            relay.connect_arrived()

    def write_client(self, pair: Pair, data: bytes) -> None:
        relay = self.relays.get(pair)
        if relay is not None:
            relay.write_own(data)

    def write_broker(self, pair: Pair, data: bytes) -> None:
        relay = self.relays.get(pair)
        if relay is not None:
            relay.write_broker(data)

    def hang_up(self, pair: Pair, last_words: bytes) -> None:
        relay = self.relays.get(pair)
        if relay is not None:
            relay.hang_up(last_words)
