"""Members under faults, seed after seed: they crash and return, pause, leave, and are split.

Owns the schedule that a seed makes, and what must hold: no member is declared dead while only loss and
reordering happen to it; all know of a crash in time; after each fault all know the truth in time, and nobody
declares another member dead twice for one fault. Invariants: a run is a pure function of its seed; faults
come one after another, so that it is clear what is due. Must not know: how membership works, nodes.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerweave.membership import events
from brokerweave.membership.members import MemberState
from brokerweave.membership.presets import LAN
from brokerweave.sim.datagrams import DatagramNetwork, Faults
from brokerweave.sim.membership_node import MemberNode
from brokerweave.sim.promises import Broken
from brokerweave.sim.world import World

SIZES = (4, 5, 7)
FAULTS = 8
"""In one run."""
KNOWN = 8.0
"""Seconds in which all know of a crash: more than the longest suspicion of so few, and a round of probes."""
SETTLED = 20.0
"""Seconds after a fault in which all know the truth again: some `reconnect_interval`s."""
LOOK = 0.5
LONGEST = 15.0


class FaultyMembers:
    def __init__(self, seed: int) -> None:
        self.world = World(str(seed))
        self._random = random = self.world.random("faults")
        faults = Faults(
            loss=random.choice((0.0, 0.02, 0.05)),
            doubled=0.05,
            delay=0.0005,
            jitter=random.choice((0.002, 0.02)),
        )
        self.network = DatagramNetwork(self.world, faults)
        self.nodes = [
            MemberNode(self.world, self.network, number, LAN, self._happened)
            for number in range(random.choice(SIZES))
        ]
        self._by_id = {node.id: node for node in self.nodes}
        self._metas = {node.id: b"" for node in self.nodes}
        self._away: set[str] = set()
        """Those that the fault befalls: others may hold them for dead, and they others."""
        self._deaths: set[tuple[str, str]] = set()
        """Who held whom for dead, since the last fault began."""

    def run(self) -> None:
        """Raises `Broken`."""
        for node in self.nodes:
            node.start()
            node.act(lambda now, node=node: node.swim.join([self.nodes[0].address], now))  # type: ignore[misc]
        self._wait(self._untrue, SETTLED, "the start")
        for number in range(FAULTS):
            fault = self._random.choice((self._crash, self._freeze, self._split, self._leave))
            self._change(number)
            self._deaths.clear()
            self.world.note("schedule", fault.__name__[1:])
            fault()
            self._settle(fault.__name__[1:])
            self._away.clear()
            self._pass(self._random.uniform(1.0, 4.0))

    # Faults

    def _change(self, number: int) -> None:
        node = self._random.choice(self.nodes)
        self._metas[node.id] = b"%d" % number
        node.act(lambda now: node.swim.set_meta(self._metas[node.id], now))

    def _crash(self) -> None:
        gone = self._random.sample(self.nodes, self._random.choice((1, 1, 2)))
        self._away = {node.id for node in gone}
        for node in gone:
            node.crash()
        if self._random.random() < 0.7:
            self._wait(lambda: self._not_dead(gone), KNOWN, "a crash")
        else:
            self._pass(self._random.uniform(0.05, 1.0))
        for node in gone:
            self._return(node)

    def _leave(self) -> None:
        node = self._random.choice(self.nodes)
        self._away = {node.id}
        node.act(node.swim.leave)
        self._pass(1.0)
        node.crash()
        self._pass(self._random.uniform(0.0, 3.0))
        self._return(node)

    def _return(self, node: MemberNode) -> None:
        node.start()
        others = [other.address for other in self.nodes if other is not node and other.host.up]
        node.act(lambda now: node.swim.join([self._random.choice(others)], now))
        node.act(lambda now: node.swim.set_meta(self._metas[node.id], now))

    def _freeze(self) -> None:
        node = self._random.choice(self.nodes)
        self._away = {node.id}
        node.host.freeze()
        self._pass(self._random.uniform(0.1, LONGEST))
        node.host.thaw()

    def _split(self) -> None:
        self._away = set(self._by_id)
        half = self._random.sample(self.nodes, len(self.nodes) // 2)
        self.network.split({node.address: 1 for node in half})
        self._pass(self._random.uniform(0.5, LONGEST))
        self.network.split({})

    # What must hold

    def _pass(self, seconds: float) -> None:
        self.world.run(self.world.elapsed + seconds)

    def _settle(self, what: str) -> None:
        self._wait(self._untrue, SETTLED, what)

    def _wait(self, problem: Callable[[], str], bound: float, what: str) -> None:
        deadline = self.world.elapsed + bound
        while found := problem():
            if self.world.elapsed >= deadline:
                raise Broken(f"not known {bound:.0f} s after {what}: {found}")
            self._pass(LOOK)

    def _not_dead(self, gone: list[MemberNode]) -> str:
        for node in self.nodes:
            for one in gone if node.host.up else ():
                member = node.swim.member(one.id)
                if member is not None and member.state.here:
                    return f"{node.id} holds {one.id} for {member.state.name.lower()}"
        return ""

    def _untrue(self) -> str:
        """What somebody does not know as it is."""
        for node in self.nodes:
            for other in self.nodes:
                member = node.swim.member(other.id)
                if member is None:
                    return f"{node.id} does not know {other.id}"
                if member.state is not MemberState.ALIVE or member.boot != other.boot:
                    return (
                        f"{node.id} holds {other.id} for {member.state.name.lower()} ({member.incarnation})"
                    )
                if member.meta != self._metas[other.id]:
                    return f"{node.id} knows old metadata of {other.id}"
        return ""

    def _happened(self, node: MemberNode, event: events.MembershipEvent) -> None:
        member = event.member
        self.world.note(node.id, f"{type(event).__name__} {member.id} {member.incarnation}")
        about = self._by_id[member.id]
        lives = about.host.up and about.boot == member.boot
        if not isinstance(event, events.Died) or not lives:
            return
        if not self._away & {node.id, member.id}:
            raise Broken(f"{node.id} declared {member.id} dead, which lives")
        if (node.id, member.id) in self._deaths:
            raise Broken(f"{node.id} declared {member.id} dead a second time, which lives")
        self._deaths.add((node.id, member.id))


def run(seed: int) -> str:
    """What did not hold, if anything."""
    members = FaultyMembers(seed)
    try:
        members.run()
    except Broken as broken:
        return f"{broken} (at {members.world.elapsed:.1f} s)"
    return ""
