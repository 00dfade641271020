"""A UDP port for a party that is pure: a site that answers pings, a gateway's agent, a controller.

Owns the socket and the timer. Invariants: the party is called with the time of each datagram's arrival, and
when it wants to be; what cannot be sent is lost, as any datagram may be. Must not know: what datagrams say.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, Protocol

from brokerweave.config import Address as ConfigAddress
from brokerweave.errors import Unavailable
from brokerweave.runtime.alarm import Alarm
from brokerweave.runtime.binding import unusable

Address = tuple[str, int]


class DatagramParty(Protocol):
    def hear(self, data: bytes, source: Address, now: float) -> None: ...


class TimedParty(DatagramParty, Protocol):
    def tick(self, now: float) -> None: ...

    def next_due(self) -> float: ...


class DatagramPort(asyncio.DatagramProtocol):
    """Give it the party with `serve` when both are there: a party is made with `send`."""

    def __init__(self) -> None:
        self._transport: asyncio.DatagramTransport | None = None
        self._party: DatagramParty | None = None
        self._timed: TimedParty | None = None
        self._alarm = Alarm(self._tick)
        self.address: Address = ("", 0)

    async def open(self, address: ConfigAddress, name: str) -> None:
        """`name`: of the key, for errors. Raises `Unavailable`."""
        loop = asyncio.get_running_loop()
        try:
            self._transport, _ = await loop.create_datagram_endpoint(
                lambda: self, (address.host, address.port)
            )
        except OSError as error:
            raise unusable(name, address, error) from error
        found = self._transport.get_extra_info("sockname")
        self.address = str(found[0]), int(found[1])

    def serve(self, party: DatagramParty) -> None:
        self._party = party

    def serve_timed(self, party: TimedParty) -> None:
        self._party = self._timed = party
        self.look()

    def look(self) -> None:
        """Something was asked of the party: it may want to be called sooner."""
        if self._timed is not None and self._transport is not None:
            self._alarm.set(self._timed.next_due())

    def send(self, data: bytes, to: Address) -> None:
        if self._transport is not None:
            with contextlib.suppress(OSError, ValueError):
                self._transport.sendto(data, to)

    def close(self) -> None:
        self._alarm.cancel()
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        if self._party is not None and self._transport is not None:
            self._party.hear(data, (str(addr[0]), int(addr[1])), time.monotonic())
            self.look()

    def error_received(self, exc: Exception) -> None:
        """An earlier datagram reached nobody: pings and orders notice that by themselves."""

    def _tick(self) -> None:
        if self._timed is not None:
            self._timed.tick(time.monotonic())
            self.look()


def plain(address: ConfigAddress) -> Address:
    return address.host, address.port


async def resolved(address: ConfigAddress) -> Address:
    """A numeric address, as datagrams come from. Raises `Unavailable`."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(address.host, address.port)
    except OSError as error:
        raise Unavailable(f"no address is known for {address.host}: {error.strerror or error}") from error
    return str(found[0][4][0]), int(found[0][4][1])
