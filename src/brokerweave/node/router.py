"""From a topic to its lanes: asks the strategy, prepares the answer for the scanner, and caches it.

Owns one route cache per origin (local clients, each neighbour; with an access list, each principal among the
clients) and the groups in them. Invariants: equal routes on the same lane are one group object, so that the
scanner can compare by identity; `changed()` empties every cache; a `$` topic or an invalid one has no route.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from brokerweave.errors import LocalProtocolError
from brokerweave.mqtt.scanner import RouteCache
from brokerweave.mqtt.topics import validate_topic
from brokerweave.plugin import Route, Strategy


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

    @property
    def kept(self) -> bool:
        return bool(self.holds or self.keepers)


class Router:
    def __init__(
        self,
        strategy: Strategy,
        lanes: int | None,
        failed: Callable[[Exception], None],
        cache_entries: int = 100_000,
    ) -> None:
        """Topics are spread over `lanes` (None: any lane for any message). `failed` hears of a strategy
        that raised: the topic then has no route, and the client it came from goes on."""
        self.everything: tuple[str, ...] = ()
        """Neighbours that get every topic, because what they want is not known yet. Call `changed` after."""
        self.share: Callable[[str], float] | None = None
        """Which share of a local topic's messages is recorded; None: there is no tap. `changed` after."""
        self._strategy = strategy
        self._lanes = lanes
        self._failed = failed
        self._capacity = cache_entries
        self._groups: dict[RouteGroup, RouteGroup] = {}
        self._caches: dict[str | None, RouteCache] = {}
        self._guarded: dict[Hashable, RouteCache] = {}

    def cache(self, came_from: str | None) -> RouteCache:
        """The cache for what local clients publish (None) or what comes from a neighbour."""
        cache = self._caches.get(came_from)
        if cache is None:

            def resolve(topic: bytes, retain: bool) -> RouteGroup | None:
                return self._resolve(topic, retain, came_from)

            cache = self._caches[came_from] = RouteCache(resolve, self._capacity)
        return cache

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

    def changed(self) -> None:
        self._groups.clear()
        for cache in (*self._caches.values(), *self._guarded.values()):
            cache.clear()

    def forget(self, neighbour: str) -> None:
        self._caches.pop(neighbour, None)

    def _resolve(
        self,
        topic: bytes,
        retain: bool,
        came_from: str | None,
        admits: Callable[[str], bool] | None = None,
    ) -> RouteGroup | None:
        try:
            text = topic.decode()
            validate_topic(text)
        except ValueError:
            return None  # the broker will tell its client what is wrong with it
        if text.startswith("$") or (admits is not None and not admits(text)):
            return None
        ask = self._strategy.route_retained if retain else self._strategy.route
        share = self.share(text) if self.share is not None and came_from is None else 0.0
        try:
            route = ask(text, came_from)
            lane = zlib.crc32(topic) % self._lanes if self._lanes else -1
            return self._group(route, came_from, lane, retain, share)
        except Exception as error:
            self._failed(error)
            return self._shared(RouteGroup((), False, 0, False, share)) if share else None

    def _group(
        self, route: Route, came_from: str | None, lane: int, retained: bool, share: float
    ) -> RouteGroup | None:
        hops = tuple(
            (hop.neighbour, hop.qos)
            for hop in route.hops
            if hop.qos >= 0 and hop.neighbour not in self.everything
        )
        hops += tuple((neighbour, 2) for neighbour in self.everything if neighbour != came_from)
        if any(neighbour == came_from for neighbour, _ in hops):
            raise LocalProtocolError(f"strategy {self._strategy.name} routes back to {came_from}")
        local = route.local and came_from is not None
        if came_from is None and (route.holds or any(hop.holds for hop in route.hops)):
            return self._shared(_kept(route, RouteGroup(hops, local, lane, retained, share)))
        if not hops and not local and not retained:
            return self._shared(RouteGroup((), False, 0, False, share)) if share else None
        return self._shared(RouteGroup(hops, local, lane, retained, share))

    def _shared(self, group: RouteGroup) -> RouteGroup:
        return self._groups.setdefault(group, group)


def _kept(route: Route, group: RouteGroup) -> RouteGroup:
    """The group of messages that some nodes keep for clients of others."""
    keepers = tuple((hop.neighbour, hop.holds) for hop in route.hops if hop.holds)
    sure = dict(group.hops) | {neighbour: 2 for neighbour, _ in keepers}
    return replace(
        group, holds=route.holds, keepers=keepers, sure_hops=tuple(sure.items()) if keepers else ()
    )
