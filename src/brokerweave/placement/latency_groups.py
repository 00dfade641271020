"""EMMA's latency groups (EMMA V-B): sites whose round trips fall into one group are equally near.

Owns the bounds. Must not know: how round trips are measured.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

BOUNDS = (0.002, 0.005, 0.010, 0.020, 0.050, 0.100, 0.200, 0.500, 1.0)
"""Seconds; a group includes its lower bound."""


def group_of(round_trip: float) -> int:
    """0 is the nearest."""
    return bisect_right(BOUNDS, round_trip)


def group_text(group: int) -> str:
    """As the paper writes it, in milliseconds."""
    bounds = (0.0, *BOUNDS, float("inf"))
    low, high = bounds[group] * 1000, bounds[group + 1] * 1000
    return f"[{low:g}, {high:g}) ms"


def nearest_group(round_trips: Mapping[str, float]) -> list[str]:
    """The names in the lowest group that has any, in order of name."""
    if not round_trips:
        return []
    lowest = min(map(group_of, round_trips.values()))
    return sorted(name for name, trip in round_trips.items() if group_of(trip) == lowest)
