"""In a mesh: how many sites had a message, if some that should have had a copy were out of reach.

Owns which sites were to get a copy each time a message was sent, and which got it. Invariant: a message
counts as one with few copies only if all sites that lacked it were out of reach of its origin then, or lost
their link with it before they had it. Must not know: what became of the copies.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from brokerweave.node.router import RouteGroup
from brokerweave.sim.facts import Facts


@dataclass(frozen=True, slots=True)
class _Sending:
    at: float
    origin: str
    group: RouteGroup
    away: frozenset[str]
    """Out of reach of the origin."""

    def meant_for(self, home: str) -> set[str]:
        """Who was to have it for the clients of a site."""
        keepers = {keeper for keeper, nodes in self.group.keepers if home in nodes}
        return {home, *keepers, *([self.origin] if home in self.group.holds else ())}


class Copies:
    def __init__(self, facts: Facts, number: int) -> None:
        """`number`: how many there are to be."""
        self._facts = facts
        self._number = number
        self._sendings: defaultdict[bytes, list[_Sending]] = defaultdict(list)
        self._arrived: set[tuple[str, bytes]] = set()

    def sent(self, origin: str, payload: bytes, group: RouteGroup) -> None:
        away = frozenset(n for n in self._facts.barriers if not self._facts.reaches(origin, n))
        self._sendings[payload].append(_Sending(self._facts.now, origin, group, away))

    def arrived(self, node: str, payload: bytes) -> None:
        self._arrived.add((node, payload))

    def few(self, payload: bytes, home: str) -> set[str]:
        """The sites that had a message for clients of a site, if those were too few and no more could; none
        otherwise."""
        sites: set[str] = set()
        for sending in self._sendings[payload]:
            meant = sending.meant_for(home)
            had = {n for n in meant if n == sending.origin or (n, payload) in self._arrived}
            in_reach = len(self._facts.barriers) - len(sending.away)
            enough = len(had) >= self._number or (len(meant) < self._number <= in_reach)
            if enough or not all(self._was_away(n, sending) for n in meant - had):
                return set()
            sites |= had
        return sites

    def _was_away(self, node: str, sending: _Sending) -> bool:
        return node in sending.away or self._facts.link_failed_since(sending.origin, node, sending.at)
