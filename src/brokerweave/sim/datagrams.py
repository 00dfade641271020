"""A network of datagrams in virtual time: it loses, delays, reorders, doubles and splits, and counts what it
carries.

Owns who can reach whom. Invariants: a datagram to a host that is down, or on the other side of a split, is
lost; datagrams to a paused host wait, as many as a socket's buffer holds. Must not know: what datagrams say.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from brokerweave.sim.world import VirtualHost, World

Address = tuple[str, int]

BUFFER = 1000
"""Datagrams that wait for a paused host."""


@dataclass(frozen=True, slots=True)
class Faults:
    loss: float = 0.0
    """The part of the datagrams that never arrives."""
    doubled: float = 0.0
    """The part that arrives twice."""
    delay: float = 0.0005
    """Seconds, at least."""
    jitter: float = 0.001
    """Seconds more, at most: what was sent later by less than this may arrive first."""


class Owner(Protocol):
    """Whoever has an address."""

    host: VirtualHost

    def received(self, data: bytes, source: Address) -> None: ...


class _Port:
    __slots__ = ("group", "host", "owner", "waiting")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.host = owner.host
        self.group = 0
        self.waiting = 0


class DatagramNetwork:
    def __init__(self, world: World, faults: Faults) -> None:
        self.faults = faults
        self._world = world
        self._random = world.random("datagrams").random
        self._ports: dict[Address, _Port] = {}
        self.datagrams = 0
        self.bytes = 0
        self.largest = 0
        self.lost = 0

    def attach(self, address: Address, owner: Owner) -> None:
        self._ports[address] = _Port(owner)

    def owner(self, source: Address, to: Address) -> Owner | None:
        """Who can be reached there, if anybody."""
        return self._ports[to].owner if self.reachable(source, to) else None

    def split(self, groups: dict[Address, int]) -> None:
        """Hosts reach only those in the same group; who is not named is in group 0."""
        for address, port in self._ports.items():
            port.group = groups.get(address, 0)

    def reachable(self, source: Address, to: Address) -> bool:
        there = self._ports.get(to)
        return there is not None and there.host.up and there.group == self._ports[source].group

    def send(self, data: bytes, source: Address, to: Address) -> None:
        random, faults = self._random, self.faults
        self.datagrams += 1
        self.bytes += len(data)
        self.largest = max(self.largest, len(data))
        if random() < faults.loss or not self.reachable(source, to):
            self.lost += 1
            return
        self._carry(data, source, to)
        if faults.doubled and random() < faults.doubled:
            self._carry(data, source, to)

    def delay(self) -> float:
        return self.faults.delay + self._random() * self.faults.jitter

    def delay_between(self, source: Address, to: Address, size: int) -> float:
        return self.delay()

    def _carry(self, data: bytes, source: Address, to: Address) -> None:
        port = self._ports[to]

        def arrive() -> None:
            host = port.host
            if not host.frozen:
                if host.up:
                    port.owner.received(data, source)
            elif port.waiting < BUFFER:
                port.waiting += 1
                host.run(thawed)

        def thawed() -> None:
            port.waiting -= 1
            port.owner.received(data, source)

        self._world.later(self.delay_between(source, to, len(data)), arrive)
