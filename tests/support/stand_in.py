"""A stand-in for a node, around real pairs, relays and sockets: it does what a test asks for.

Owns a loop in a thread of its own. Must not know: what is tested.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from brokerweave.care.interface import Care
from brokerweave.config import LimitsSection
from brokerweave.mqtt.scanner import RouteCache
from brokerweave.node.core import NodeCore
from brokerweave.runtime.relay import BrokerConnection, ClientConnection
from brokerweave.runtime.traffic import Traffic
from brokerweave.session.move_ticket import Tickets
from brokerweave.session.pair import Pair
from brokerweave.session.record import SessionRecord
from tests.support.waiting import LIMIT
from tests.unit.session.test_pair import Host


class _NoPlugins:
    def tell(self, event: Callable[[Any], None]) -> None: ...


class StandIn(Host):
    """A node with nothing but clients: `RelayHost` and `PairHost` in one, in a loop of its own."""

    def __init__(self, broker: int, *, holds_behind: bool = True) -> None:
        super().__init__(holds_behind=holds_behind)
        self.limits = LimitsSection()
        self.care = Care()
        self.tickets = Tickets(b"", "stand-in")
        self.relays: dict[Pair, ClientConnection] = {}
        self.closing: set[ClientConnection] = set()
        self.traffic = Traffic()
        self.connections_full = False
        self.plugins = _NoPlugins()
        self.told: Counter[bytes] = Counter()
        self.pairs: list[Pair] = []
        self._broker = broker
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(LIMIT)

    async def _serve(self) -> int:
        self._server = await self._loop.create_server(lambda: ClientConnection(self), "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def do(self, what: Callable[[], None]) -> None:
        """In the loop's thread, and wait for it."""

        async def run() -> None:
            what()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(LIMIT)

    def close(self) -> None:
        def end() -> None:
            self._server.close()
            for relay in list(self.relays.values()):
                relay.end()

        self.do(end)
        self.do(lambda: None)  # transports close in the next turn
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT)
        self._loop.close()

    def now(self) -> float:
        return time.time()

    # RelayHost

    @property
    def core(self) -> NodeCore:
        return cast(NodeCore, self)

    def new_pair(self) -> Pair:
        pair = Pair(1, self, RouteCache(lambda topic, retain: None), self.limits, 100.0, watched=True)
        self.pairs.append(pair)
        return pair

    def call_later(self, seconds: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, callback)

    def dial_broker(self, relay: ClientConnection) -> None:
        async def dial() -> None:
            _, connection = await self._loop.create_connection(
                lambda: BrokerConnection(relay), "127.0.0.1", self._broker
            )
            relay.broker_connected(connection)

        task = self._loop.create_task(dial())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # PairHost

    def connect_arrived(self, pair: Pair) -> None:
        self.relays[pair].connect_arrived()

    def accepted(self, pair: Pair, session_present: bool) -> SessionRecord:
        return SessionRecord("c", 0)

    def write_client(self, pair: Pair, data: bytes) -> None:
        self.relays[pair].write_own(data)

    def write_broker(self, pair: Pair, data: bytes) -> None:
        self.relays[pair].write_broker(data)

    def clear_session(self, pair: Pair) -> None: ...

    def hang_up(self, pair: Pair, last_words: bytes) -> None:
        self.relays[pair].hang_up(last_words)

    def keeps(self, topic: bytes) -> bool:
        return True

    def received(self, pair: Pair, hashes: list[bytes], more: bool) -> None:
        self.told.update(hashes)
