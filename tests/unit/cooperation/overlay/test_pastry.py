"""Prefix routing: each hop keeps Pastry's rule, each walk ends at the closest member, in few hops."""

from __future__ import annotations

from collections import Counter
from math import log

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from brokerweave.cooperation.overlay.pastry import LEAVES_A_SIDE, next_hop
from brokerweave.cooperation.overlay.ring import CIRCLE, Ring, key_position

# Clusters that share long prefixes, so that most prefixes are nobody's, and some anywhere.
TOPS = st.sampled_from([0, 0, 1, 8])
LOWS = st.integers(0, 300) | st.integers(0, 0xFFF).map(lambda low: low << 48)
POSITIONS = st.builds(lambda top, low: top << 60 | low, TOPS, LOWS)
PLACES = st.sets(POSITIONS, min_size=1, max_size=30) | st.sets(POSITIONS, min_size=26, max_size=90)


def apart(one: int, other: int) -> int:
    return min((one - other) % CIRCLE, (other - one) % CIRCLE)


def shared(one: int, other: int) -> int:
    """Hexadecimal digits that two positions begin with in common."""
    pairs = zip(f"{one:016x}", f"{other:016x}", strict=True)
    return next((count for count, (left, right) in enumerate(pairs) if left != right), 16)


def leaf_set(places: list[int], mine: int) -> list[int]:
    """From the first counter-clockwise to the last clockwise, `mine` in the middle."""
    at = places.index(mine)
    return [places[(at + step) % len(places)] for step in range(-LEAVES_A_SIDE, LEAVES_A_SIDE + 1)]


@given(PLACES, POSITIONS | st.integers(0, CIRCLE - 1))
@example({*range(24), 1 << 48, 1 << 60}, 0x9D6 << 48)  # a leaf set that reaches around the key
def test_each_hop_keeps_the_rule_and_the_last_is_the_closest(chosen: set[int], key: int) -> None:
    places = sorted(chosen)
    ring = Ring.at({f"{place:016x}": place for place in places})
    closest = ring.position(ring.closest(key, 1)[0])
    for mine in places:
        hop = next_hop(ring, f"{mine:016x}", key)
        if hop is None:
            assert mine == closest
            continue
        there = ring.position(hop)
        leaves = leaf_set(places, mine)
        if len(places) <= len(leaves) or (key - leaves[0]) % CIRCLE <= (leaves[-1] - leaves[0]) % CIRCLE:
            assert there == closest
        elif any(shared(each, key) > shared(mine, key) for each in places):
            assert shared(there, key) > shared(mine, key)
        else:
            assert shared(there, key) >= shared(mine, key)
            assert apart(there, key) < apart(mine, key)
            prefixed = [each for each in leaves if shared(each, key) >= shared(mine, key)]
            assert apart(there, key) <= min(apart(each, key) for each in prefixed)


@settings(max_examples=40)
@given(PLACES, st.integers(0, CIRCLE - 1))
def test_every_walk_ends_at_the_closest(chosen: set[int], key: int) -> None:
    ring = Ring.at({str(place): place for place in chosen})
    for member in ring.members:
        assert walk(ring, member, key)[-1] == ring.closest(key, 1)[0]


def walk(ring: Ring, member: str, key: int) -> list[str]:
    passed = [member]
    while (hop := next_hop(ring, passed[-1], key)) is not None:
        assert hop not in passed
        passed.append(hop)
    return passed


@pytest.mark.parametrize("size", [1000, 10_000])
def test_a_key_is_reached_in_the_logarithm_of_the_members(size: int) -> None:
    ring = Ring(f"node{n}" for n in range(size))
    hops = Counter(len(walk(ring, f"node{n}", key_position(b"%d" % n))) - 1 for n in range(1000))
    assert sum(count * times for count, times in hops.items()) / 1000 < log(size, 16)
    assert sum(times for count, times in hops.items() if count > log(size, 16) + 1) < 10


def test_no_member_is_the_next_hop_of_nearly_all() -> None:
    ring = Ring(f"node{n}" for n in range(1000))
    for topic in range(5):
        hops = Counter(next_hop(ring, member, key_position(b"%d" % topic)) for member in ring.members)
        assert max(hops.values()) < 150


def test_hops_stay_when_somebody_else_comes() -> None:
    members = [f"node{n}" for n in range(1000)]
    before, after, key = Ring(members), Ring([*members, "new"]), key_position(b"topic")
    changed = sum(next_hop(before, member, key) != next_hop(after, member, key) for member in members)
    assert changed < 100
