"""The ring: where members and keys stand, and which members are closest to a key.

Owns positions: 64 bits of blake2b. With a zone, the zone's hash gives a member's top 16 bits, so members of
one zone stand together. Invariant: a ring never changes, and depends on its members and zones alone, so all
who know the same members agree. Must not know: subscribers, links, who is me.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b

BITS = 64
CIRCLE = 1 << BITS
HALF = CIRCLE >> 1
ZONE_BITS = 16
_ID_MASK = (1 << BITS - ZONE_BITS) - 1


def key_position(key: bytes) -> int:
    """Where a key stands."""
    return int.from_bytes(blake2b(key, digest_size=BITS // 8).digest())


@lru_cache(1 << 16)
def hash_of(name: str) -> int:
    """64 bits of the hash of a member's id or of a zone."""
    return key_position(name.encode())


def member_position(member: str, zone: str = "") -> int:
    place = hash_of(member)
    return hash_of(zone) & ~_ID_MASK | place & _ID_MASK if zone else place


class Ring:
    """Members by position. A zone may be named for each member; those without one stand anywhere."""

    __slots__ = ("_positions", "members", "places")

    members: tuple[str, ...]
    """By position; two at one position by id."""
    places: list[int]
    """Their positions, in the same order. To be read only."""

    def __init__(self, members: Iterable[str], zones: Mapping[str, str] | None = None) -> None:
        zone = (zones or {}).get
        self._place({member: member_position(member, zone(member, "")) for member in members})

    @classmethod
    def at(cls, positions: Mapping[str, int]) -> Ring:
        """A ring whose members stand where the caller says."""
        ring = cls.__new__(cls)
        ring._place(dict(positions))
        return ring

    def _place(self, positions: dict[str, int]) -> None:
        by_place = sorted((position, member) for member, position in positions.items())
        self._positions = positions
        self.places = [position for position, _ in by_place]
        self.members = tuple([member for _, member in by_place])

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, member: object) -> bool:
        return member in self._positions

    def position(self, member: str) -> int:
        """Where a member stands, or where somebody who is no member would stand without a zone."""
        position = self._positions.get(member)
        return hash_of(member) if position is None else position

    def closest(self, key: int, count: int) -> tuple[str, ...]:
        """The `count` members nearest to a position on the circle, nearest first, ties by id."""
        places, size = self.places, len(self.places)
        at = bisect_left(places, key)
        first, last = at - count, at + count
        # Two at one position are sorted by id, so the first of a position has to be among the candidates.
        while last - first < size and places[first % size] == places[(first - 1) % size]:
            first -= 1
        if last - first >= size:
            first, last = 0, size
        near = []
        for index in range(first, last):
            apart = (places[index % size] - key) % CIRCLE
            near.append((min(apart, CIRCLE - apart), self.members[index % size]))
        near.sort()
        return tuple([member for _, member in near[:count]])

    def offset(self, one: str, other: str) -> int:
        """From `one` to `other`: clockwise above 0, counter-clockwise below, half the circle at most."""
        apart = (self.position(other) - self.position(one)) % CIRCLE
        return apart if apart <= HALF else apart - CIRCLE
