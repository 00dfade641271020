"""Guided dispatching (MQTT2EdgePeer 2.11.2): who gets a publication first, and whom each of them serves.

Owns how a subscriber list is cut into shares, and how a share's next list travels, as a plan. Invariants: all
shares together name each subscriber once, and the sender never; a plan fits into a hop; a plan is read as it
was meant, or not at all. Must not know: where the lists come from, links, topics.

A plan: u16 fan-out, u32 check (xor of the members' hashes, cut), then each member with its QoS. Short: 22
bits of the member's hash, 2 bits QoS. Long, where the sender's table does not tell by 22 bits: u24 of
QoS << 2 | 3, u64 hash. A sender and a receiver may each know somebody whom the other does not, with the same
22 bits: the check tells if a plan was read as it was meant. An empty plan names nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import reduce
from heapq import nsmallest
from itertools import islice, product
from operator import xor
from typing import NamedTuple

from brokerweave.cooperation.overlay.ring import BITS, Ring, hash_of

NUMBER_BITS = 22
_NUMBER_MASK = (1 << NUMBER_BITS) - 1
_CHECK_MASK = (1 << 32) - 1
_SHORT, _HASH = 3, BITS // 8
_IS_LONG = 3
"""In place of a QoS: the QoS and the whole hash follow."""
_HEAD = 6
_MOST_READINGS = 64
"""Tried if numbers of a plan are shared by members."""
_MOST_FAN_OUT = 0xFFFF
_NEAR_FAN_OUTS, _NEAR_PART = 4, 16
"""Near are a sixteenth of all, but at least four times as many as are needed."""
LONGEST_PLAN = 0xFFFF
LONGEST_REST = (LONGEST_PLAN - _HEAD) // (_SHORT + _HASH)
"""Members in a next list, so that its plan fits, even if all of them are written long."""


class Share(NamedTuple):
    child: str
    rest: tuple[str, ...] = ()
    """The next list: whom the child serves, in the order of its walk."""


def nearest(subscribers: Collection[str], fan_out: int, round_trips: Mapping[str, float]) -> frozenset[str]:
    """Good relays for this node: more than it needs, so that topics can have different ones."""
    count = max(_NEAR_FAN_OUTS * fan_out, len(subscribers) // _NEAR_PART)
    if not fan_out or count >= len(subscribers):
        return frozenset()
    measured = [(round_trips[each], each) for each in subscribers if each in round_trips]
    return frozenset(each for _, each in nsmallest(count, measured))


def shares(
    ring: Ring,
    me: str,
    subscribers: Iterable[str],
    fan_out: int,
    start: int | None = None,
    near: Set[str] = frozenset(),
) -> list[Share]:
    """What a publisher's node sends: `fan_out` shares (0: without limit) over both directions of the ring.

    On each side the walk begins at the nearest subscriber. With `start`, the position of the topic's key, it
    begins at that fraction of the side, and those before it come last: so topics with equal subscribers have
    other relays. Those that are `near` come first, in the same order.
    """
    clockwise: list[tuple[int, str]] = []
    counter: list[tuple[int, str]] = []
    for subscriber in subscribers:
        if subscriber != me:
            offset = ring.offset(me, subscriber)
            (clockwise if offset >= 0 else counter).append((abs(offset), subscriber))
    children, others = split_fan_out(len(clockwise), len(counter), fan_out)
    return [*_cut(_walk(clockwise, start, near), children), *_cut(_walk(counter, start, near), others)]


def relay_shares(order: Sequence[str], fan_out: int) -> list[Share]:
    """What a relay sends on: its next list in the order it came, all shares in its own direction."""
    return _cut(order, fan_out)


def split_fan_out(clockwise: int, counter: int, fan_out: int) -> tuple[int, int]:
    """The fan-out shared over two sides with so many subscribers: in proportion, at least one each."""
    if not fan_out or not clockwise or not counter:
        return fan_out, fan_out
    total = clockwise + counter
    children = (2 * fan_out * clockwise + total) // (2 * total)
    children = max(1, min(children, fan_out - 1))
    return children, max(1, fan_out - children)


def part_sizes(count: int, fan_out: int) -> list[int]:
    """The lengths of the next lists if `count` subscribers are served by `fan_out` children (0: by all).

    There are more children if the lists would not fit into plans.
    """
    children = min(count, max(fan_out, -(-count // (LONGEST_REST + 1)))) if fan_out else count
    if not children:
        return []
    size, larger = divmod(count - children, children)
    return [size + 1] * larger + [size] * (children - larger)


def _walk(side: list[tuple[int, str]], start: int | None, near: Set[str]) -> list[str]:
    order = [subscriber for _, subscriber in sorted(side)]
    first = 0 if start is None else start * len(order) >> BITS
    return sorted(order[first:] + order[:first], key=lambda subscriber: subscriber not in near)


def _cut(order: Sequence[str], fan_out: int) -> list[Share]:
    sizes = part_sizes(len(order), fan_out)
    cut: list[Share] = []
    begin = len(sizes)
    for child, size in zip(order, sizes, strict=False):
        cut.append(Share(child, tuple(order[begin : begin + size])))
        begin += size
    return cut


class NumberTable:
    """Members by number and by hash: all that this node knows, and those that left but may still be named."""

    __slots__ = ("_by_hash", "_by_number")

    def __init__(self, members: Iterable[str]) -> None:
        self._by_hash = {hash_of(member): member for member in members}
        self._by_number: dict[int, tuple[str, ...]] = {}
        for whole, member in self._by_hash.items():
            number = whole & _NUMBER_MASK
            self._by_number[number] = (*self._by_number.get(number, ()), member)

    def by_number(self, number: int) -> tuple[str, ...]:
        """All that have this number: nearly always one, if anybody."""
        return self._by_number.get(number, ())

    def by_hash(self, whole: int) -> tuple[str, ...]:
        member = self._by_hash.get(whole)
        return () if member is None else (member,)


class Plan(NamedTuple):
    fan_out: int = 0
    rest: tuple[tuple[str, int], ...] = ()
    """Who is to be served, each with the highest QoS asked for there. Nobody if some are unknown."""
    unknown: int = 0
    """How many are named whom this node does not know; all of them if it takes one for another."""


def encode_plan(fan_out: int, rest: Iterable[tuple[str, int]], known: NumberTable) -> bytes:
    """The plan for a child that serves `rest`; empty if that is nobody."""
    rest, body = list(rest), []
    for member, qos in rest:
        whole = hash_of(member)
        number = whole & _NUMBER_MASK
        if known.by_number(number) == (member,):
            body.append((number << 2 | qos).to_bytes(_SHORT))
        else:
            body.append((qos << 2 | _IS_LONG).to_bytes(_SHORT) + whole.to_bytes(_HASH))
    if not body:
        return b""
    fan_out = min(fan_out, _MOST_FAN_OUT)
    check = _check(member for member, _ in rest)
    return b"".join([fan_out.to_bytes(2), check.to_bytes(4), *body])


def plan_size(count: int) -> int:
    """Bytes of a plan for so many members, if all are written short."""
    return _HEAD + _SHORT * count if count else 0


def decode_plan(plan: bytes, known: NumberTable) -> Plan:
    """Read a plan; ValueError if it is none."""
    if not plan:
        return Plan()
    candidates: list[tuple[str, ...]] = []
    levels: list[int] = []
    at = _HEAD
    while at < len(plan):
        short = int.from_bytes(plan[at : at + _SHORT])
        end = at + _SHORT
        qos = short & 3
        if qos == _IS_LONG:
            qos = short >> 2
            candidates.append(known.by_hash(int.from_bytes(plan[end : end + _HASH])))
            end += _HASH
        else:
            candidates.append(known.by_number(short >> 2))
        if end > len(plan) or qos > 2:
            raise ValueError(f"a plan of {len(plan)} bytes is damaged at {at}")
        levels.append(qos)
        at = end
    if not levels:
        raise ValueError("a plan names nobody")
    fan_out = int.from_bytes(plan[:2])
    if unknown := candidates.count(()):
        return Plan(fan_out, (), unknown)
    for members in islice(product(*candidates), _MOST_READINGS):
        if _check(members) == int.from_bytes(plan[2:_HEAD]):
            return Plan(fan_out, tuple(zip(members, levels, strict=True)))
    return Plan(fan_out, (), len(levels))


def _check(members: Iterable[str]) -> int:
    return reduce(xor, map(hash_of, members), 0) & _CHECK_MASK


@dataclass(slots=True)
class Dissemination:
    """The whole way of one publication."""

    parents: dict[str, str] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)
    sends: dict[str, int] = field(default_factory=dict)
    """Copies that a node sends; those that send none are not named."""
    listed: int = 0
    """Members in all next lists together."""


def tree_of(
    ring: Ring, me: str, subscribers: Mapping[str, int], fan_out: int, start: int | None = None
) -> Dissemination:
    """Follow the shares to the end. ValueError if somebody would get two copies."""
    tree = Dissemination()
    pending = [(me, 0, shares(ring, me, subscribers, fan_out, start))]
    for sender, depth, sent in pending:
        if sent:
            tree.sends[sender] = len(sent)
        for child, rest in sent:
            if child in tree.parents:
                raise ValueError(f"{child} gets a second copy from {sender}")
            tree.parents[child] = sender
            tree.depths[child] = depth + 1
            tree.listed += len(rest)
            pending.append((child, depth + 1, relay_shares(rest, fan_out)))
    return tree
