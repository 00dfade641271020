"""What the kills cost: loss, duplicates, gaps and throughput, from the load's record and the kills' times.

Pure. A client is *cut off* by a kill if its connection ended within a second of it: a killed process closes
all it has. Whose connection ended later, though its node lived (a balancer may hold a busy node for dead), is
*shaken*. Everybody else is a survivor. Invariants: a publication counts as owed from the moment its publisher
was told that somebody has it; every loss and every duplicate belongs to exactly one kill. Must not know: how
anything was done.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from benchmarks.failover.record import Life, Published, Received, Record

UNDER_WAY = 2.0
"""Seconds: a publication that is lost in a kill may have been created this long before it."""
STALE = 2.0
"""Seconds: what came this long before a kill has been acknowledged, on however busy a machine."""
SHOWN = 20
"""Losses and repeats of one kill that are described."""
FAILOVER = 1.0
"""Seconds after a kill that count as `during`."""
CUT = 1.0
"""Seconds after a kill within which every connection of a dead process has ended."""


@dataclass(frozen=True, slots=True)
class Kill:
    nodes: tuple[str, ...]
    at: float
    until: float
    """The end of what is looked at: before the killed nodes are started again."""


@dataclass(frozen=True, slots=True)
class Return:
    """How one subscriber that was cut off came back. Seconds; None if there was nothing to measure."""

    closed: float
    """From the kill until its connection ended: detection."""
    connected: float
    """From there to CONNACK: connecting anew, through the balancer."""
    subscribed: float
    """From there to SUBACK."""
    first_owed: float | None
    """From there to the first of what it was owed by then."""
    all_owed: float | None
    """From there to the last of it; None also if something never came."""
    owed: int

    @property
    def theirs(self) -> float:
        """The client's own detection and reconnecting."""
        return self.closed + self.connected

    @property
    def ours(self) -> float | None:
        return None if self.first_owed is None else self.subscribed + self.first_owed


@dataclass(frozen=True, slots=True)
class Harm:
    """One loss or repeat that should not be, to look for its cause. Times are seconds after the kill."""

    what: str
    publisher: str
    number: int
    subscriber: str
    created: float
    taken: float | None
    arrived: tuple[float, ...]
    publisher_lost: float | None
    """When its connection ended first after the kill: long after is another kill."""
    subscriber_lost: float | None
    connected: float | None
    subscribed: float | None
    """When it was connected, and subscribed, again after that."""


@dataclass(slots=True)
class Round:
    """What one kill did. `survivors` are subscribers that were not cut off."""

    kill: Kill
    cut_off: int = 0
    """Clients, publishers included."""
    shaken: int = 0
    lost: int = 0
    lost_unfinished: int = 0
    """Of these: PUBREC had come by the kill, PUBCOMP had not."""
    lost_at_survivors: int = 0
    doubled: int = 0
    """At clients that were cut off."""
    doubled_most: int = 0
    """At one of them."""
    doubled_oldest: float = 0.0
    """How long before the kill the oldest of these had come first."""
    doubled_stale: int = 0
    """Those that had come so long before that they were in flight no more."""
    doubled_at_shaken: int = 0
    doubled_at_survivors: int = 0
    gap: float = 0.0
    """The longest time without an arrival at any subscriber that was cut off."""
    gap_at_survivors: float = 0.0
    """The same where neither subscriber nor publisher was cut off."""
    before: float = 0.0
    during: float = 0.0
    after: float = 0.0
    """Deliveries a second, each publication counted once for a subscriber."""
    returns: list[Return] = field(default_factory=list)
    never_back: int = 0
    harm: list[Harm] = field(default_factory=list)
    """The first few losses, and repeats of what was not in flight."""


@dataclass(frozen=True, slots=True)
class Account:
    published: int
    acknowledged: int
    delivered: int
    lost: int
    doubled: int
    resent: int
    never_sent: int
    misplaced: int
    """Arrivals out of their publisher's order, of what had not come before."""
    late: float
    rounds: list[Round]


def account(record: Record, kills: Sequence[Kill], calm: float) -> Account:
    """`calm`: seconds before each kill that `before` is measured over."""
    rounds = [Round(kill) for kill in kills]
    starts = [kill.at for kill in kills]
    cut = [_ended(record, at, at + CUT) for at in starts]
    shaken = [
        _ended(record, a, b) - names for a, b, names in zip(starts, [*starts[1:], inf], cut, strict=True)
    ]
    lost = doubled = delivered = misplaced = 0
    first_arrivals: list[float] = []
    for got in record.received:
        sent = record.published[got.topic]
        firsts, repeats, moved = _arrivals(got)
        first_arrivals += firsts.values()
        misplaced += moved
        delivered += len(firsts)
        doubled += len(repeats)
        lost += _count_lost(rounds, starts, cut, got, sent, firsts)
        _count_doubled(rounds, starts, cut, shaken, got, sent, firsts, repeats)
        for number, each in enumerate(rounds):
            _look_at(each, cut[number], shaken[number], got, sent, firsts)
    first_arrivals.sort()
    for each, off, later in zip(rounds, cut, shaken, strict=True):
        each.cut_off, each.shaken = len(off), len(later)
        at, until = each.kill.at, each.kill.until
        each.before = _rate(first_arrivals, at - calm, at)
        each.during = _rate(first_arrivals, at, min(at + FAILOVER, until))
        each.after = _rate(first_arrivals, at + FAILOVER, until)
    return Account(
        published=sum(len(each.created) for each in record.published),
        acknowledged=sum(t is not None for each in record.published for t in each.taken),
        delivered=delivered,
        lost=lost,
        doubled=doubled,
        resent=sum(each.resent for each in record.published),
        never_sent=sum(each.waiting for each in record.published),
        misplaced=misplaced,
        late=record.late,
        rounds=rounds,
    )


def _ended(record: Record, begin: float, end: float) -> set[str]:
    """Clients that lost a connection between the two."""
    lives = [each.life for each in record.published] + [each.life for each in record.received]
    return {life.client for life in lives if bisect_left(life.lost, begin) < bisect_left(life.lost, end)}


def _arrivals(got: Received) -> tuple[dict[int, float], list[tuple[int, float]], int]:
    """When each number came first, which came again when, and how many new ones after a later one."""
    firsts: dict[int, float] = {}
    repeats: list[tuple[int, float]] = []
    highest, moved = -1, 0
    for number, at in zip(got.numbers, got.times, strict=True):
        if number in firsts:
            repeats.append((number, at))
            continue
        firsts[number] = at
        moved += number < highest
        highest = max(highest, number)
    return firsts, repeats, moved


def _round_of(starts: Sequence[float], at: float) -> int:
    """Which kill something belongs to that happened then; the first one has what was before."""
    return max(0, bisect_right(starts, at) - 1)


def _count_lost(
    rounds: list[Round],
    starts: Sequence[float],
    cut: Sequence[set[str]],
    got: Received,
    sent: Published,
    firsts: dict[int, float],
) -> int:
    lost = [n for n, taken in enumerate(sent.taken) if taken is not None and n not in firsts]
    for number in lost if rounds else ():
        index = _round_of(starts, sent.created[number] + UNDER_WAY)
        each = rounds[index]
        each.lost += 1
        each.lost_unfinished += _past_pubrec(sent, number, each.kill.at)
        each.lost_at_survivors += got.life.client not in cut[index]
        _describe(each, "lost", got, sent, number)
    return len(lost)


def _describe(each: Round, what: str, got: Received, sent: Published, number: int) -> None:
    if len(each.harm) >= SHOWN:
        return
    at, created, taken = each.kill.at, sent.created[number], sent.taken[number]
    lost = _next(got.life.lost, at)

    def after(moment: float | None) -> float | None:
        return None if moment is None else round(moment - at, 4)

    arrived = tuple(round(t - at, 4) for n, t in zip(got.numbers, got.times, strict=True) if n == number)
    each.harm.append(
        Harm(
            what,
            sent.life.client,
            number,
            got.life.client,
            round(created - at, 4),
            after(taken),
            arrived,
            after(_next(sent.life.lost, at)),
            after(lost),
            after(_next(got.life.connected, lost)),
            after(_next(got.life.subscribed, lost)),
        )
    )


def _past_pubrec(sent: Published, number: int, kill: float) -> bool:
    taken, finished = sent.taken[number], sent.finished[number]
    return taken is not None and taken <= kill and (finished is None or finished > kill)


def _count_doubled(
    rounds: list[Round],
    starts: Sequence[float],
    cut: Sequence[set[str]],
    shaken: Sequence[set[str]],
    got: Received,
    sent: Published,
    firsts: dict[int, float],
    repeats: list[tuple[int, float]],
) -> None:
    here: dict[int, int] = {}
    for number, at in repeats if rounds else ():
        index = _round_of(starts, at)
        here[index] = here.get(index, 0) + 1
        if got.life.client not in cut[index]:
            _describe(rounds[index], "doubled", got, sent, number)
        else:
            before = starts[index] - firsts[number]
            rounds[index].doubled_oldest = max(rounds[index].doubled_oldest, before)
            rounds[index].doubled_stale += before > STALE
            if before > STALE:
                _describe(rounds[index], "doubled", got, sent, number)
    for index, count in here.items():
        if got.life.client in cut[index]:
            rounds[index].doubled += count
            rounds[index].doubled_most = max(rounds[index].doubled_most, count)
        elif got.life.client in shaken[index]:
            rounds[index].doubled_at_shaken += count
        else:
            rounds[index].doubled_at_survivors += count


def _look_at(
    each: Round, cut: set[str], shaken: set[str], got: Received, sent: Published, firsts: dict[int, float]
) -> None:
    """One subscriber around one kill: its gap and its way back."""
    kill = each.kill
    begin = max(0, bisect_left(got.times, kill.at) - 1)
    times = [*got.times[begin : bisect_right(got.times, kill.until)], kill.until]
    gap = max((b - a for a, b in pairwise(times)), default=0.0)
    if got.life.client in cut:
        each.gap = max(each.gap, gap)
        came = _return(kill, got.life, sent, firsts)
        if came is None:
            each.never_back += 1
        else:
            each.returns.append(came)
    elif not {got.life.client, sent.life.client} & (cut | shaken):
        each.gap_at_survivors = max(each.gap_at_survivors, gap)


def _return(kill: Kill, life: Life, sent: Published, firsts: dict[int, float]) -> Return | None:
    closed = _next(life.lost, kill.at)
    connected = _next(life.connected, closed)
    subscribed = _next(life.subscribed, connected)
    if closed is None or connected is None or subscribed is None:
        return None
    begin = bisect_left(sent.created, kill.at - UNDER_WAY)
    numbers = range(begin, bisect_left(sent.created, subscribed))
    taken = ((number, sent.taken[number]) for number in numbers)
    owed = [
        number
        for number, at in taken
        if at is not None and at < subscribed and not _had(firsts, number, closed)
    ]
    came = [firsts[number] - subscribed for number in owed if number in firsts]
    return Return(
        closed - kill.at,
        connected - closed,
        subscribed - connected,
        min(came, default=None),
        max(came) if came and len(came) == len(owed) else None,
        len(owed),
    )


def _had(firsts: dict[int, float], number: int, by: float) -> bool:
    return number in firsts and firsts[number] <= by


def _next(times: Sequence[float], after: float | None) -> float | None:
    if after is None:
        return None
    at = bisect_left(times, after)
    return times[at] if at < len(times) else None


def _rate(times: Sequence[float], begin: float, end: float) -> float:
    count = bisect_left(times, end) - bisect_left(times, begin)
    return count / (end - begin) if end > begin else 0.0


def spread(values: Iterable[float | None]) -> tuple[float, float] | None:
    """Median and worst."""
    known = [value for value in values if value is not None]
    return (statistics.median(known), max(known)) if known else None
