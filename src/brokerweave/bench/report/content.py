"""What the report of one run says, and that of two runs side by side.

Owns which tables and pictures there are, in which order. Must not know: HTML, Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from brokerweave.bench import compare, figures, trust
from brokerweave.bench.figures import Distribution, Indexes, RunResult
from brokerweave.bench.folder import MACHINE, Measurement, RunFolder, RunInfo
from brokerweave.bench.report import migration, pictures
from brokerweave.bench.report.charts import number_text
from brokerweave.bench.report.document import Chart, Document, Part, Section, Table, Text
from brokerweave.bench.trust import DOUBTED, TrustVerdict

_SINGLE = "S1"
"""The word in a name that says: one broker alone. Ratios are to the first name that has it."""
_BRIDGES = "bridges"
"""The word that says: joined by the brokers' own means."""


@dataclass(frozen=True, slots=True)
class Reported:
    """A run with its indexes, as read from its folder."""

    folder: RunFolder
    run: RunInfo
    measurements: Sequence[Measurement]
    indexes: Sequence[Indexes]
    results: Sequence[RunResult]

    @classmethod
    def of(cls, folder: RunFolder) -> Reported:
        run, measurements, indexes = folder.run(), folder.measurements(), figures.read(folder)
        return cls(folder, run, measurements, indexes, figures.results(run, measurements, indexes))

    @property
    def caption(self) -> str:
        """What stands under each figure."""
        facts = [_flat(self.run.scenario), _flat(self.run.machine), _flat(self.run.versions)]
        return "; ".join(filter(None, [*facts, f"commit {self.run.commit}", self.run.started]))


def one_run(reported: Reported) -> Document:
    run, found = reported.run, reported.results
    verdicts = trust.judge(found)
    sections = [
        Section("Results", [*_warnings(verdicts), _results(reported), *_ratios_note(reported)]),
        Section("Trust", [_trust(verdicts)]),
        Section("Pictures", [Chart(svg, reported.caption) for svg in _overview(reported)]),
    ]
    if run.kind == "pairs":
        sections.append(Section("Degradation", [_degradation(found)]))
    if run.kind == "compare":
        sections.insert(0, Section("Compared", [Table(compare.HEAD, compare.rows(found))]))
    if run.kind == "migration":
        sections[:0] = migration.sections(reported.folder, found)
    shows_failures = run.kind != "migration"
    across = [_failure_row(reported, each) for each in found if each.measurement.events and shows_failures]
    if across:
        sections.append(Section("Across failures", [Table(_FAILURE, across)]))
        sections.append(Section("Before, during and after", [_phases(found)]))
    sections.append(Section("What was run", facts([("", run)])))
    if patterns := run.scenario.get("patterns"):
        sections.append(Section("Placement", [_placement(patterns)]))
    sections += [_near(reported, each, folded=len(found) > 2) for each in found]
    return Document(f"brokerweave bench {run.kind}, {run.started}", sections)


def two_runs(one: Reported, other: Reported) -> Document:
    labelled = (("A", one), ("B", other))
    apart = trust.differences(one.run, other.run)
    verdicts = trust.judge([*one.results, *other.results], apart)
    caption = "; ".join(f"{label}: {each.caption}" for label, each in labelled)
    drawn = pictures.side_by_side([(label, each.results) for label, each in labelled])
    sections = [
        Section("Differences", [*_warnings(verdicts), _differences(one, other)]),
        Section("Trust", [*(Text(each) for each in apart), _trust(verdicts)]),
        Section("Pictures", [Chart(svg, caption) for svg in [*drawn, *_overlaid(labelled)]]),
        Section("What was run", facts([(label, each.run) for label, each in labelled])),
    ]
    return Document(
        f"brokerweave bench {one.run.kind}: {one.run.started} (A), {other.run.started} (B)", sections
    )


def _overview(reported: Reported) -> list[str]:
    if reported.run.kind == "pairs":
        return pictures.over_publishers(reported.results)
    drawn = pictures.bars(reported.results)
    return [*drawn, *pictures.searches(reported.indexes)] if reported.run.kind in figures.SEARCHES else drawn


def _overlaid(labelled: Sequence[tuple[str, Reported]]) -> list[str]:
    names: dict[str, list[tuple[str, RunFolder, int]]] = {}
    for label, each in labelled:
        for result in each.results:
            entry = (f"{label} #{result.repeat + 1}", each.folder, result.measurement.id)
            names.setdefault(pictures.full_name(result), []).append(entry)
    drawn = (pictures.overlaid(f"Latency of {name}", measured) for name, measured in names.items())
    return [svg for svg in drawn if svg]


_RESULTS = (
    "name", "publishers", "in/s", "out/s", "x single", "x bridges", "delivered", "latency ms", "p99", "worst",
    "jitter p90 ms", "lost", "doubled", "disordered", "quota", "tried",
)  # fmt: skip


def _results(reported: Reported) -> Table:
    rows = []
    for each in reported.results:
        i, single = each.indexes, _single_beside(each, reported.results)
        ratio = f"{i.egress_per_s / single:.2f}" if single else ""
        rows.append(
            [
                each.name + _number(each) + ("" if each.found else " (over the limit)"),
                str(each.publishers),
                number_text(i.ingress_per_s),
                number_text(i.egress_per_s),
                ratio,
                _over_bridges(each, reported.results),
                f"{i.delivered:.3f}",
                *_measured(i.latency, i.latency.mean, i.latency.p99, i.latency.worst),
                *_measured(i.jitter, i.jitter.p90),
                *(str(count) for count in (i.lost, i.doubled, i.disordered)),
                _quota(each.measurement),
                str(each.tried),
            ]
        )
    return Table(_RESULTS, rows)


def _measured(of: Distribution, *values: float) -> list[str]:
    """Empty where nothing was measured: no latency is not a latency of 0."""
    return [number_text(value) if of.count else "" for value in values]


def _number(each: RunResult) -> str:
    return f" #{each.repeat + 1}" if each.repeat else ""


def _single(found: Sequence[RunResult]) -> str | None:
    return next((each.name for each in found if _SINGLE in each.name.split()), None)


def _single_beside(result: RunResult, found: Sequence[RunResult]) -> float:
    """What the single broker delivered a second just before and just after, on average; then, of itself."""
    single = _single(found)
    if result.name == single:
        return result.indexes.egress_per_s
    at = result.measurement.id
    limits = [each for each in found if each.name == single and each.found]
    same = sorted((each.measurement.id, each.indexes.egress_per_s) for each in limits)
    before = [egress for number, egress in same if number < at][-1:]
    return _mean(before + [egress for number, egress in same if number > at][:1])


def _over_bridges(result: RunResult, found: Sequence[RunResult]) -> str:
    """Beside the same brokers with the same clients, joined by bridges; empty where that was not measured."""
    twin = f"{result.name.partition(' ')[0]} {_BRIDGES}"
    egress = next((each.indexes.egress_per_s for each in found if each.name == twin and each.found), 0.0)
    return f"{result.indexes.egress_per_s / egress:.2f}" if egress else ""


def _ratios_note(reported: Reported) -> list[Part]:
    single = _single(reported.results)
    note = "Delivered is egress by ingress and sp-ratio; a search ends with the highest rate of 0.99 or more."
    beside = (
        f" Ratios are to the egress of {single}, on average just before and just after." if single else ""
    )
    return [Text(note + beside)]


def _quota(measurement: Measurement) -> str:
    quotas = [each.quota for each in measurement.servers]
    return " ".join("none" if each is None else f"{each:.0%}" for each in dict.fromkeys(quotas))


def _warnings(verdicts: Sequence[TrustVerdict]) -> list[Part]:
    doubted = [each for each in verdicts if each.state == DOUBTED]
    return [Text(f"{_named(each)} is {DOUBTED}: {'; '.join(each.reasons)}", warning=True) for each in doubted]


def _trust(verdicts: Sequence[TrustVerdict]) -> Table:
    rows = [
        [
            _named(each),
            each.state,
            "" if each.difference is None else f"{each.difference:.1%}",
            "; ".join(each.reasons),
        ]
        for each in verdicts
    ]
    return Table(("name", "verdict", "runs differ by", "what was seen"), rows, numbers=False)


def _named(verdict: TrustVerdict) -> str:
    return f"{verdict.name} ({verdict.publishers} publishers)"


def _differences(one: Reported, other: Reported) -> Table:
    theirs = {(each.name, each.publishers, each.repeat): each for each in other.results}
    rows = []
    for each in one.results:
        twin = theirs.pop((each.name, each.publishers, each.repeat), None)
        rows.append([each.name + _number(each), str(each.publishers), *_compared(each, twin)])
    rows += [
        [each.name + _number(each), str(each.publishers), *_compared(None, each)] for each in theirs.values()
    ]
    head = ["name", "publishers"]
    for title in ("in/s", "out/s", "latency ms", "p99 ms", "lost"):
        head += [f"{title} A", "B", "change"]
    return Table(head, rows)


def _compared(one: RunResult | None, other: RunResult | None) -> list[str]:
    cells = []
    for value in (
        lambda i: i.ingress_per_s,
        lambda i: i.egress_per_s,
        lambda i: i.latency.mean if i.latency.count else None,
        lambda i: i.latency.p99 if i.latency.count else None,
        lambda i: float(i.lost),
    ):
        a = None if one is None else value(one.indexes)
        b = None if other is None else value(other.indexes)
        change = f"{b / a - 1:+.1%}" if a and b is not None else ""
        cells += ["" if a is None else number_text(a), "" if b is None else number_text(b), change]
    return cells


def _degradation(found: Sequence[RunResult]) -> Table:
    """From the fewest clients to the most (the thesis, Figure 5.13)."""
    names: dict[str, list[RunResult]] = {}
    for each in found:
        names.setdefault(each.name, []).append(each)
    rows = []
    for name, same in names.items():
        few, many = min(same, key=lambda each: each.publishers), max(same, key=lambda each: each.publishers)
        before, after = few.indexes.egress_per_s, many.indexes.egress_per_s
        rows.append(
            [
                name,
                f"{few.publishers} to {many.publishers}",
                number_text(before),
                number_text(after),
                f"{1 - after / before:.2%}" if before else "",
                f"{number_text(few.indexes.latency.mean)} to {number_text(many.indexes.latency.mean)}",
                str(max(each.indexes.lost for each in same)),
            ]
        )
    head = ("name", "pairs", "out/s, fewest", "out/s, most", "degradation", "mean latency ms", "lost")
    return Table(head, rows)


_FAILURE = (
    "name",
    "what was done",
    "out/s before",
    "least",
    "after",
    "below half for s",
    "lost",
)


def _failure_row(reported: Reported, each: RunResult) -> list[str]:
    """Throughput before the first event, the least tenth of a second after it, the window's last fifth."""
    measurement = each.measurement
    begin, end = measurement.window_ns
    first = (measurement.events[0].at_ns - begin) / 1e9
    rows = [
        row
        for row in pictures.timeline(reported.folder, measurement)
        if 0 <= row["bin"] < (end - begin) / 1e8 - 1
    ]
    inside = [(row["bin"] / 10, row["egress"] * 10) for row in rows]
    before = _mean([rate for at, rate in inside if at < first - 0.1])
    after = [(at, rate) for at, rate in inside if at >= first]
    low = [rate for _, rate in after if rate < before / 2]
    return [
        each.name,
        ", ".join(f"{event.what} at {(event.at_ns - begin) / 1e9:.1f} s" for event in measurement.events),
        number_text(before),
        number_text(min((rate for _, rate in after), default=0)),
        number_text(_mean([rate for at, rate in after if at >= 0.8 * measurement.seconds])),
        f"{len(low) / 10:.1f}",
        str(each.indexes.lost),
    ]


def _phases(found: Sequence[RunResult]) -> Table:
    rows = []
    for each in found:
        for phase in each.indexes.phases:
            wait, off = phase.latency, phase.jitter
            rows.append(
                [
                    each.name + _number(each),
                    phase.name,
                    number_text(phase.egress_per_s),
                    *_measured(wait, wait.mean, wait.p99, wait.worst),
                    *_measured(off, off.p50, off.p90, off.p99, off.worst),
                ]
            )
    head = ["name", "when", "out/s", "latency ms", "p99", "worst"]
    return Table([*head, "jitter p50 ms", "p90", "p99", "worst"], rows)


def _near(reported: Reported, each: RunResult, *, folded: bool) -> Section:
    measurement = each.measurement
    drawn = [
        *pictures.throughput(reported.folder, measurement),
        *pictures.distribution(reported.folder, measurement.id),
        *pictures.resources(reported.folder, measurement),
    ]
    title = f"{pictures.full_name(each)}{_number(each)}: measurement {measurement.id}"
    caption = f"{each.name}, {number_text(each.indexes.rate)} messages/s asked; {reported.caption}"
    tables: list[Part] = [_distributions(each.indexes)]
    if each.indexes.usage:
        tables.append(_usage(each.indexes))
    return Section(title, [*tables, *(Chart(svg, caption) for svg in drawn)], folded)


def _distributions(indexes: Indexes) -> Table:
    def row(name: str, d: Distribution) -> list[str]:
        shown = (d.mean, d.deviation, d.least, d.p50, d.p90, d.p99, d.p999, d.worst)
        return [name, str(d.count), *_measured(d, *shown)]

    head = ("milliseconds", "count", "mean", "deviation", "least", "p50", "p90", "p99", "p99.9", "worst")
    return Table(head, [row("latency", indexes.latency), row("jitter", indexes.jitter)])


def _usage(indexes: Indexes) -> Table:
    rows = [
        [each.role, f"{each.cpu:.3f}", f"{each.cpu_worst:.3f}", f"{each.rss_worst / 2**20:.1f}"]
        for each in indexes.usage
    ]
    if indexes.noise is not None:
        rows.append([f"{MACHINE}, others", f"{indexes.noise:.3f}", "", ""])
    return Table(("process", "CPU, cores", "worst", "memory MiB, most"), rows)


def facts(runs: Sequence[tuple[str, RunInfo]]) -> list[Part]:
    """Every fact of each run; of two runs side by side."""
    names: dict[str, list[str]] = {}
    for place, (_, run) in enumerate(runs):
        for group, values in (
            ("scenario", run.scenario),
            ("machine", run.machine),
            ("version", run.versions),
        ):
            for name, value in values.items():
                names.setdefault(f"{group}: {name}", [""] * len(runs))[place] = _shown(value)
        for name in ("commit", "started", "kind"):
            names.setdefault(name, [""] * len(runs))[place] = str(getattr(run, name))
    head = ["fact", *(label or "value" for label, _ in runs)]
    return [Table(head, [[name, *values] for name, values in names.items()], numbers=False)]


def _placement(patterns: Mapping[str, Any]) -> Table:
    """Which servers each pattern has, with their quotas, and which clients are at them."""
    rows = []
    for name, scenario in patterns.items():
        places, clients = [], []
        for place in scenario["places"]:
            quota = f"{place['quota']:.0%}" if place["quota"] else "none"
            places.append(f"{place['broker']} {quota}, front {place['front']} by {place['way']}")
            groups = (
                f"{each['topic']} {each['publishers']}+{each['subscribers']}"
                for each in scenario["groups"]
                if each["place"] == place["name"]
            )
            clients.append(f"{place['name']}: {', '.join(groups)}")
        servers = [f"{places.count(each)} x {each}" for each in dict.fromkeys(places)]
        rows.append([name, scenario["join"], "; ".join(servers), "; ".join(clients)])
    head = ("name", "join", "brokers, with the quota of each process", "publishers + subscribers")
    return Table(head, rows, numbers=False)


def _flat(values: Mapping[str, Any]) -> str:
    """The simple ones; what is nested is in the table of facts."""
    return ", ".join(
        f"{name} {value}" for name, value in values.items() if not isinstance(value, (dict, list))
    )


def _shown(value: Any) -> str:
    """Of many scenarios the names only: all of each is in `run.json`."""
    if isinstance(value, Mapping):
        if all(isinstance(each, Mapping) for each in value.values()):
            return ", ".join(value)
        return ", ".join(f"{name}: {_shown(each)}" for name, each in value.items())
    return "; ".join(map(_shown, value)) if isinstance(value, (list, tuple)) else str(value)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
