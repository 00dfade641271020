"""Finding the limit of a scenario's brokers: a search that asks, measurements that answer, each of them kept.

Invariants: a search that was interrupted goes on where it was: what the folder holds for the same name is
told to it again, and only what it asks beyond that is measured. Before each measurement the servers have come
to rest. Must not know: how a search decides, how load is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from brokerweave.bench.folder import Measurement, RunFolder, Times
from brokerweave.bench.load.driver import Progress, Target, measure, silent
from brokerweave.bench.resources import cpu_seconds
from brokerweave.bench.scenario import PRESETS, Scenario
from brokerweave.bench.search import Outcome, Search
from brokerweave.bench.search.adaptive import adaptive
from brokerweave.bench.search.exact import exact
from brokerweave.errors import ConfigError

SEARCHES: dict[str, Callable[..., Search]] = {"adaptive": adaptive, "exact": exact}

_REST = 0.05
"""A share of a core below which servers that were loaded count as resting."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to. `best` is None where nothing held."""

    name: str
    best: Measurement | None
    measurements: int
    kept: int
    """Of the measurements, those that were there already."""


def find_limit(
    scenario: Scenario,
    target: Target,
    folder: RunFolder,
    search: Search,
    show: Progress = silent,
    name: str = "",
) -> Found:
    """Run the search to its end. `name` tells this search's measurements from others in the folder."""
    name = name or scenario.name
    kept = _kept(folder, name)
    done: dict[Outcome, Measurement] = {}
    reused = 0
    try:
        interval = next(search)
        while True:
            measurement = next(kept, None)
            if measurement is None or abs(measurement.interval_s / interval - 1) > 1e-9:
                kept = iter(())
                rest(target)
                measurement = measure(scenario.every(interval), target, folder, show, name)
            else:
                reused += 1
            outcome = outcome_of(measurement, scenario.sp_ratio)
            show(f"{name}: {verdict(measurement, outcome)}\n")
            done[outcome] = measurement
            interval = search.send(outcome)
    except StopIteration as end:
        best = end.value.best
        return Found(name, done[best] if best is not None else None, end.value.measurements, reused)


def outcome_of(measurement: Measurement, sp_ratio: float) -> Outcome:
    counters = measurement.counters
    return Outcome(measurement.interval_s, counters.ingress_per_s, counters.egress_per_s, sp_ratio)


def verdict(measurement: Measurement, outcome: Outcome) -> str:
    """One line about one measurement."""
    said = "under the limit" if outcome.under_limit else "too much"
    line = f"{outcome.ingress:,.0f} in, {outcome.egress:,.0f} out a second, {outcome.fulfilled:.3f}: {said}"
    return (
        f"{line} (the tool was the bottleneck: {reason})"
        if (reason := measurement.bottleneck.reason)
        else line
    )


def rest(target: Target, limit: float = 10.0, look: float = 0.2) -> None:
    """Wait until the servers have next to nothing left to do."""
    pids = list(target.processes.values())
    end = time.monotonic() + limit
    before = sum(map(cpu_seconds, pids))
    while pids and time.monotonic() < end:
        time.sleep(look)
        now = sum(map(cpu_seconds, pids))
        if now - before < _REST * look:
            return
        before = now


def _kept(folder: RunFolder, name: str) -> Iterator[Measurement]:
    """What an earlier run of the same search measured, in order."""
    return iter([each for each in folder.measurements() if each.name == name])


def chosen_search(kind: str | None, times: Times, start: float | None = None) -> tuple[str, Search]:
    """The search by its name; without one the paper's for its own times, the quick one for shorter ones.
    `start`: the first interval, in seconds."""
    kind = kind or ("exact" if times.measured >= PRESETS["paper"].measured else "adaptive")
    if kind not in SEARCHES:
        raise ConfigError(f"search {kind!r} is unknown; known: {', '.join(SEARCHES)}")
    make = SEARCHES[kind]
    return kind, make() if start is None else make(start)
