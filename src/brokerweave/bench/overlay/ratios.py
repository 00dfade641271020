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
    AUTO,
    BYTES,
    DIRECT,
    FIXED,
    LATENCY,
    RECOVERY,
    SHARE,
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


NEAR_BEST = 1.10
"""Mean latency of the chosen fan-out to the best fixed one's, at most."""


@dataclass(frozen=True, slots=True)
class AutoRow:
    """The chosen fan-out against the best fixed one whose busiest node stays within the share."""

    where: str
    latency: float
    best: str
    best_latency: float

    @property
    def ratio(self) -> float:
        return _ratio(self.latency, self.best_latency)

    @property
    def problem(self) -> str:
        if self.ratio <= NEAR_BEST:
            return ""
        return f"{self.where}: auto has {self.ratio:.2f} of the latency of {self.best}, above {NEAR_BEST}"


def auto_row(where: str, found: Mapping[str, Sequence[tuple[OverlayOptions, OverlayResult]]]) -> AutoRow:
    """`found`: each contender's runs, by its name. If no fixed one keeps within the share, the one whose
    busiest node has the fewest bytes is the best."""

    def latency(name: str) -> float:
        return fmean(result.latency for _, result in found[name])

    def used(name: str) -> float:
        """The part of its uplink that the busiest node used, in the worst run."""
        return max(
            max(result.bytes) * 8 / (options.warm_up + options.seconds) / options.uplink
            for options, result in found[name]
        )

    fixed = [each.name for each in (*FIXED, DIRECT) if each.name in found]
    within = [name for name in fixed if used(name) <= SHARE]
    best = min(within, key=latency) if within else min(fixed, key=used)
    return AutoRow(where, latency(AUTO.name), best, latency(best))


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

    def auto_rows(self) -> list[AutoRow]:
        """For each experiment without deaths, if the chosen fan-out and fixed ones were run."""
        names = {each.name for each in self.contenders}
        if AUTO.name not in names or not names & {each.name for each in (*FIXED, DIRECT)}:
            return []
        return [
            auto_row(
                experiment.number,
                {
                    each.name: [
                        (level.options, result)
                        for level in experiment.levels
                        for result in self.results(level, each)
                    ]
                    for each in self.contenders
                },
            )
            for experiment in self.experiments
            if not any(level.options.kill for level in experiment.levels)
        ]

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
    found += [each.problem for each in outcome.auto_rows() if each.problem]
    for each in rows:
        if each.met is False:
            ratio = next(iter(each.to.values()))[0]
            where = f"{each.experiment}, {each.contender}, {each.quantity}"
            found.append(f"{where}: ratio {ratio:.2f} above {each.target}")
    return found


def _ratio(value: float, base: float) -> float:
    return value / base if base else float(value > 0)
