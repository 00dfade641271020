"""The ring against plain arithmetic over all members."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from brokerweave.cooperation.overlay.ring import CIRCLE, HALF, Ring, hash_of, key_position

# Few places, so that members share one, and ties are common.
POSITIONS = st.one_of(st.integers(0, 7), st.sampled_from([HALF - 1, HALF, HALF + 1, CIRCLE - 2, CIRCLE - 1]))
RINGS = st.dictionaries(st.sampled_from("abcdefghijklmnop"), POSITIONS, max_size=16)


def apart(one: int, other: int) -> int:
    return min((one - other) % CIRCLE, (other - one) % CIRCLE)


@given(RINGS, POSITIONS, st.integers(0, 18))
def test_the_closest_are_the_first_of_all_by_distance_then_id(
    places: dict[str, int], key: int, count: int
) -> None:
    ranked = sorted(places, key=lambda member: (apart(places[member], key), member))
    assert Ring.at(places).closest(key, count) == tuple(ranked[:count])


@given(st.sets(st.text(max_size=5), max_size=60), st.binary(max_size=8), st.integers(0, 8))
def test_hashed_members_are_found_as_by_a_search_of_all(members: set[str], key: bytes, count: int) -> None:
    ring, position = Ring(members), key_position(key)
    ranked = sorted(members, key=lambda member: (apart(hash_of(member), position), member))
    assert ring.closest(position, count) == tuple(ranked[:count])
    assert ring.members == tuple(sorted(members, key=lambda member: (hash_of(member), member)))


@given(st.dictionaries(st.sampled_from("ab"), POSITIONS, min_size=2))
def test_an_offset_leads_from_one_to_the_other_by_the_shorter_way(places: dict[str, int]) -> None:
    ring = Ring.at(places)
    there, back = ring.offset("a", "b"), ring.offset("b", "a")
    assert (places["a"] + there) % CIRCLE == places["b"]
    assert -HALF < there <= HALF
    assert back == (there if there == HALF else -there)


def test_members_of_one_zone_stand_together() -> None:
    zones = {f"node{n}": f"zone{n % 3}" for n in range(30)}
    ring = Ring(zones, zones)
    order = [zones[member] for member in ring.members]
    assert sum(one != other for one, other in pairwise(order)) == 2
    assert len({ring.position(member) for member in zones}) == 30


def test_one_who_is_no_member_has_a_position_but_is_never_closest() -> None:
    ring = Ring(["a", "b"])
    assert "c" not in ring
    assert ring.position("c") == hash_of("c")
    assert "c" not in ring.closest(hash_of("c"), 3)
