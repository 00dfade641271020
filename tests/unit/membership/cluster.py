"""A few members joined by hand: datagrams lie in a list until a test lets them through."""

from __future__ import annotations

from random import Random

from brokerweave.membership.events import MembershipEvent
from brokerweave.membership.members import Address, Claim
from brokerweave.membership.presets import LAN, Preset
from brokerweave.membership.swim import Swim

KEY = b"secret"


class Node:
    """A member and what it did. Implements `Host`."""

    def __init__(self, name: str, *, boot: int = 0, key: bytes = KEY, preset: Preset = LAN) -> None:
        number = ord(name[0])
        self.address: Address = (f"10.0.0.{number}", 7946)
        self.sent: list[tuple[bytes, Address]] = []
        self.called: list[Address] = []
        self.events: list[MembershipEvent] = []
        self.now = 100.0
        claim = Claim(name, boot or number, self.address, ("10.0.0.1", 7000))
        self.swim = Swim(claim, key, preset, Random(name), self, self.now)

    def send(self, data: bytes, to: Address) -> None:
        self.sent.append((data, to))

    def exchange(self, address: Address) -> None:
        self.called.append(address)

    def happened(self, event: MembershipEvent) -> None:
        self.events.append(event)

    def pass_time(self, seconds: float) -> None:
        """Everything that is due, when it is due."""
        until = self.now + seconds
        while self.swim.next_due() <= until:
            self.now = self.swim.next_due()
            self.swim.tick(self.now)
        self.now = until

    def hears(self) -> list[str]:
        """Its events as words, once."""
        said = [f"{type(event).__name__} {event.member.id}" for event in self.events]
        self.events.clear()
        return said

    def state(self, name: str) -> str:
        member = self.swim.member(name)
        return member.state.name if member else "unknown"


def acquaint(*nodes: Node) -> None:
    for node in nodes:
        for other in nodes:
            if other is not node:
                node.swim.merge(other.swim.table()[:1], other.swim.me.id, node.now)
    for node in nodes:
        node.events.clear()


def deliver(*nodes: Node, rounds: int = 10) -> int:
    """Let what is under way arrive, and what it causes; says how many datagrams that were."""
    by_address, count = {node.address: node for node in nodes}, 0
    for _ in range(rounds):
        flying = [(data, node.address, to) for node in nodes for data, to in node.sent]
        for node in nodes:
            node.sent.clear()
        if not flying:
            break
        for data, source, to in flying:
            if to in by_address:
                receiver = by_address[to]
                receiver.swim.handle(data, source, receiver.now)
                count += 1
    return count


def together(seconds: float, *nodes: Node, step: float = 0.01) -> None:
    """Time passes for all, and datagrams arrive."""
    for _ in range(round(seconds / step)):
        for node in nodes:
            node.pass_time(step)
        deliver(*nodes)


def talk(dialer: Node, acceptor: Node) -> None:
    """One exchange of tables."""
    mine = dialer.swim.exchange(True, lambda size: b"d" * size)
    theirs = acceptor.swim.exchange(False, lambda size: b"a" * size)
    push = mine.receive(theirs.start(), dialer.now)
    pull = theirs.receive(mine.start() + push, acceptor.now)
    mine.receive(pull, dialer.now)
    assert mine.finished
    assert theirs.finished
