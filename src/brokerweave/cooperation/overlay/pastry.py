"""Pastry (Rowstron and Druschel 2001): the next hop to a key by prefixes, b = 4, a leaf set of 24.

Owns the rule. A member knows its leaf set and, for each prefix of its position and each other next digit, one
member. None of this is stored: a prefix is a range of positions, so a full ring answers with a binary search.
Invariants: each hop shares a longer prefix with the key, or is closer to it; the last one is the closest
member. Must not know: messages, trees.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from brokerweave.cooperation.overlay.ring import BITS, CIRCLE, Ring

DIGIT_BITS = 4
LEAVES_A_SIDE = 12
_SCATTER = 0x9E3779B97F4A7C15
"""Odd, so that it maps positions one to one; close ones are far apart then."""
_CANDIDATES = 8


def next_hop(ring: Ring, me: str, key: int) -> str | None:
    """Whom `me` sends what is for `key`; None if it is the closest member itself."""
    places, size = ring.places, len(ring)
    mine = _index(ring, me)
    first, last = places[(mine - LEAVES_A_SIDE) % size], places[(mine + LEAVES_A_SIDE) % size]
    if size <= 2 * LEAVES_A_SIDE + 1 or (key - first) % CIRCLE <= (last - first) % CIRCLE:
        closest = ring.closest(key, 1)[0]
        return None if closest == me else closest
    row = (BITS - (places[mine] ^ key).bit_length()) // DIGIT_BITS
    return _entry(ring, places[mine], row, key) or _closer(ring, mine, row, key)


def _index(ring: Ring, me: str) -> int:
    index = bisect_left(ring.places, ring.position(me))
    while ring.members[index] != me:
        index += 1
    return index


def _entry(ring: Ring, mine: int, row: int, key: int) -> str | None:
    """The entry in the routing table of the member at `mine` for the first `row` + 1 digits of `key`.

    Pastry takes the nearest by network of all with this prefix. Here each member takes another of them, which
    depends on both alone: it stays when others come and go, and no member is the entry of all.
    """
    width = BITS - DIGIT_BITS * (row + 1)
    begin = key >> width << width
    low = bisect_left(ring.places, begin)
    high = bisect_left(ring.places, begin + (1 << width), low)
    if low == high:
        return None
    point = begin + ((mine * _SCATTER % CIRCLE) >> (BITS - width))
    start = bisect_left(ring.places, point, low, high) - low
    near = [low + (start + step) % (high - low) for step in range(min(_CANDIDATES, high - low))]
    return ring.members[min(near, key=lambda index: (mine ^ ring.places[index]) * _SCATTER % CIRCLE)]


def _closer(ring: Ring, mine: int, row: int, key: int) -> str:
    """No member has the next digit of `key`: the closest to it that the one at index `mine` knows.

    It has to share the prefix too, or walks could go in circles. One of the leaf set always does: those
    between `mine` and the key share the prefix of both.
    """
    width = BITS - DIGIT_BITS * row

    def away(member: str) -> tuple[int, str]:
        apart = (ring.position(member) - key) % CIRCLE
        return min(apart, CIRCLE - apart), member

    known = _known(ring, mine, row)
    return min((each for each in known if ring.position(each) >> width == key >> width), key=away)


def _known(ring: Ring, mine: int, row: int) -> Iterator[str]:
    """The leaf set of the member at an index, and its routing table from a row to the first empty one."""
    for step in range(1, LEAVES_A_SIDE + 1):
        yield ring.members[(mine - step) % len(ring)]
        yield ring.members[(mine + step) % len(ring)]
    here = ring.places[mine]
    for deeper in range(row, BITS // DIGIT_BITS):
        width = BITS - DIGIT_BITS * (deeper + 1)
        entries = [
            _entry(ring, here, deeper, (here >> width ^ digit) << width)
            for digit in range(1, 1 << DIGIT_BITS)
        ]
        yield from filter(None, entries)
        if not any(entries):
            return
