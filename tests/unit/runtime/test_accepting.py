"""Clients that come all at once are let in together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Coroutine, Iterator

import pytest
import uvloop

from brokerweave.runtime.accepting import AT_ONCE, Accepting

HOST = "127.0.0.1"


class Client(asyncio.Protocol):
    def __init__(self, inside: list[asyncio.BaseTransport]) -> None:
        self._inside = inside

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inside.append(transport)


def run(main: Callable[[], Coroutine[None, None, None]]) -> None:
    """On the loop that nodes have."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


@contextlib.contextmanager
def coming(port: int, count: int) -> Iterator[None]:
    """So many clients, whom the system has connected and the loop has not seen yet."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection((HOST, port), 5))
        yield


def test_all_who_wait_come_in_within_a_few_turns() -> None:
    async def main() -> None:
        inside: list[asyncio.BaseTransport] = []
        accepting = Accepting(lambda: Client(inside))
        await accepting.listen(HOST, 0)
        with coming(accepting.address[1], 2 * AT_ONCE):
            for _ in range(8):
                await asyncio.sleep(0)
            assert len(inside) == 2 * AT_ONCE
        accepting.close()

    run(main)


def test_nobody_comes_in_when_it_is_closed() -> None:
    async def main() -> None:
        accepting = Accepting(asyncio.Protocol)
        await accepting.listen(HOST, 0)
        port = accepting.address[1]
        accepting.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, port), 5)

    run(main)


def test_a_system_without_files_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: socket.socket) -> None:
        monkeypatch.undo()
        raise OSError(24, "Too many open files")

    async def main() -> None:
        entered = asyncio.Event()

        class Enters(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                entered.set()

        accepting = Accepting(Enters)
        await accepting.listen(HOST, 0)
        monkeypatch.setattr("brokerweave.runtime.accepting.PAUSE_SECONDS", 0.0)
        monkeypatch.setattr(socket.socket, "accept", refuse)
        with coming(accepting.address[1], 1):
            await asyncio.wait_for(entered.wait(), 20)
        accepting.close()

    with caplog.at_level(logging.WARNING):
        run(main)
    assert "cannot accept a client: Too many open files" in caplog.text


def test_an_address_that_is_taken_cannot_be_used() -> None:
    async def main() -> None:
        first, second = Accepting(asyncio.Protocol), Accepting(asyncio.Protocol)
        await first.listen(HOST, 0)
        with pytest.raises(OSError, match="in use"):
            await second.listen(*first.address)
        first.close()

    run(main)
