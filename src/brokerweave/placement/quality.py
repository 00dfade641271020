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
from math import inf, sqrt

MOST_SAMPLES = 32
JITTER_WEIGHT = 2.0
"""A stream is as late as its late messages: most come within two mean jitters."""
LOSS_SECONDS = 0.5
"""What a lost datagram costs: TCP sends again after 0.2 s at the earliest, and the stream waits behind it."""
CHANCE = 1.5
"""Times the square root of the lost pings, by which their number varies: so many do not count. One or two
lost of eighty say nothing, eight say 5 %."""
POOL = 8
"""Measurements over which losses are counted: ten pings cannot tell 1 % from 10 %."""


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
    def delay(self) -> float:
        """Seconds that a message takes, roughly, when it is late."""
        return self.mean + JITTER_WEIGHT * self.jitter


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

    __slots__ = ("cost", "lossy", "mean", "samples")

    def __init__(self, samples: Iterable[Sample] = ()) -> None:
        self.samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self.mean = inf
        """Of the latest measurement that was answered at all; infinite if none was."""
        self.lossy = 0.0
        """Seconds that losses cost: as many as are more than chance."""
        self.cost = inf
        """One number for mean, jitter and loss: the median delay of the last three, and what losses cost."""
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
        pool = [samples[place] for place in range(-min(len(samples), POOL), 0)]
        lost, pings = sum(each.loss * each.pings for each in pool), sum(each.pings for each in pool)
        self.lossy = LOSS_SECONDS * max(lost - CHANCE * sqrt(lost), 0.0) / pings
        last = sorted(each.delay for each in pool[-3:])
        self.cost = last[(len(last) - 1) // 2] + self.lossy

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
            costs.append(each.delay + self.lossy)
            if each.at <= start:
                return min(costs), max(costs)
        return None
