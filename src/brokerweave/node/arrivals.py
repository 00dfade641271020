"""Takes runs from lanes: drops duplicates, routes each run on, and confirms it to the sender.

Owns the order of these steps, and the confirmations that wait for the end of a turn. Invariants: a run is in
every next outbox before its lane confirms it; each (origin, epoch, sequence) takes effect once, except
floods, which pass once in each view; a damaged frame is dropped and counted, and blocks nothing. Must not
know: sockets, which outboxes exist.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.run import Run
from brokerweave.mqtt.publish import publish_head, route_run
from brokerweave.mqtt.scanner import RouteCache, split
from brokerweave.node import confirmations
from brokerweave.node.confirmations import Passed, PublicationId
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
"""Seconds after which a node that passed a publication on no longer waits to hear of it. Its origin gave up
long before; a relay's sender hears that it is in the relay's own hands."""

PARKED = ""
"""In the place of a neighbour that has yet to confirm: some of it waits for its route."""


@dataclass(slots=True)
class _Passing:
    """A run whose sender waits to hear that it is taken here and behind."""

    name: PublicationId
    passed: set[Passed] = field(default_factory=set)
    parked: int = 0
    """Messages of it that wait for their route."""


class Arrivals:
    def __init__(self, core: NodeCore) -> None:
        self._core = core
        self._to_confirm: dict[str, list[PublicationId]] = {}
        core.controls[confirmations.TOPIC] = self._confirmations_arrived
        core.controls[confirmations.ASK] = self._asked

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
                if run.confirm:
                    self._confirm(neighbour, self._core.confirmations.name(lane, run))
                return
        if not run.confirm:
            self._take_new(neighbour, lane, run, skip, None)
            return
        passing = _Passing(self._core.confirmations.name(lane, run))
        if self._take_new(neighbour, lane, run, skip, passing):
            if passing.parked:
                passing.passed.add((PARKED, passing.name))
            self._confirm_behind(neighbour, passing.name, passing.passed, bool(run.plan))
        else:
            self._confirm_known(neighbour, passing.name)

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

    def _take_new(
        self, neighbour: str, lane: int, run: Run, skip: Collection[str], passing: _Passing | None
    ) -> bool:
        """Dispatch what of a run was not here before; False if all of it was."""
        own = run.origin == self._core.node_id and not run.repair  # the broker here has it, and the index
        fresh = [(0, run.count)]  # a repair is known by its version, not by its sequence
        if not run.repair:
            fresh = self._core.window.accept(self.stream(lane, run), run.epoch, run.first, run.count)
        for offset, count in fresh:
            part, had = run.part(offset, count), list[int]()
            try:
                new = part if own or run.repair else self._core.care.arrived(part, lane, neighbour)
                if new is None:
                    self._core.counters.add("publications_resent", count)
                    if not run.stamp:
                        continue
                    new = replace(part, repair=True)  # its origin, which did not know it, retains it
                judged = [(new, not own)]
                if run.stamp and not own:
                    judged = self._core.retained.taken(new, had)
                for each, local in judged if run.repair else ():
                    if local:
                        self._core.care.arrived(each, lane, neighbour)
                for each, local in judged:
                    self._route(
                        each, neighbour, lane, local=local, hops=not run.flood, skip=skip, passing=passing
                    )
            except RemoteProtocolError:
                # Repeating it would block the lane for ever.
                self._core.counters.add("dropped_damaged", count)
            for sequence in had if run.repair and run.epoch else ():
                # The message itself may follow, by another way, when a newer one has taken its place.
                self._core.window.accept(self.stream(lane, run), run.epoch, sequence, 1)
        return bool(fresh)

    def _route(
        self,
        run: Run,
        came_from: str | None,
        came_on: int,
        *,
        local: bool = True,
        hops: bool = True,
        skip: Collection[str] = (),
        passing: _Passing | None = None,
    ) -> None:
        """Send messages to where they go next: the broker here if `local`, neighbours if `hops`, but not to
        `skip`. `passing` hears who got them. Raises RemoteProtocolError if a frame is damaged."""
        routes = self._core.router.cache(came_from, run.plan)
        for group, part in parts_by_group(run, routes):
            if group is None:
                self._core.counters.add("not_wanted_any_more", part.count if local and not run.holds else 0)
                continue
            if not group.known:
                self._park(part, came_from, came_on, local, hops, passing)
                continue
            if skip or not (hops and local):
                left = tuple(hop for hop in group.hops if hop[0] not in skip) if hops else ()
                group = replace(group, hops=left, local=group.local and local)
            self._dispatch(part, group, came_on, passing)

    def _dispatch(
        self, run: Run, group: RouteGroup, came_on: int, passing: _Passing | None, waited: int = 0
    ) -> None:
        reached = self._core.outgoing.dispatch(run, group, came_on, waited=waited)
        if passing is not None:
            name = self._core.confirmations.name(group.lane, run)
            passing.passed.update((neighbour, name) for neighbour in reached)

    def _park(
        self,
        run: Run,
        came_from: str | None,
        came_on: int,
        local: bool,
        hops: bool,
        passing: _Passing | None,
    ) -> None:
        """Keep messages until their route is known; where there is no room, they are dropped."""
        for offset, frame in enumerate(split(run.blob)):
            if self._core.waiting.full:
                self._core.counters.add("dropped_waiting", run.count - offset)
                if run.confirm:
                    self._core.counters.add("cluster_drops")
                return
            stamp = run.stamp + offset if run.stamp else 0
            one = replace(run, first=run.first + offset, count=1, blob=frame, stamp=stamp)
            topic = publish_head(frame, run.version).topic.decode()
            send = None
            if passing is not None:
                send = partial(self._send_late, passing)
                passing.parked += 1
            self._core.deferral.park(WaitingRun(topic, one, came_from, came_on, local, hops, send=send))

    def _send_late(self, passing: _Passing, run: Run, group: RouteGroup, came_on: int, waited: int) -> None:
        """One whose sender waits to hear of it, and whose route is known now."""
        passing.passed.clear()
        self._dispatch(run, group, came_on, passing, waited)
        self._core.confirmations.extend(PARKED, passing.name, self._in_reach(passing.passed))
        passing.parked -= 1
        if not passing.parked:
            self._core.confirmations.confirmed(PARKED, passing.name)

    def _confirm_known(self, neighbour: str, publication: PublicationId) -> None:
        """Confirm what was taken before, as soon as all behind have."""
        behind = self._core.confirmations.behind(publication)
        others = {passed for passed in behind if passed[0] != neighbour}
        self._confirm_behind(neighbour, publication, others, relayed=True)

    def _asked(self, neighbour: str, payload: bytes) -> None:
        """A neighbour heard nothing of these: the link was down meanwhile, or this node was restarted."""
        for publication in confirmations.decode(payload):
            lane = publication.lane if self._core.settings.ordered else None
            stream = publication.origin if lane is None else f"{publication.origin}/{lane}"
            if self._core.window.knows(stream, publication.epoch, publication.sequence):
                self._confirm_known(neighbour, publication)

    def _confirm_behind(
        self, neighbour: str, publication: PublicationId, passed: set[Passed], relayed: bool
    ) -> None:
        """Confirm to `neighbour` once all to whom it was passed on, and who are in reach, have confirmed."""
        timer: Timer | None = None

        def heard() -> None:
            if timer is not None:
                timer.cancel()  # or each publication would cost memory for as long as it may take
            self._core.confirmations.abandon(publication, neighbour)
            self._confirm(neighbour, publication)

        if self._core.confirmations.expect(publication, self._in_reach(passed), heard, neighbour):
            heard()
        else:
            give_up = heard if relayed else partial(self._abandon, publication, neighbour)
            timer = self._core.host.call_later(CONFIRM_LIMIT, give_up)

    def _in_reach(self, passed: set[Passed]) -> set[Passed]:
        return {each for each in passed if each[0] == PARKED or self._core.in_reach(each[0])}

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
            self._core.relayed.confirmed(neighbour, publication)
            self._core.confirmations.confirmed(neighbour, publication)


def parts_by_group(run: Run, routes: RouteCache) -> Iterator[tuple[RouteGroup | None, Run]]:
    """Cut a run where its messages go different ways. Raises RemoteProtocolError if a frame is damaged."""
    for group, at, length, blob in route_run(run.blob, run.version, routes):
        assert group is None or isinstance(group, RouteGroup)
        if length == run.count:
            yield group, run
            return
        stamp = run.stamp + at if run.stamp else 0
        yield group, replace(run, first=run.first + at, count=length, blob=blob, stamp=stamp)
