"""Searching for the limit of performance (ILDM 5.3). Pure: a search asks for measurements and is told the
outcome.

A search is a generator: it yields the interval that it wants measured, gets an `SearchOutcome`, and returns a
`Limit`. The same outcomes lead to the same questions, so a search that was interrupted is resumed by telling
it again.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

ENOUGH = 0.99
"""Definition 1: the least part of the expected deliveries that must have gone out."""


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """What came of one measurement. Rates in messages a second; `interval` in seconds, of one publisher."""

    interval: float
    ingress: float
    egress: float
    sp_ratio: float
    lost: int = 0
    """Expected deliveries that never came."""
    kept_up: float = 1.0
    """The part of the deliveries expected by l-clients that they got meanwhile."""

    @property
    def fulfilled(self) -> float:
        """The smaller part: what t-clients got of theirs, or l-clients of theirs."""
        expected = self.ingress * self.sp_ratio
        return min(self.egress / expected, self.kept_up) if expected else 0.0

    @property
    def under_limit(self) -> bool:
        """Definition 1. Otherwise what waits inside the brokers grows and grows.

        It must hold for l-clients, too: where all t-clients are served by their own site, what falls ever
        further behind between the sites is seen by nobody else. And a broker that throws away what waits
        would pass: nothing may be lost, as nothing was at any limit that the paper has (ILDM 6.4).
        """
        return self.fulfilled >= ENOUGH and not self.lost


@dataclass(frozen=True, slots=True)
class Limit:
    """Where a search ended: the outcome with the smallest interval found to be under the limit, or None."""

    best: SearchOutcome | None
    measurements: int


Search = Generator[float, SearchOutcome, Limit]
