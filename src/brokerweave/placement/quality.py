"""The measured quality of the way from a gateway to a site: mean, jitter and loss, now and over the last
while.

Owns what a measurement says and for how long it is kept. Invariants: a measurement without an answer has an
infinite mean; samples are in the order of their times, and at most `MOST_SAMPLES` are kept. Must not know:
who measures, what is decided.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

MOST_SAMPLES = 32
JITTER_WEIGHT = 2.0
"""A stream is as late as its late messages: most come within two mean jitters."""
LOSS_SECONDS = 1.0
"""What a lost datagram costs: TCP sends again after 0.2 s at the earliest, and the stream waits behind it."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement. Times are seconds."""

    at: float
    mean: float
    jitter: float = 0.0
    loss: float = 0.0
    """The share of pings that were not answered."""
    pings: int = 10

    @property
    def cost(self) -> float:
        """One number for mean, jitter and loss: seconds that a message takes, roughly, when the way is
        bad."""
        return self.mean + JITTER_WEIGHT * self.jitter + LOSS_SECONDS * self.loss


def sample(at: float, round_trips: Sequence[float], pings: int) -> Sample:
    """From the round trips of those of `pings` that were answered, in the order in which they were sent."""
    if not round_trips:
        return Sample(at, inf, 0.0, 1.0, pings)
    steps = [abs(one - other) for one, other in pairwise(round_trips)]
    jitter = sum(steps) / len(steps) if steps else 0.0
    mean = sum(round_trips) / len(round_trips)
    return Sample(at, mean, jitter, 1.0 - len(round_trips) / pings, pings)


class Edge:
    """From one gateway to one site."""

    __slots__ = ("cost", "mean", "samples")

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self.samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self.mean = inf
        """Of the latest measurement that was answered at all; infinite if none was."""
        self.cost = inf
        """The median of the last three: one lost ping does not make a site bad."""
        for each in samples:
            self.add(each)

    def add(self, sample: Sample) -> None:
        """One that is older than the last is ignored: its datagram was overtaken."""
        samples = self.samples
        if samples and sample.at <= samples[-1].at:
            return
        samples.append(sample)
        if sample.mean < inf:
            self.mean = sample.mean
        last = sorted(samples[place].cost for place in range(-min(len(samples), 3), 0))
        self.cost = last[(len(last) - 1) // 2]

    @property
    def latest(self) -> Sample:
        return self.samples[-1]

    def costs_over(self, seconds: float, now: float) -> tuple[float, float] | None:
        """The lowest and the highest cost in that time; None if it was not measured for as long, or no
        longer is: at least two samples, one of them from before it began, the last one in it."""
        costs: list[float] = []
        start = now - seconds
        if not self.samples or self.samples[-1].at <= start:
            return None
        for each in reversed(self.samples):
            costs.append(each.cost)
            if each.at <= start:
                return min(costs), max(costs)
        return None
