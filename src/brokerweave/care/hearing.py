"""What the others have heard of this site.

Owns which version of what this site wants each neighbour knows. Invariant: a version counts as known when
also everything has come here that its neighbour sent before it knew it. Must not know: clients, records.
"""

from __future__ import annotations

from collections.abc import Iterable

from brokerweave.care.held import Held
from brokerweave.care.holders import HolderStreams
from brokerweave.care.host import CareHost
from brokerweave.care.record import RecordTable
from brokerweave.plugin import Cut
from brokerweave.plugin.sites import SiteBook


class Hearing:
    def __init__(self, host: CareHost, sites: SiteBook, holders: HolderStreams, table: RecordTable) -> None:
        """`table`: the records here, which depend on what origins know."""
        self._host = host
        self._sites = sites
        self._holders = holders
        self._table = table
        self._known: dict[str, int] = {}
        self._cuts: dict[str, tuple[int, Cut]] = {}
        """Versions that neighbours know, while something that they sent before is on its way."""
        self._starts: dict[str, int] = {}
        """The start, by its epoch, in which each neighbour spoke last."""
        self._lives: dict[str, int] = {}
        self._told: set[str] = set()
        """Neighbours that have told what they want since their links are up."""

    def all_know(self, nodes: Iterable[str], version: int, positions: dict[str, int]) -> bool:
        """Whether these know what this site wants, what they sent before is here, and holders have all."""
        others = (node for node in nodes if node != self._host.node_id)
        return all(self._known.get(each, 0) >= version for each in others) and self._holders.have(positions)

    def known(self, neighbour: str) -> int:
        """The version that a neighbour knows."""
        return self._known.get(neighbour, 0)

    def heard(self, neighbour: str, version: int, cut: Cut) -> bool:
        """A neighbour knows this version; up to the cut it did not. Whether that counts now."""
        self._cuts[neighbour] = (version, cut)
        self._starts[neighbour] = cut.epoch
        return self.took(neighbour)

    def took(self, neighbour: str) -> bool:
        """What a neighbour sent is here. Whether another version counts now."""
        version, cut = self._cuts.get(neighbour, (0, None))
        if cut is None or neighbour not in self._host.neighbour_table:
            return False
        lanes = self._host.neighbour_table[neighbour].lanes
        if any(lane.taken < last for lane, last in zip(lanes, cut.sent, strict=False)):
            return False
        del self._cuts[neighbour]
        self._known[neighbour] = version
        self._table.hear((neighbour, cut.epoch), version)
        self._holders.heard((neighbour, cut.epoch), version)
        return True

    def is_over(self, held: Held) -> bool:
        """Whether the start of its origin is, as far as is known: nobody else may have it to send."""
        origin, epoch, *_ = held.id
        return origin not in self._sites.live or 0 < epoch < self._starts.get(origin, 0)

    def told(self, neighbour: str) -> tuple[bool, bool]:
        """A neighbour told what it wants: whether it began another life, and whether its link is new."""
        life, new_link = self._sites.life_of(neighbour), neighbour not in self._told
        another = self._lives.get(neighbour) != life
        if another:
            self._lives[neighbour] = life
            self._known.pop(neighbour, None)
        self._told.add(neighbour)
        return another, new_link

    def down(self, neighbour: str) -> None:
        """A link is down. Its other end may forget what this site wants until it says that it knows that."""
        self._cuts.pop(neighbour, None)
        self._table.unhear(neighbour)
        self._holders.unheard(neighbour)
        self._told.discard(neighbour)

    def forgot(self, neighbour: str) -> None:
        """A neighbour does not know any more what this site wants."""
        self._known.pop(neighbour, None)
