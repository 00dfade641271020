"""`fan_out = "auto"`: how a topic's publications are sent, from what a node has measured.

Owns the model: what each way of sending costs in mean latency and in bytes of the busiest node, and which is
best. It counts the copies of the very parts that `dispatch` cuts, and assumes that all nodes have the same
delays and bandwidth. Invariant: a choice stays until another is better by a tenth, or it breaks a limit by a
tenth. Must not know: who the subscribers are, how anything is measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from math import inf, log
from typing import Literal, NamedTuple

from brokerweave.cooperation.overlay.dispatch import part_sizes, plan_size, split_fan_out

HEAD = 70
"""Bytes of a message on a link beside its payload and its plan, about."""
FAN_OUTS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 35, 50, 100)
SLACK = 1.1
_TREE_COPIES = 60
"""What the busiest member of a Pastry tree sends. The mean child waits for a third of it."""


@dataclass(frozen=True, slots=True)
class Choice:
    kind: Literal["direct", "guided", "tree"]
    fan_out: int = 0
    """0: without limit."""
    why: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        return f"guided, F = {self.fan_out}" if self.kind == "guided" else self.kind

    def __str__(self) -> str:
        return f"{self.name}, because {self.why}"


class Cost(NamedTuple):
    """What a way of sending costs for one publication."""

    latency: float
    """Seconds from the publisher's node to a subscriber's, the mean of all."""
    copies: int
    """What the publisher's node sends."""
    worst: float
    """Bytes that the busiest node sends."""


def choose(
    subscribers: int,
    payload: float,
    round_trip: float,
    *,
    rate: float,
    bandwidth: float,
    share: float,
    others: float = 0.0,
    members: int = 0,
    links: float = inf,
    tree: bool = True,
    present: Choice | None = None,
) -> Choice:
    """The way of sending with the least mean latency whose busiest node stays within its limit.

    `payload` is the mean in bytes, `round_trip` the mean to members in seconds, `rate` how many publications
    of the topic come here a second. A node can send `bandwidth` bytes a second, and may use `share` of them;
    `others` is what it sends for other topics. It may have so many `links`. If nothing stays within the
    limits, the way with the fewest bytes at the busiest node is taken. `tree` says if a tree may be chosen.
    """
    if subscribers <= 0:
        return Choice("direct", why="nobody has subscribed")
    costs = _costs(
        _rounded(subscribers, 3),
        _rounded(payload),
        _rounded(round_trip) / 2,
        _rounded(bandwidth),
        _rounded(max(members, subscribers + 1), 3),
    )
    room = share * bandwidth - others
    allowed = {way: cost for way, cost in costs.items() if tree or way.kind != "tree"}

    def fits(cost: Cost, slack: float = 1.0) -> bool:
        return cost.worst * rate <= slack * room and cost.copies <= slack * links

    fitting = [way for way, cost in allowed.items() if fits(cost)]
    if fitting:
        best = min(fitting, key=lambda way: allowed[way].latency)
    else:
        best = min(allowed, key=lambda way: (allowed[way].copies > links, allowed[way].worst))
    if present in allowed and fits(allowed[present], SLACK):
        stays = not fitting or allowed[present].latency <= SLACK * allowed[best].latency
        best = present if stays else best
    taken = f"{allowed[best].latency * 1000:.3g} ms on average"
    why = f"{subscribers:,} subscribers get {payload:,.0f} bytes in {taken}"
    used = f"{allowed[best].worst * rate:,.0f} of {max(room, 0):,.0f} bytes a second"
    faster = min(allowed, key=lambda way: allowed[way].latency)
    if not fits(allowed[best], SLACK):
        why += f", and nothing needs less than {used}"
    elif fits(allowed[faster]):
        why += f" with {used}"
    else:
        why += f" with {used}; {faster.name} would need {allowed[faster].worst * rate:,.0f}"
        why += f" and {allowed[faster].copies:,} links" if allowed[faster].copies > links else ""
    return Choice(best.kind, best.fan_out, why)


def _rounded(number: float, digits: int = 2) -> float:
    """A few significant digits, so that the costs of like inputs are computed once."""
    return float(f"{number:.{digits - 1}e}")


@lru_cache(1024)
def _costs(
    subscribers: float, payload: float, delay: float, bandwidth: float, members: float
) -> dict[Choice, Cost]:
    """All ways of sending; to be read only."""
    count, message = int(subscribers), payload + HEAD
    costs = {Choice("direct"): dissemination_cost(count, 0, message, delay, bandwidth)}
    for fan_out in FAN_OUTS:
        if fan_out < count:
            costs[Choice("guided", fan_out)] = dissemination_cost(count, fan_out, message, delay, bandwidth)
    costs[Choice("tree")] = tree_cost(count, int(members), message, delay, bandwidth)
    return costs


def tree_cost(count: int, members: int, message: float, delay: float, bandwidth: float) -> Cost:
    """To the root, and down a Pastry tree. Its shape is not known here: these are means of many trees."""
    depth, copies = max(1.0, log(members, 16) - 0.2), min(count, _TREE_COPIES)
    latency = (1 + depth) * delay + (1 + depth * copies / 3) * message / bandwidth
    return Cost(latency, 1, copies * message)


def dissemination_cost(count: int, fan_out: int, message: float, delay: float, bandwidth: float) -> Cost:
    """A publication to `count` subscribers, half on each side. Copies leave a node one after another."""
    totals: dict[int, float] = {0: 0.0}

    def arrivals(parts: list[int]) -> float:
        """All arrivals at children and behind them together, from when their parent has the message."""
        clock, total = delay, 0.0
        for size, alike in groupby(parts):
            times, step = len(list(alike)), (message + plan_size(size)) / bandwidth
            if size not in totals:
                totals[size] = arrivals(part_sizes(size, fan_out))
            total += (times * clock + step * times * (times + 1) / 2) * (1 + size) + times * totals[size]
            clock += times * step
        return total

    sides = (count + 1) // 2, count // 2
    children = split_fan_out(*sides, fan_out)
    parts = [*part_sizes(sides[0], children[0]), *part_sizes(sides[1], children[1])]
    worst = sum(message + plan_size(size) for size in parts)
    return Cost(arrivals(parts) / count, len(parts), worst)
