"""What a strategy knows of its cluster: who lives, whether membership still looks for others, what it
announces.

Owns the live members as the strategy was told of them, and the last announcement. Invariants: this node is
always live; of many announcements within `ANNOUNCE_SECONDS` only the last is told to others; without
membership a node is alone and announces to nobody. Must not know: how members are found, which are linked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from brokerweave.errors import LocalProtocolError
from brokerweave.plugin import Timer

ANNOUNCE_SECONDS = 0.5
"""From an announcement to its way to all members; later ones within that time take its place."""
MOST_ANNOUNCED = 32
"""Bytes: they travel with membership's datagrams, where room is dear."""


class ClusterHost(Protocol):
    """A node that is a member."""

    def announce(self, data: bytes) -> None:
        """Let all members know the strategy's bytes."""

    def searching(self) -> bool:
        """Whether membership was told whom to join and has found nobody yet."""

    def round_trips(self) -> Mapping[str, float]:
        """As `Context.round_trips` says."""


class ClusterView:
    def __init__(self, node_id: str, call_later: Callable[[float, Callable[[], None]], Timer]) -> None:
        self.live: frozenset[str] = frozenset((node_id,))
        self._call_later = call_later
        self._host: ClusterHost | None = None
        self._announced = b""
        self._announcing = False

    def attach(self, host: ClusterHost) -> None:
        """The node becomes a member."""
        self._host = host
        if self._announced:
            self.announce(self._announced)

    def misses(self, node: str) -> bool:
        """Whether this node is a member, and another is not."""
        return self._host is not None and node not in self.live

    def searching(self) -> bool:
        return self._host is not None and self._host.searching()

    def round_trips(self) -> Mapping[str, float]:
        return self._host.round_trips() if self._host is not None else {}

    def announce(self, data: bytes) -> None:
        if len(data) > MOST_ANNOUNCED:
            raise LocalProtocolError(f"a strategy announces {len(data)} bytes; at most {MOST_ANNOUNCED} fit")
        self._announced = data
        if self._host is not None and not self._announcing:
            self._announcing = True
            self._call_later(ANNOUNCE_SECONDS, self._announce)

    def _announce(self) -> None:
        self._announcing = False
        if self._host is not None:
            self._host.announce(self._announced)
