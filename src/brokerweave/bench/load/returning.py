"""Clients that lost their connection come back at another address, while the others go on.

Owns the threads that dial, so that no schedule waits for a handshake; they end with the process. Invariants:
addresses are tried in turn, beginning at a client's own number, so that those who lost one place spread over
the others; a client tries until it is in, or the worker's time is over. Must not know: what is sent.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Iterator

from brokerweave.bench.load.clients import LoadPublisher, LoadSubscriber, come_back
from brokerweave.bench.load.plan import WorkerPlan
from brokerweave.errors import Unavailable

_AT_ONCE = 16
_PAUSE = 0.02
"""Seconds after an address that refused."""


class Returning:
    """`wants` and `back` are for the worker's own thread."""

    def __init__(self, plan: WorkerPlan) -> None:
        self._plan = plan
        self._lost: queue.SimpleQueue[LoadPublisher | LoadSubscriber] = queue.SimpleQueue()
        self._found: queue.SimpleQueue[tuple[LoadPublisher | LoadSubscriber, socket.socket]] = (
            queue.SimpleQueue()
        )
        for _ in range(_AT_ONCE):
            threading.Thread(target=self._dial_all, daemon=True).start()

    def wants(self, client: LoadPublisher | LoadSubscriber) -> None:
        self._lost.put(client)

    def back(self) -> Iterator[tuple[LoadPublisher | LoadSubscriber, socket.socket]]:
        while not self._found.empty():
            yield self._found.get()

    def _dial_all(self) -> None:
        while True:
            client = self._lost.get()
            sock = self._dial(client)
            if sock is not None:
                self._found.put((client, sock))

    def _dial(self, client: LoadPublisher | LoadSubscriber) -> socket.socket | None:
        addresses, turn = self._plan.addresses, client.client.number
        end = time.monotonic() + self._plan.total
        while time.monotonic() < end:
            try:
                return come_back(self._plan, client.client, addresses[turn % len(addresses)])
            except (OSError, Unavailable):
                turn += 1
                time.sleep(_PAUSE)
        return None
