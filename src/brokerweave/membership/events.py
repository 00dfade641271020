"""What a node hears of its cluster, and what it has to do for its membership.

Owns the two interfaces. Must not know: how either side works.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from brokerweave.membership.members import Address, Member
from brokerweave.membership.meta import Meta


@dataclass(frozen=True, slots=True)
class MembershipEvent:
    member: Member


class Joined(MembershipEvent):
    """There is a process under this id. One that restarted unnoticed has `Died` first: its boot is
    another."""


class Changed(MembershipEvent):
    """It says something else of itself: its metadata, or an address."""


class Suspected(MembershipEvent):
    """It does not answer. It is a member still, and either `Refuted`, `Left` or `Died` will follow."""


class Refuted(MembershipEvent):
    """It was suspected, and lives."""


class Left(MembershipEvent):
    """It said good-bye."""


class Died(MembershipEvent):
    """It did not answer in time. If it comes back it has `Joined`."""


class Conflict(MembershipEvent):
    """Another process goes on using this node's own id: `member` is this node."""


class SwimHost(Protocol):
    """What the pure part asks of whoever runs it. None of these may call back into `Swim` at once, but for
    reading members."""

    def send(self, data: bytes, to: Address) -> None:
        """One datagram. It may be lost."""

    def exchange(self, address: Address) -> None:
        """Connect there over a reliable stream and let `Swim.exchange(dials=True)` speak. It may fail."""

    def happened(self, event: MembershipEvent) -> None:
        """In the order in which it happened."""


class Watcher(Protocol):
    """Whoever has to act when members come and go: called in the order of events. It may call
    membership itself."""

    def member_joined(self, member: Member) -> None:
        """`member.id`, `member.link_address` and `member.meta` say who and where."""

    def member_changed(self, member: Member) -> None:
        """Its metadata is another now, or an address of it."""

    def member_suspected(self, member: Member) -> None: ...

    def member_refuted(self, member: Member) -> None:
        """It was suspected, and lives."""

    def member_left(self, member: Member) -> None: ...

    def member_died(self, member: Member) -> None: ...


def tell(watcher: Watcher, event: MembershipEvent) -> None:
    """The one method that is meant by an event. `Conflict` is of this node, not of a member: nobody hears
    it; nor of observers, who take part in membership and are no nodes."""
    if Meta.decode(event.member.meta).observer:
        return
    if isinstance(event, Joined):
        watcher.member_joined(event.member)
    elif isinstance(event, Changed):
        watcher.member_changed(event.member)
    elif isinstance(event, Suspected):
        watcher.member_suspected(event.member)
    elif isinstance(event, Refuted):
        watcher.member_refuted(event.member)
    elif isinstance(event, Left):
        watcher.member_left(event.member)
    elif isinstance(event, Died):
        watcher.member_died(event.member)
