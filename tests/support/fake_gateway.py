"""A gateway without clients' connections: the real agent on a real socket, in a thread of its own.

Owns the thread and its loop. Invariant: the agent is touched by that thread alone. Must not know: what is
tested.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from random import Random
from typing import TypeVar

from brokerweave.config import Address
from brokerweave.lab.broker import HOST
from brokerweave.placement.gateway_agent import GatewayAgent
from brokerweave.placement.history import MoveOutcome
from brokerweave.placement.prober import ProbeSettings
from brokerweave.runtime.datagram_port import DatagramPort
from brokerweave.runtime.monitoring import draw_boot, monitoring_key
from tests.support.waiting import LIMIT

T = TypeVar("T")


class FakeGateway:
    """Implements `AgentHost`. Each client that is to move, moves at once."""

    def __init__(self, name: str, key: bytes, controllers: Iterable[tuple[str, int]]) -> None:
        self.name = name
        self.moves: list[tuple[str, str]] = []
        self._key = monitoring_key(key)
        self._controllers = list(controllers)
        self._loop = asyncio.new_event_loop()
        self._port = DatagramPort()
        self.agent: GatewayAgent
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(LIMIT)

    async def _start(self) -> None:
        await self._port.open(Address(HOST, 0), "gateway")
        probing, now = ProbeSettings(every=3.0), time.monotonic()
        self.agent = GatewayAgent(
            self.name, self._key, draw_boot(), self._controllers, [], probing, Random(1), self, now
        )
        self._port.serve_timed(self.agent)

    async def _stop(self) -> None:
        self._port.close()
        await asyncio.sleep(0)  # the loop closes sockets in its next turn

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(LIMIT)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT)
        self._loop.close()

    def connect(self, client: str) -> str:
        """A client comes; returns the site that was chosen for it."""
        found: list[str] = []
        placed = threading.Event()

        def place(sites: tuple[str, ...]) -> None:
            if sites:
                found.append(sites[0])
                self.agent.client_at(client, sites[0], time.monotonic())
            placed.set()

        self._do(lambda: self.agent.place(client, place, time.monotonic()))
        assert placed.wait(LIMIT)
        return found[0]

    def where(self, client: str) -> str | None:
        return self._do(lambda: self.agent.clients.site_of(client))

    def estimates(self) -> dict[str, float]:
        return self._do(lambda: self.agent.prober.estimates())

    def follows(self) -> str:
        return self._do(lambda: self.agent.follows)

    def _do(self, work: Callable[[], T]) -> T:
        async def call() -> T:
            try:
                return work()
            finally:
                self._port.look()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(LIMIT)

    # Of the agent's host

    def send(self, data: bytes, to: tuple[str, int]) -> None:
        self._port.send(data, to)

    def sites_changed(self, sites: object) -> None: ...

    def move(self, number: int, client: str, target: str) -> None:
        self.moves.append((client, target))
        now = time.monotonic()
        self.agent.client_at(client, target, now)
        self.agent.moved(number, MoveOutcome.DONE, "", now)
