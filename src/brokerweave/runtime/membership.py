"""Membership's sockets: datagrams and whole tables on one port, a timer, and who is told of what happens.

Owns the sockets, the exchanges under way and the time they may take. Invariants: what a peer without the key
sends costs a bounded amount of memory and no more than one look; a node that stops says good-bye first. Must
not know: what datagrams say, what a node does about its members (a `Watcher` does).
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import secrets
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

from brokerweave.config import Address, MembershipSection
from brokerweave.errors import RemoteProtocolError
from brokerweave.membership import events
from brokerweave.membership.events import MembershipEvent, Watcher
from brokerweave.membership.exchange import Exchange
from brokerweave.membership.members import Address as MemberAddress
from brokerweave.membership.members import Claim, Member
from brokerweave.membership.meta import Meta
from brokerweave.membership.presets import PRESETS
from brokerweave.membership.swim import Swim
from brokerweave.runtime.alarm import Alarm
from brokerweave.runtime.binding import unusable

log = logging.getLogger("brokerweave.membership")

EXCHANGE_SECONDS = 5.0
"""How long one exchange of tables may take, connecting included."""
MOST_CALLED = 8
MOST_ACCEPTED = 64
"""Exchanges at the same time, begun here or by others."""
FAREWELL_SECONDS = 1.0
"""How long a stopping node goes on telling others that it leaves."""
_CHUNK = 64 * 1024
_LOUD = (events.Suspected, events.Died, events.Conflict)


@dataclass(frozen=True, slots=True)
class OwnMembership:
    """Who takes part, and how."""

    section: MembershipSection
    id: str
    link_listen: Address | None = None
    meta: bytes = b""
    """What it tells of itself from the beginning."""


class Membership:
    """Implements `membership.events.SwimHost`."""

    def __init__(
        self,
        own: OwnMembership,
        key: bytes,
        random: Random,
        watcher: Watcher,
        warn: Callable[[str], None],
    ) -> None:
        self._own = own
        # The same file may hold the key of links: what is proved for one must prove nothing for the other.
        self._key = hmac.digest(key, b"brokerweave membership", "sha256")
        self._random = random
        self._watcher = watcher
        self._warn = warn
        self.swim: Swim
        self._datagrams: asyncio.DatagramTransport | None = None
        self._server: asyncio.Server | None = None
        self._alarm = Alarm(self._tick)
        self._speaks = False
        """Whether there is a `swim` yet, and still."""
        self._happened: deque[MembershipEvent] = deque()
        self._calling: set[MemberAddress] = set()
        self._accepted = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._first: set[MemberAddress] = set()
        """Addresses that were called first, and have neither answered nor failed to, yet."""
        self.failed_exchanges = 0

    async def start(self) -> None:
        """Raises `Unavailable` if the address cannot be used."""
        section = self._own.section
        assert section.bind is not None
        loop = asyncio.get_running_loop()
        host, port = section.bind
        try:
            self._datagrams, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), (host, port))
            port = self._datagrams.get_extra_info("sockname")[1]
            self._server = await asyncio.start_server(self._accept, host, port)
            address = await self._advertised(port)
        except OSError as error:
            raise unusable("[membership] bind", section.bind, error) from error
        link = self._link_address(address[0])
        claim = Claim(self._own.id, secrets.randbits(64), address, link, meta=self._own.meta)
        now = time.monotonic()
        self.swim = Swim(claim, self._key, PRESETS[section.preset], self._random, self, now)
        self._speaks = True
        self.swim.join(section.join, now)
        self._first = self._calling.copy()
        self._after()
        log.info("node %s is a member at %s:%d", claim.id, *address)

    async def stop(self) -> None:
        """Say good-bye, then be silent."""
        if not self._speaks:
            return
        self.swim.leave(time.monotonic())
        self._after()
        deadline = time.monotonic() + FAREWELL_SECONDS
        while not self.swim.departed and time.monotonic() < deadline:  # noqa: ASYNC110 (no one event ends it)
            await asyncio.sleep(0.02)
        self.close()

    def close(self) -> None:
        self._alarm.cancel()
        for task in self._tasks:
            task.cancel()
        self._speaks = False
        if self._server is not None:
            self._server.close()
        if self._datagrams is not None:
            self._datagrams.close()

    async def _advertised(self, port: int) -> MemberAddress:
        """A numeric address: datagrams go to nothing else."""
        section = self._own.section
        wanted = section.advertise or section.bind
        assert wanted is not None
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(wanted.host, wanted.port or port, type=socket.SOCK_DGRAM)
        return str(found[0][4][0]), int(found[0][4][1]) or port

    def _link_address(self, own_host: str) -> MemberAddress | None:
        listen = self._own.link_listen
        if listen is None or not listen.port:
            return None
        return (own_host if listen.host in ("0.0.0.0", "::") else listen.host), listen.port

    # What the node asks

    def set_meta(self, meta: bytes) -> None:
        """Tell all members something else about this one: `membership.swim.Swim.set_meta`."""
        self.swim.set_meta(meta, time.monotonic())
        self._after()

    def check(self, node_id: str) -> None:
        """A connection to this member broke: probe it now."""
        self.swim.check(node_id, time.monotonic())
        self._after()

    def searching(self) -> bool:
        """Whether there should be others that were not found yet: all addresses are asked once, since those
        that answer first may have been started a moment ago as well, and know of nobody."""
        found = self._speaks and not self._first and any(map(self._is_other_node, self.swim.members()))
        return bool(self._own.section.join) and not found

    def _is_other_node(self, member: Member) -> bool:
        return member.id != self._own.id and member.state.here and not Meta.decode(member.meta).observer

    def round_trip(self) -> float | None:
        """The mean to those members to which it is known."""
        trips = self.round_trips().values()
        return sum(trips) / len(trips) if trips else None

    def round_trips(self) -> dict[str, float]:
        members = self.swim.members()
        return {member.id: member.round_trip for member in members if member.round_trip is not None}

    def rows(self) -> list[dict[str, Any]]:
        return [_row(member, member.id == self._own.id) for member in self.swim.members()]

    def status(self) -> dict[str, Any]:
        states = Counter(member.state.name.lower() for member in self.swim.members())
        address = self.swim.me.address
        return {
            "address": str(Address(*address)),
            "preset": self._own.section.preset,
            **{state: states[state] for state in ("alive", "suspect", "dead", "left")},
            "health": self.swim.health,
        }

    def counters(self) -> dict[str, int]:
        return {
            **{f"membership_{cause}": count for cause, count in self.swim.refused.items()},
            "membership_stalls": self.swim.stalls,
            "membership_exchanges": self.swim.exchanges,
            "membership_failed_exchanges": self.failed_exchanges,
        }

    # Host

    def send(self, data: bytes, to: MemberAddress) -> None:
        # A datagram that cannot be sent now (no route, a full buffer) is one that got lost.
        if self._datagrams is not None:
            with contextlib.suppress(OSError, ValueError):
                self._datagrams.sendto(data, to)

    def exchange(self, address: MemberAddress) -> None:
        if address not in self._calling and len(self._calling) < MOST_CALLED:
            self._calling.add(address)
            self._spawn(self._call(address))

    def happened(self, event: MembershipEvent) -> None:
        member = event.member
        level = logging.WARNING if isinstance(event, _LOUD) else logging.INFO
        log.log(level, "node %s %s", member.id, type(event).__name__.lower())
        if isinstance(event, events.Conflict):
            self._warn(f"another process uses the id {member.id}: give each node its own id")
        else:
            self._happened.append(event)

    # Datagrams and time

    def received(self, data: bytes, source: MemberAddress) -> None:
        if self._speaks:
            self.swim.handle(data, source, time.monotonic())
            self._after()

    def _tick(self) -> None:
        self.swim.tick(time.monotonic())
        self._after()

    def _after(self) -> None:
        """After whatever was done to `swim`: look when it wants to be called next, and tell what happened,
        now that it may be called again."""
        if self._speaks:
            self._alarm.set(self.swim.next_due())
        while self._happened:
            events.tell(self._watcher, self._happened.popleft())

    # Exchanges of tables

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _call(self, address: MemberAddress) -> None:
        try:
            async with asyncio.timeout(EXCHANGE_SECONDS):
                reader, writer = await asyncio.open_connection(*address)
                await self._speak(reader, writer, dials=True)
        except (OSError, TimeoutError, RemoteProtocolError) as error:
            self.failed_exchanges += 1
            log.info("exchange with %s:%d: %s", *address, error or "it took too long")
        finally:
            self._calling.discard(address)
            self._first.discard(address)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._accepted >= MOST_ACCEPTED or not self._speaks:
            writer.close()
            return
        self._accepted += 1
        try:
            async with asyncio.timeout(EXCHANGE_SECONDS):
                await self._speak(reader, writer, dials=False)
        except (OSError, TimeoutError, RemoteProtocolError) as error:
            self.failed_exchanges += 1
            log.info("exchange with an unauthenticated peer: %s", error or "it took too long")
        finally:
            self._accepted -= 1

    async def _speak(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dials: bool) -> None:
        try:
            exchange: Exchange = self.swim.exchange(dials, secrets.token_bytes)
            writer.write(exchange.start())
            while not exchange.finished:
                data = await reader.read(_CHUNK)
                if not data:
                    raise RemoteProtocolError("it ended in the middle")
                writer.write(exchange.receive(data, time.monotonic()))
                self._after()
                await writer.drain()
        finally:
            writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        self._membership.received(data, (str(addr[0]), int(addr[1])))

    def error_received(self, error: Exception) -> None:
        """An earlier datagram reached nobody: probes notice that by themselves."""


def _row(member: Member, own: bool) -> dict[str, Any]:
    trip = member.round_trip
    return {
        "member": member.id,
        "self": own,
        "state": member.state.name.lower(),
        "incarnation": member.incarnation,
        "round_trip_ms": None if trip is None else round(trip * 1000, 3),
        "address": str(Address(*member.address)),
        "link_address": str(Address(*member.link_address)) if member.link_address else None,
        "boot": f"{member.boot:016x}",
        "meta": member.meta.hex(),
    }
