"""Which clients may send what to other sites: the access list, and the route cache that each client uses.

ILDM 2.3 leaves it open how a broker's refusal can count for other sites, since a 3.1.1 broker acknowledges
what it denies; so the node asks a list of its own, once for each topic and principal, in the cached route.
Owns which pair publishes through which cache. Invariants: a pair has the cache of its principal from CONNECT
on, also after the list was replaced; a principal's cache goes with its last pair. Without a list all share
one cache. Must not know: where the list comes from, what the broker does with the same publication.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from brokerweave.mqtt.scanner import RouteCache
from brokerweave.mqtt.topics import shared_filter
from brokerweave.node.router import Router
from brokerweave.session.acl import Acl, Principal
from brokerweave.session.pair import Pair

TOPICS_PER_USER = 100_000
TOPICS_PER_CLIENT = 1_000
"""Topics in one client's own cache (some 300 bytes each, at worst): there may be thousands of clients."""


class Admission:
    def __init__(self, router: Router, count: Callable[[str], None]) -> None:
        self._router = router
        self._count = count
        self._acl: Acl | None = None
        self._principals: dict[Pair, Principal | None] = {}
        self._holders: Counter[Principal] = Counter()

    @property
    def guarded(self) -> bool:
        """Whether there is an access list."""
        return self._acl is not None

    def replace(self, acl: Acl | None) -> None:
        """Another list, or none, for those who are connected, too."""
        pairs = list(self._principals)
        for pair in pairs:
            self.left(pair)
        self._acl = acl
        for pair in pairs:
            self.joined(pair)

    def joined(self, pair: Pair) -> None:
        """A pair's CONNECT was read, or its broker gave it a client id: give it its routes."""
        principal = self._principal(pair)
        if pair in self._principals:
            if self._principals[pair] == principal:
                return
            self.left(pair)
        self._principals[pair] = principal
        if principal is not None:
            self._holders[principal] += 1
        pair.use_routes(self._routes(principal))

    def left(self, pair: Pair) -> None:
        principal = self._principals.pop(pair, None)
        if principal is None:
            return
        self._holders[principal] -= 1
        if not self._holders[principal]:
            del self._holders[principal]
            self._router.forget_guarded(principal)

    def may_write(self, pair: Pair, topic: str) -> bool:
        """For what does not pass through the pair's routes: its will. A refusal is counted."""
        principal = self._principal(pair)
        return principal is None or self._allows(principal, topic)

    def may_write_as(self, username: str | None, topic: str) -> bool:
        """For a message whose client nobody knows: whether this user might have sent it. A refusal counts."""
        return self._allows((username, ""), topic)

    def readable(self, pair: Pair, filters: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """The filters that other sites should know of.

        Only a filter that is one topic is judged: what a wildcard brings, the broker filters as it delivers.
        """
        acl, principal = self._acl, self._principal(pair)
        if acl is None or principal is None:
            return filters
        kept = []
        for topic_filter, qos in filters:
            _, plain = shared_filter(topic_filter)
            if "+" in plain or "#" in plain or acl.may_read(*principal, plain):
                kept.append((topic_filter, qos))
            else:
                self._count("denied_filters")
        return kept

    def _principal(self, pair: Pair) -> Principal | None:
        if self._acl is None or pair.connect is None:
            return None
        return self._acl.principal(pair.connect.username, pair.client.client_id)

    def _routes(self, principal: Principal | None) -> RouteCache:
        if principal is None:
            return self._router.cache(None)
        topics = TOPICS_PER_CLIENT if principal[1] else TOPICS_PER_USER
        return self._router.guarded(principal, lambda topic: self._allows(principal, topic), topics)

    def _allows(self, principal: Principal, topic: str) -> bool:
        if self._acl is None or self._acl.may_write(*principal, topic):
            return True
        self._count("denied_topics")
        return False
