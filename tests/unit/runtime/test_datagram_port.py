"""The shell around pure parties: their datagrams, and their timer."""

from __future__ import annotations

import asyncio
import time

import pytest

from brokerweave.config import Address
from brokerweave.errors import Unavailable
from brokerweave.runtime.datagram_port import DatagramPort, resolved

HERE = Address("127.0.0.1", 0)


class Party:
    """Wants to be called a moment after each datagram."""

    def __init__(self) -> None:
        self.heard: list[tuple[bytes, tuple[str, int]]] = []
        self.due = float("inf")
        self.ticked = asyncio.Event()

    def hear(self, data: bytes, source: tuple[str, int], now: float) -> None:
        self.heard.append((data, source))
        self.due = now + 0.01

    def next_due(self) -> float:
        return self.due

    def tick(self, now: float) -> None:
        assert now >= self.due - 0.001
        self.due = float("inf")
        self.ticked.set()


async def test_a_party_hears_its_datagrams_and_is_called_when_it_wants_to_be() -> None:
    port, other, party = DatagramPort(), DatagramPort(), Party()
    await port.open(HERE, "a")
    await other.open(HERE, "b")
    port.serve_timed(party)
    other.send(b"hello", port.address)
    await asyncio.wait_for(party.ticked.wait(), 30)
    assert party.heard == [(b"hello", other.address)]
    port.close()
    other.close()
    port.send(b"nobody is there any more", other.address)


async def test_who_is_asked_for_something_is_looked_at_again() -> None:
    port, party = DatagramPort(), Party()
    await port.open(HERE, "a")
    port.serve_timed(party)
    party.due = time.monotonic()
    port.look()
    await asyncio.wait_for(party.ticked.wait(), 30)
    port.close()


async def test_a_port_that_is_taken_is_an_error_that_names_the_key() -> None:
    port = DatagramPort()
    await port.open(HERE, "a")
    with pytest.raises(Unavailable, match=r"\[monitoring\] listen 127.0.0.1:\d+ cannot be used"):
        await DatagramPort().open(Address(*port.address), "[monitoring] listen")
    port.close()


async def test_addresses_become_numeric() -> None:
    assert (await resolved(Address("127.0.0.1", 5))) == ("127.0.0.1", 5)
    with pytest.raises(Unavailable, match="no address is known for"):
        await resolved(Address("no-such-host.invalid", 5))
