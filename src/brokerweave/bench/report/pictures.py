"""The charts of a run: bars over what was measured, lines over publishers, and each measurement from near.

Owns which figure is drawn how. Reads the tables that `bench.spark_job` wrote. Must not know: Spark, HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from brokerweave.bench import figures
from brokerweave.bench.figures import Indexes, RunResult
from brokerweave.bench.folder import MACHINE, Measurement, RunFolder
from brokerweave.bench.report import charts
from brokerweave.bench.report.charts import ChartMark
from brokerweave.bench.report.distribution import Counted
from brokerweave.bench.search import ENOUGH
from brokerweave.errors import ConfigError
from brokerweave.pipeline.plot import Points

Value = Callable[[Indexes], float]
BARS: Sequence[tuple[str, str, Value]] = (
    ("Ingress throughput", "messages a second", lambda each: each.ingress_per_s),
    ("Egress throughput", "messages a second", lambda each: each.egress_per_s),
    ("Latency, mean", "milliseconds", lambda each: each.latency.mean),
)
OVER_PUBLISHERS: Sequence[tuple[str, str, Value]] = (
    ("Throughput", "messages a second, delivered", lambda each: each.egress_per_s),
    ("Latency, mean", "milliseconds", lambda each: each.latency.mean),
    ("Latency, worst", "milliseconds", lambda each: each.latency.worst),
    ("Jitter, 90th percentile", "milliseconds", lambda each: each.jitter.p90),
    ("Jitter, worst", "milliseconds", lambda each: each.jitter.worst),
)
_BINS_IN_A_SECOND = 10


def bars(found: Sequence[RunResult]) -> list[str]:
    """Throughput in, out, and latency, as in ILDM's Figs. 11 and 12. Of repetitions the first is drawn."""
    drawn = []
    for title, up, value in BARS:
        groups: dict[str, dict[str, float]] = {}
        for each in found:
            group, _, series = each.name.partition(" ")
            groups.setdefault(group, {}).setdefault(series, value(each.indexes))
        drawn.append(charts.bars(title, up, groups))
    return drawn


def side_by_side(runs: Sequence[tuple[str, Sequence[RunResult]]]) -> list[str]:
    """The same bars, with a group for each name and a series for each run."""
    drawn = []
    for title, up, value in BARS:
        groups: dict[str, dict[str, float]] = {}
        for label, found in runs:
            for each in found:
                groups.setdefault(full_name(each), {}).setdefault(label, value(each.indexes))
        drawn.append(charts.bars(title, up, groups))
    return drawn


def full_name(each: RunResult) -> str:
    """With the number of publishers where that tells results apart."""
    return each.name if each.searched else f"{each.name} ({each.publishers})"


def over_publishers(found: Sequence[RunResult]) -> list[str]:
    """How throughput, latency and jitter change with the number of clients (the thesis, 5.2 to 5.5)."""
    drawn = []
    for title, up, value in OVER_PUBLISHERS:
        named: dict[str, Points] = {}
        for each in found:
            named.setdefault(each.name, []).append((each.publishers, value(each.indexes)))
        sorted_lines = {name: sorted(points) for name, points in named.items()}
        drawn.append(charts.lines(title, "publishers", up, sorted_lines, dots=True))
    return drawn


def searches(measured: Sequence[Indexes]) -> list[str]:
    """What part was delivered at each rate that searches tried, a picture for each group of bars."""
    groups: dict[str, dict[str, Points]] = {}
    for each in measured:
        label = f"{each.name} #{each.repeat + 1}" if each.repeat else each.name
        lines = groups.setdefault(each.name.partition(" ")[0], {})
        lines.setdefault(label, []).append((each.ingress_per_s, each.delivered))
    return [
        _search(group, {name: sorted(points) for name, points in lines.items()})
        for group, lines in groups.items()
    ]


def _search(group: str, lines: dict[str, Points]) -> str:
    fastest = max(x for points in lines.values() for x, _ in points)
    limit: Points = [(0, ENOUGH), (fastest, ENOUGH)]
    return charts.lines(
        f"{group}: part delivered at each rate tried",
        "messages a second, in",
        "egress / (ingress x sp-ratio)",
        {**lines, f"limit {ENOUGH}": limit},
        dots=True,
    )


def distribution(folder: RunFolder, number: int) -> list[str]:
    """Histogram, CDF, Q-Q and P-P of one measurement's latencies; nothing where there are none."""
    counted = latencies(folder, number)
    if counted is None:
        return []
    ms = "latency, milliseconds"
    cumulative = {"measured": counted.cumulative(), "normal": counted.normal_cumulative()}
    same = [(0.0, 0.0), (1.0, 1.0)]
    quantiles, probabilities = counted.quantiles(), counted.probabilities()
    return [
        charts.histogram("Histogram", ms, "density", counted.columns(), counted.normal_curve()),
        charts.lines("Cumulative distribution", ms, "part of deliveries", cumulative),
        charts.against(
            "Q-Q against normal",
            "normal quantile",
            ms,
            quantiles,
            counted.quantile_line(),
            ("measured", "normal"),
        ),
        charts.against(
            "P-P against normal", "normal", "measured", probabilities, same, ("measured", "normal")
        ),
    ]


def overlaid(title: str, measured: Sequence[tuple[str, RunFolder, int]]) -> str | None:
    """The cumulative distributions of several measurements in one picture."""
    drawn = {}
    for label, folder, number in measured:
        counted = latencies(folder, number)
        if counted is not None:
            drawn[label] = counted.cumulative()
    return charts.lines(title, "latency, milliseconds", "part of deliveries", drawn) if drawn else None


def latencies(folder: RunFolder, number: int) -> Counted | None:
    rows = sorted((row["latency_us"] / 1e3, row["count"]) for row in _rows(folder, "latencies", number))
    return Counted([value for value, _ in rows], [count for _, count in rows]) if rows else None


def timeline(folder: RunFolder, measurement: Measurement) -> list[dict[str, Any]]:
    """The rows of a timeline in order, with rows of zero where nothing came or went."""
    rows = {row["bin"]: row for row in _rows(folder, "timeline", measurement.id)}
    if not rows:
        return []
    empty = {"ingress": 0, "egress": 0, "latency_ms": None, "worst_ms": None}
    return [rows.get(n, {"bin": n, **empty}) for n in range(min(rows), max(rows) + 1)]


def throughput(folder: RunFolder, measurement: Measurement) -> list[str]:
    """Messages in and out, and the worst latency, over time; what was done to the servers is marked."""
    rows = timeline(folder, measurement)
    if not rows:
        return []
    marks = [
        ChartMark((each.at_ns - measurement.window_ns[0]) / 1e9, each.what) for each in measurement.events
    ]

    def line(name: str, scale: float) -> Points:
        return [(row["bin"] / _BINS_IN_A_SECOND, row[name] * scale) for row in rows if row[name] is not None]

    across = "seconds from the begin of the window"
    flow = {"in": line("ingress", _BINS_IN_A_SECOND), "out": line("egress", _BINS_IN_A_SECOND)}
    waits = {"worst": line("worst_ms", 1), "mean": line("latency_ms", 1)}
    return [
        charts.lines("Throughput over time", across, "messages a second", flow, marks=marks),
        charts.lines("Latency over time", across, "milliseconds", waits, marks=marks),
    ]


def resources(folder: RunFolder, measurement: Measurement) -> list[str]:
    """CPU and memory of every process over time; the machine apart, or all others would lie at zero."""
    cpu: dict[str, Points] = {}
    memory: dict[str, Points] = {}
    whole: dict[str, Points] = {}
    for row in sorted(_rows(folder, "resources", measurement.id), key=lambda row: row["second"]):
        ours = row["role"] != MACHINE
        if row["cpu"] is not None:
            (cpu if ours else whole).setdefault(row["role"], []).append((row["second"], row["cpu"]))
        if ours:
            memory.setdefault(row["role"], []).append((row["second"], row["rss"] / 2**20))
    across = "seconds from the begin of the window"
    marks = [
        ChartMark((each.at_ns - measurement.window_ns[0]) / 1e9, each.what) for each in measurement.events
    ]
    drawn = [
        ("CPU", "cores", cpu),
        ("Memory", "MiB resident", memory),
        ("CPU of the whole machine", "cores", whole),
    ]
    return [charts.lines(title, across, up, named, marks=marks) for title, up, named in drawn if named]


def _rows(folder: RunFolder, name: str, number: int) -> list[dict[str, Any]]:
    path = figures.table(folder, name) / f"measurement={number}"
    try:
        return pq.read_table(path).to_pylist() if path.is_dir() else []
    except (pa.ArrowException, OSError) as error:
        damage = " ".join(str(error).split())
        raise ConfigError(f"{path}: damaged: {damage}; --again computes it anew") from None
