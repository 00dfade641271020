"""The indexes of one measurement from its logs (ILDM 5.1 and 5.2; jitter: the thesis, equation 5-3).

Owns how each figure is computed; what it means is in `bench.folder` and `bench.figures`. Beside the indexes
there are three tables:

    timeline    a row for each tenth of a second, from the window's begin: messages in and out, latency
    latencies   how often each latency was measured: microseconds and count
    resources   CPU (cores) and memory of each role, sample by sample

Invariants: whole columns at a time, in numpy; nothing happens for a single row. A subscriber's deliveries are
in the order of arrival, as `bench.folder` has it. Must not know: Spark, where anything is written, how load
is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from brokerweave.bench.figures import Distribution, EventPhase, Indexes, Usage
from brokerweave.bench.folder import L_CLIENT, LATE_NS, MACHINE, T_CLIENT, Measurement, kept_up

BIN_NS = 100_000_000
"""A row of the timeline."""
_BINS_IN_A_SECOND = 10**9 // BIN_NS
_PERCENTILES = np.array([0.5, 0.9, 0.99, 0.999])

Numbers = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Columns = Mapping[str, NDArray[Any]]


def compute(
    measurement: Measurement, sends: pa.Table, receives: pa.Table, resources: pa.Table
) -> tuple[Indexes, dict[str, pa.Table]]:
    """The indexes, and the tables by their names."""
    window = measurement.window_ns
    sent, received = _columns(sends), _columns(receives)
    first = _first_deliveries(window, sent, received)
    streams = _streams(first.columns)
    used = _resources(window, resources)
    timeline = _timeline(window[0], sent, received, first)
    latencies = np.unique(first.latency_us[first.timed & first.inside], return_counts=True)
    usage = _usage(used)
    jitter = _jitter(sent, first, streams)
    counts = _sent(window, sent) | _delivered(window, received, first, streams) | _lost(window, sent, first)
    indexes = Indexes(
        id=measurement.id,
        name=measurement.name,
        repeat=measurement.repeat,
        rate=measurement.rate,
        **counts,
        sp_ratio=_sp_ratio(window, sent),
        ingress_per_s=counts["sent"] / measurement.seconds,
        egress_per_s=counts["received"] / measurement.seconds,
        ingress_least=_least(window, timeline, "ingress"),
        egress_least=_least(window, timeline, "egress"),
        kept_up=_kept_up(window, sent, received),
        latency=_distribution(*latencies),
        jitter=_distribution(*np.unique(jitter[1], return_counts=True)),
        usage=usage,
        noise=_noise(usage),
        phases=_phases(measurement, received, first, jitter),
    )
    counted = pa.table(dict(zip(("latency_us", "count"), latencies, strict=True)))
    return indexes, {"timeline": timeline, "latencies": counted, "resources": used}


@dataclass(frozen=True, slots=True)
class _Deliveries:
    """Each delivery of a message to a subscriber that had not got it before, in the order of arrival."""

    columns: Columns
    """Its row of the log."""
    doubled: Numbers
    """Further deliveries of the same."""
    sent: Numbers
    """The row of what was sent; -1 for a stray."""
    inside: Mask
    """Was it sent in the window?"""
    timed: Mask
    """Are latency and jitter measured by it?"""
    latency_us: Numbers
    """Whole microseconds that passed. Means nothing for a stray."""


@dataclass(frozen=True, slots=True)
class _Streams:
    """Deliveries by publisher, subscriber and topic, those of each in the order of arrival."""

    order: Numbers
    """Their places among all deliveries."""
    number: Numbers
    """Which stream each is of, ascending."""


def _columns(log: pa.Table) -> Columns:
    return {name: log[name].to_numpy() for name in log.column_names}


def _inside(window: tuple[int, int], times: Numbers) -> Mask:
    return (times >= window[0]) & (times < window[1])


def _key(*columns: NDArray[Any]) -> Numbers:
    """One number for each row: the same for rows that are the same.

    At most the product of how many values each column has. A log has millions of rows and the load tool
    thousands of clients, so even with a client beside publisher and message it stays below 2**63.
    """
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        number, count = _encoded(column)
        key = key * count + number
    return key


def _encoded(values: NDArray[Any]) -> tuple[Numbers, int]:
    """Small numbers in the place of values, and how many: the first value is 0, the first other one 1."""
    coded = pa.array(values).dictionary_encode()
    return coded.indices.to_numpy().astype(np.int64), max(len(coded.dictionary), 1)


def _first_deliveries(window: tuple[int, int], sent: Columns, received: Columns) -> _Deliveries:
    messages = _key(
        np.concatenate([sent["client"], received["publisher"]]),
        np.concatenate([sent["message"], received["message"]]),
    )
    mine, message = np.split(messages, [len(sent["client"])])
    client, clients = _encoded(received["client"])
    got, place, copies = np.unique(message * clients + client, return_index=True, return_counts=True)
    arrival = np.argsort(place)
    row = _rows(mine, got // clients)[arrival]
    columns = {name: column[place[arrival]] for name, column in received.items()}
    # Row -1, what is appended, is that of strays.
    sent_ns = np.append(sent["sent_ns"], 0)[row]
    measures = sent["kind"].max(initial=T_CLIENT)
    return _Deliveries(
        columns=columns,
        doubled=copies[arrival] - 1,
        sent=row,
        inside=(row >= 0) & _inside(window, sent_ns),
        timed=(row >= 0) & ((measures == T_CLIENT) | (columns["kind"] == L_CLIENT)),
        latency_us=((columns["received_ns"] - sent_ns) / 1e3).astype(np.int64),
    )


def _rows(keys: Numbers, wanted: Numbers) -> Numbers:
    """Where each that is wanted is among the keys; -1 if it is not."""
    if not len(keys):
        return np.full(len(wanted), -1)
    order = np.argsort(keys)
    near = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    return np.where(keys[near] == wanted, near, -1)


def _sent(window: tuple[int, int], sent: Columns) -> dict[str, int]:
    inside = _inside(window, sent["sent_ns"])
    ours = inside & (sent["kind"] == T_CLIENT)
    return {
        "sent": int(ours.sum()),
        "acknowledged": int((ours & (sent["acked_ns"] > 0)).sum()),
        "expected": int(sent["copies"][inside].sum()),
        "late_sends": int((inside & (sent["sent_ns"] - sent["due_ns"] > LATE_NS)).sum()),
        "publishers": len(np.unique(sent["client"][ours])),
    }


def _sp_ratio(window: tuple[int, int], sent: Columns) -> float:
    """By topics' publishers and subscribers, as ILDM 5.3 has it: what should be, not what was delivered."""
    ours = _inside(window, sent["sent_ns"]) & (sent["kind"] == T_CLIENT)
    rows = pa.table({name: sent[name][ours] for name in ("topic", "client", "copies")})
    topics = rows.group_by("topic").aggregate([("client", "count_distinct"), ("copies", "max")])
    publishers = topics["client_count_distinct"].to_numpy()
    together = publishers.sum()
    return float((publishers * topics["copies_max"].to_numpy()).sum() / together) if together else 0.0


def _delivered(
    window: tuple[int, int], received: Columns, first: _Deliveries, streams: _Streams
) -> dict[str, int]:
    ours = _inside(window, received["received_ns"]) & (received["kind"] == T_CLIENT)
    return {
        "received": int(ours.sum()),
        "doubled": int(first.doubled[first.inside].sum()),
        "disordered": int((first.inside & _overtaken(first.columns, streams)).sum()),
        "strays": int((first.sent < 0).sum()),
    }


def _lost(window: tuple[int, int], sent: Columns, first: _Deliveries) -> dict[str, int]:
    """Message by message: what one subscriber got too much cannot hide what another missed."""
    got = np.bincount(first.sent[first.sent >= 0], minlength=len(sent["copies"]))
    missing = (sent["copies"] - got)[_inside(window, sent["sent_ns"])]
    return {"lost": int(missing[missing > 0].sum()), "surplus": -int(missing[missing < 0].sum())}


def _kept_up(window: tuple[int, int], sent: Columns, received: Columns) -> float:
    ours = _inside(window, sent["sent_ns"]) & (sent["kind"] == L_CLIENT)
    topics, copies = sent["topic"][ours], sent["copies"][ours]
    subscribers = sum(int(copies[topics == each].max()) for each in np.unique(topics))
    got = _inside(window, received["received_ns"]) & (received["kind"] == L_CLIENT)
    return kept_up(int(copies.sum()), int(got.sum()), subscribers)


def _streams(columns: Columns) -> _Streams:
    stream, _ = _encoded(_key(columns["publisher"], columns["client"], columns["topic"]))
    order = np.argsort(stream, kind="stable")
    return _Streams(order, stream[order])


def _overtaken(columns: Columns, streams: _Streams) -> Mask:
    """Did a message with a higher number come before in the same stream?"""
    # Ranks, since whatever a stray's payload says is its number.
    _, rank = np.unique(columns["message"], return_inverse=True)
    # Each stream begins above the one before it, so that the highest before is one of its own.
    place = streams.number * (rank.max(initial=0) + 1) + rank[streams.order]
    found = np.zeros(len(place), np.bool_)
    found[streams.order[1:]] = np.maximum.accumulate(place)[:-1] > place[1:]
    return found


def _jitter(sent: Columns, first: _Deliveries, streams: _Streams) -> tuple[Numbers, Numbers]:
    """Deliveries by their places, and the jitter of each: (receive of i + 1) - (receive of i) - T, with T as
    the schedule had it; without its sign, in microseconds, rounded."""
    columns, later = first.columns, streams.order[1:]
    since = np.diff(columns["received_ns"][streams.order])
    wanted = (np.diff(streams.number) == 0) & (first.timed & first.inside)[later]
    later, since = later[wanted], since[wanted]
    period = _period_ns(sent, columns["publisher"][later], columns["topic"][later])
    known = ~np.isnan(period)
    off: Floats = np.abs(since - period)[known] / 1e3
    return later[known], np.floor(off).astype(np.int64) + (off % 1 >= 0.5)


def _period_ns(sent: Columns, publisher: NDArray[Any], topic: NDArray[Any]) -> Floats:
    """Of the schedules of these publishers on these topics; NaN for what was sent less than twice."""
    schedule, size = _encoded(
        _key(np.concatenate([sent["client"], publisher]), np.concatenate([sent["topic"], topic]))
    )
    mine, wanted = np.split(schedule, [len(sent["client"])])
    begin, end = np.full(size, np.iinfo(np.int64).max), np.zeros(size, np.int64)
    np.minimum.at(begin, mine, sent["due_ns"])
    np.maximum.at(end, mine, sent["due_ns"])
    times = np.bincount(mine, minlength=size) - 1
    period = np.full(size, np.nan)
    np.divide(end - begin, times, out=period, where=times > 0)
    return period[wanted]


def _distribution(us: Numbers, counts: Numbers) -> Distribution:
    """Of values in ascending order, each with how often it was measured."""
    if not len(us):
        return Distribution()
    ms, upto = us / 1e3, np.cumsum(counts)
    mean = np.average(ms, weights=counts)
    deviation = np.sqrt(np.average((ms - mean) ** 2, weights=counts))
    rank = _PERCENTILES * (upto[-1] - 1)
    below, above = (ms[np.searchsorted(upto, whole(rank), "right")] for whole in (np.floor, np.ceil))
    percentiles = below + (rank % 1) * (above - below)
    return Distribution(int(upto[-1]), *map(float, (mean, deviation, ms[0], *percentiles, ms[-1])))


def _phases(
    measurement: Measurement, received: Columns, first: _Deliveries, jitter: tuple[Numbers, Numbers]
) -> tuple[EventPhase, ...]:
    """Of the window's messages before, during and after what was done; none if nothing was."""
    if not measurement.events:
        return ()
    begin, end = measurement.window_ns
    done = measurement.events[0].at_ns
    settled = max(done, end - (end - begin) // 5)
    egress = received["received_ns"][received["kind"] == T_CLIENT]
    came = np.minimum(first.columns["received_ns"], end - 1)
    later, off = jitter
    found = []
    for name, span in (("before", (begin, done)), ("during", (done, settled)), ("after", (settled, end))):
        if span[0] < span[1]:
            latency = first.latency_us[first.timed & first.inside & _inside(span, came)]
            found.append(
                EventPhase(
                    name,
                    int(_inside(span, egress).sum()) / ((span[1] - span[0]) / 1e9),
                    _distribution(*np.unique(latency, return_counts=True)),
                    _distribution(*np.unique(off[_inside(span, came[later])], return_counts=True)),
                )
            )
    return tuple(found)


def _timeline(begin: int, sent: Columns, received: Columns, first: _Deliveries) -> pa.Table:
    def bins_of(times: Numbers) -> Numbers:
        return (times - begin) // BIN_NS

    ingress, egress = bins_of(sent["sent_ns"]), bins_of(received["received_ns"])
    bins = np.union1d(ingress, egress)

    def counted(rows: Numbers) -> Numbers:
        return np.bincount(np.searchsorted(bins, rows), minlength=len(bins))

    timed = np.searchsorted(bins, bins_of(first.columns["received_ns"][first.timed]))
    latency = first.latency_us[first.timed] / 1e3
    worst = np.full(len(bins), -np.inf)
    np.maximum.at(worst, timed, latency)
    count = np.bincount(timed, minlength=len(bins))
    total = np.bincount(timed, latency, minlength=len(bins))
    none = count == 0
    return pa.table(
        {
            "bin": bins.astype(np.int32),
            "ingress": counted(ingress[sent["kind"] == T_CLIENT]),
            "egress": counted(egress[received["kind"] == T_CLIENT]),
            "latency_ms": pa.array(total / np.maximum(count, 1), mask=none),
            "worst_ms": pa.array(worst, mask=none),
        }
    )


def _least(window: tuple[int, int], timeline: pa.Table, name: str) -> float:
    """The worst whole second of the window. What has no row in the timeline had nothing at all."""
    seconds = (window[1] - window[0]) // 10**9
    bins = timeline["bin"].to_numpy()
    whole = (bins >= 0) & (bins < seconds * _BINS_IN_A_SECOND)
    second = bins[whole] // _BINS_IN_A_SECOND
    counts = np.bincount(second, timeline[name].to_numpy()[whole], minlength=seconds)
    return float(counts.min()) if seconds else 0.0


def _resources(window: tuple[int, int], resources: pa.Table) -> pa.Table:
    resources = resources.sort_by([("role", "ascending"), ("at_ns", "ascending")])
    role, at, cpu = (resources[name].to_numpy() for name in ("role", "at_ns", "cpu_s"))
    begins = np.append(True, role[1:] != role[:-1])[: len(role)]
    passed = np.diff(at, prepend=0) / 1e9
    used = np.diff(cpu, prepend=0.0)
    # A process that was started anew begins at zero again.
    known = ~begins & (passed > 0) & (used >= 0)
    cores = np.divide(used, passed, out=np.zeros(len(used)), where=known)
    return pa.table(
        {
            "role": resources["role"],
            "second": (at - window[0]) / 1e9,
            "inside": _inside(window, at),
            "cpu": pa.array(cores, mask=~known),
            "passed": pa.array(passed, mask=begins),
            "rss": resources["rss"],
        }
    )


def _usage(resources: pa.Table) -> tuple[Usage, ...]:
    rows = resources.filter(resources["inside"]).drop_null()
    columns = {name: rows[name].to_numpy() for name in ("role", "cpu", "passed", "rss")}
    found = []
    for role in np.unique(columns["role"]):
        cpu, passed, rss = (columns[name][columns["role"] == role] for name in ("cpu", "passed", "rss"))
        mean = np.average(cpu, weights=passed)
        found.append(Usage(str(role), float(mean), float(cpu.max()), int(rss.max())))
    return tuple(found)


def _noise(usage: tuple[Usage, ...]) -> float | None:
    machine = next((each.cpu for each in usage if each.role == MACHINE), None)
    known = sum(each.cpu for each in usage if each.role != MACHINE)
    return None if machine is None else max(machine - known, 0.0)
