"""Finding the limit of a scenario's brokers: a search that asks, measurements that answer, each of them kept.

Invariants: a search that was interrupted goes on where it was: what the folder holds for the same name is
told to it again, and only what it asks beyond that is measured. Before each measurement the servers have come
to rest, or it is said that they have not. Must not know: how a search decides, how load is made.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from brokerweave.bench.folder import Measurement, RunFolder, Times
from brokerweave.bench.load.driver import MOVED, LoadTarget, Progress, late_reason, measure, silent
from brokerweave.bench.resources import cpu_seconds
from brokerweave.bench.scenario import PRESETS, Scenario
from brokerweave.bench.search import ENOUGH, Search, SearchOutcome
from brokerweave.bench.search.adaptive import adaptive
from brokerweave.bench.search.exact import exact
from brokerweave.errors import ConfigError, Unavailable

SEARCHES: dict[str, Callable[..., Search]] = {"adaptive": adaptive, "exact": exact}

_REST = 0.05
"""A share of a core below which servers that were loaded count as resting."""
_TRIES = 3
"""How often a rate is measured at most that was missed while the tool itself could not keep up: such a miss
says nothing about the broker, unless it stays."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to. `best` is None where nothing held."""

    name: str
    best: Measurement | None
    measurements: int
    kept: int
    """Of the measurements, those that were there already."""
    repeat: int = 0


def find_limit(
    scenario: Scenario,
    target: LoadTarget,
    folder: RunFolder,
    search: Search,
    show: Progress = silent,
    name: str = "",
    repeat: int = 0,
) -> Found:
    """Run the search to its end. `name` and `repeat` tell its measurements from others in the folder."""
    steps = searching(scenario, target, folder, search, show, name, repeat)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: Found = end.value
            return found


def searching(
    scenario: Scenario,
    target: LoadTarget,
    folder: RunFolder,
    search: Search,
    show: Progress = silent,
    name: str = "",
    repeat: int = 0,
) -> Generator[None, None, Found]:
    """The same, one answer at a time: between two of them, others may measure the same servers."""
    name = name or scenario.name
    source = _Source(scenario, target, folder, show, name, repeat)
    done: dict[SearchOutcome, Measurement] = {}
    try:
        interval = next(search)
        while True:
            for _ in range(_TRIES):
                measurement = source.at(interval)
                outcome = outcome_of(measurement, scenario.sp_ratio)
                show(f"{name}: {verdict(measurement, outcome)}\n")
                if not in_doubt(measurement, outcome):
                    break
            done[outcome] = measurement
            interval = search.send(outcome)
            yield
    except StopIteration as end:
        best = end.value.best
        return Found(name, done[best] if best is not None else None, source.given, source.reused, repeat)


class _Source:
    """Measurements of one search: first those that an earlier run of it kept, in order, then new ones."""

    def __init__(
        self,
        scenario: Scenario,
        target: LoadTarget,
        folder: RunFolder,
        show: Progress,
        name: str,
        repeat: int,
    ) -> None:
        self._scenario, self._target, self._folder = scenario, target, folder
        self._show, self._name, self._repeat = show, name, repeat
        self._kept = deque(folder.of(name, repeat))
        self.given = 0
        self.reused = 0

    def at(self, interval: float) -> Measurement:
        self.given += 1
        if self._kept:
            if abs(self._kept[0].interval_s / interval - 1) > 1e-9:
                held = f"{self._folder.path}: holds another search for the limit of {self._name}"
                raise ConfigError(f"{held}; give another --to, or remove it")
            self.reused += 1
            return self._kept.popleft()
        rest(self._target, self._show)
        wanted = self._scenario.every(interval)
        return measure(wanted, self._target, self._folder, self._show, self._name, self._repeat)


def outcome_of(measurement: Measurement, sp_ratio: float) -> SearchOutcome:
    counters = measurement.counters
    interval, ingress, egress = measurement.interval_s, counters.ingress_per_s, counters.egress_per_s
    return SearchOutcome(interval, ingress, egress, sp_ratio, counters.lost, counters.kept_up)


def in_doubt(measurement: Measurement, outcome: SearchOutcome) -> bool:
    """Whether the tool's own trouble may be why a rate was missed, or a lost quota why it was not. That a few
    messages were late is no excuse for a broker that misses by far more."""
    if MOVED in measurement.bottleneck.reason:  # others may stand beside it
        return True
    if outcome.under_limit or not measurement.bottleneck.tool:
        return False
    counters = measurement.counters
    only_late = measurement.bottleneck.reason == late_reason(counters)
    return not only_late or counters.late_sends / max(counters.sent, 1) > (1 - outcome.fulfilled) / 2


def verdict(measurement: Measurement, outcome: SearchOutcome) -> str:
    """One line about one measurement."""
    said = "under the limit" if outcome.under_limit else "too much"
    line = f"{outcome.ingress:,.0f} in, {outcome.egress:,.0f} out a second, {outcome.fulfilled:.3f}: {said}"
    if outcome.lost:
        line += f", {outcome.lost:,} lost"
    if outcome.kept_up < ENOUGH:
        line += f", between sites {outcome.kept_up:.3f}"
    return (
        f"{line} (the tool was the bottleneck: {reason})"
        if (reason := measurement.bottleneck.reason)
        else line
    )


def rest(target: LoadTarget, show: Progress = silent, limit: float = 30.0, look: float = 0.2) -> None:
    """Wait until the servers have next to nothing left to do; say so if they still have at the limit."""
    pids = list(target.processes.values())
    end = time.monotonic() + limit
    before = _cpu(pids)
    while pids:
        if time.monotonic() >= end:
            show(f"the servers were still busy after {limit:g} s: what follows is measured beside that\n")
            return
        time.sleep(look)
        now = _cpu(pids)
        if now - before < _REST * look:
            return
        before = now


def _cpu(pids: Sequence[int]) -> float:
    try:
        return sum(map(cpu_seconds, pids))
    except OSError as error:
        raise Unavailable(f"a server ended while it was measured ({error})") from error


def chosen_search(kind: str | None, times: Times, start: float | None = None) -> tuple[str, Search]:
    """The search by its name; without one the paper's for its own times, the quick one for shorter ones.
    `start`: the first interval, in seconds."""
    kind = kind or ("exact" if times.measured >= PRESETS["paper"].measured else "adaptive")
    if kind not in SEARCHES:
        raise ConfigError(f"search {kind!r} is unknown; known: {', '.join(SEARCHES)}")
    make = SEARCHES[kind]
    return kind, make() if start is None else make(start)
