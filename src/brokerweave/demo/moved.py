"""What became of the messages and the clients of the demo's gateways: lost, doubled, moves, pauses.

Owns the arithmetic of that summary. Invariants: only what a broker acknowledged counts as published; no copy
beyond the first is allowed, for nothing is killed. Must not know: clients, processes, how it is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median, quantiles

from brokerweave.demo.deliveries import Key, SentMessage


@dataclass(frozen=True, slots=True)
class MovesStage:
    """A time in which some clients moved. Both ends are seconds since the epoch."""

    begin: float
    end: float

    def longest_pause(self, arrivals: Iterable[float]) -> float:
        """Between two deliveries to one subscriber; 0 if there were none."""
        times = [at for at in arrivals if self.begin <= at <= self.end]
        return max((after - before for before, after in pairwise(times)), default=0.0)


@dataclass(frozen=True, slots=True)
class MovesTally:
    published: int
    unacknowledged: int
    subscribers: int
    lost: int
    doubled: int
    outcomes: Mapping[str, int]
    """Of all moves: how many ended how."""
    reconnects: int
    """Connections that clients had to open again."""
    gaps: tuple[float, ...]
    """Seconds: of each subscriber that was moved, its longest pause meanwhile."""

    @property
    def ok(self) -> bool:
        whole = not (self.lost or self.doubled or self.unacknowledged or self.reconnects)
        return whole and self.published > 0 and self.outcomes.get("done", 0) > 0

    @property
    def gap(self) -> tuple[float, float]:
        """At the median and at 99 %."""
        if len(self.gaps) < 2:
            return (self.gaps or (0.0,))[0], (self.gaps or (0.0,))[0]
        return median(self.gaps), quantiles(self.gaps, n=100, method="inclusive")[98]


def tally(
    sent: Sequence[SentMessage],
    arrivals: Sequence[Sequence[tuple[Key, float]]],
    moved: Iterable[tuple[Sequence[tuple[Key, float]], MovesStage]],
    outcomes: Mapping[str, int],
    reconnects: int,
) -> MovesTally:
    """`arrivals`: of each subscriber. `moved`: of each that moved, once for each stage in which it did."""
    acknowledged = {each.key for each in sent if each.acked is not None}
    lost = doubled = 0
    for got in arrivals:
        counts = Counter(key for key, _ in got)
        lost += len(acknowledged - counts.keys())
        doubled += sum(counts.values()) - len(counts)
    return MovesTally(
        published=len(acknowledged),
        unacknowledged=len(sent) - len(acknowledged),
        subscribers=len(arrivals),
        lost=lost,
        doubled=doubled,
        outcomes=dict(outcomes),
        reconnects=reconnects,
        gaps=tuple(stage.longest_pause([at for _, at in got]) for got, stage in moved),
    )
