"""The client listener: accepts clients, and connects each to the broker.

Owns the relay of each client, and what all of them sent and got. Invariants: no more than `max_connections`
are in at once; a client's way to the broker ends in `broker_connected`, in `broker_unreachable`, or in the
end of its relay. Must not know: what a client says, routing, links.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from brokerweave.config import Address, LimitsSection, NodeConfig
from brokerweave.node.core import NodeCore
from brokerweave.runtime.accepting import Accepting
from brokerweave.runtime.dialing import dial
from brokerweave.runtime.relay import BrokerConnection, ClientConnection
from brokerweave.runtime.traffic import Traffic
from brokerweave.session.pair import Pair

log = logging.getLogger("brokerweave.node")


class ClientListenerHost(Protocol):
    @property
    def config(self) -> NodeConfig:
        """As it is now: limits may be read again while the node runs."""

    @property
    def core(self) -> NodeCore: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle: ...

    def task_failed(self, task: str, error: BaseException) -> None: ...


class ClientListener:
    """Implements `runtime.relay.RelayHost`, and of `node.core.NodeHost` what concerns clients."""

    def __init__(self, host: ClientListenerHost) -> None:
        self.relays: dict[Pair, ClientConnection] = {}
        self.traffic = Traffic()
        self.call_later = host.call_later
        self._host = host
        self._dialing: set[asyncio.Task[None]] = set()
        self._accepting = Accepting(lambda: ClientConnection(self))

    async def listen(self) -> None:
        await self._accepting.listen(*self.config.node.listen)

    @property
    def address(self) -> Address:
        """Where a client on this machine comes in, though it may listen on all addresses, or on any port."""
        host, port = self._accepting.address
        return Address({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)

    def close(self) -> None:
        """Let nobody in any more, and everybody out."""
        self._accepting.close()
        for relay in list(self.relays.values()):
            relay.shut_down()

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
        task = asyncio.get_running_loop().create_task(self._dial_broker(relay))
        self._dialing.add(task)
        task.add_done_callback(self._dialing.discard)

    async def _dial_broker(self, relay: ClientConnection) -> None:
        broker = self.config.node.broker
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

    # What the core asks

    def open_broker(self, pair: Pair) -> None:
        self.relays[pair].connect_arrived()

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
