"""A member in virtual time: the pure `Swim` on a host that can die, pause and come back.

Owns its timer and its restarts. Invariant: after a restart it remembers nothing, not even its incarnation.
Must not know: the scenario, how well membership does.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from brokerweave.errors import RemoteProtocolError
from brokerweave.membership.events import MembershipEvent
from brokerweave.membership.members import Address, Claim
from brokerweave.membership.presets import Preset
from brokerweave.membership.swim import Swim
from brokerweave.sim.datagrams import DatagramNetwork
from brokerweave.sim.world import VirtualHost, World

KEY = b"the cluster's key"
Watch = Callable[["MemberNode", MembershipEvent], None]


class MemberNode:
    """Implements `membership.events.SwimHost`."""

    def __init__(
        self, world: World, network: DatagramNetwork, number: int, preset: Preset, watch: Watch
    ) -> None:
        self.number = number
        self.id = f"n{number}"
        self.address: Address = (f"10.0.{number >> 8}.{number & 255}", 7946)
        self.host = VirtualHost(world, self.id)
        self.swim: Swim
        self.boot = 0
        self._world = world
        self._network = network
        self._preset = preset
        self._watch = watch
        self._random = world.random(self.id)
        self._armed = inf
        self.stream_bytes = 0
        network.attach(self.address, self)

    def claim(self) -> Claim:
        return Claim(self.id, self.boot, self.address, (self.address[0], 7000))

    def start(self, meta: bytes = b"") -> None:
        self.host.start()
        self.boot = self._random.getrandbits(64)
        self._armed = inf
        self.swim = Swim(self.claim(), KEY, self._preset, self._random, self, self._world.now)
        self._arm()

    def crash(self) -> None:
        self.host.die()

    def act(self, action: Callable[[float], None]) -> None:
        """Something is done to its membership from outside: `node.act(node.swim.leave)`."""
        action(self._world.now)
        self._arm()

    # Host

    def send(self, data: bytes, to: Address) -> None:
        self._network.send(data, self.address, to)

    def exchange(self, address: Address) -> None:
        """Connecting and three turns take two round trips; a stream does not lose."""
        network = self._network
        self.host.later(4 * network.delay(), lambda: self._exchange(address))

    def happened(self, event: MembershipEvent) -> None:
        self._watch(self, event)

    # Inside

    def received(self, data: bytes, source: Address) -> None:
        self.swim.handle(data, source, self._world.now)
        self._arm()

    def _exchange(self, address: Address) -> None:
        other = self._network.owner(self.address, address)
        if not isinstance(other, MemberNode) or other.host.frozen:
            return
        now = self._world.now
        mine = self.swim.exchange(True, self._random.randbytes)
        theirs = other.swim.exchange(False, self._random.randbytes)
        try:
            push = mine.receive(theirs.start(), now)
            pull = theirs.receive(mine.start() + push, now)
            mine.receive(pull, now)
        except RemoteProtocolError:
            return
        self.stream_bytes += len(push) + len(pull)
        self._arm()
        other._arm()

    def _arm(self) -> None:
        due = self.swim.next_due()
        if due < self._armed:
            self._armed = due
            self.host.later(due - self._world.now, lambda: self._tick(due))

    def _tick(self, due: float) -> None:
        if due != self._armed:
            return  # an earlier one came in between, and armed another
        self._armed = inf
        self.swim.tick(self._world.now)
        self._arm()
