"""What the experiments came to: each contender's worst node and spread, and their ratios to the baselines.

Owns the definitions. "Worst" is the worst node's mean latency, or bytes in and out; "spread" the standard
deviation over nodes. Both are averaged over seeds, then over levels, as in the thesis (4.1.7). Nodes that got
nothing have no latency. Must not know: how it is measured or shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev

from brokerweave.bench.overlay.experiments import (
    BYTES,
    LATENCY,
    RECOVERY,
    Contender,
    Experiment,
    Level,
    Target,
    of,
)
from brokerweave.bench.overlay.running import Measured
from brokerweave.sim.overlay_run import OverlayOptions, OverlayResult

_VALUES: dict[str, Callable[[OverlayResult], Sequence[float]]] = {
    LATENCY: lambda result: result.latencies,
    BYTES: lambda result: result.bytes,
}


@dataclass(frozen=True, slots=True)
class RatioRow:
    """One quantity of one contender in one experiment, with its ratio to each baseline by name."""

    experiment: str
    quantity: str
    contender: str
    worst: float
    spread: float
    mean: float
    """Over all nodes; of latency over all deliveries."""
    to: Mapping[str, tuple[float, float]]
    """(worst, spread)."""
    target: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is; None where there is none, or no first baseline."""
        first = next(iter(self.to.values()), None)
        return None if self.target is None or first is None else first[0] <= self.target


class Outcome:
    """All that was measured."""

    def __init__(
        self,
        chosen: Sequence[Experiment],
        contenders: Sequence[Contender],
        seeds: Sequence[int],
        found: Mapping[OverlayOptions, Measured],
    ) -> None:
        self.experiments = chosen
        self.contenders = contenders
        self.seeds = seeds
        self._found = found

    def results(self, level: Level, contender: Contender) -> list[OverlayResult]:
        return [self._found[of(level, contender, seed)].result for seed in self.seeds]

    def nodes(self, level: Level, contender: Contender, quantity: str) -> list[float]:
        """The value of each node in each seed, for a box plot."""
        return [v for result in self.results(level, contender) for v in _VALUES[quantity](result)]

    @property
    def lost(self) -> tuple[int, int]:
        """Publications that did not reach a site where nobody died, and that reached one twice."""
        every = [measured.result for measured in self._found.values()]
        return sum(each.missed for each in every), sum(each.doubled for each in every)

    @property
    def failures(self) -> list[str]:
        """What nodes said of exceptions in their strategy, each once."""
        said = (each.result.failure for each in self._found.values() if each.result.failures)
        return list(dict.fromkeys(said))

    def rows(self, baselines: Sequence[str], targets: Sequence[Target]) -> list[RatioRow]:
        rows = []
        for experiment in self.experiments:
            kills = any(level.options.kill for level in experiment.levels)
            for quantity in (RECOVERY,) if kills else (LATENCY, BYTES):
                of_each = {each.name: self._figures(experiment, each, quantity) for each in self.contenders}
                for name, (worst, spread, mean) in of_each.items():
                    to = {
                        base: (_ratio(worst, of_each[base][0]), _ratio(spread, of_each[base][1]))
                        for base in baselines
                        if base in of_each
                    }
                    wanted = (
                        each.most
                        for each in targets
                        if (each.experiment, each.contender, each.quantity)
                        == (experiment.number, name, quantity)
                    )
                    row = RatioRow(
                        experiment.number, quantity, name, worst, spread, mean, to, next(wanted, None)
                    )
                    rows.append(row)
        return rows

    def _figures(
        self, experiment: Experiment, contender: Contender, quantity: str
    ) -> tuple[float, float, float]:
        every = [self._level(level, contender, quantity) for level in experiment.levels]
        worst, spread, mean = (fmean(values) for values in zip(*every, strict=True))
        return worst, spread, mean

    def recoveries(self, level: Level, contender: Contender) -> list[float]:
        """Of each seed; of one that did not recover, how long it was watched."""
        found = (each.recovered_after for each in self.results(level, contender))
        return [level.options.seconds if each is None else each for each in found]

    def _level(self, level: Level, contender: Contender, quantity: str) -> tuple[float, float, float]:
        results = self.results(level, contender)
        if quantity == RECOVERY:
            times = self.recoveries(level, contender)
            return fmean(times), pstdev(times), fmean(times)
        nodes = [_VALUES[quantity](each) for each in results]
        worst, spread = fmean(map(max, nodes)), fmean(map(pstdev, nodes))
        means = (each.latency for each in results) if quantity == LATENCY else map(fmean, nodes)
        return worst, spread, fmean(means)


def problems(outcome: Outcome, rows: Sequence[RatioRow]) -> list[str]:
    """What was to be held and is not."""
    missed, doubled = outcome.lost
    found = [f"{missed:,} deliveries missed, {doubled:,} doubled"] if missed or doubled else []
    found += outcome.failures
    for each in rows:
        if each.met is False:
            ratio = next(iter(each.to.values()))[0]
            where = f"{each.experiment}, {each.contender}, {each.quantity}"
            found.append(f"{where}: ratio {ratio:.2f} above {each.target}")
    return found


def _ratio(value: float, base: float) -> float:
    return value / base if base else float(value > 0)
