"""From a topic to its lanes: asks the strategy, prepares the answer for the scanner, and caches it.

Owns one route cache per origin (local clients, each neighbour; where there is an access list, each principal
among the clients; of the plans that neighbours send, those used last) and the groups in them. Invariants:
equal routes on the same lane are one group object, so that the scanner can compare by identity; `changed()`
empties every cache, `changed(topics)` frees them of these; a topic of which anything waits is not known, what
the strategy may say meanwhile; a `$` topic or an invalid one has no route.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Protocol

from brokerweave.errors import LocalProtocolError
from brokerweave.links.wire import MAX_PLAN
from brokerweave.mqtt.scanner import RouteCache
from brokerweave.mqtt.topics import validate_topic
from brokerweave.node.waiting import Waiting
from brokerweave.plugin import NOT_YET, Route, Strategy

PLANS = 1_000
PLAN_BYTES = 16 << 20
"""Of the plans whose routes are kept."""
MOST_TOPICS_COUNTED = 100_000
"""Topics that are told apart when they are counted (some 60 bytes each)."""
TOPICS_PER_PLAN = 100
"""Topics in the cache of one plan (some 300 bytes each, at worst)."""


@dataclass(frozen=True, slots=True)
class RouteGroup:
    """Where the frames of some topics go next: `hops` are (neighbour id, QoS cap)."""

    hops: tuple[tuple[str, int], ...]
    local: bool
    lane: int
    """-1: any lane will do (`order = "round-robin"`)."""
    retained: bool = False
    """The messages are to be retained: the node's index hears of them, even if they go nowhere."""
    share: float = 0.0
    """Of the messages, that the edge log keeps, even if they go nowhere."""
    holds: tuple[str, ...] = ()
    """Nodes for whose clients this node itself keeps those of QoS 1 and 2."""
    keepers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Neighbours that keep those of QoS 1 and 2 for clients of other nodes, and of which nodes."""
    sure_hops: tuple[tuple[str, int], ...] = ()
    """The hops of those of QoS 1 and 2 where there are keepers, which are among them."""
    plans: tuple[tuple[str, bytes], ...] = ()
    """Neighbours that get a plan with the messages."""
    known: bool = True
    """False: the messages wait (`NOT_YET`)."""

    @property
    def kept(self) -> bool:
        return bool(self.holds or self.keepers)


class Question(NamedTuple):
    """What the strategy is asked."""

    came_from: str | None
    plan: bytes
    topic: str
    retain: bool


class Changes(Protocol):
    """Who must know that a topic goes another way than before, where there are plans."""

    def may_change(
        self, question: Question, old: RouteGroup, new: RouteGroup, forget: Callable[[], object]
    ) -> bool: ...

    def changes_no_more(self, question: Question) -> None: ...


class Router:
    def __init__(
        self,
        strategy: Strategy,
        lanes: int | None,
        failed: Callable[[Exception], None],
        waiting: Waiting,
        changes: Changes,
        cache_entries: int = 100_000,
    ) -> None:
        """Topics are spread over `lanes` (None: any lane for any message). `failed` hears of a strategy
        that raised: the topic then has no route, and the client it came from goes on."""
        self.everything: tuple[str, ...] = ()
        """Neighbours that get every topic, because what they want is not known yet. Call `changed` after."""
        self.share: Callable[[str], float] | None = None
        """Which share of a local topic's messages is recorded; None: there is no tap. `changed` after."""
        self._topics: set[int] = set()
        self._strategy = strategy
        self._lanes = lanes
        self._failed = failed
        self._capacity = cache_entries
        self._groups: dict[RouteGroup, RouteGroup] = {}
        self._caches: dict[str | None, RouteCache] = {}
        self._guarded: dict[Hashable, RouteCache] = {}
        self._waiting = waiting
        self._planned: OrderedDict[tuple[str | None, bytes], RouteCache] = OrderedDict()
        self._planned_bytes = 0
        self._changes = changes if type(strategy).follow is not Strategy.follow else None
        self._last: dict[tuple[str | None, bytes], dict[Question, RouteGroup]] = {}
        """The last answers, by the cache they are for, the oldest first; only where there may be plans."""

    @property
    def topics(self) -> int:
        """Different topics of messages that were routed here since the start, `MOST_TOPICS_COUNTED` at
        most. They are told apart by a hash."""
        return len(self._topics)

    def cache(self, came_from: str | None, plan: bytes = b"") -> RouteCache:
        """The cache for what local clients publish (None) or what comes from a neighbour, with a plan or
        not."""
        if plan:
            return self._cache_of_plan(came_from, plan)
        cache = self._caches.get(came_from)
        if cache is None:

            def resolve(topic: bytes, retain: bool) -> RouteGroup | None:
                return self._resolve(topic, retain, came_from)

            cache = self._caches[came_from] = RouteCache(resolve, self._capacity)
        return cache

    def _cache_of_plan(self, came_from: str | None, plan: bytes) -> RouteCache:
        key = (came_from, plan)
        cache = self._planned.get(key)
        if cache is not None:
            self._planned.move_to_end(key)
            return cache

        def resolve(topic: bytes, retain: bool) -> RouteGroup | None:
            return self._resolve(topic, retain, came_from, plan=plan)

        cache = self._planned[key] = RouteCache(resolve, TOPICS_PER_PLAN)
        self._planned_bytes += len(plan)
        while len(self._planned) > PLANS or (self._planned_bytes > PLAN_BYTES and len(self._planned) > 1):
            key, _ = self._planned.popitem(last=False)
            self._planned_bytes -= len(key[1])
            self._last.pop(key, None)
        return cache

    def bypass(self, relay: str, plan: bytes) -> RouteCache:
        """A cache for what a relay that is gone was to pass on by this plan."""

        def resolve(topic: bytes, retain: bool) -> RouteGroup | None:
            try:
                route = self._strategy.bypass(topic.decode(), relay, plan)
                return self._group(route, None, self.lane(topic.decode()), retain, 0.0)
            except Exception as error:
                self._failed(error)
                return None

        return RouteCache(resolve, TOPICS_PER_PLAN)

    def guarded(self, principal: Hashable, admits: Callable[[str], bool], topics: int) -> RouteCache:
        """The cache for what the clients of one principal publish: only topics that `admits` have a route."""
        cache = self._guarded.get(principal)
        if cache is None:

            def resolve(topic: bytes, retain: bool) -> RouteGroup | None:
                return self._resolve(topic, retain, None, admits)

            cache = self._guarded[principal] = RouteCache(resolve, topics)
        return cache

    def forget_guarded(self, principal: Hashable) -> None:
        self._guarded.pop(principal, None)

    def changed(self, topics: Iterable[str] | None = None) -> None:
        """The answers about these topics are others now, or all are."""
        caches = (*self._caches.values(), *self._guarded.values(), *self._planned.values())
        if topics is None:
            self._groups.clear()
            for cache in caches:
                cache.clear()
            return
        for topic in topics:
            encoded = topic.encode()
            for cache in caches:
                cache.discard(encoded)

    def forget(self, neighbour: str) -> None:
        self._caches.pop(neighbour, None)
        for key in [key for key in self._planned if key[0] == neighbour]:
            del self._planned[key]
            self._planned_bytes -= len(key[1])
        for key in [key for key in self._last if key[0] == neighbour]:
            del self._last[key]

    def _resolve(
        self,
        topic: bytes,
        retain: bool,
        came_from: str | None,
        admits: Callable[[str], bool] | None = None,
        plan: bytes = b"",
    ) -> RouteGroup | None:
        try:
            text = topic.decode()
            validate_topic(text)
        except ValueError:
            return None  # the broker will tell its client what is wrong with it
        if text.startswith("$") or (admits is not None and not admits(text)):
            return None
        if len(self._topics) < MOST_TOPICS_COUNTED:
            self._topics.add(hash(topic))
        return self.answer(text, retain, came_from, plan, (came_from, text) in self._waiting)

    def answer(
        self, topic: str, retain: bool, came_from: str | None, plan: bytes, waits: bool = False
    ) -> RouteGroup | None:
        """What the strategy says now of a valid topic; with `waits` it is not asked."""
        share = self.share(topic) if self.share is not None and came_from is None else 0.0
        try:
            route = NOT_YET if waits else self._ask(topic, retain, came_from, plan)
            group = self._group(route, came_from, self.lane(topic), retain, share)
            if self._changes is not None and group is not None and group.known and group.lane >= 0:
                question = Question(came_from, plan, topic, retain)
                if not self._may_go(self._changes, question, group):
                    group = self._group(NOT_YET, came_from, group.lane, retain, share)
            return group
        except Exception as error:
            self._failed(error)
            return self._shared(RouteGroup((), False, 0, False, share)) if share else None

    def _may_go(self, changes: Changes, question: Question, group: RouteGroup) -> bool:
        """Whether a topic may go this way now: if it went another way before, that may have to end first."""
        last = self._last.setdefault((question.came_from, question.plan), {})
        old = last.get(question)
        if old is None or old == group or not (old.plans or group.plans):
            changes.changes_no_more(question)
        elif not changes.may_change(question, old, group, partial(last.pop, question, None)):
            return False
        if group.hops:
            last[question] = group
        if len(last) > (TOPICS_PER_PLAN if question.plan else self._capacity):
            del last[next(iter(last))]
        return True

    def lane(self, topic: str) -> int:
        """The lane of a topic; -1: any."""
        return zlib.crc32(topic.encode()) % self._lanes if self._lanes else -1

    def _ask(self, topic: str, retain: bool, came_from: str | None, plan: bytes) -> Route:
        if plan and came_from is not None:
            route = self._strategy.follow(topic, came_from, plan)
            return replace(route, local=True) if retain else route  # a broker has what its node knows of
        return (self._strategy.route_retained if retain else self._strategy.route)(topic, came_from)

    def _group(
        self, route: Route, came_from: str | None, lane: int, retained: bool, share: float
    ) -> RouteGroup | None:
        if not route.known:
            return self._shared(RouteGroup((), False, lane, retained, share, known=False))
        hops = tuple(
            (hop.neighbour, hop.qos)
            for hop in route.hops
            if hop.qos >= 0 and hop.neighbour not in self.everything
        )
        hops += tuple((neighbour, 2) for neighbour in self.everything if neighbour != came_from)
        if not self._strategy.returns and any(neighbour == came_from for neighbour, _ in hops):
            raise LocalProtocolError(f"strategy {self._strategy.name} routes back to {came_from}")
        plans = tuple((hop.neighbour, hop.plan) for hop in route.hops if hop.plan)
        if any(len(plan) > MAX_PLAN for _, plan in plans):
            raise LocalProtocolError(f"strategy {self._strategy.name}: a plan longer than {MAX_PLAN} bytes")
        local = route.local and came_from is not None
        if came_from is None and (route.holds or any(hop.holds for hop in route.hops)):
            group = RouteGroup(hops, local, lane, retained, share, plans=plans)
            return self._shared(_kept(route, group))
        if not hops and not local and not retained:
            return self._shared(RouteGroup((), False, 0, False, share)) if share else None
        return self._shared(RouteGroup(hops, local, lane, retained, share, plans=plans))

    def _shared(self, group: RouteGroup) -> RouteGroup:
        if len(self._groups) >= self._capacity:  # where each topic has a plan of its own
            self._groups.clear()
        return self._groups.setdefault(group, group)


def _kept(route: Route, group: RouteGroup) -> RouteGroup:
    """The group of messages that some nodes keep for clients of others."""
    keepers = tuple((hop.neighbour, hop.holds) for hop in route.hops if hop.holds)
    sure = dict(group.hops) | {neighbour: 2 for neighbour, _ in keepers}
    return replace(
        group, holds=route.holds, keepers=keepers, sure_hops=tuple(sure.items()) if keepers else ()
    )
