"""A distribution beside a normal one, as in the thesis (Figures 5.7 to 5.10): histogram, CDF, Q-Q, P-P.

Owns the calculation, on counted values. Must not know: what was measured, how it is drawn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from math import exp, pi, sqrt
from statistics import NormalDist

from brokerweave.pipeline.plot import Points

COLUMNS = 60
SHOWN = 200
"""Points of a curve: more cannot be told apart."""


class Counted:
    """Values in rising order, each with how often it occurred. Not empty."""

    def __init__(self, values: Sequence[float], counts: Sequence[int]) -> None:
        self._values = values
        self._upto = list(accumulate(counts))
        self.count = self._upto[-1]
        self.mean = sum(v * c for v, c in zip(values, counts, strict=True)) / self.count
        squares = sum((v - self.mean) ** 2 * c for v, c in zip(values, counts, strict=True))
        self.deviation = sqrt(squares / self.count)
        self._counts = counts

    def quantile(self, part: float) -> float:
        """The least value that `part` of all do not exceed."""
        return self._values[bisect_left(self._upto, part * self.count - 1e-9)]

    def columns(self) -> list[tuple[float, float, float]]:
        """Of equal width, as density, so that a density curve fits over them. The last 0.1 % is left out."""
        low, high = self._values[0], self.quantile(0.999)
        width = (high - low) / COLUMNS or 1e-3
        heights = [0] * COLUMNS
        for value, count in zip(self._values, self._counts, strict=True):
            if value <= high:
                heights[min(int((value - low) / width), COLUMNS - 1)] += count
        scale = self.count * width
        return [(low + n * width, low + (n + 1) * width, count / scale) for n, count in enumerate(heights)]

    def normal_curve(self) -> Points:
        """The density of the normal distribution with the same mean and deviation, over the columns."""
        if not self.deviation:
            return []
        low, high = self._values[0], self.quantile(0.999)
        xs = [low + (high - low) * n / SHOWN for n in range(SHOWN + 1)]
        top = self.deviation * sqrt(2 * pi)
        return [(x, exp(-(((x - self.mean) / self.deviation) ** 2) / 2) / top) for x in xs]

    def cumulative(self) -> Points:
        return [(self.quantile(part), part) for part in self._parts()]

    def normal_cumulative(self) -> Points:
        if not self.deviation:
            return []
        normal = NormalDist(self.mean, self.deviation)
        low, high = self._values[0], self.quantile(1 - 1 / (2 * SHOWN))
        xs = [low + (high - low) * n / SHOWN for n in range(SHOWN + 1)]
        return [(x, normal.cdf(x)) for x in xs]

    def quantiles(self) -> Points:
        """Q-Q: what a normal distribution would have at each part, and what was measured there."""
        normal = NormalDist()
        return [(normal.inv_cdf(part), self.quantile(part)) for part in self._parts()]

    def quantile_line(self) -> Points:
        return [(z, self.mean + z * self.deviation) for z in (-2.8, 2.8)]

    def probabilities(self) -> Points:
        """P-P: the part that a normal distribution would have up to each value, and the part measured."""
        if not self.deviation:
            return []
        normal = NormalDist(self.mean, self.deviation)
        return [(normal.cdf(value), part) for value, part in self.cumulative()]

    def _parts(self) -> list[float]:
        return [(n + 0.5) / SHOWN for n in range(SHOWN)]
