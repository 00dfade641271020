"""Messages that went to relays: neighbours that pass them on by a plan (`Hop.plan`).

Owns what relays have yet to confirm, and who waits for that because the plans of a topic changed. Invariants:
a run of QoS 1 or 2 is kept as it went to a relay until the relay has confirmed it, which it does when all
behind it have; if the relay dies first, those whom the strategy names (`Strategy.bypass`) get it, and their
confirmations count in the relay's place; within `limit` bytes, beyond which the oldest are given up, counted.
A topic whose way changes is drained: nothing goes the new way before all that went an old way, which is one
no longer, has arrived; for `drain_timeout` seconds at most, counted then. A link that is down ends nothing.
Must not know: what a plan says, how death is noticed, clients.

It is all in memory. A node that is restarted knows no more what its relays had acknowledged and not passed
on: if such a relay then dies for good, that is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
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
    left: set[Passed]
    outboxes: bool
    """Neighbours that got messages without a plan have yet to acknowledge them."""
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

    def __len__(self) -> int:
        return len(self._sent)

    def __contains__(self, passed: object) -> bool:
        return passed in self._sent

    def awaits(self, neighbour: str) -> bool:
        """Whether a neighbour has yet to confirm anything."""
        return self._unconfirmed[neighbour] > 0

    def sent(self, neighbour: str, lane: int, run: Run) -> None:
        """A run is in the outbox to a relay."""
        passed = (neighbour, self._core.confirmations.name(lane, run))
        self._add(passed, _Sent(lane, (neighbour, run.plan), run if run.durable else None))

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
        routes: dict[bytes, RouteCache] = {}
        for passed in [each for each in self._sent if each[0] == relay] if self.awaits(relay) else ():
            sent = self._sent.get(passed)
            if sent is None:
                continue  # given up meanwhile
            instead: set[Passed] = set()
            if sent.run is not None:
                plan = sent.run.plan
                instead = self._bypass(sent, routes.setdefault(plan, self._core.router.bypass(relay, plan)))
            self._core.confirmations.extend(*passed, instead - {passed})
            self._core.confirmations.confirmed(*passed)
            self._end(passed, instead)

    def _bypass(self, sent: _Sent, routes: RouteCache) -> set[Passed]:
        assert sent.run is not None
        instead: set[Passed] = set()
        for group, part in parts_by_group(sent.run.bound_for(sent.run.cap, ()), routes):
            if group is None or not group.known:
                self._core.counters.add("relayed_unserved", part.count)
                continue
            self._core.counters.add("relayed_bypassed", part.count)
            name = self._core.confirmations.name(group.lane, part)
            for neighbour in self._core.outgoing.dispatch(part, group):
                passed = (neighbour, name)
                run = self._sent[passed].run if passed in self._sent else None
                self._add(passed, _Sent(sent.lane, sent.way, run))
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

    def _end(self, passed: Passed, instead: set[Passed] | None = None) -> None:
        """It is confirmed or given up, or others confirm it `instead`."""
        self._remove(passed)
        for question, drain in list(self._drains.items()):
            if passed in drain.left:
                drain.left.discard(passed)
                drain.left.update(instead or ())
                self._look(question)

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
        left = {passed for way in ended for passed in self._ways.get((new.lane, way), ())}
        left = {passed for passed in left if self._core.in_reach(passed[0])}
        direct = [there for there, plan in ended if not plan and new.plans and self._core.in_reach(there)]
        table = self._core.neighbour_table
        outboxes = [table[there].lanes[new.lane].outbox for there in direct if there in table]
        outboxes = [outbox for outbox in outboxes if outbox.backlog_runs]
        if not left and not outboxes:
            return True
        drain = self._drains[question] = _Drain(question.topic, left, bool(outboxes), forget)
        drain.timer = self._core.call_later(self._drain_timeout, lambda: self._late(question, drain))
        if outboxes:
            self._core.when_passed(outboxes, lambda: self._acknowledged(question, drain))
        return False

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

    def _acknowledged(self, question: Question, drain: _Drain) -> None:
        drain.outboxes = False
        if self._drains.get(question) is drain:
            self._look(question)

    def _late(self, question: Question, drain: _Drain) -> None:
        if self._drains.get(question) is drain:
            self._core.counters.add("drain_timeouts")
            drain.left.clear()
            drain.outboxes = False
            self._look(question)

    def _look(self, question: Question) -> None:
        drain = self._drains[question]
        if not drain.left and not drain.outboxes:
            self.changes_no_more(question)
            drain.forget()
            self._core.routes_changed((drain.topic,))

    def check(self) -> None:
        """Raises `AssertionError` where an invariant is broken."""
        assert self.bytes == sum(sent.size for sent in self._sent.values()), "bytes that were not counted"
        assert self.bytes <= self._limit, "more is kept than may be"
        assert +self._unconfirmed == Counter(there for there, _ in self._sent), "neighbours counted wrong"
        assert {passed for way in self._ways.values() for passed in way} == self._sent.keys(), "a lost way"
        assert all(drain.left or drain.outboxes for drain in self._drains.values()), "a drain that is over"


def _ways(group: RouteGroup) -> list[Way]:
    plans = dict(group.plans)
    return [(neighbour, plans.get(neighbour, b"")) for neighbour, _ in group.hops]
