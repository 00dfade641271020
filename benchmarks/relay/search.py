"""Finding the highest rate that holds. Pure: asks `holds(rate)`, knows nothing of how that is measured."""

from __future__ import annotations

from collections.abc import Callable


def highest(
    holds: Callable[[float], bool], start: float, precision: float = 0.025, most_probes: int = 16
) -> float:
    """The highest rate found to hold, within `precision` of one that does not.

    Widens from `start` by ever larger steps until a rate that holds and one that does not are known, then
    halves the gap between them. 0 if nothing held. Ends after `most_probes` questions in any case.
    """
    good, bad = 0.0, float("inf")
    rate, step = start, 1.15
    for _ in range(most_probes):
        if holds(rate):
            good = rate
        else:
            bad = rate
        if good and bad <= good * (1 + precision):
            break
        if good and bad < float("inf"):
            rate = (good + bad) / 2
        else:
            rate = good * step if good else bad / step
            step = step * step
    return good
