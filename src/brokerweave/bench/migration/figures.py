"""What a migration run comes to: latency by topic and phase, moves and the gaps they made, load of the sites.

Owns how each figure is computed. A *phase* is the time from one event to the next. The *gap* of a move is the
longest pause between two deliveries to the client, from the order to a second after the move's end; the usual
time between two messages is part of it. Beside the figures there are four tables:

    subscribers   a row for each: what it was owed, what it lacks, what came twice
    topics        a row for each second and topic: deliveries, mean latency
    sites         a row for each second and site: messages in and out, clients
    moves         a row for each move that ended, with its gap

Invariants: whole columns at a time; nothing is judged here. Must not know: Spark, files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from brokerweave.bench.folder import Measurement
from brokerweave.bench.migration.checker import SubscriberVerdict, verdicts
from brokerweave.bench.migration.scenario import round_trip

SECOND = 1_000_000_000
Numbers = NDArray[np.int64]
MOST_TOPICS = 12
"""That are told apart by phase: a storm has one for each client."""
_SETTLED = 0.4
"""The last part of a phase, in which what the event caused is over."""


@dataclass(frozen=True, slots=True)
class TopicPhase:
    """Latency in milliseconds; "settled": of the last part of the phase alone."""

    topic: str
    deliveries: int
    mean: float
    p99: float
    settled_p50: float
    settled_p99: float


@dataclass(frozen=True, slots=True)
class MigrationPhase:
    event: str
    moves: int
    last_move_s: float
    """After the event; 0 if there were none."""
    clients: Mapping[str, int]
    """At each site, at the end of the phase."""
    taken: Mapping[str, int]
    """Messages that each site took in the settled part, from clients and other sites."""
    uneven: float
    """Of the clients at sites that are equally near to some group: the largest difference between two sites,
    as a share of all of them. Algorithm 1 moves nobody if it is at most theta (0.1)."""
    topics: Sequence[TopicPhase]


@dataclass(frozen=True, slots=True)
class MoveFigures:
    """Seconds for `took`, milliseconds for gaps."""

    done: int = 0
    refused: int = 0
    failed: int = 0
    took_p50: float = 0.0
    took_worst: float = 0.0
    gaps: int = 0
    """Moves of subscribers, of which a gap is known."""
    gap_p50: float = 0.0
    gap_p99: float = 0.0
    gap_worst: float = 0.0


@dataclass(frozen=True, slots=True)
class Places:
    """Where sites and groups are."""

    sites: Mapping[str, str] = field(default_factory=dict)
    """Regions by site."""
    groups: Sequence[str] = ()
    """Regions of groups."""

    def uneven(self, clients: Mapping[str, int]) -> float:
        found = 0.0
        for region in set(self.groups):
            trips = {name: round_trip(region, self.sites[name]) for name in clients if name in self.sites}
            nearest = min(trips.values(), default=0.0)
            counts = [clients[name] for name, trip in trips.items() if trip == nearest]
            if sum(counts):
                found = max(found, (max(counts) - min(counts)) / sum(counts))
        return found


@dataclass(frozen=True, slots=True)
class MigrationFigures:
    name: str
    qos: int
    subscribers: Sequence[SubscriberVerdict]
    moves: MoveFigures
    phases: Sequence[MigrationPhase]

    @property
    def lost(self) -> int:
        return sum(each.lost for each in self.subscribers)

    @property
    def doubled(self) -> int:
        return sum(each.doubled for each in self.subscribers)

    @property
    def disordered(self) -> int:
        return sum(each.disordered for each in self.subscribers)

    @property
    def owed(self) -> int:
        return sum(each.owed for each in self.subscribers)

    @property
    def lost_share(self) -> float:
        """Mean over subscribers of the part that each lacks (EMMA: 0.43 %)."""
        parts = [each.lost / each.owed for each in self.subscribers if each.owed]
        return sum(parts) / len(parts) if parts else 0.0

    def to_dict(self) -> dict[str, Any]:
        totals = {name: getattr(self, name) for name in ("owed", "lost", "doubled", "disordered")}
        return {**asdict(self), **totals, "lost_share": self.lost_share}


@dataclass(frozen=True, slots=True)
class RunLogs:
    """All that a measurement left behind."""

    sends: pa.Table
    receives: pa.Table
    moves: pa.Table
    sites: pa.Table
    clients: pa.Table


def compute(
    measurement: Measurement, logs: RunLogs, topics: Sequence[str], qos: int, places: Places | None = None
) -> tuple[MigrationFigures, dict[str, pa.Table]]:
    judged = verdicts(logs.sends, logs.receives, logs.clients, qos)
    deliveries = _ArrivedMessages(logs)
    moves = _moves(measurement, logs, deliveries)
    sites = _sites(measurement, logs.sites)
    marks = [event.at_ns for event in measurement.events] + [measurement.window_ns[1]]
    phases = [
        _phase(event.what, (begin, end), deliveries, moves, logs.sites, topics, places or Places())
        for event, begin, end in zip(measurement.events, marks[:-1], marks[1:], strict=True)
    ]
    figures = MigrationFigures(measurement.name, qos, judged, _move_figures(moves), phases)
    tables = {
        "subscribers": pa.Table.from_pylist([asdict(each) for each in judged]) if judged else pa.table({}),
        "topics": _topics(measurement, deliveries, topics),
        "sites": sites,
        "moves": moves,
    }
    return figures, tables


class _ArrivedMessages:
    """All that came, in the order of arrival at each subscriber."""

    def __init__(self, logs: RunLogs) -> None:
        sends, receives = logs.sends, logs.receives
        self.client: NDArray[np.int32] = receives["client"].to_numpy()
        self.topic: NDArray[np.int32] = receives["topic"].to_numpy()
        self.at: Numbers = receives["received_ns"].to_numpy()
        wanted = _keys(receives["publisher"].to_numpy(), receives["message"].to_numpy())
        known = _keys(sends["client"].to_numpy(), sends["message"].to_numpy())
        order = np.argsort(known)
        near = order[np.minimum(np.searchsorted(known, wanted, sorter=order), max(len(known) - 1, 0))]
        self.latency_ms = (self.at - sends["sent_ns"].to_numpy()[near]) / 1e6

    def between(self, begin: float, end: float) -> NDArray[np.bool_]:
        return (self.at >= begin) & (self.at < end)


def _keys(publisher: NDArray[np.int32], message: Numbers) -> Numbers:
    return publisher.astype(np.int64) << 32 | message


def _phase(
    said: str,
    span: tuple[int, int],
    deliveries: _ArrivedMessages,
    moves: pa.Table,
    sites: pa.Table,
    topics: Sequence[str],
    places: Places,
) -> MigrationPhase:
    begin, end = span
    settled = int(end - (end - begin) * _SETTLED)
    began, ended = moves["begin_ns"].to_numpy(), moves["end_ns"].to_numpy()
    mine = ended[(began >= begin) & (began < end)]
    rows = [row for row in sites.to_pylist() if begin <= row["at_ns"] < end]
    last = {row["site"]: row["clients"] for row in rows}
    taken = {}
    for site in last:
        counts = [row["in"] for row in rows if row["site"] == site and row["at_ns"] >= settled]
        taken[site] = max(counts, default=0) - min(counts, default=0)
    return MigrationPhase(
        said,
        len(mine),
        float(mine.max(initial=begin) - begin) / 1e9,
        last,
        taken,
        places.uneven({row["site"]: row["clients"] for row in rows if row["at_ns"] >= settled}),
        [
            each
            for number, topic in enumerate(topics)
            if (each := _topic_phase(number, topic, (begin, settled, end), deliveries)).deliveries
        ]
        if len(topics) <= MOST_TOPICS
        else [],
    )


def _topic_phase(
    number: int, topic: str, span: tuple[int, int, int], deliveries: _ArrivedMessages
) -> TopicPhase:
    begin, settled, end = span
    mine = deliveries.topic == number
    whole = deliveries.latency_ms[mine & deliveries.between(begin, end)]
    late = deliveries.latency_ms[mine & deliveries.between(settled, end)]
    return TopicPhase(
        topic,
        len(whole),
        float(whole.mean()) if len(whole) else 0.0,
        _percentile(whole, 99),
        _percentile(late, 50),
        _percentile(late, 99),
    )


def _percentile(values: NDArray[np.float64], percent: float) -> float:
    return float(np.percentile(values, percent)) if len(values) else 0.0


def _moves(measurement: Measurement, logs: RunLogs, deliveries: _ArrivedMessages) -> pa.Table:
    """Those that began while it was measured and ended, each with its gap; NaN if none is known."""
    begin, end = measurement.window_ns
    subscribers = {row["client"] for row in logs.clients.to_pylist() if not row["publishes"]}
    rows = [
        {**row, "gap_ms": _gap(row, deliveries) if row["client"] in subscribers else float("nan")}
        for row in logs.moves.to_pylist()
        if begin <= row["begin_ns"] < end and row["end_ns"]
    ]
    schema = logs.moves.schema.append(pa.field("gap_ms", pa.float64()))
    return pa.Table.from_pylist(rows, schema=schema)


def _gap(move: Mapping[str, Any], deliveries: _ArrivedMessages) -> float:
    at = deliveries.at[deliveries.client == move["client"]]
    first = max(np.searchsorted(at, move["begin_ns"]) - 1, 0)
    seen = at[first : np.searchsorted(at, move["end_ns"] + SECOND) + 1]
    return float(np.diff(seen).max()) / 1e6 if len(seen) > 1 else float("nan")


def _move_figures(moves: pa.Table) -> MoveFigures:
    outcome = np.array(moves["outcome"].to_pylist(), dtype=object)
    done = outcome == "done"
    took = (moves["end_ns"].to_numpy() - moves["begin_ns"].to_numpy())[done] / 1e9
    gaps = moves["gap_ms"].to_numpy()[done]
    gaps = gaps[~np.isnan(gaps)]
    return MoveFigures(
        int(np.count_nonzero(done)),
        int(np.count_nonzero(outcome == "refused")),
        int(np.count_nonzero(outcome == "failed")),
        _percentile(took, 50),
        _percentile(took, 100),
        len(gaps),
        _percentile(gaps, 50),
        _percentile(gaps, 99),
        _percentile(gaps, 100),
    )


def _topics(measurement: Measurement, deliveries: _ArrivedMessages, topics: Sequence[str]) -> pa.Table:
    second = (deliveries.at - measurement.window_ns[0]) // SECOND
    rows = pa.table({"second": second, "topic": deliveries.topic, "latency_ms": deliveries.latency_ms})
    found = rows.group_by(["second", "topic"]).aggregate([("latency_ms", "mean"), ("latency_ms", "count")])
    names = pa.array([topics[number] for number in found["topic"].to_pylist()], pa.string())
    made = pa.table(
        {
            "second": found["second"],
            "topic": names,
            "latency_ms": found["latency_ms_mean"],
            "deliveries": found["latency_ms_count"],
        }
    )
    return made.sort_by([("topic", "ascending"), ("second", "ascending")])


def _sites(measurement: Measurement, samples: pa.Table) -> pa.Table:
    """Messages a second, between two looks."""
    rows: list[dict[str, Any]] = []
    before: dict[str, dict[str, Any]] = {}
    for row in samples.to_pylist():
        last = before.get(row["site"])
        before[row["site"]] = row
        if last is not None:
            seconds = (row["at_ns"] - last["at_ns"]) / 1e9
            rows.append(
                {
                    "second": (row["at_ns"] - measurement.window_ns[0]) / 1e9,
                    "site": row["site"],
                    "in_per_s": (row["in"] - last["in"]) / seconds,
                    "out_per_s": (row["out"] - last["out"]) / seconds,
                    "clients": row["clients"],
                }
            )
    names = [("second", pa.float64()), ("site", pa.string()), ("in_per_s", pa.float64())]
    schema = pa.schema([*names, ("out_per_s", pa.float64()), ("clients", pa.int32())])
    return pa.Table.from_pylist(rows, schema=schema)
