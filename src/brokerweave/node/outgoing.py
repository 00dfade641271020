"""Putting runs into outboxes: those of neighbours' lanes, and those towards the broker here.

Invariants: before anybody has a run that is to survive a crash, one entry of the write-ahead log says who
owes it; what finds no room is dropped and counted. Must not know: where a topic leads, what a lane does with
its outbox.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from brokerweave.links.run import Run
from brokerweave.node.router import RouteGroup
from brokerweave.node.write_ahead_log import OWN, RunEntry

if TYPE_CHECKING:
    from brokerweave.node.core import NodeCore


class Outgoing:
    def __init__(self, core: NodeCore) -> None:
        self._core = core
        self._round_robin = 0

    def dispatch(
        self, run: Run, group: RouteGroup, came_on: int = OWN, taken: tuple[str, int] | None = None
    ) -> list[str]:
        """Put a run where its group says; returns the neighbours whose outboxes have it now."""
        lane = group.lane
        if lane < 0:
            self._round_robin += 1
            lane = self._round_robin % self._core.settings.lanes
        kept_for: dict[str, tuple[str, ...]] = {}
        wanted = group.hops
        if run.max_qos and group.kept:
            kept_for = dict(group.keepers)
            wanted = group.sure_hops or wanted
            if group.holds:
                self._core.care.hold(run.bound_for(run.cap, group.holds), lane)
        hops = [hop for hop in wanted if self._accepts(hop, run)]
        number = self._write_run(run, hops, group.local, lane, came_on, taken, kept_for) if run.max_qos else 0
        reached = [
            neighbour
            for neighbour, cap in hops
            if self.enqueue(neighbour, lane, _bound_for(run, cap, kept_for.get(neighbour, ())), number)
        ]
        kept = len(reached)
        if group.local:
            kept += self.inject(lane, run, number)
        if run.confirm and kept < len(hops) + group.local:
            self._core.counters.add("cluster_drops")  # nobody need wait for what will not come
        return reached

    def _accepts(self, hop: tuple[str, int], run: Run) -> bool:
        neighbour, cap = hop
        entry = self._core.neighbour_table.get(neighbour)
        if entry is None and self._core.is_neighbour(neighbour):
            return True  # from now on
        if entry is None:
            self._core.counters.add("dropped_neighbour_removed", run.count)  # between routing and now
            return False
        if entry.up:
            return True
        if run.repair and self._core.strategy.retained_everywhere:
            return False  # the next link-up repairs
        if self._core.wiring.enabled and not (run.stamp or (run.durable and cap)):
            # Who gets QoS 0 another way and is killed does not know that it had it.
            self._core.counters.add("dropped_link_down", run.count)
            return False
        return True

    def enqueue(self, neighbour: str, lane: int, run: Run, number: int = 0) -> bool:
        """Put a run into the outbox of a neighbour's lane; `number` is its own in the write-ahead log.

        False: it had no room, and the run was dropped and counted.
        """
        entry = self._core.neighbour_table[neighbour]
        kept = entry.lanes[lane].append(run, number)
        if kept:
            self._core.host.lane_ready(neighbour, lane)
        elif run.stamp:
            self._core.retained.missed(neighbour)
        if run.flood and not kept:
            self._core.wiring.not_flooded(neighbour, lane)
        if self._core.demand is not None:
            self._core.demand.want(neighbour)
        if not entry.active and not entry.up:
            # Routed before the link was replaced: it has to go another way.
            self._core.wiring.check_outboxes()
        return kept

    def inject(self, lane: int, run: Run, number: int = 0) -> bool:
        """Put a run into the outbox towards the local broker. False: as for `enqueue`."""
        lane %= len(self._core.injectors)
        kept = self._core.injectors[lane].submit(run, number)
        if kept:
            self._core.host.injector_ready(lane)
        elif run.stamp:
            self._core.retained.not_injected(run)
        return kept

    def _write_run(
        self,
        run: Run,
        hops: list[tuple[str, int]],
        local: bool,
        lane: int,
        came_on: int,
        taken: tuple[str, int] | None,
        kept_for: Mapping[str, tuple[str, ...]],
    ) -> int:
        """Before anyone has a run: who owes it, in one entry, so that a crash leaves all of it or nothing."""
        if not self._core.wal.keeps:
            return 0
        table = self._core.neighbour_table
        outboxes = [(table[neighbour].lanes[lane].outbox, min(cap, run.cap)) for neighbour, cap in hops]
        if local:
            outboxes.append((self._core.injectors[lane % len(self._core.injectors)].outbox, run.cap))
        logged = [(outbox, cap) for outbox, cap in outboxes if outbox.wal_name and cap]
        if logged:
            # Named where there is no room, a run would come back after a crash, behind later ones.
            kept = tuple((outbox.wal_name, cap) for outbox, cap in logged if outbox.has_room(run))
            names = [
                (outbox.wal_name, neighbour)
                for (outbox, _), (neighbour, _) in zip(outboxes, hops, strict=False)
            ]
            holds = tuple((name, kept_for[neighbour]) for name, neighbour in names if neighbour in kept_for)
            return self._core.wal.run(RunEntry(run, came_on, kept, *(taken or ("", 0)), holds))
        if taken is not None:
            self._core.wal.note("take", *taken)
        if came_on != OWN:
            # It goes on as QoS 0 here, and may come once more: by another way, as more than that, or from a
            # neighbour that lost its disk.
            stream = self._core.arrivals.stream(came_on, run)
            self._core.wal.note("seen", stream, run.epoch, run.first, run.count)
        return 0


def _bound_for(run: Run, cap: int, holds: tuple[str, ...]) -> Run:
    """A run as it goes to one neighbour."""
    if cap >= run.cap and not holds:
        return run
    return run.bound_for(min(cap, run.cap), holds)
