"""Targets and tables: what was measured, as a reader wants to see it. Pure but for printing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.relay.measure import Sample, Spread
from benchmarks.relay.scene import (
    ALONE,
    GATEWAY,
    HAPROXY,
    NODE,
    NODE_BY_SOCKET,
    NODE_RECORDING,
    NODE_WITHOUT_LINK,
)

Steady = dict[str, list[Sample]]
Limits = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Target:
    """A ratio that must not be more (`at_most`) or less than a bound."""

    name: str
    value: float
    bound: float
    at_most: bool = True

    @property
    def met(self) -> bool:
        return self.value <= self.bound if self.at_most else self.value >= self.bound


def ratio(samples: Steady, over: str, under: str, of: Callable[[Sample], float]) -> Spread:
    """One way's figure over another's: the ratio of medians, and the spread of the rounds' own ratios."""
    rounds = [of(a) / of(b) for a, b in zip(samples[over], samples[under], strict=True)]
    medians = (
        Spread.of([of(a) for a in samples[over]]).median / Spread.of([of(b) for b in samples[under]]).median
    )
    return Spread(medians, min(rounds), max(rounds))


def targets(steady: Steady, limits: Limits) -> list[Target]:
    """What the measured ways can be held to; nothing for a way that is missing."""
    found = []
    if NODE in steady and HAPROXY in steady:
        found = [
            Target("CPU/message, node / haproxy", ratio(steady, NODE, HAPROXY, _relay_us).median, 1.5),
            Target("median latency, node / haproxy", ratio(steady, NODE, HAPROXY, _median).median, 2.0),
        ]
    if GATEWAY in steady and HAPROXY in steady:
        cost = ratio(steady, GATEWAY, HAPROXY, _relay_us).median
        found.append(Target("CPU/message, gateway / haproxy", cost, 1.2))
    if NODE_RECORDING in steady and NODE_WITHOUT_LINK in steady:
        cost = ratio(steady, NODE_RECORDING, NODE_WITHOUT_LINK, _relay_us).median
        found.append(Target("CPU/message, recording / not", cost, 1.15))
    if NODE_BY_SOCKET in steady and NODE_WITHOUT_LINK in steady:
        cost = ratio(steady, NODE_BY_SOCKET, NODE_WITHOUT_LINK, _broker_us).median
        found.append(Target("broker's CPU/message, unix socket / tcp", cost, 0.75))
    if NODE in limits and ALONE in limits:
        value = Spread.of(limits[NODE]).median / Spread.of(limits[ALONE]).median
        found.append(Target("highest rate, node / alone", value, 0.90, at_most=False))
    return found


def show(
    console: Console,
    facts: dict[str, str],
    rate: float,
    steady: Steady,
    limits: Limits,
    checks: Sequence[Target],
    notes: Sequence[str],
) -> None:
    console.print(*(f"{name} {value};" for name, value in facts.items()), highlight=False)
    if steady:
        console.print(_steady_table(rate, steady))
    if limits:
        console.print(_limits_table(limits))
    if NODE in steady and NODE_WITHOUT_LINK in steady:
        share = ratio(steady, NODE, NODE_WITHOUT_LINK, _relay_us)
        console.print(f"node with the link / without: {_ratio(share)} CPU/message", highlight=False)
    for check in checks:
        bound = f"{'≤' if check.at_most else '≥'} {check.bound:g}"
        verdict = "met" if check.met else "MISSED"
        console.print(f"{check.name}: {check.value:.2f} (must be {bound}): {verdict}", highlight=False)
    for note in notes:
        console.print(f"note: {note}", highlight=False)


def _steady_table(rate: float, steady: Steady) -> Table:
    table = Table(title=f"{rate:.0f} publications/s, fan-out 10; median of rounds (lowest to highest)")
    table.add_column("way")
    for name in (
        "relay CPU, µs/message",
        "/ haproxy",
        "median latency, ms",
        "p99, ms",
        "broker CPU, µs/message",
        "load CPU, %",
        "others CPU, %",
        "egress",
        "lost",
        "crossed link/s",
    ):
        table.add_column(name, justify="right")
    for way, samples in steady.items():
        against = HAPROXY in steady and way != ALONE
        table.add_row(
            way,
            _spread([_relay_us(s) for s in samples]) if way != ALONE else "",
            _ratio(ratio(steady, way, HAPROXY, _relay_us)) if against else "",
            _spread([s.median_ms for s in samples], 3),
            _spread([s.p99_ms for s in samples]),
            _spread([s.broker_us for s in samples]),
            f"{Spread.of([s.load_cpu * 100 for s in samples]).median:.0f}",
            f"{max(s.others for s in samples) * 100:.0f}",
            f"{min(s.held for s in samples):.3f}",
            str(sum(s.lost for s in samples)),
            f"{Spread.of([s.crossed_per_s for s in samples]).median:.0f}",
        )
    return table


def _limits_table(limits: Limits) -> Table:
    table = Table(title="highest rate that holds, broker held to a share of a core (median of searches)")
    for name in ("way", "publications/s", "/ mosquitto alone"):
        table.add_column(name, justify="left" if name == "way" else "right")
    for way, found in limits.items():
        alone = Spread.of(limits[ALONE]).median if ALONE in limits else 0.0
        share = f"{Spread.of(found).median / alone:.2f}" if alone else ""
        table.add_row(way, _spread(found, 0), share)
    return table


def _relay_us(sample: Sample) -> float:
    return sample.relay_us


def _broker_us(sample: Sample) -> float:
    return sample.broker_us


def _median(sample: Sample) -> float:
    return sample.median_ms


def _spread(values: Sequence[float], digits: int = 2) -> str:
    spread = Spread.of(values)
    return f"{spread.median:.{digits}f} ({spread.low:.{digits}f} to {spread.high:.{digits}f})"


def _ratio(spread: Spread) -> str:
    return f"{spread.median:.2f} ({spread.low:.2f} to {spread.high:.2f})"
