"""Takes runs from lanes: drops duplicates, routes each run on, and confirms it to the sender.

Owns the order of these steps, and the confirmations that wait for the end of a turn. Invariants: a run is in
every next outbox before its lane confirms it; each (origin, epoch, sequence) takes effect once, except
floods, which pass once in each view; a damaged frame is dropped and counted, and blocks nothing. Must not
know: sockets, which outboxes exist.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.run import Run
from brokerweave.mqtt.publish import publish_head, route_run
from brokerweave.mqtt.scanner import split
from brokerweave.node import confirmations
from brokerweave.node.confirmations import PublicationId
from brokerweave.node.rerouting import goes_again
from brokerweave.node.router import RouteGroup
from brokerweave.node.waiting import WaitingRun
from brokerweave.node.write_ahead_log import OWN
from brokerweave.plugin import Timer

if TYPE_CHECKING:
    from brokerweave.node.core import NodeCore

ACK_DELAY = 0.02
"""Seconds that an acknowledgement on a link waits for others to share its packet."""
CONFIRM_LIMIT = 60.0
"""Seconds after which a node that passed a publication on no longer waits to hear of it; its origin gave up
long before."""


class Arrivals:
    def __init__(self, core: NodeCore) -> None:
        self._core = core
        self._to_confirm: dict[str, list[PublicationId]] = {}
        core.controls[confirmations.TOPIC] = self._confirmations_arrived

    def batch_arrived(self, neighbour: str, lane: int, first: int, runs: list[Run]) -> None:
        """A batch came over a lane: take it, as soon as both nodes see the same tree."""
        if self._core.wiring.admits(neighbour, lane, first, runs):
            self.take_batch(neighbour, lane, first, runs)

    def take_batch(self, neighbour: str, lane: int, first: int, runs: list[Run]) -> None:
        """Take what a lane brought into every next outbox, then let the lane confirm it."""
        receiving = self._core.neighbour_table[neighbour].lanes[lane]
        fresh = receiving.received_batch(first, runs)
        first += len(runs) - len(fresh)
        repeated = self._core.wiring.boundary(neighbour, lane) - first + 1 if self._core.wiring.held else 0
        for index, run in enumerate(fresh):
            # What comes once more, as a flood, must not overtake itself on links that have just joined.
            again = index < repeated and goes_again(run)
            self._take(neighbour, lane, run, self._core.wiring.held if again else ())
        if any(run.stamp for run in runs):
            self._core.retained.commit()
        receiving.confirm()
        self._core.care.took(neighbour)
        if receiving.ack_urgent:
            self._core.host.lane_ready(neighbour, lane)
        elif not receiving.ack_scheduled:
            receiving.ack_scheduled = True
            self._core.host.call_later(ACK_DELAY, lambda: self._acknowledge(neighbour, lane))

    def _acknowledge(self, neighbour: str, lane: int) -> None:
        if neighbour in self._core.neighbour_table:
            self._core.neighbour_table[neighbour].lanes[lane].ack_scheduled = False
            self._core.host.lane_ready(neighbour, lane)

    def flood(self, lane: int, run: Run, there: Collection[str], once: bool = False) -> None:
        """Send a run that was stuck once more, also through nodes that had it before, but not to `there`.

        With `once`, only if it was not flooded in this view.
        """
        stream = self.stream(lane, run)
        if self._core.wiring.flooded.accept(stream, run.epoch, run.first, run.count) or not once:
            self._core.counters.add("flooded", run.count)
            # Who lost its disk may have had it: QoS 0 goes for its place in the index only, known by version.
            repair = run.repair or not run.max_qos
            again = replace(run, flood=True, cap=2, confirm=False, repair=repair, plan=b"")
            self._route(again, None, OWN, local=False, skip=there)

    def stream(self, lane: int, run: Run) -> str:
        return f"{run.origin}/{lane}" if self._core.settings.ordered else run.origin

    def _take(self, neighbour: str, lane: int, run: Run, skip: Collection[str]) -> None:
        if run.flood:
            self._take_flood(neighbour, lane, run)
        if run.origin == self._core.settings.node_id and not run.repair:
            unknown = run.epoch > self._core.settings.epoch  # not what this node published before a restart
            if unknown:
                self._core.host.warn(f"another node has the id {run.origin} of this node: rename one")
            if unknown or not self._core.strategy.returns:
                self._core.counters.add("returned_to_origin", run.count)
                return
        reached = self._take_new(neighbour, lane, run, skip)
        if run.confirm and reached is not None:
            self._confirm_behind(neighbour, self._name(lane, run), reached)

    def _name(self, lane: int, run: Run) -> PublicationId:
        """As its origin calls it, and all on its way."""
        return PublicationId(run.origin, run.epoch, lane if self._core.settings.ordered else 0, run.first)

    def _take_flood(self, neighbour: str, lane: int, run: Run) -> None:
        """A flood passes nodes that know it, once in each view; where it is new it takes effect besides."""
        for offset, count in self._core.wiring.flooded.accept(
            self.stream(lane, run), run.epoch, run.first, run.count
        ):
            try:
                # It says nothing of whether this node has seen the run: the write-ahead log must not, either.
                self._route(run.part(offset, count), neighbour, OWN, local=False)
            except RemoteProtocolError:
                self._core.counters.add("dropped_damaged", count)

    def _take_new(self, neighbour: str, lane: int, run: Run, skip: Collection[str]) -> set[str] | None:
        """Dispatch what of a run was not here before; returns the neighbours it was passed on to, None if any
        of it waits for its route."""
        reached: set[str] | None = set()
        own = run.origin == self._core.node_id and not run.repair  # the broker here has it, and the index
        fresh = [(0, run.count)]  # a repair is known by its version, not by its sequence
        if not run.repair:
            fresh = self._core.window.accept(self.stream(lane, run), run.epoch, run.first, run.count)
        for offset, count in fresh:
            part, had = run.part(offset, count), list[int]()
            try:
                new = part if own else self._core.care.arrived(part, lane)
                if new is None:
                    self._core.counters.add("publications_resent", count)
                    continue
                judged = [(new, not own)]
                if run.stamp and not own:
                    judged = self._core.retained.taken(new, had)
                for each, local in judged:
                    passed = self._route(each, neighbour, lane, local=local, hops=not run.flood, skip=skip)
                    reached = None if reached is None or passed is None else reached | passed
            except RemoteProtocolError:
                # Repeating it would block the lane for ever.
                self._core.counters.add("dropped_damaged", count)
            for sequence in had if run.repair and run.epoch else ():
                # The message itself may follow, by another way, when a newer one has taken its place.
                self._core.window.accept(self.stream(lane, run), run.epoch, sequence, 1)
        return reached

    def _route(
        self,
        run: Run,
        came_from: str | None,
        came_on: int,
        *,
        local: bool = True,
        hops: bool = True,
        skip: Collection[str] = (),
    ) -> set[str] | None:
        """Send messages to where they go next: the broker here if `local`, neighbours if `hops`, but not to
        `skip`. Returns the neighbours; None if some messages wait for their route. Raises RemoteProtocolError
        if a frame is damaged."""
        reached: set[str] = set()
        waits = False
        routes = self._core.router.cache(came_from, run.plan)
        for group, at, length, blob in route_run(run.blob, run.version, routes):
            if group is None:
                self._core.counters.add("not_wanted_any_more", length if local and not run.holds else 0)
                continue
            assert isinstance(group, RouteGroup)
            part = run
            if length != run.count:
                part = replace(
                    run,
                    first=run.first + at,
                    count=length,
                    blob=blob,
                    stamp=run.stamp + at if run.stamp else 0,
                )
            if not group.known:
                waits |= self._park(part, came_from, came_on, local, hops)
                continue
            if skip or not (hops and local):
                left = tuple(hop for hop in group.hops if hop[0] not in skip) if hops else ()
                group = replace(group, hops=left, local=group.local and local)
            reached.update(self._core.outgoing.dispatch(part, group, came_on))
        return None if waits else reached

    def _park(self, run: Run, came_from: str | None, came_on: int, local: bool, hops: bool) -> bool:
        """Keep messages until their route is known. False: there is no room, and they are dropped."""
        for offset, frame in enumerate(split(run.blob)):
            if self._core.waiting.full:
                self._core.counters.add("dropped_waiting", run.count - offset)
                if run.confirm:
                    self._core.counters.add("cluster_drops")
                return offset > 0
            stamp = run.stamp + offset if run.stamp else 0
            one = replace(run, first=run.first + offset, count=1, blob=frame, stamp=stamp)
            topic = publish_head(frame, run.version).topic.decode()
            send = partial(self._send_late, came_from) if run.confirm and came_from is not None else None
            self._core.deferral.park(WaitingRun(topic, one, came_from, came_on, local, hops, send=send))
        return True

    def _send_late(self, came_from: str, run: Run, group: RouteGroup, came_on: int, waited: int) -> None:
        """One whose origin waits for it, and whose route is known now."""
        reached = self._core.outgoing.dispatch(run, group, came_on, waited=waited)
        self._confirm_behind(came_from, self._name(came_on, run), reached)

    def _confirm_behind(self, neighbour: str, publication: PublicationId, reached: Iterable[str]) -> None:
        """Confirm to `neighbour` once all that were `reached` have confirmed."""
        timer: Timer | None = None

        def heard() -> None:
            if timer is not None:
                timer.cancel()  # or each publication would cost memory for as long as it may take
            self._core.confirmations.abandon(publication, neighbour)
            self._confirm(neighbour, publication)

        up = filter(self._core.in_reach, reached)
        if self._core.confirmations.expect(publication, up, heard, neighbour):
            heard()
        else:
            timer = self._core.host.call_later(CONFIRM_LIMIT, lambda: self._abandon(publication, neighbour))

    def _abandon(self, publication: PublicationId, neighbour: str) -> None:
        self._core.confirmations.abandon(publication, neighbour)

    def _confirm(self, neighbour: str, publication: PublicationId) -> None:
        """Tell where a publication came from that it is taken here and behind; one packet per loop turn."""
        if not self._to_confirm:
            self._core.host.call_later(0, self._send_confirmations)
        self._to_confirm.setdefault(neighbour, []).append(publication)

    def _send_confirmations(self) -> None:
        waiting, self._to_confirm = self._to_confirm, {}
        self._core.care.flush()
        for neighbour, publications in waiting.items():
            self._core.send_own(neighbour, confirmations.TOPIC, confirmations.encode(publications))

    def _confirmations_arrived(self, neighbour: str, payload: bytes) -> None:
        for publication in confirmations.decode(payload):
            self._core.confirmations.confirmed(neighbour, publication)
