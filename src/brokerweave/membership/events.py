"""What a node hears of its cluster, and what it has to do for its membership.

Owns the two interfaces. Must not know: how either side works.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from brokerweave.membership.members import Address, Member


@dataclass(frozen=True, slots=True)
class Event:
    member: Member


class Joined(Event):
    """There is a process under this id. One that restarted unnoticed has `Died` first: its boot is
    another."""


class Changed(Event):
    """It says something else of itself: its metadata, or an address."""


class Suspected(Event):
    """It does not answer. It is a member still, and either `Refuted`, `Left` or `Died` will follow."""


class Refuted(Event):
    """It was suspected, and lives."""


class Left(Event):
    """It said good-bye."""


class Died(Event):
    """It did not answer in time. If it comes back it has `Joined`."""


class Conflict(Event):
    """Another process goes on using this node's own id: `member` is this node."""


class Host(Protocol):
    """What the pure part asks of whoever runs it. None of these may call back into `Swim` at once, but for
    reading members."""

    def send(self, data: bytes, to: Address) -> None:
        """One datagram. It may be lost."""

    def exchange(self, address: Address) -> None:
        """Connect there over a reliable stream and let `Swim.exchange(dials=True)` speak. It may fail."""

    def happened(self, event: Event) -> None:
        """In the order in which it happened."""
