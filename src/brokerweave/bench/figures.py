"""The indexes of a run as plain data, and which of its measurements count.

Owns `Indexes` (what `bench.indexes` computes), its file, and Definition 1 of ILDM 5.3. Must not know: Spark,
how a report looks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from brokerweave.bench.folder import LOAD, MACHINE, Measurement, RunFolder, RunInfo, write_json
from brokerweave.bench.search import ENOUGH
from brokerweave.errors import ConfigError

SEARCHES = ("limit", "patterns")
"""Kinds of runs that measure one thing at many rates; the others measure each thing once."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Of one quantity in one measurement, in milliseconds. All zero if there was nothing to measure."""

    count: int = 0
    mean: float = 0.0
    deviation: float = 0.0
    least: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    p999: float = 0.0
    worst: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """What one process used while it was measured. `cpu` is in cores."""

    role: str
    cpu: float
    cpu_worst: float
    rss_worst: int


@dataclass(frozen=True, slots=True)
class EventPhase:
    """A part of a window in which something was done to the servers, by when messages came."""

    name: str
    """"before" it; "during"; "after": the window's last fifth, with what came still later."""
    egress_per_s: float
    latency: Distribution
    jitter: Distribution


@dataclass(frozen=True, slots=True)
class Indexes:
    """One measurement's indexes, from its logs; names shared with `folder.Counters` mean the same."""

    id: int
    name: str
    repeat: int
    rate: float
    sent: int
    acknowledged: int
    received: int
    expected: int
    lost: int
    surplus: int
    """Deliveries of the window's messages to more subscribers than expected."""
    strays: int
    """Deliveries of messages that no log says were sent."""
    doubled: int
    disordered: int
    late_sends: int
    publishers: int
    """T-clients that sent something in the window."""
    sp_ratio: float
    """Subscribers that a publication goes to, on average over publishers (ILDM 5.3)."""
    ingress_per_s: float
    egress_per_s: float
    ingress_least: float
    """The least of any whole second in the window."""
    egress_least: float
    kept_up: float
    latency: Distribution
    jitter: Distribution
    """Of the amounts, whatever their sign, by which messages came too early or late after the one before."""
    usage: tuple[Usage, ...]
    noise: float | None
    """Cores that processes of others kept busy; None if the whole machine was not watched."""
    phases: tuple[EventPhase, ...] = ()

    @property
    def delivered(self) -> float:
        """Egress by what ingress ought to become; 0 if nothing was sent."""
        expected = self.ingress_per_s * self.sp_ratio
        return self.egress_per_s / expected if expected else 0.0

    @property
    def cost(self) -> float | None:
        """Seconds of CPU that the servers used for each delivery; None where they were not watched."""
        used = sum(each.cpu for each in self.usage if each.role != MACHINE and not each.role.startswith(LOAD))
        return used / self.egress_per_s if used and self.egress_per_s else None

    @property
    def under_limit(self) -> bool:
        """Definition 1, of l-clients too, and nothing lost."""
        return min(self.delivered, self.kept_up) >= ENOUGH and not self.lost


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run found for one name (and, where a run varies them, one number of publishers)."""

    name: str
    publishers: int
    repeat: int
    measurement: Measurement
    indexes: Indexes
    tried: int
    """How many measurements it was chosen from."""
    searched: bool
    miss: Measurement | None = None
    """At the nearest higher rate that a search tried: it says what the limit is the limit of."""

    @property
    def found(self) -> bool:
        """False if the search never saw a rate that the servers could keep up with."""
        return self.indexes.under_limit or not self.searched


def write(folder: RunFolder, found: Iterable[Indexes]) -> None:
    write_json(folder.indexes_json, {"measurements": [asdict(each) for each in found]})


def up_to_date(folder: RunFolder) -> bool:
    """Do the indexes cover every measurement, and nothing that was measured again since?"""
    try:
        made = folder.indexes_json.stat().st_mtime_ns
        known = {each.id for each in read(folder)}
    except (FileNotFoundError, ConfigError):
        return False
    ended = {m.id: folder.folder_of(m.id) / "measurement.json" for m in folder.measurements()}
    return known == ended.keys() and all(path.stat().st_mtime_ns <= made for path in ended.values())


def read(folder: RunFolder) -> list[Indexes]:
    """Raises `ConfigError` if the file is damaged."""
    path = folder.indexes_json
    try:
        return [_indexes(each) for each in json.loads(path.read_text())["measurements"]]
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None


def results(run: RunInfo, measurements: Iterable[Measurement], indexes: Iterable[Indexes]) -> list[RunResult]:
    """One for each name and number of publishers and repetition, in the order in which they were measured.

    A search's result is its highest rate (smallest interval) under the limit: Step 5 of ILDM 5.3.
    """
    by_id = {each.id: each for each in indexes}
    searched = run.kind in SEARCHES
    groups: dict[tuple[str, int, int], list[RunResult]] = {}
    for measurement in measurements:
        if (index := by_id.get(measurement.id)) is None:
            continue
        publishers = 0 if searched else index.publishers
        same = groups.setdefault((measurement.name, publishers, measurement.repeat), [])
        same.append(RunResult(index.name, index.publishers, index.repeat, measurement, index, 1, searched))
    found = []
    for same in groups.values():
        if searched:
            # What was in doubt was measured again: of each rate the last one counts, as in the search.
            last = {each.indexes.rate: each for each in same}.values()
            best = max(last, key=_rank)
            higher = [each.measurement for each in last if each.indexes.rate > best.indexes.rate]
            miss = min(higher, key=lambda each: each.rate, default=None)
            found.append(replace(best, tried=len(same), miss=miss))
        else:
            found += [replace(each, repeat=number) for number, each in enumerate(same, same[0].repeat)]
    return found


def _rank(each: RunResult) -> tuple[bool, float]:
    """The best last. If all were over the limit, the slowest is the nearest to it."""
    under = each.indexes.under_limit
    return under, each.indexes.rate if under else -each.indexes.rate


def _indexes(value: dict[str, Any]) -> Indexes:
    parts = {
        "usage": tuple(Usage(**each) for each in value["usage"]),
        "phases": tuple(EventPhase(**(each | _distributions(each))) for each in value.get("phases", ())),
    }
    return Indexes(**(value | _distributions(value) | parts))


def _distributions(value: dict[str, Any]) -> dict[str, Distribution]:
    return {name: Distribution(**value[name]) for name in ("latency", "jitter")}


def table(folder: RunFolder, name: str) -> Path:
    """Where `bench.spark_job` puts a table: "timeline", "latencies" or "resources"."""
    return folder.indexes / name
