"""Shares and plans: everybody once, Fig. 2.4 exactly, lists within their budget, members never confused."""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.cooperation.overlay.dispatch import (
    LONGEST_PLAN,
    NUMBER_BITS,
    NumberTable,
    Plan,
    Share,
    decode_plan,
    encode_plan,
    nearest,
    part_sizes,
    relay_shares,
    shares,
    tree_of,
)
from brokerweave.cooperation.overlay.ring import CIRCLE, Ring, hash_of

NODES = [f"node{n}" for n in range(1000)]
RING_OF_12 = Ring.at({str(n): n * CIRCLE // 12 for n in range(1, 13)})
SUBSCRIBERS = dict.fromkeys(("3", "5", "6", "9", "11", "12"), 1)


def test_figure_2_4() -> None:
    sent = shares(RING_OF_12, "1", SUBSCRIBERS, 2, None)
    assert sent == [Share("3", ("5", "6")), Share("12", ("11", "9"))]
    assert relay_shares(("5", "6"), 2) == [Share("5"), Share("6")]
    assert relay_shares(("11", "9"), 2) == [Share("11"), Share("9")]
    parents = {"3": "1", "12": "1", "5": "3", "6": "3", "11": "12", "9": "12"}
    assert tree_of(RING_OF_12, "1", SUBSCRIBERS, 2).parents == parents


def test_figure_2_3_is_a_fan_out_without_limit() -> None:
    sent = shares(RING_OF_12, "1", SUBSCRIBERS, 0)
    assert {share.child for share in sent} == set(SUBSCRIBERS)
    assert all(share.rest == () for share in sent)


@given(
    st.sets(st.sampled_from(NODES[:200])),
    st.integers(0, 12).filter(lambda fan_out: fan_out != 1),
    st.none() | st.integers(0, CIRCLE - 1),
)
def test_everybody_gets_one_copy_and_nobody_sends_more_than_the_fan_out(
    subscribers: set[str], fan_out: int, start: int | None
) -> None:
    me = NODES[0]
    tree = tree_of(Ring(NODES[:200]), me, dict.fromkeys(subscribers, 0), fan_out, start)
    assert tree.parents.keys() == subscribers - {me}
    assert all(sent <= fan_out for sent in tree.sends.values()) or not fan_out
    assert sum(tree.sends.values()) == len(tree.parents)
    assert tree.listed == sum(depth - 1 for depth in tree.depths.values())
    if fan_out:
        # A side may have a single child; from there each level is F times larger.
        room, depth = 1, 1
        while room < len(tree.parents):
            room, depth = room * fan_out + 1, depth + 1
        assert max(tree.depths.values(), default=0) <= depth


@given(st.sets(st.sampled_from(NODES[:60])), st.integers(2, 12))
def test_a_publishers_shares_are_cut_as_the_rule_says(subscribers: set[str], fan_out: int) -> None:
    ring, me = Ring(NODES[:60]), NODES[0]
    others = subscribers - {me}
    by_distance = sorted(others, key=lambda each: abs(ring.offset(me, each)))
    sides = [
        [each for each in by_distance if (ring.offset(me, each) >= 0) == clockwise]
        for clockwise in (True, False)
    ]
    sent = shares(ring, me, subscribers, fan_out)
    assert len(sent) == min(fan_out, len(others))
    for side in sides:
        of_side = [share for share in sent if share.child in side]
        assert len(of_side) >= bool(side)
        if len(others) > fan_out and len(sides[0]) and len(sides[1]):
            exact = fan_out * len(side) / len(others)
            assert abs(len(of_side) - exact) < 1 or len(of_side) in (1, fan_out - 1)
        children, rests = [share.child for share in of_side], [share.rest for share in of_side]
        assert children + [each for rest in rests for each in rest] == side
        sizes = [len(rest) for rest in rests]
        assert not sizes or max(sizes) - min(sizes) <= 1


def test_topics_with_equal_subscribers_have_different_relays() -> None:
    ring, subscribers = Ring(NODES[:50]), dict.fromkeys(NODES[:50], 0)
    loads: dict[str, int] = defaultdict(int)
    same: dict[str, int] = defaultdict(int)
    for topic in range(200):
        for node, sent in tree_of(ring, NODES[0], subscribers, 5, hash_of(f"topic{topic}")).sends.items():
            loads[node] += sent * (node != NODES[0])
        for node, sent in tree_of(ring, NODES[0], subscribers, 5).sends.items():
            same[node] += sent * (node != NODES[0])
    assert max(loads.values()) < max(same.values()) / 2
    assert len(loads) == 50


@given(
    st.sets(st.sampled_from(NODES[:200])),
    st.dictionaries(st.sampled_from(NODES[:200]), st.floats(0.001, 0.1)),
    st.integers(2, 12),
    st.integers(0, CIRCLE - 1),
)
def test_the_near_relay_first_and_everybody_is_named_once(
    subscribers: set[str], round_trips: dict[str, float], fan_out: int, start: int
) -> None:
    ring, me = Ring(NODES[:200]), NODES[0]
    near = nearest(subscribers, fan_out, round_trips)
    sent = shares(ring, me, subscribers, fan_out, start, near)
    named = [each for share in sent for each in (share.child, *share.rest)]
    assert sorted(named) == sorted(subscribers - {me})
    for clockwise in (True, False):
        of_side = [share for share in sent if (ring.offset(me, share.child) >= 0) == clockwise]
        far = [share.child for share in of_side if share.child not in near]
        assert not far or not any(near & set(share.rest) for share in of_side)
    further = [round_trips[each] for each in subscribers & round_trips.keys() if each not in near]
    assert not near or max(round_trips[each] for each in near) <= min(further, default=1.0)


def test_near_relays_differ_by_topic() -> None:
    ring, subscribers = Ring(NODES), dict.fromkeys(NODES, 0)
    round_trips = {name: hash_of(f"trip {name}") / CIRCLE for name in NODES}
    near = nearest(subscribers, 10, round_trips)
    assert len(near) == 62
    used = {
        share.child
        for topic in range(50)
        for share in shares(ring, NODES[0], subscribers, 10, hash_of(f"topic{topic}"), near)
    }
    assert used <= near
    assert len(used) > 50


@given(st.integers(0, 50_000), st.integers(0, 30))
def test_parts_differ_by_at_most_one_and_hold_everybody(count: int, fan_out: int) -> None:
    sizes = part_sizes(count, fan_out)
    assert sum(sizes) + len(sizes) == count
    assert not sizes or max(sizes) - min(sizes) <= 1
    assert len(sizes) >= min(fan_out or count, count)


FEW = st.sampled_from(NODES[:50])
RESTS = st.dictionaries(FEW, st.integers(0, 2))


@given(RESTS, st.sets(FEW), st.sets(FEW), st.integers(0, 65_535))
def test_a_plan_is_read_as_written_and_the_unknown_are_counted(
    rest: dict[str, int], sender_misses: set[str], missing: set[str], fan_out: int
) -> None:
    named = list(rest.items())
    plan = encode_plan(fan_out, named, NumberTable(set(NODES[:50]) - sender_misses))
    read = decode_plan(plan, NumberTable(set(NODES[:50]) - missing))
    unknown = len(rest.keys() & missing)
    assert read == Plan(fan_out if named else 0, () if unknown else tuple(named), unknown)
    assert plan or not named


def colliding(count: int) -> list[tuple[str, str]]:
    """Pairs of ids whose numbers are equal. Half of all sets of 2,500 ids have such a pair."""
    seen: dict[int, str] = {}
    pairs = []
    for n in range(20_000):
        number = hash_of(f"x{n}") % (1 << NUMBER_BITS)
        if number in seen:
            pairs.append((seen[number], f"x{n}"))
        seen[number] = f"x{n}"
    assert len(pairs) >= count
    return pairs[:count]


((ONE, TWIN),) = colliding(1)


@pytest.mark.parametrize("sender_knows_twin", [True, False])
@pytest.mark.parametrize("receiver_knows", [{ONE}, {TWIN}, {ONE, TWIN}, set()])
def test_two_members_with_one_number_are_never_confused(
    sender_knows_twin: bool, receiver_knows: set[str]
) -> None:
    sender = NumberTable(["a", ONE, *[TWIN] * sender_knows_twin])
    plan = encode_plan(3, [("a", 1), (ONE, 2)], sender)
    read = decode_plan(plan, NumberTable({"a", *receiver_knows}))
    assert read.fan_out == 3
    if ONE in receiver_knows:
        assert read == Plan(3, (("a", 1), (ONE, 2)))
    else:
        assert read.rest == ()
        assert read.unknown in (1, 2)


def test_members_that_share_numbers_are_told_by_the_check() -> None:
    pairs = colliding(5)
    ones = [(one, 1) for one, _ in pairs]
    plan = encode_plan(4, ones, NumberTable(one for one, _ in pairs))
    everybody = NumberTable(each for pair in pairs for each in pair)
    assert decode_plan(plan, everybody) == Plan(4, tuple(ones))
    assert len(encode_plan(4, ones, everybody)) > len(plan)


@given(st.binary(min_size=1, max_size=60))
def test_garbage_is_refused_or_read_but_nothing_else(garbage: bytes) -> None:
    try:
        read = decode_plan(garbage, NumberTable(NODES))
    except ValueError:
        return
    assert bool(read.rest) != bool(read.unknown)
    assert all(0 <= qos <= 2 for _, qos in read.rest)


def test_lists_are_at_most_a_tenth_of_the_bytes() -> None:
    """1,000 subscribers, F = 5, payloads of 100 bytes."""
    ring, table = Ring(NODES), NumberTable(NODES)
    bytes_of_messages = bytes_of_plans = 0
    pending = [shares(ring, "publisher", NODES, 5, hash_of("topic"))]
    for sent in pending:
        for share in sent:
            bytes_of_messages += 100 + 70
            bytes_of_plans += len(encode_plan(5, [(node, 1) for node in share.rest], table))
            pending.append(relay_shares(share.rest, 5))
    assert bytes_of_messages == 170 * 1000
    assert bytes_of_plans <= 0.1 * (bytes_of_messages + bytes_of_plans)


@pytest.mark.parametrize("known", [True, False])
def test_thirty_thousand_subscribers_need_more_children_so_that_plans_fit(known: bool) -> None:
    many = [f"n{n}" for n in range(30_000)]
    table = NumberTable(many if known else ())
    tree = tree_of(Ring(many), many[0], dict.fromkeys(many, 0), 2)
    assert len(tree.parents) == 29_999
    assert max(tree.sends.values()) == tree.sends[many[0]] == 6
    for share in shares(Ring(many), many[0], many, 2):
        assert len(encode_plan(2, [(node, 2) for node in share.rest], table)) <= LONGEST_PLAN
