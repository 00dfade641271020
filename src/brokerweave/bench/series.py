"""Several searches or measurements in one run's folder: each scenario in turn, with its servers started for
it alone.

Invariants: the same folder goes on where it was interrupted; a scenario that fails is named and does not stop
the others. Must not know: what the scenarios are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from brokerweave.bench.folder import Measurement, RunFolder
from brokerweave.bench.limit import Found, chosen_search, find_limit, rest
from brokerweave.bench.load.driver import Progress, measure
from brokerweave.bench.patterns import Pattern
from brokerweave.bench.scenario import Scenario
from brokerweave.bench.servers import serving
from brokerweave.errors import BrokerweaveError

FIRST_RATE = 14_000.0
"""Messages a second that a search for a whole core's limit begins with: about what Mosquitto takes."""

BETWEEN = 8
"""Patterns between two searches for the limit of the single broker that they are compared with."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A scenario that could not be measured, and why."""

    name: str
    reason: str


def find_limits(
    patterns: Iterable[Pattern], search: str | None, folder: RunFolder, show: Progress
) -> list[Found | Failed]:
    """The limit of each pattern. What was last found of the single broker, or else of the first, says where
    to begin with the next: the machine may be faster or slower by then. A search that the folder has begins
    where it began."""
    results: list[Found | Failed] = []
    single = 0.0
    for pattern, repeat in in_turn(list(patterns)):
        scenario = pattern.scenario
        try:
            rate = single * pattern.guess or FIRST_RATE * (scenario.places[0].quota or 1.0)
            begun = (each.interval_s for each in folder.of(scenario.name, repeat))
            start = next(begun, scenario.publishers / rate)
            _, asked = chosen_search(search, scenario.times, start)
            with serving(scenario, show) as target:
                found = find_limit(scenario, target, folder, asked, show, repeat=repeat)
        except BrokerweaveError as error:
            show(f"{scenario.name}: failed: {error}\n")
            results.append(Failed(scenario.name, str(error)))
            continue
        if found.best is not None and (pattern.single or not single):
            single = found.best.counters.ingress_per_s / pattern.guess
        results.append(found)
    return results


def in_turn(patterns: Sequence[Pattern]) -> Iterator[tuple[Pattern, int]]:
    """Each with the number of its repetition. The single broker, where there is one to compare with, comes
    first, again after every few others, and last: a shared machine is not as fast all the time."""
    repeat = 0
    for place, pattern in enumerate(patterns):
        yield pattern, 0
        last = place == len(patterns) - 1
        if place and patterns[0].single and (last or place % BETWEEN == 0):
            repeat += 1
            yield patterns[0], repeat


def measure_all(
    scenarios: Iterable[Scenario], folder: RunFolder, show: Progress
) -> list[Measurement | Failed]:
    """One measurement of each; what the folder holds of the same name and interval is not measured again."""
    kept = {(each.name, each.interval_s): each for each in folder.measurements()}
    results: list[Measurement | Failed] = []
    for scenario in scenarios:
        name = f"{scenario.name}, {scenario.publishers} publishers"
        done = kept.get((scenario.name, scenario.interval))
        if done is not None:
            results.append(done)
            continue
        try:
            with serving(scenario, show) as target:
                rest(target, show)
                done = measure(scenario, target, folder, show)
        except BrokerweaveError as error:
            show(f"{name}: failed: {error}\n")
            results.append(Failed(name, str(error)))
            continue
        counters = done.counters
        figures = f"{counters.egress_per_s:,.0f} out a second, latency {counters.latency_mean_ms:.2f} ms"
        show(f"{name}: {figures}, {counters.lost} lost\n")
        results.append(done)
    return results
