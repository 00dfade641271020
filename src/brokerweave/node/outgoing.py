"""Puts runs into outboxes: those of neighbours' lanes, and those of the injectors.

Invariants: before any outbox has a run that must survive a crash, one entry of the write-ahead log names all
its outboxes; a run that finds no room is dropped and counted. Must not know: where a topic leads, what a lane
does with its outbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerweave.links.run import Run
from brokerweave.mqtt.publish import publish_head
from brokerweave.mqtt.scanner import split
from brokerweave.node.router import RouteGroup
from brokerweave.node.write_ahead_log import OWN, RunEntry

if TYPE_CHECKING:
    from brokerweave.node.core import NodeCore


class Outgoing:
    def __init__(self, core: NodeCore) -> None:
        self._core = core
        self._round_robin = 0

    def dispatch(
        self,
        run: Run,
        group: RouteGroup,
        came_on: int = OWN,
        taken: tuple[str, int] | None = None,
        waited: int = 0,
    ) -> list[str]:
        """Put a run where its group says; returns the neighbours whose outboxes have it now.

        `waited` is its number in the write-ahead log where it waited for its route.
        """
        return self.put(run, group, came_on, taken, waited)

    def put(
        self,
        run: Run,
        group: RouteGroup,
        came_on: int = OWN,
        taken: tuple[str, int] | None = None,
        waited: int = 0,
    ) -> list[str]:
        """The same for a run that was dispatched before, and goes to others in place of some of them."""
        relays = bool(run.plan)
        if relays:
            run = run.bound_for(run.cap, run.holds)  # it was for this node: each hop has its own
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
        number = self._write_run(run, group, hops, lane, came_on, taken, waited) if run.max_qos else 0
        plans = dict(group.plans)
        reached, relayed = [], []
        for neighbour, cap in hops:
            bound = _bound_for(run, cap, kept_for.get(neighbour, ()), plans.get(neighbour, b""))
            if self.enqueue(neighbour, lane, bound, number):
                reached.append(neighbour)
                if bound.confirm and (bound.plan or relays):
                    relayed.append((neighbour, bound))
        if self._core.usage_meter is not None and came_on == OWN and reached:
            self._core.usage_meter.sent(len(reached) * len(run.blob))
        kept = len(reached)
        if group.local:
            kept += self.inject(lane, run, number)
        for neighbour, bound in relayed:  # if one is dead, others get it in its place: behind this
            self._core.relayed.sent(neighbour, lane, bound)
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
            self._retained_dropped(neighbour, run)
        if run.flood and not kept:
            self._core.wiring.not_flooded(neighbour, lane)
        if self._core.demand is not None:
            self._core.demand.want(neighbour)
        if not entry.active and not entry.up:
            # Routed before the link was replaced: it has to go another way.
            self._core.wiring.check_outboxes()
        return kept

    def _retained_dropped(self, neighbour: str, run: Run) -> None:
        """Compare with the neighbour later. Where nodes keep only what they want: send it the topics when
        there is room, and those whom it would have passed them on to."""
        core = self._core
        if core.strategy.retained_everywhere:
            core.retained.missed(neighbour)
        elif not run.repair:
            for frame in split(run.blob):
                topic = publish_head(frame, run.version).topic
                behind, seen = [(neighbour, run.plan)], {neighbour}
                for node, plan in behind:
                    core.send_retained(node, topic.decode())
                    group = core.router.bypass(node, plan).lookup(topic, True) if plan else None
                    if isinstance(group, RouteGroup):
                        plans = dict(group.plans)
                        behind += [(each, plans.get(each, b"")) for each, _ in group.hops if each not in seen]
                        seen.update(each for each, _ in group.hops)

    def inject(self, lane: int, run: Run, number: int = 0) -> bool:
        """Put a run into the outbox towards the local broker. False: as for `enqueue`."""
        injector = lane % len(self._core.injectors)
        if self._core.injectors[injector].submit(run, number):
            self._core.host.injector_ready(injector)
            return True
        if run.stamp:
            self._core.retained.not_injected(run)
        self._core.care.not_injected(run, lane)
        return False

    def _write_run(
        self,
        run: Run,
        group: RouteGroup,
        hops: list[tuple[str, int]],
        lane: int,
        came_on: int,
        taken: tuple[str, int] | None,
        waited: int,
    ) -> int:
        """Before an outbox has a run: log all its outboxes in one entry, so that a crash keeps all or
        nothing."""
        if not self._core.wal.keeps:
            return 0
        table = self._core.neighbour_table
        outboxes = [(table[neighbour].lanes[lane].outbox, min(cap, run.cap)) for neighbour, cap in hops]
        if group.local:
            outboxes.append((self._core.injectors[lane % len(self._core.injectors)].outbox, run.cap))
        logged = [(outbox, cap) for outbox, cap in outboxes if outbox.wal_name and cap]
        if logged:
            # Named where there is no room, a run would come back after a crash, behind later ones.
            kept = tuple((outbox.wal_name, cap) for outbox, cap in logged if outbox.has_room(run))
            names = {
                neighbour: outbox.wal_name
                for (outbox, _), (neighbour, _) in zip(outboxes, hops, strict=False)
            }
            holds = tuple((names[who], nodes) for who, nodes in group.keepers if who in names)
            plans = tuple((names[who], plan) for who, plan in group.plans if who in names)
            client, packet_id = taken or ("", 0)
            return self._core.wal.run(
                RunEntry(run, came_on, kept, client, packet_id, holds, plans, waited=waited)
            )
        if waited:
            self._core.wal.note("waited", waited)
        if taken is not None:
            self._core.wal.note("take", *taken)
        if came_on != OWN:
            # It goes on as QoS 0 here, and may come once more: by another way, as more than that, or from a
            # neighbour that lost its disk.
            stream = self._core.arrivals.stream(came_on, run)
            self._core.wal.note("seen", stream, run.epoch, run.first, run.count)
        return 0


def _bound_for(run: Run, cap: int, holds: tuple[str, ...], plan: bytes) -> Run:
    """A run as it goes to one neighbour."""
    if cap >= run.cap and not holds and not plan:
        return run
    # A repair has no name of its own to be confirmed by, and who lacks it is found out otherwise.
    confirm = run.confirm or (bool(plan) and not run.repair and not run.flood)
    return run.bound_for(min(cap, run.cap), holds, plan, confirm)
