"""Runs of the benchmark system that never ran: logs with known losses, doubles, disorder, latencies, limits.

What is counted here is counted delivery by delivery in plain Python, so it can judge what Spark computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow as pa

from brokerweave.bench.folder import (
    L_CLIENT,
    LATE_NS,
    MACHINE,
    RECEIVES,
    RESOURCES,
    SENDS,
    T_CLIENT,
    Bottleneck,
    EdgeServer,
    Measurement,
    RunEvent,
    RunFolder,
    RunInfo,
    Times,
    WindowCounts,
    kept_up,
    log_writer,
)

SECOND = 10**9
BEGIN = 5_000 * SECOND
"""When every synthetic measurement's window begins."""
TIMES = Times(0.5, 2.0, 0.5)
NO_BOTTLENECK = Bottleneck()
RUN = RunInfo(
    kind="patterns",
    scenario={"topics": 2, "publishers": 3, "subscribers": 2, "payload": 32, "qos": 0, "quota": 0.1},
    machine={"processor": "a processor", "cores": 2, "memory": "23 GiB"},
    versions={"brokerweave": "0.1.0", "mosquitto": "2.0.21"},
    commit="0123abc",
    started="2026-01-02T03:04:05+00:00",
)


@dataclass(frozen=True)
class Recipe:
    """One measurement. Times are in seconds, latencies in milliseconds, faults are shares of deliveries."""

    name: str = "A sf"
    rate: float = 300.0
    limit: float = 1e9
    """Messages in a second that get through; the rest waits."""
    repeat: int = 0
    topics: int = 2
    publishers: int = 3
    subscribers: int = 2
    l_clients: bool = True
    times: Times = TIMES
    latency_ms: float = 2.0
    lose: float = 0.0
    double: float = 0.0
    swap: float = 0.0
    late: float = 0.0
    outage_s: tuple[float, float] | None = None
    """A part of the window in which nothing is delivered; what was sent then comes at its end."""
    others_cores: float = 0.02
    bottleneck: Bottleneck = NO_BOTTLENECK
    events: tuple[RunEvent, ...] = ()
    seed: int = 1


@dataclass
class _Logs:
    sends: list[tuple[int, ...]] = field(default_factory=list)
    receives: list[tuple[int, ...]] = field(default_factory=list)


def write_run(path: Path, recipes: Iterable[Recipe], run: RunInfo = RUN) -> RunFolder:
    """A whole run's folder, as the load tool would leave it."""
    folder = RunFolder(path)
    folder.write_run(run)
    for recipe in recipes:
        number, where = folder.begin_measurement()
        logs = _made(recipe)
        # Two workers: one has the even clients, one the odd.
        for worker in range(2):
            write_log(where / f"sends-{worker}.arrow", SENDS, [r for r in logs.sends if r[0] % 2 == worker])
            rows = [r for r in logs.receives if r[0] % 2 == worker]
            write_log(where / f"receives-{worker}.arrow", RECEIVES, rows)
        write_log(where / "resources.arrow", RESOURCES, _resources(recipe))
        folder.end_measurement(_measurement(number, recipe, logs))
    return folder


def truth(folder: RunFolder) -> list[WindowCounts]:
    return [measurement.counters for measurement in folder.measurements()]


def _window(recipe: Recipe) -> tuple[int, int]:
    return BEGIN, BEGIN + int(recipe.times.measured * SECOND)


def _made(recipe: Recipe) -> _Logs:
    random = Random(recipe.seed)
    logs = _Logs()
    senders = recipe.topics * recipe.publishers
    period = int(SECOND * senders / recipe.rate)
    for topic in range(recipe.topics):
        listeners = [1000 + topic * 100 + number for number in range(recipe.subscribers)]
        for number in range(recipe.publishers):
            publisher = topic * recipe.publishers + number
            first = publisher * period // senders
            _stream(logs, recipe, random, (publisher, topic, T_CLIENT), (first, period), listeners)
    if recipe.l_clients:
        stream = (900, recipe.topics, L_CLIENT)
        _stream(logs, recipe, random, stream, (0, SECOND // 20), [1900, 1901, 1903])
    # Messages of all publishers come as they come; the log has them in the order of arrival.
    logs.receives.sort(key=lambda row: row[5])
    return logs


def _stream(
    logs: _Logs,
    recipe: Recipe,
    random: Random,
    who: tuple[int, int, int],
    schedule: tuple[int, int],
    listeners: Sequence[int],
) -> None:
    publisher, topic, kind = who
    first, period = schedule
    begin = BEGIN - int(recipe.times.warm_up * SECOND)
    end = BEGIN + int((recipe.times.measured + recipe.times.cool_down) * SECOND)
    arrivals: dict[int, list[int]] = {each: [] for each in listeners}
    for message, due in enumerate(range(begin + first, end, period)):
        sent = due + random.randrange(1000, 90_000)
        if random.random() < recipe.late:
            sent += LATE_NS
        acked = sent + 400_000 if random.random() < 0.9 else 0
        logs.sends.append((publisher, message, topic, kind, due, sent, acked, len(listeners)))
        # Beyond the limit a queue grows for as long as the load lasts.
        slower = max(recipe.rate / recipe.limit, 1.0) if kind == T_CLIENT else 1.0
        for listener in listeners:
            delay = int(1e6 * recipe.latency_ms * random.lognormvariate(0, 0.4))
            arrivals[listener].append(_after_outage(recipe, begin + int((sent - begin) * slower) + delay))
    for listener, times in arrivals.items():
        times = _in_order(times)
        for message in range(1, len(times)):
            if random.random() < recipe.swap:
                times[message - 1], times[message] = times[message], times[message - 1]
        for message, at in enumerate(times):
            if random.random() >= recipe.lose:
                logs.receives.append((listener, publisher, message, topic, kind, at))
            if random.random() < recipe.double:
                logs.receives.append((listener, publisher, message, topic, kind, at + 300_000))


def _in_order(times: list[int]) -> list[int]:
    ordered, last = [], 0
    for at in times:
        last = max(at, last + 1)
        ordered.append(last)
    return ordered


def _after_outage(recipe: Recipe, at: int) -> int:
    if recipe.outage_s is None:
        return at
    start, end = (BEGIN + int(each * SECOND) for each in recipe.outage_s)
    return end + (at - start) // 50 if start <= at < end else at


def _resources(recipe: Recipe) -> list[tuple[int, str, float, int]]:
    shares = {"site1/broker": 0.1, "site1/node": 0.08, "load/0": 0.5}
    shares[MACHINE] = sum(shares.values()) + recipe.others_cores
    rows = []
    for tenth in range(-5, int(10 * recipe.times.measured) + 6):
        at = BEGIN + tenth * SECOND // 10
        wave = 1 + 0.01 * (tenth % 7)
        rows += [
            (at, role, share * (tenth + 10) / 10, int(wave * 2e7 * (1 + number)))
            for number, (role, share) in enumerate(shares.items())
        ]
    return rows


def _measurement(number: int, recipe: Recipe, logs: _Logs) -> Measurement:
    return Measurement(
        id=number,
        name=recipe.name,
        rate=recipe.rate,
        interval_s=recipe.topics * recipe.publishers / recipe.rate,
        times=recipe.times,
        window_ns=_window(recipe),
        servers=(EdgeServer("site1", 0.1, {"broker": 11, "node": 12}),),
        counters=count(logs.sends, logs.receives, _window(recipe)),
        bottleneck=recipe.bottleneck,
        events=recipe.events,
        repeat=recipe.repeat,
    )


def count(
    sends: Sequence[tuple[int, ...]], receives: Sequence[tuple[int, ...]], window: tuple[int, int]
) -> WindowCounts:
    """The counters by their definitions, one row after another."""
    begin, end = window
    sent = {(row[0], row[1]): row for row in sends}
    ours = [row for row in sends if begin <= row[5] < end]
    ours_t = [row for row in ours if row[3] == T_CLIENT]
    timing = {L_CLIENT} if any(row[3] == L_CLIENT for row in sends) else {T_CLIENT}
    received = sum(1 for row in receives if row[4] == T_CLIENT and begin <= row[5] < end)
    had: set[tuple[int, int, int]] = set()
    highest: dict[tuple[int, int, int], int] = {}
    doubled = disordered = first = 0
    latencies = []
    for client, publisher, message, topic, kind, at in receives:
        sent_ns = sent[publisher, message][5]
        inside = begin <= sent_ns < end
        if (client, publisher, message) in had:
            doubled += inside
            continue
        had.add((client, publisher, message))
        first += inside
        disordered += inside and highest.get((client, publisher, topic), -1) > message
        highest[client, publisher, topic] = max(highest.get((client, publisher, topic), -1), message)
        if inside and kind in timing:
            latencies.append((at - sent_ns) // 1000 / 1e3)
    latencies.sort()
    expected = sum(row[7] for row in ours)
    seconds = (end - begin) / SECOND
    owed_to_l = [row[7] for row in ours if row[3] == L_CLIENT]
    got_by_l = sum(1 for row in receives if row[4] == L_CLIENT and begin <= row[5] < end)
    return WindowCounts(
        sent=len(ours_t),
        acknowledged=sum(row[6] > 0 for row in ours_t),
        received=received,
        expected=expected,
        lost=expected - first,
        doubled=doubled,
        disordered=disordered,
        late_sends=sum(row[5] - row[4] > LATE_NS for row in ours),
        ingress_per_s=len(ours_t) / seconds,
        egress_per_s=received / seconds,
        kept_up=kept_up(sum(owed_to_l), got_by_l, max(owed_to_l, default=0)),
        latency_mean_ms=sum(latencies) / len(latencies),
        latency_p50_ms=_percentile(latencies, 0.5),
        latency_p99_ms=_percentile(latencies, 0.99),
        latency_worst_ms=latencies[-1],
    )


def _percentile(ordered: Sequence[float], part: float) -> float:
    rank = part * (len(ordered) - 1)
    below = int(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (rank - below) * (ordered[above] - ordered[below])


def write_log(path: Path, schema: pa.Schema, rows: Sequence[tuple[object, ...]]) -> None:
    with log_writer(path, schema) as writer:
        for start in range(0, len(rows), 5000):
            columns = list(zip(*rows[start : start + 5000], strict=True))
            writer.write_batch(pa.record_batch([pa.array(c) for c in columns], schema=schema))
