"""The paper's search (ILDM 5.3): Steps 1 to 5 as they stand, with an error of at most 5 %.

Pure. Where the first interval of Step 1 is under the limit already there is no smaller one to divide towards,
so Step 1 goes on by halving until one is not.
"""

from __future__ import annotations

from brokerweave.bench.search import Limit, Search, SearchOutcome

PARTS = 20
"""Step 3: with x the smallest interval of Step 1, neighbours are x / 40 apart, at most 5 % of the smaller."""
_MOST_STEPS = 30


def exact(start: float = 0.001) -> Search:
    known: dict[float, SearchOutcome] = {}
    interval = start
    for _ in range(_MOST_STEPS):  # Step 1
        known[interval] = yield interval
        smallest = _smallest(known)  # Step 2
        if smallest is not None and smallest.interval / 2 in known:
            break
        interval = max(known) * 2 if smallest is None else min(known) / 2
    else:
        return Limit(_smallest(known), len(known))
    above = smallest.interval
    for part in range(1, PARTS):  # Steps 3 and 4; both ends are known from Step 1
        between = above / 2 + part * above / (2 * PARTS)
        known[between] = yield between
    return Limit(_smallest(known), len(known))  # Step 5


def _smallest(known: dict[float, SearchOutcome]) -> SearchOutcome | None:
    """The outcome with the smallest interval that is under the limit."""
    under = [interval for interval, outcome in known.items() if outcome.under_limit]
    return known[min(under)] if under else None
