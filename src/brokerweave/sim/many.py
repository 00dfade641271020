"""Many runs in parallel, and their summary.

Owns the distribution of seeds over processes and the sum of the results. Invariant: results come in the order
of the seeds, and do not depend on the number of processes. Must not know: how a run is made, how it is shown.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from brokerweave.sim.run import SeedOutcome, SimOptions, run
from brokerweave.sim.shrink import shrink

PROCESSES = 2
_TOGETHER = 5
"""Seeds handed to a process at a time."""


@dataclass(slots=True)
class SeedSummary:
    seeds: int = 0
    failed: list[SeedOutcome] = field(default_factory=list)
    allowances: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    possible: int = 0
    """How many allowances there are, where they are listed."""

    def add(self, outcome: SeedOutcome) -> None:
        self.seeds += 1
        self.allowances.update(outcome.allowances)
        self.counts.update(outcome.counts)
        self.possible = max(self.possible, outcome.possible)
        if outcome.problem:
            self.failed.append(outcome)


def outcomes(seeds: Iterable[int], options: SimOptions, processes: int = PROCESSES) -> Iterator[SeedOutcome]:
    """Run each seed. What held comes back without its schedule and trace, which nobody needs."""
    job = partial(_one, options)
    if processes <= 1:
        yield from map(job, seeds)
        return
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap(job, seeds, chunksize=_TOGETHER)


def summary(seeds: Iterable[int], options: SimOptions, processes: int = PROCESSES) -> SeedSummary:
    total = SeedSummary()
    for outcome in outcomes(seeds, options, processes):
        total.add(outcome)
    return total


def _one(options: SimOptions, seed: int) -> SeedOutcome:
    outcome = run(seed, options)
    return outcome if outcome.problem else replace(outcome, actions=[], trace=[])


__all__ = ["SeedSummary", "outcomes", "shrink", "summary"]
