"""A site whose links open when something is for a member: delay, bandwidth and bytes of each node counted.

Owns how two nodes come to be linked, and what a link costs. Every byte of a node goes through its one uplink,
first in, first out, and then takes the delay of the pair. Invariants: bytes of a link arrive in order; a
killed node does nothing any more, and its links end at their other side after their delay, as those of a
killed process do. Must not know: the scenario, how deaths are noticed. There are no pings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from brokerweave.links.connection import BatchArrived, LinkConnection
from brokerweave.links.connection import Event as LinkEvent
from brokerweave.links.handshake import Acceptor, Dialer
from brokerweave.membership.members import Address
from brokerweave.plugin import OptionValue, Strategy
from brokerweave.sim.scale_node import LinkEnd, ScaleNode, ScaleTraffic
from brokerweave.sim.world import ScheduledEvent, World

RECONNECT_MIN, RECONNECT_MAX = 0.2, 10.0
"""As in the configuration's defaults."""


class OverlayNetwork:
    """All nodes of a run, by name, and how far they are apart."""

    def __init__(self, world: World, delays: tuple[float, float], uplink: float, *, announces: bool) -> None:
        """`delays`: the least and the most of any pair, in seconds, one way; `uplink`: bytes a second;
        `announces`: whether members hear each other's announcements."""
        self.world = world
        self.uplink = uplink
        self.nodes: dict[str, OverlayNode] = {}
        self.plan_bytes = 0
        """Of all plans that arrived with runs."""
        self.dials = 0
        self.delays = delays
        self._announces = announces

    def delay(self, one: str, other: str) -> float:
        """The same for a pair in every run of a seed, whatever the strategy."""
        return Random(f"{self.world.seed}/{min(one, other)}/{max(one, other)}").uniform(*self.delays)

    def announce(self, node: str, data: bytes) -> None:
        for each in self.nodes.values() if self._announces else ():
            if each.alive and each.name != node:
                each.core.guarded.member_announced(node, data)


class OverlayNode(ScaleNode):
    """Implements `MemberHost` as well."""

    def __init__(
        self,
        network: OverlayNetwork,
        traffic: ScaleTraffic,
        random: Random,
        number: int,
        strategy: type[Strategy],
        barrier_timeout: float | None,
        name: str,
        options: Mapping[str, OptionValue],
        max_links: int,
    ) -> None:
        self.network = network
        self.alive = True
        self.bytes_in = 0
        self.bytes_out = 0
        self.ends: set[OverlayEnd] = set()
        self._free_at = 0.0
        self._dialing: dict[str, float] = {}
        """Members to be kept connected, with the pause before the next attempt."""
        super().__init__(
            network.world,
            traffic,
            random,
            number,
            strategy,
            barrier_timeout,
            name=name,
            options=options,
            max_links=max_links,
        )

    def join(self, members: dict[str, Address | None], live: frozenset[str]) -> None:
        """Membership begins, and knows everybody."""
        self.core.cluster.attach(self)
        if self.core.demand is not None:
            self.core.demand.share(members)
            self.core.demand.attach(self)
        self.core.cluster.live = live
        self.core.guarded.members_changed(live)

    def hears_of_death(self, member: str) -> None:
        """As `MemberWatcher.member_died`."""
        if self.alive:
            self.core.cluster.live -= {member}
            self.core.guarded.members_changed(self.core.cluster.live)
            if self.core.demand is not None:
                self.core.demand.gone(member)

    def die(self) -> None:
        self.alive = False
        for end in list(self.ends):
            end.drop()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> ScheduledEvent:
        return super().call_later(seconds, partial(self._run, callback))

    def _run(self, callback: Callable[[], None]) -> None:
        if self.alive:
            callback()

    def leaves_at(self, size: int) -> float:
        """Give so many bytes to the uplink: when the last one has left."""
        self.bytes_out += size
        self._free_at = max(self._free_at, self.world.now) + size / self.network.uplink
        return self._free_at

    # MemberHost

    def announce(self, data: bytes) -> None:
        self.network.announce(self.name, data)

    def searching(self) -> bool:
        return False

    def round_trips(self) -> dict[str, float]:
        """As probes of all members would give it."""
        return {each: 2 * self.network.delay(self.name, each) for each in self.network.nodes}

    def is_configured(self, node: str) -> bool:
        return False

    def dial_member(self, node: str, address: Address) -> None:
        self._dialing[node] = RECONNECT_MIN
        self._dial(node)

    def hang_up_member(self, node: str) -> None:
        self._dialing.pop(node, None)
        for carrier in self.carriers.of(node):
            carrier.connection.close()
            carrier.close()

    def lost(self, end: OverlayEnd) -> None:
        self.ends.discard(end)
        self.carriers.lost(end)
        self._again(end.dialed_name)

    def _dial(self, name: str) -> None:
        if name in self._dialing and self.carriers.get(name, 0) is None:
            self.network.dials += 1
            round_trip = 2 * self.network.delay(self.name, name)
            self.call_later(round_trip, partial(self._open, name, round_trip / 2))

    def _open(self, name: str, delay: float) -> None:
        """There is a connection, if the other side lives."""
        other = self.network.nodes[name]
        if name not in self._dialing:
            return
        if not other.alive:
            self._again(name)
            return
        self.core.add_neighbour(name)
        resume = self.core.neighbour_table[name].lanes[0].resume()
        call = Dialer(self.identity, 0, resume, name, self.random.randbytes)
        answer = Acceptor(other.identity, other.carriers.admit, other.random.randbytes)
        now = self.world.now
        near = OverlayEnd(self, LinkConnection(call, now), name, delay)
        far = OverlayEnd(other, LinkConnection(answer, now), "", delay)
        near.attach(far)
        far.attach(near)
        near.peer = (name, 0)
        near.flush()

    def _again(self, name: str) -> None:
        pause = self._dialing.get(name)
        if pause is not None:
            self._dialing[name] = min(2 * pause, RECONNECT_MAX)
            self.call_later(pause * self.random.uniform(0.5, 1.0), partial(self._dial, name))


class OverlayEnd(LinkEnd):
    """One node's end of a link that was dialed."""

    __slots__ = ("_site", "dialed_name")

    def __init__(self, node: OverlayNode, connection: LinkConnection, dialed: str, delay: float) -> None:
        """`dialed`: whom this side dialed; empty where it was dialed."""
        super().__init__(node, connection, bool(dialed), delay)
        self._site = node
        self.dialed_name = dialed
        node.ends.add(self)

    def received(self, data: bytes) -> None:
        if self._far is not None:
            self._site.bytes_in += len(data)
            super().received(data)
            if self.connection.closed:
                self.close()

    def arrived(self, event: LinkEvent) -> None:
        super().arrived(event)
        if isinstance(event, BatchArrived):
            self._site.network.plan_bytes += sum(len(run.plan) for run in event.runs)

    def flush(self) -> None:
        data = self.connection.data_to_send()
        if data and self._far is not None:
            self._site.traffic.link_bytes += len(data)
            self._deliver(len(data), partial(self._far.received, data))

    def close(self) -> None:
        self.flush()
        if isinstance(self._far, OverlayEnd):
            self._deliver(0, self._far.ended)
            self._far = None
            self._site.call_later(0.0, partial(self._site.lost, self))

    def ended(self) -> None:
        """The other side closed the connection, or died."""
        if self._far is not None:
            self._far = None
            self._site.lost(self)

    def drop(self) -> None:
        """This side's process was killed."""
        if isinstance(self._far, OverlayEnd):
            self._deliver(0, self._far.ended)
            self._far = None

    def _deliver(self, size: int, callback: Callable[[], None]) -> None:
        world = self._site.world
        world.later(self._site.leaves_at(size) - world.now + self._delay, callback)
