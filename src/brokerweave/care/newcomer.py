"""What its new site knows of one client that may be owed something from elsewhere.

Owns the record, from when the client is expected until nobody keeps anything for it any more. Must not know:
who fills it in, links, brokers, packets to the client.
"""

from __future__ import annotations

from math import inf

from brokerweave.care.cutover import Cutover
from brokerweave.care.ids import MessageId


class Newcomer:
    """One that may be owed something."""

    __slots__ = (
        "asked",
        "begun",
        "early",
        "given",
        "interrupted",
        "last",
        "older",
        "open",
        "own_before",
        "silent",
        "sources",
        "sure",
        "unwanted",
    )

    def __init__(self, sure: bool) -> None:
        self.sure = sure
        """It is known to have been elsewhere; else only that this node may not know it."""
        self.asked: list[tuple[int, list[int]]] = []
        """Of SUBSCRIBEs that the broker has not answered yet: their ticks, and what the client had published
        before and the broker had not answered either."""
        self.begun = 0
        """Since when it has this session here, as a hybrid time; 0 if that is not known."""
        self.early: list[bytes] = []
        """What it got in this session before it subscribed, as far as the node knows."""
        self.older = False
        """Its session is older than what the node knows of it."""
        self.open: list[int] = []
        """Of SUBSCRIBEs that it was judged for: what the broker got since is remembered as long."""
        self.last: Cutover | None = None
        self.own_before = inf
        """Where it had subscribed before this node knew of it, or was restarted: what was kept for it here,
        and published later than this, its broker has."""
        self.interrupted = False
        """Its connection ended before it had all that it is owed."""
        self.sources: set[str] = set()
        """Nodes that kept something for it."""
        self.silent: set[str] = set()
        """Nodes that have not said whether they keep something."""
        self.given: dict[MessageId, tuple[str, bytes]] = {}
        """What it got from here, and the broker here was not given yet: topics and hashes."""
        self.unwanted: dict[bytes, int] = {}
        """What of it the broker was given since, and is about to deliver."""

    def carry_on(self, before: Newcomer) -> None:
        """It was expected already."""
        for name in set(self.__slots__) - {"sure"}:
            setattr(self, name, getattr(before, name))

    @property
    def keepers(self) -> set[str]:
        """Who is to hear what it got of what it was owed from before."""
        return self.sources | self.silent
