"""What the report of a migration run shows beside what all runs have: EMMA's figures 5 to 7, and moves.

Owns which tables and pictures there are. Reads the tables that `bench.spark_job` wrote. Must not know: Spark,
HTML, how a figure is computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow.parquet as pq

from brokerweave.bench import figures
from brokerweave.bench.figures import RunResult
from brokerweave.bench.folder import Measurement, RunFolder
from brokerweave.bench.migration import computing
from brokerweave.bench.migration.figures import MOST_TOPICS
from brokerweave.bench.report import charts
from brokerweave.bench.report.charts import ChartMark, number_text
from brokerweave.bench.report.document import Chart, Part, Section, Table, Text
from brokerweave.pipeline.plot import Points

REGIONS = (
    "Regions are emulated on one machine by a relay that delays IP packets: round trips of 80 ms between "
    "us-east and either eu region, 20 ms between the eu regions. The paper's own figures (Fig. 4) are lost."
)
SIDE_BY_SIDE = (
    "procedure", "owed", "lost", "lost per subscriber", "doubled", "out of order", "moves", "refused",
    "failed", "move s (p50)", "worst", "gap ms (p50)", "p99", "worst gap",
)  # fmt: skip
PHASE = (
    "event",
    "moves",
    "last after s",
    "uneven",
    "topic",
    "messages",
    "mean ms",
    "p99",
    "settled p50",
    "settled p99",
)
SITES = ("event", "site", "clients at the end", "messages in, settled")


def sections(folder: RunFolder, results: Sequence[RunResult]) -> list[Section]:
    found = [(each.measurement, computing.read(folder, each.measurement.id)) for each in results]
    made = [Section("Procedures", [Text(REGIONS), side_by_side(figures for _, figures in found)])]
    for measurement, figures_of in found:
        drawn = [Chart(svg) for svg in _pictures(folder, measurement)]
        parts: list[Part] = [phase_table(figures_of), site_table(figures_of), subscriber_table(figures_of)]
        made.append(Section(f"{measurement.name}, event by event", [*parts, *drawn]))
    return made


def side_by_side(found: Iterable[Mapping[str, Any]]) -> Table:
    rows = []
    for each in found:
        moves = each["moves"]
        rows.append(
            [
                f"{each['name']}, QoS {each['qos']}",
                *(f"{each[name]:,}" for name in ("owed", "lost")),
                f"{each['lost_share']:.3%}",
                *(f"{each[name]:,}" for name in ("doubled", "disordered")),
                *(str(moves[name]) for name in ("done", "refused", "failed")),
                *(f"{moves[name]:.2f}" for name in ("took_p50", "took_worst")),
                *(number_text(moves[name]) for name in ("gap_p50", "gap_p99", "gap_worst")),
            ]
        )
    return Table(SIDE_BY_SIDE, rows)


def phase_table(found: Mapping[str, Any]) -> Table:
    rows = []
    for phase in found["phases"]:
        said = [phase["event"], str(phase["moves"]), f"{phase['last_move_s']:.1f}", f"{phase['uneven']:.0%}"]
        for topic in phase["topics"]:
            names = ("mean", "p99", "settled_p50", "settled_p99")
            latency = [f"{topic[name]:.1f}" for name in names]
            rows.append([*said, topic["topic"], f"{topic['deliveries']:,}", *latency])
            said = ["", "", "", ""]
    return Table(PHASE, rows)


def site_table(found: Mapping[str, Any]) -> Table:
    rows = []
    for phase in found["phases"]:
        for site, clients in sorted(phase["clients"].items()):
            rows.append([phase["event"], site, str(clients), f"{phase['taken'][site]:,}"])
    return Table(SITES, rows)


def subscriber_table(found: Mapping[str, Any]) -> Table:
    """What subscribers of each group lack (EMMA's Fig. 7)."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for each in found["subscribers"]:
        groups.setdefault(each["group"], []).append(each)
    rows = []
    for group, mine in groups.items():
        lost = sorted(each["lost"] for each in mine)
        cells = (len(mine), sum(each["owed"] for each in mine), lost[0], lost[len(lost) // 2], lost[-1])
        more = (sum(each[name] for each in mine) for name in ("doubled", "disordered"))
        rows.append([group, *(f"{each:,}" for each in (*cells, *more))])
    head = ("group", "subscribers", "owed", "lost, least", "median", "most", "doubled", "out of order")
    return Table(head, rows)


def _pictures(folder: RunFolder, measurement: Measurement) -> list[str]:
    marks = [
        ChartMark((event.at_ns - measurement.window_ns[0]) / 1e9, event.what.partition(":")[0])
        for event in measurement.events
    ]
    sites = _rows(folder, measurement, "sites")
    topics = _rows(folder, measurement, "topics")
    if len({row["topic"] for row in topics}) > MOST_TOPICS:
        return []
    drawn = []
    for title, column in (("in", "in_per_s"), ("out", "out_per_s")):
        lines = _lines(sites, "site", column)
        drawn.append(_over_time(f"Messages {title}, by site (Fig. 5a)", "messages a second", lines, marks))
    drawn.append(_over_time("Clients, by site", "clients", _lines(sites, "site", "clients"), marks))
    lines = _lines(topics, "topic", "latency_ms")
    drawn.append(_over_time("Latency, by topic (Figs. 5b, 6)", "milliseconds, mean", lines, marks))
    return drawn


def _over_time(title: str, up: str, lines: Mapping[str, Points], marks: Sequence[ChartMark]) -> str:
    return charts.lines(title, "seconds", up, lines, marks=marks)


def _lines(rows: Sequence[Mapping[str, Any]], by: str, column: str) -> dict[str, Points]:
    found: dict[str, Points] = {}
    for row in rows:
        found.setdefault(row[by], []).append((float(row["second"]), float(row[column])))
    return found


def _rows(folder: RunFolder, measurement: Measurement, name: str) -> list[dict[str, Any]]:
    path = figures.table(folder, name) / f"measurement={measurement.id}" / "rows.parquet"
    rows: list[dict[str, Any]] = pq.ParquetFile(path).read().to_pylist()
    return rows
