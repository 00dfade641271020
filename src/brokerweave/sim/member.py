"""The membership of a simulated node: the pure `Swim` on the node's host, as `runtime.membership` drives it.

Owns its timer, its exchanges of tables, and the network of datagrams, which feels the same faults as the
streams between two nodes. Invariants: each start is a new process (another boot) that knows only whom to
join; events are told in order, and only when `Swim` may be called again. Must not know: what a node does
about its members (a `Watcher` does), links.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from math import inf
from random import Random

from brokerweave.errors import RemoteProtocolError
from brokerweave.membership import events
from brokerweave.membership.events import MembershipEvent, Watcher
from brokerweave.membership.members import Address, Claim
from brokerweave.membership.meta import Meta
from brokerweave.membership.presets import LAN
from brokerweave.membership.swim import Swim
from brokerweave.sim.datagrams import DatagramNetwork, Faults
from brokerweave.sim.pipes import StreamNetwork
from brokerweave.sim.world import VirtualHost, World

KEY = b"the cluster's key"
PORT, LINK_PORT = 7946, 7000
PRESET = replace(LAN, probe_interval=0.25, probe_timeout=0.08, push_pull_interval=5.0, reconnect_interval=1.0)
"""For nodes 20 ms apart, in a world where a minute is long: a death is known after one to four seconds."""
DISTURBED_LOSS = 0.3
"""The part of the datagrams that is lost on a wire which a fault makes slow."""
FAREWELLS = 3
"""Rounds of gossip in which a node that stops says good-bye."""


class ClusterNetwork(DatagramNetwork):
    """Datagrams between nodes: a wire that is blocked carries none, a slow one carries them late or not at
    all."""

    def __init__(self, world: World, streams: StreamNetwork, loss: float) -> None:
        super().__init__(world, Faults(loss=loss, doubled=0.02, delay=0.0, jitter=0.002))
        self._streams = streams

    def reachable(self, source: Address, to: Address) -> bool:
        return super().reachable(source, to) and not self._streams.wire(source[0], to[0]).blocked

    def send(self, data: bytes, source: Address, to: Address) -> None:
        wire = self._streams.wire(source[0], to[0])
        if (wire.jitter or wire.rate) and self._random() < DISTURBED_LOSS:
            self.lost += 1
        else:
            super().send(data, source, to)

    def delay_between(self, source: Address, to: Address, size: int) -> float:
        return self.delay() + self._streams.wire(source[0], to[0]).latency(size)


class SimMember:
    """Implements `membership.events.SwimHost`, and `datagrams.Owner`."""

    def __init__(self, host: VirtualHost, network: ClusterNetwork, names: list[str], random: Random) -> None:
        """`names`: of all nodes; every other one is named as somebody to join."""
        self.host = host
        self.address: Address = (host.name, PORT)
        self.swim: Swim
        self._network = network
        self._seeds = [(name, PORT) for name in names if name != host.name]
        self._random = random
        self._watcher: Watcher
        self._armed = inf
        self._happened: deque[MembershipEvent] = deque()
        self._first: set[Address] = set()
        """Addresses that were called first, and have neither answered nor failed to, yet."""
        network.attach(self.address, self)

    def start(self, watcher: Watcher) -> None:
        """The node was started: its host is up."""
        now = self.host.world.now
        self._watcher = watcher
        self._armed = inf
        self._happened.clear()
        claim = Claim(self.host.name, self._random.getrandbits(64), self.address, (self.host.name, LINK_PORT))
        self.swim = Swim(claim, KEY, PRESET, self._random, self, now)
        self._first = set(self._seeds)
        self.swim.join(self._seeds, now)
        self._after()

    def leave(self) -> None:
        """Say good-bye. The process ends at once: what it would say in a moment is said now."""
        now = self.host.world.now
        self.swim.leave(now)
        for number in range(FAREWELLS):
            self.swim.tick(now + number * PRESET.gossip_interval)

    def announce(self, data: bytes) -> None:
        self._act(lambda now: self.swim.set_meta(Meta(table=data).encode(), now))

    def check(self, node: str) -> None:
        """A connection to this member broke."""
        self._act(lambda now: self.swim.check(node, now))

    def searching(self) -> bool:
        """As in the runtime: nobody was found, or not all were asked once."""
        return bool(self._seeds) and (self.swim.here <= 1 or bool(self._first))

    # SwimHost, Owner

    def send(self, data: bytes, to: Address) -> None:
        self._network.send(data, self.address, to)

    def exchange(self, address: Address) -> None:
        """Connecting and three turns take two round trips; a stream does not lose."""
        wait = 4 * self._network.delay_between(self.address, address, 0)
        self.host.later(wait, lambda: self._exchange(address))

    def happened(self, event: MembershipEvent) -> None:
        self._happened.append(event)

    def received(self, data: bytes, source: Address) -> None:
        self._act(lambda now: self.swim.handle(data, source, now))

    # Inside

    def _exchange(self, address: Address) -> None:
        self._first.discard(address)
        other = self._network.owner(self.address, address)
        if not isinstance(other, SimMember) or other.host.frozen:
            return
        now = self.host.world.now
        mine = self.swim.exchange(True, self._random.randbytes)
        theirs = other.swim.exchange(False, self._random.randbytes)
        try:
            push = mine.receive(theirs.start(), now)
            mine.receive(theirs.receive(mine.start() + push, now), now)
        except RemoteProtocolError:
            pass
        self._after()
        # Another process: should one of the two be killed by what it does now, the other goes on.
        other.host.later(0.0, other._after)

    def _act(self, action: Callable[[float], None]) -> None:
        action(self.host.world.now)
        self._after()

    def _after(self) -> None:
        due = self.swim.next_due()
        if due < self._armed:
            self._armed = due
            self.host.later(due - self.host.world.now, lambda: self._tick(due))
        while self._happened:
            event = self._happened.popleft()
            self.host.world.note(self.host.name, f"{event.member.id} {type(event).__name__.lower()}")
            events.tell(self._watcher, event)

    def _tick(self, due: float) -> None:
        if due == self._armed:  # else an earlier one came in between, and armed another
            self._armed = inf
            self._act(self.swim.tick)
