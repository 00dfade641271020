"""Thousands of nodes: what a publication costs the worst node, and what the run costs this machine.

Owns the scenarios of `bench overlay --scale`, and what is to be held. All nodes of a run share one table of
members; 10,000 also begin at one moment, and need not hear from everybody first. Where nodes are 10,000, or
many contenders are compared, 5 clients publish to 2 topics, else 14 to 7. Latency counts once links are open,
which takes 10,000 nodes longer: a keeper hears from more subscribers than it may have links. Must not know:
how a run is made or shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from brokerweave.bench.overlay.experiments import (
    AUTO,
    DIRECT,
    FIXED,
    SCRIBE,
    SHADOWS,
    Contender,
    guided,
    with_contender,
)
from brokerweave.bench.overlay.ratios import AutoRow, auto_row
from brokerweave.bench.overlay.running import Measured, measure
from brokerweave.sim.overlay_run import OverlayOptions

RATIO = 0.65
"""Of the worst node's bytes, and of mean latency, to the baseline's."""
CPU_SECONDS, PEAK_BYTES = 600.0, 3e9
LIST_SHARE = 0.10
"""Of the bytes: what next lists take where payloads are small."""
SMALL = 100
"""Bytes of such a payload."""
_CHANGES = 3
"""Sites whose filters are changed at the end, to count control packets."""


@dataclass(frozen=True, slots=True)
class ManyCase:
    name: str
    options: OverlayOptions
    contenders: tuple[Contender, ...]


@dataclass(frozen=True, slots=True)
class ScaleRow:
    case: str
    contender: str
    options: OverlayOptions
    measured: Measured
    ratios: tuple[float, float] | None
    """Of the worst bytes and the mean latency, to the baseline's in the same case."""

    HEAD: ClassVar[tuple[str, ...]] = (
        "case", "strategy", "worst MB", "latency ms", "to scribe: bytes", "latency", "missed", "doubled",
        "packets a change", "at most", "lists", "links", "CPU s", "peak MB",
    )  # fmt: skip

    @property
    def worst(self) -> int:
        return max(self.measured.result.bytes)

    @property
    def list_share(self) -> float:
        result = self.measured.result
        return result.plan_bytes / max(result.link_bytes, 1)

    @property
    def most_packets(self) -> int:
        """Control packets that one change of a filter may take: to coordinator and shadows and back, and to
        each publisher that holds the list and back."""
        return 2 * (1 + SHADOWS) + 2 * self.options.publishers

    def cells(self) -> list[str]:
        result = self.measured.result
        ratios = ["", ""] if self.ratios is None else [f"{each:.2f}" for each in self.ratios]
        return [
            self.case,
            self.contender,
            f"{self.worst / 1e6:,.3g}",
            f"{result.latency * 1e3:.3g}",
            *ratios,
            f"{result.missed:,}",
            f"{result.doubled:,}",
            f"{result.change_packets:.1f} + {result.barrier_packets:.1f}",
            str(self.most_packets),
            f"{self.list_share:.1%}",
            f"{result.links:,}",
            f"{self.measured.cpu:,.0f}",
            f"{self.measured.peak / 1e6:,.0f}",
        ]

    def to_dict(self) -> dict[str, Any]:
        result = self.measured.result
        return {
            "case": self.case,
            "strategy": self.contender,
            "worst_bytes": self.worst,
            "mean_latency_s": result.latency,
            "ratios": self.ratios,
            "missed": result.missed,
            "doubled": result.doubled,
            "change_packets": result.change_packets,
            "barrier_packets": result.barrier_packets,
            "most_change_packets": self.most_packets,
            "list_share": self.list_share,
            "links": result.links,
            "cpu_seconds": self.measured.cpu,
            "peak_bytes": self.measured.peak,
        }


def cases(uplink: float, *, quick: bool = False) -> list[ManyCase]:
    """`uplink` of a node in bits a second; `quick`: a tenth of the nodes."""
    part = 10 if quick else 1
    base = OverlayOptions(
        nodes=1000 // part,
        subscribers=1000 // part,
        warm_up=1.0,
        seconds=1.0,
        settle=6.0,
        changes=_CHANGES,
        max_links=1000,
        uplink=uplink,
    )
    few = replace(base, publishers=5, topics=2)
    ten = replace(few, nodes=10_000 // part, subscribers=2_000 // part, settle=8.0, warm_up=2.0, shared=True)
    small = replace(few, payload=SMALL)
    pair = (guided(10), SCRIBE)
    return [
        ManyCase(f"{base.nodes:,} nodes, all subscribed", base, pair),
        ManyCase(f"{ten.nodes:,} nodes, {ten.subscribers:,} subscribed", ten, pair),
        ManyCase(f"{small.subscribers:,} subscribers, {SMALL} bytes", small, (guided(5),)),
        ManyCase(
            f"auto, {base.nodes:,} nodes",
            replace(few, changes=0),
            (AUTO, *FIXED, DIRECT),
        ),
    ]


def run(chosen: Sequence[ManyCase], seed: int, show: Callable[[str], None]) -> list[ScaleRow]:
    """Each in a process of its own; two at a time."""
    keys = {
        (case.name, each.name): with_contender(case.options, each, seed)
        for case in chosen
        for each in case.contenders
    }
    largest = sorted(dict.fromkeys(keys.values()), key=lambda options: options.nodes, reverse=True)
    found = measure(largest, show, fresh=True)
    rows = []
    for case in chosen:
        baseline = found[keys[case.name, SCRIBE.name]] if SCRIBE in case.contenders else None
        for each in case.contenders:
            measured = found[keys[case.name, each.name]]
            ratios = None if baseline is None or each is SCRIBE else _ratios(measured, baseline)
            rows.append(ScaleRow(case.name, each.name, case.options, measured, ratios))
    return rows


def auto_rows(rows: Sequence[ScaleRow]) -> list[AutoRow]:
    """How good the chosen fan-out is, in each case where there is one."""
    cases = dict.fromkeys(row.case for row in rows if row.contender == AUTO.name)
    return [
        auto_row(
            case,
            {row.contender: [(row.options, row.measured.result)] for row in rows if row.case == case},
        )
        for case in cases
    ]


def problems(rows: Sequence[ScaleRow]) -> list[str]:
    """What was to be held and is not."""
    found = [each.problem for each in auto_rows(rows) if each.problem]
    for row in rows:
        where, result = f"{row.case}, {row.contender}", row.measured.result
        if result.missed or result.doubled:
            found.append(f"{where}: {result.missed:,} missed, {result.doubled:,} doubled")
        if result.failures:
            found.append(f"{where}: {result.failures:,} exceptions, such as {result.failure}")
        if row.ratios is not None and max(row.ratios) > RATIO:
            found.append(f"{where}: ratios {row.ratios[0]:.2f} and {row.ratios[1]:.2f} above {RATIO}")
        if row.measured.cpu > CPU_SECONDS or row.measured.peak > PEAK_BYTES:
            found.append(f"{where}: {row.measured.cpu:,.0f} s of CPU, {row.measured.peak / 1e6:,.0f} MB")
        if row.ratios is not None and result.change_packets > row.most_packets:
            found.append(f"{where}: {result.change_packets:.1f} packets a change, above {row.most_packets}")
        if row.options.payload == SMALL and row.list_share > LIST_SHARE:
            found.append(f"{where}: next lists are {row.list_share:.1%} of the bytes, above {LIST_SHARE:.0%}")
    return found


def _ratios(one: Measured, base: Measured) -> tuple[float, float]:
    worst = max(one.result.bytes) / max(base.result.bytes)
    return worst, one.result.latency / base.result.latency
