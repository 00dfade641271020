"""Messages that went to relays: neighbours that pass them on by a plan (`Hop.plan`).

Owns what relays have yet to confirm, and who waits for that because the plans of a topic changed. Invariants:
a run of QoS 1 or 2 is kept as it went to a relay until the relay has confirmed it, which it does when all
behind it have; if the relay dies first, those whom the strategy names (`Strategy.bypass`) get it, and their
confirmations count in the relay's place; within `limit` bytes, beyond which the oldest are given up, counted.
A topic whose way changes is drained: nothing goes the new way before all that went an old way, which is one
no longer, has arrived; for `drain_timeout` seconds at most, counted then. A link that is down ends nothing.
Must not know: what a plan says, how death is noticed, clients.

It is all in memory. A node that is restarted knows no more what its relays had acknowledged and not passed
on: if such a relay then dies for good, that is lost. What they had not acknowledged is in its outboxes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from brokerweave.links.run import RUN_OVERHEAD, Run
from brokerweave.mqtt.scanner import RouteCache
from brokerweave.node import confirmations
from brokerweave.node.arrivals import parts_by_group
from brokerweave.node.confirmations import Passed, PublicationId
from brokerweave.node.router import Question, RouteGroup
from brokerweave.plugin import Timer

if TYPE_CHECKING:
    from brokerweave.node.core import NodeCore

REPLACED_SECONDS = 10.0
"""How long a publication may wait for the broker while its route changes, and still go the new way."""
ASKED_AT_ONCE = 1_000
"""Publications in one packet."""

Way = tuple[str, bytes]
"""A neighbour, and the plan that it gets."""


@dataclass(slots=True)
class _Sent:
    lane: int
    way: Way
    """On which it was first sent: if that relay died, it went on to others."""
    run: Run | None
    """None: it is not sent again."""

    @property
    def size(self) -> int:
        return self.run.size if self.run is not None else RUN_OVERHEAD


@dataclass(slots=True)
class _Drain:
    topic: str
    left: set[Passed | str]
    """What relays have yet to confirm, and neighbours that have yet to acknowledge what has no plan."""
    forget: Callable[[], object]
    timer: Timer | None = None


class Relayed:
    def __init__(self, core: NodeCore, limit: int, drain_timeout: float) -> None:
        self.bytes = 0
        self._core = core
        self._limit = limit
        self._drain_timeout = drain_timeout
        self._sent: dict[Passed, _Sent] = {}
        self._ways: dict[tuple[int, Way], dict[Passed, None]] = {}
        self._unconfirmed: Counter[str] = Counter()
        self._drains: dict[Question, _Drain] = {}
        self._replaced: dict[int, RouteGroup] = {}
        self._going: set[str] = set()
        """Dead relays whose messages are being sent to others."""

    def __len__(self) -> int:
        return len(self._sent)

    def __contains__(self, passed: object) -> bool:
        return passed in self._sent

    @property
    def bypassing(self) -> bool:
        """Whether what is sent now goes to others because a relay died."""
        return bool(self._going)

    def awaits(self, neighbour: str) -> bool:
        """Whether a neighbour has yet to confirm anything."""
        return self._unconfirmed[neighbour] > 0

    def sent(self, neighbour: str, lane: int, run: Run) -> None:
        """A run is in the outbox to a relay, or from a relay to one that passes nothing on."""
        passed = (neighbour, self._core.confirmations.name(lane, run))
        self._add(passed, _Sent(lane, (neighbour, run.plan), run if run.plan and run.durable else None))
        if not self._going and self._is_dead(neighbour):
            self._serve_others(neighbour, [])

    def confirmed(self, neighbour: str, publication: PublicationId) -> None:
        self._end((neighbour, publication))

    def linked(self, neighbour: str) -> None:
        """The link is up again: what the neighbour confirmed meanwhile was not heard."""
        names = [name for there, name in self._sent if there == neighbour] if self.awaits(neighbour) else []
        for at in range(0, len(names), ASKED_AT_ONCE):
            some = confirmations.encode(names[at : at + ASKED_AT_ONCE])
            self._core.send_own(neighbour, confirmations.ASK, some)

    def gone(self, relay: str) -> None:
        """A neighbour is dead or removed: the strategy says who gets what it has not confirmed."""
        self._serve_others(relay, self._only_in_outboxes(relay))

    def _serve_others(self, relay: str, older: list[_Sent]) -> None:
        routes: dict[bytes, RouteCache] = {}

        def around(plan: bytes) -> RouteCache:
            return routes.get(plan) or routes.setdefault(plan, self._core.router.bypass(relay, plan))

        self._going.add(relay)
        kept = [each for each in self._sent.items() if each[0][0] == relay] if self.awaits(relay) else []
        for passed, _ in kept:
            self._remove(passed)  # what goes to others is not to take its room
        for sent in older:
            self._bypass(sent, around)
        for passed, sent in kept:
            instead = self._bypass(sent, around) - {passed}
            self._core.confirmations.extend(*passed, instead)
            self._core.confirmations.confirmed(*passed)
            self._end(passed, instead)
        self._end(relay)
        for other in [other for other in self._unconfirmed if other not in self._going]:
            if self._is_dead(other):
                self._serve_others(other, [])  # the strategy named one that is dead, too
        self._going.discard(relay)

    def _is_dead(self, neighbour: str) -> bool:
        return self._core.cluster.misses(neighbour) and not self._core.is_up(neighbour)

    def _only_in_outboxes(self, relay: str) -> list[_Sent]:
        """What the relay has not acknowledged and was given up here, or is from before a restart: it is older
        than what is kept; and QoS 0, which the relay would pass on when it is back, behind later ones. No
        more than could be kept."""
        found: list[_Sent] = []
        room, entry = self._limit, self._core.neighbour_table.get(relay)
        for lane, each in enumerate(entry.lanes if entry is not None else ()):
            for run in each.outbox.everything():
                sent = self._sent.get((relay, self._core.confirmations.name(lane, run)))
                if run.plan and not run.repair and (sent is None or sent.run is None):
                    found.append(_Sent(lane, (relay, run.plan), run))
                    room -= run.size
                if room < 0:
                    return found
        return found

    def _bypass(self, sent: _Sent, around: Callable[[bytes], RouteCache]) -> set[Passed]:
        instead: set[Passed] = set()
        if sent.run is None:
            return instead
        run = sent.run.bound_for(sent.run.cap, (), confirm=True)
        for group, part in parts_by_group(run, around(sent.run.plan)):
            if group is None or not group.known:
                self._core.counters.add("relayed_unserved", part.count)
                continue
            self._core.counters.add("relayed_bypassed", part.count)
            name = self._core.confirmations.name(group.lane, part)
            for neighbour in self._core.outgoing.put(part, group):
                passed = (neighbour, name)
                before = self._sent.get(passed)
                if before is not None or self._core.in_reach(neighbour):
                    kept = before.run if before is not None else None
                    self._add(passed, _Sent(sent.lane, sent.way, kept))
                if self._core.in_reach(neighbour):
                    instead.add(passed)
        return instead

    def _add(self, passed: Passed, sent: _Sent) -> None:
        self._remove(passed)
        self._sent[passed] = sent
        self._ways.setdefault((sent.lane, sent.way), {})[passed] = None
        self._unconfirmed[passed[0]] += 1
        self.bytes += sent.size
        while self.bytes > self._limit:
            oldest = next(iter(self._sent))
            run = self._sent[oldest].run
            self._core.counters.add("relayed_given_up", run.count if run is not None else 0)
            self._end(oldest)

    def _remove(self, passed: Passed) -> None:
        sent = self._sent.pop(passed, None)
        if sent is None:
            return
        self.bytes -= sent.size
        self._unconfirmed[passed[0]] -= 1
        if not self._unconfirmed[passed[0]]:
            del self._unconfirmed[passed[0]]
        way = self._ways[sent.lane, sent.way]
        del way[passed]
        if not way:
            del self._ways[sent.lane, sent.way]

    def _end(self, what: Passed | str, instead: set[Passed] | None = None) -> None:
        """It is confirmed or given up, or others confirm it `instead`; or a neighbour is dead."""
        if not isinstance(what, str):
            self._remove(what)
        for question, drain in list(self._drains.items()):
            if what in drain.left:
                drain.left.update(instead or ())
                self._ends(question, drain, {what})

    # Where the way of a topic changes

    def may_change(
        self, question: Question, old: RouteGroup, new: RouteGroup, forget: Callable[[], object]
    ) -> bool:
        """Whether messages of a topic may go the new way now. If not, its routes change again later, before
        which `forget` is called: the old way counts no longer."""
        if question in self._drains:
            return False
        self._core.publisher.settle()  # what was gathered goes the old way
        self._replace(old)
        ways, now = _ways(old), _ways(new)
        ended = [way for way in ways if way not in now]
        sent = {passed for way in ended for passed in self._ways.get((new.lane, way), ())}
        left: set[Passed | str] = {passed for passed in sent if self._core.in_reach(passed[0])}
        drain = _Drain(question.topic, left, forget)
        for there in [
            there for there, plan in ended if not plan and new.plans and self._core.in_reach(there)
        ]:
            entry = self._core.neighbour_table.get(there)
            if entry is not None and entry.lanes[new.lane].outbox.backlog_runs:
                left.add(there)
                acknowledged = partial(self._ends, question, drain, {there})
                self._core.when_passed((entry.lanes[new.lane].outbox,), acknowledged)
        if left:
            self._drains[question] = drain
            drain.timer = self._core.call_later(self._drain_timeout, lambda: self._late(question, drain))
        return not left

    def changes_no_more(self, question: Question) -> None:
        """The old way is the new one again."""
        drain = self._drains.pop(question, None)
        if drain is not None and drain.timer is not None:
            drain.timer.cancel()

    def is_replaced(self, group: RouteGroup) -> bool:
        """Whether a topic of this group has another one since a moment ago."""
        return id(group) in self._replaced

    def _replace(self, group: RouteGroup) -> None:
        if not self._replaced:
            self._core.call_later(REPLACED_SECONDS, self._replaced.clear)
        self._replaced[id(group)] = group

    def _late(self, question: Question, drain: _Drain) -> None:
        self._core.counters.add("drain_timeouts")
        self._ends(question, drain, set(drain.left))

    def _ends(self, question: Question, drain: _Drain, what: set[Passed | str]) -> None:
        drain.left -= what
        if not drain.left and self._drains.get(question) is drain:
            self.changes_no_more(question)
            drain.forget()
            self._core.routes_changed((drain.topic,))

    def check(self) -> None:
        """Raises `AssertionError` where an invariant is broken."""
        assert self.bytes == sum(sent.size for sent in self._sent.values()), "bytes that were not counted"
        assert self.bytes <= self._limit, "more is kept than may be"
        assert +self._unconfirmed == Counter(there for there, _ in self._sent), "neighbours counted wrong"
        assert {passed for way in self._ways.values() for passed in way} == self._sent.keys(), "a lost way"
        assert all(drain.left for drain in self._drains.values()), "a drain that is over"


def _ways(group: RouteGroup) -> list[Way]:
    plans = dict(group.plans)
    return [(neighbour, plans.get(neighbour, b"")) for neighbour, _ in group.hops]
