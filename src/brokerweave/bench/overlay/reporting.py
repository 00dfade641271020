"""The report of the overlay's experiments: the ratio table, box plots, and the recovery over time.

Owns which tables and pictures there are. Must not know: HTML, how anything was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from brokerweave.bench.folder import RunInfo
from brokerweave.bench.overlay.experiments import BASELINES, BYTES, LATENCY, RECOVERY, TARGETS, Experiment
from brokerweave.bench.overlay.many import ScaleRow, auto_rows
from brokerweave.bench.overlay.ratios import NEAR_BEST, AutoRow, Outcome, RatioRow
from brokerweave.bench.report import charts
from brokerweave.bench.report.content import facts
from brokerweave.bench.report.document import Chart, Document, Part, Section, Table, Text
from brokerweave.sim.overlay_run import BIN

UNITS = {LATENCY: ("ms", 1e3), BYTES: ("MB", 1e-6), RECOVERY: ("s", 1.0)}
_METHOD = (
    "Nodes run in virtual time, with the code of real ones. One way between two of them takes 1 to 10 ms, "
    "drawn once for each pair; what a node sends leaves it one after another, at its uplink's rate. Bytes "
    "are all that a node sent and received on links: heads, acknowledgements, handshakes, control packets "
    "and plans included. Worst is the worst node, spread the standard deviation over nodes; both are means "
    "over seeds, then over levels."
)


def document(run: RunInfo, outcome: Outcome | None, many: Sequence[ScaleRow] = ()) -> Document:
    sections = []
    if outcome is not None:
        sections.append(Section("Ratios", [Text(_METHOD), *_losses(outcome), ratio_table(outcome)]))
        sections += _chosen(outcome.auto_rows())
        sections += [_section(outcome, each) for each in outcome.experiments]
    if many:
        sections.append(Section("Many nodes", [many_table(many)]))
        sections += _chosen(auto_rows(many))
    sections.append(Section("What was run", facts([("", run)])))
    return Document(f"brokerweave bench {run.kind}, {run.started}", sections)


def ratio_rows(outcome: Outcome) -> list[RatioRow]:
    return outcome.rows(BASELINES, TARGETS)


def ratio_table(outcome: Outcome) -> Table:
    """Ratios below 1 are better than the baseline; spread in brackets."""
    head = ["experiment", "what", "strategy", "worst", "spread", "mean"]
    head += [f"to {base}" for base in BASELINES] + ["target", ""]
    rows = []
    for each in ratio_rows(outcome):
        unit, factor = UNITS[each.quantity]
        ratios = [each.to.get(base) for base in BASELINES]
        rows.append(
            [
                each.experiment,
                f"{each.quantity}, {unit}",
                each.contender,
                *(charts.number_text(value * factor) for value in (each.worst, each.spread, each.mean)),
                *("" if to is None else f"{to[0]:.2f} ({to[1]:.2f})" for to in ratios),
                "" if each.target is None else f"≤ {each.target:.2f}",
                "" if each.met is None else "met" if each.met else "missed",
            ]
        )
    return Table(head, rows)


def many_table(rows: Sequence[ScaleRow]) -> Table:
    return Table(ScaleRow.HEAD, [each.cells() for each in rows])


def _chosen(rows: Sequence[AutoRow]) -> list[Section]:
    return [Section("The chosen fan-out", [auto_table(rows)])] if rows else []


def auto_table(rows: Sequence[AutoRow]) -> Table:
    head = ["where", "auto, ms", "best fixed", "its ms", "ratio", "target", ""]
    cells = [
        [
            each.where,
            charts.number_text(each.latency * 1e3),
            each.best,
            charts.number_text(each.best_latency * 1e3),
            f"{each.ratio:.2f}",
            f"≤ {NEAR_BEST:.2f}",
            "missed" if each.problem else "met",
        ]
        for each in rows
    ]
    return Table(head, cells)


def _losses(outcome: Outcome) -> list[Part]:
    missed, doubled = outcome.lost
    said = f"Where nobody was killed {missed:,} deliveries were missed; {doubled:,} came twice."
    return [Text(said, warning=bool(missed or doubled))]


def _section(outcome: Outcome, experiment: Experiment) -> Section:
    title = f"{experiment.number}: {experiment.title}"
    if any(level.options.kill for level in experiment.levels):
        return Section(title, [Chart(_recovery(outcome, experiment), experiment.figures[0])])
    drawn = []
    for quantity, figure in zip((LATENCY, BYTES), experiment.figures, strict=True):
        unit, factor = UNITS[quantity]
        groups = {
            level.name: {
                each.name: [value * factor for value in outcome.nodes(level, each, quantity)]
                for each in outcome.contenders
            }
            for level in experiment.levels
        }
        svg = charts.boxes(f"{quantity} of each node, by {experiment.title}", unit, groups)
        drawn.append(Chart(svg, f"as {figure} of the thesis"))
    return Section(title, drawn)


def _recovery(outcome: Outcome, experiment: Experiment) -> str:
    (level,) = experiment.levels
    drawn = {}
    for each in outcome.contenders:
        lines = zip(*(result.timeline for result in outcome.results(level, each)), strict=True)
        drawn[each.name] = [
            (number * BIN - level.options.warm_up, fmean(counts) / BIN) for number, counts in enumerate(lines)
        ]
    mark = charts.ChartMark(0.0, "kill")
    title = "Deliveries between survivors"
    return charts.lines(title, "seconds after the kill", "a second", drawn, marks=[mark])


def to_json(outcome: Outcome | None, many: Sequence[ScaleRow], seconds: float) -> dict[str, Any]:
    ratios = ratio_rows(outcome) if outcome is not None else []
    return {
        "seconds": round(seconds, 1),
        "missed_and_doubled": outcome.lost if outcome is not None else (0, 0),
        "ratios": [
            {
                "experiment": each.experiment,
                "quantity": each.quantity,
                "strategy": each.contender,
                "worst": each.worst,
                "spread": each.spread,
                "mean": each.mean,
                "ratios": {base: {"worst": to[0], "spread": to[1]} for base, to in each.to.items()},
                "target": each.target,
                "met": each.met,
            }
            for each in ratios
        ],
        "many_nodes": [each.to_dict() for each in many],
        "auto": [
            {"where": each.where, "latency_s": each.latency, "best": each.best, "ratio": each.ratio}
            for each in (*(outcome.auto_rows() if outcome is not None else ()), *auto_rows(many))
        ],
    }
