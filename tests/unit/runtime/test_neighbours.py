"""The sockets of links, on the loop that nodes have."""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop

from brokerweave.config import Address, LinksSection
from brokerweave.links.handshake import NodeIdentity
from brokerweave.links.lane import Lane
from brokerweave.node.core import NodeCore
from brokerweave.runtime.neighbours import LinkSocket, NodeLinks
from tests.unit.node.network import Network

HOST = "127.0.0.1"
LIMIT = 20.0
SECTION = LinksSection(sessions=1, reconnect_min=0.01, reconnect_max=0.01)


class Side:
    """A node's links, and who hears of them."""

    def __init__(self, name: str) -> None:
        self._network = Network()
        self._network.add(name)
        self.core: NodeCore = self._network.nodes[name].core
        self.changes: list[bool] = []
        self.on_change: Callable[[bool], None] = lambda up: None
        self.links = NodeLinks(self, SECTION, NodeIdentity(name, 1, "sf", 1))

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def task_failed(self, task: str, error: BaseException) -> None:
        raise error

    def remember_taken(self, neighbour: str, index: int, lane: Lane) -> None: ...

    def neighbour_left(self, neighbour: str) -> None: ...

    def link_changed(self, neighbour: str, up: bool) -> None:
        self.changes.append(up)
        self.on_change(up)

    async def until(self, changes: list[bool]) -> None:
        async with asyncio.timeout(LIMIT):
            while self.changes != changes:  # noqa: ASYNC110 (whatever changes it)
                await asyncio.sleep(0.001)


def run(main: Callable[[], Any]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


@contextmanager
def listening() -> Iterator[Address]:
    """Node b, in a process's thread of its own: it answers while the loop of a is busy."""
    ready, over = threading.Event(), threading.Event()
    ports: list[int] = []

    async def main() -> None:
        side = Side("b")
        ports.append(await side.links.listen(Address(HOST, 0)))
        ready.set()
        await asyncio.to_thread(over.wait)
        await side.links.stop()

    thread = threading.Thread(target=run, args=(main,))
    thread.start()
    try:
        assert ready.wait(LIMIT)
        yield Address(HOST, ports[0])
    finally:
        over.set()
        thread.join()


def test_a_link_that_was_hung_up_can_be_dialed_again() -> None:
    async def main() -> None:
        side = Side("a")
        side.links.dial("b", address)
        await side.until([True])
        side.links.hang_up("b", removed=False)
        await side.until([True, False])
        assert not side.links.sockets
        side.links.dial("b", address)
        await side.until([True, False, True])
        await side.links.stop()

    with listening() as address:
        run(main)


def test_a_link_that_ends_before_its_dialer_knows_that_it_is_connected_can_be_dialed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop is so busy that the other side has answered by then: the handshake is over first."""
    made = LinkSocket.connection_made

    def answered(link: LinkSocket, transport: asyncio.BaseTransport) -> None:
        made(link, transport)
        if link.dialed:
            select.select([transport.get_extra_info("socket").fileno()], [], [], LIMIT)

    monkeypatch.setattr(LinkSocket, "connection_made", answered)

    async def main() -> None:
        side = Side("a")

        def hang_up(up: bool) -> None:
            side.on_change = lambda up: None
            side.links.hang_up("b", removed=False)

        side.on_change = hang_up
        side.links.dial("b", address)
        await side.until([True, False])
        assert not side.links.sockets
        side.links.dial("b", address)
        await side.until([True, False, True])
        assert len(side.links.sockets) == 1
        await side.links.stop()

    with listening() as address:
        run(main)
