"""One measurement: starts the workers, lets them begin together, and makes one account of what they counted.

Owns the worker processes; they end with it, whatever happens. Says when the tool itself was the bottleneck.
Must not know: how brokers were started, why this rate was chosen.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from brokerweave.bench import quota
from brokerweave.bench.folder import (
    LOAD,
    Bottleneck,
    EdgeServer,
    Measurement,
    RunEvent,
    RunFolder,
    WindowCounts,
    kept_up,
)
from brokerweave.bench.load.plan import WorkerPlan, worker_plans
from brokerweave.bench.load.process import LoadProcess
from brokerweave.bench.load.sockets import machine_counts
from brokerweave.bench.resources import Sampler
from brokerweave.bench.scenario import Kill, Scenario

BUSY = 0.9
"""A worker that used more of a core than this may have been what limited the measurement, ..."""
LATE = 0.01
"""... and so may a tool that sent a larger part than this late."""
_HEAD_START = 0.3
"""Seconds between the last client's SUBACK and the first message."""

_TRIES = 3
MOVED = "somebody took processes out of their CPU groups"
"""Such a measurement is worth nothing: brokers were free of their quota. It is made again, so many times in
all."""

Progress = Callable[[str], None]


def silent(_text: str) -> None:
    return


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """What is measured: where each place's clients connect, and the processes that serve them."""

    addresses: Mapping[str, tuple[str, int]]
    servers: tuple[EdgeServer, ...] = ()
    control_bytes: Callable[[], int] = lambda: 0
    """What nodes have sent each other so far beside publications."""

    @property
    def processes(self) -> dict[str, int]:
        return {f"{each.name}/{role}": pid for each in self.servers for role, pid in each.pids.items()}


def measure(
    scenario: Scenario,
    target: LoadTarget,
    folder: RunFolder,
    show: Progress = silent,
    name: str = "",
    repeat: int = 0,
) -> Measurement:
    """Run the scenario once against the target; logs and figures are in the folder when this returns."""
    for again in reversed(range(1 if scenario.kills else _TRIES)):
        done, held = _measured(scenario, target, folder, show, name or scenario.name)
        if held or not again:
            break
        show(f"{done.name}: once more, since {MOVED}\n")
    done = replace(done, repeat=repeat)
    folder.end_measurement(done)
    return done


def _measured(
    scenario: Scenario, target: LoadTarget, folder: RunFolder, show: Progress, name: str
) -> tuple[Measurement, bool]:
    """A measurement that does not count yet, and whether all processes stayed in their CPU groups."""
    number, path = folder.begin_measurement()
    quota.all_in_place()
    said = target.control_bytes()
    plans = worker_plans(
        scenario, target.addresses, str(path), f"bench{number}-{time.monotonic_ns() % 10**9}"
    )
    with _workers(plans) as workers:
        for worker in workers:
            worker.expect("ready", 120.0)
        roles = {f"{LOAD}{each.number}": each.process.pid for each in workers}
        sampler = Sampler({**target.processes, **roles})
        counts = machine_counts()
        begin = time.monotonic_ns() + int(_HEAD_START * 1e9)
        sampler.start()
        killer = _Killer(scenario.kills, target.servers, begin + int(scenario.times.warm_up * 1e9))
        try:
            for worker in workers:
                worker.tell(str(begin))
            results = _results(workers, scenario, begin, show)
        finally:
            killer.stop()
            sampler.stop()
    said = target.control_bytes() - said
    held = quota.all_in_place()
    counts = {key: value - counts[key] for key, value in machine_counts().items()}
    sampler.write(path / "resources.arrow")
    times = scenario.times
    window = begin + int(times.warm_up * 1e9), begin + int((times.warm_up + times.measured) * 1e9)
    counters = _counters(results, scenario, _latencies(path, plans))
    done = Measurement(
        id=number,
        name=name,
        rate=scenario.rate,
        interval_s=scenario.interval,
        times=times,
        window_ns=window,
        servers=target.servers,
        counters=counters,
        bottleneck=_bottleneck(results, counters, counts, held),
        events=tuple(killer.events),
        control_bytes=said,
    )
    return done, held


class _Killer:
    """Ends places when their time has come, from a thread of its own; `events` says when that was."""

    def __init__(self, kills: Sequence[Kill], servers: Sequence[EdgeServer], window: int) -> None:
        self.events: list[RunEvent] = []
        self._kills = sorted(kills, key=lambda kill: kill.at)
        self._pids = {server.name: list(server.pids.values()) for server in servers}
        self._window = window
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for kill in self._kills:
            at = self._window / 1e9 + kill.at
            if self._end.wait(max(0.0, at - time.monotonic())):
                return
            for pid in self._pids.get(kill.place, []):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.events.append(RunEvent(time.monotonic_ns(), f"killed {kill.place}"))

    def stop(self) -> None:
        self._end.set()
        self._thread.join()


@contextlib.contextmanager
def _workers(plans: list[WorkerPlan]) -> Iterator[list[LoadProcess]]:
    workers: list[LoadProcess] = []
    try:
        for plan in plans:
            workers.append(LoadProcess(plan.worker))
            workers[-1].tell(json.dumps(plan.to_dict()))
        yield workers
    finally:
        for worker in workers:
            worker.end()


def _results(
    workers: list[LoadProcess], scenario: Scenario, begin: int, show: Progress
) -> list[dict[str, Any]]:
    limit = scenario.times.total + 60
    results = []
    for worker in workers:

        def told(line: dict[str, Any], worker: LoadProcess = worker) -> None:
            if worker is workers[0]:
                seconds = (time.monotonic_ns() - begin) / 1e9
                part = f"{line['sent']:,} sent, {line['received']:,} received by the first of {len(workers)}"
                show(f"{scenario.rate:,.0f} messages/s: {seconds:.0f} of {scenario.times.total:g} s, {part}")

        results.append(worker.expect("result", limit, told))
    show("")
    return results


def _latencies(path: Path, plans: list[WorkerPlan]) -> np.ndarray[Any, Any]:
    """Of all workers, in microseconds; the files were only a way to hand them over."""
    files = [path / f"latencies-{plan.worker}" for plan in plans]
    found = np.concatenate([np.fromfile(file, dtype=np.int64) for file in files])
    for file in files:
        file.unlink()
    return found


def _counters(
    results: list[dict[str, Any]], scenario: Scenario, latencies: np.ndarray[Any, Any]
) -> WindowCounts:
    total = {key: sum(result[key] for result in results) for key in results[0]}
    seconds = scenario.times.measured
    listening = sum(group.subscribers for group in scenario.groups if group.latency)
    some = latencies.size > 0
    p50, p99 = np.percentile(latencies, [50, 99]) / 1000 if some else (0.0, 0.0)
    return WindowCounts(
        sent=total["sent"],
        acknowledged=total["acknowledged"],
        received=total["received"],
        expected=total["expected"],
        lost=total["expected"] - total["taken"],
        doubled=total["doubled"],
        disordered=total["disordered"],
        late_sends=total["late_sends"],
        ingress_per_s=total["sent"] / seconds,
        egress_per_s=total["received"] / seconds,
        kept_up=kept_up(total["expected_of_l"], total["received_by_l"], listening),
        latency_mean_ms=float(latencies.mean()) / 1000 if some else 0.0,
        latency_p50_ms=float(p50),
        latency_p99_ms=float(p99),
        latency_worst_ms=float(latencies.max()) / 1000 if some else 0.0,
    )


def late_reason(counters: WindowCounts) -> str:
    return f"{counters.late_sends / max(1, counters.sent):.1%} of the messages were sent late"


def _bottleneck(
    results: list[dict[str, Any]], counters: WindowCounts, counts: Mapping[str, int], held: bool
) -> Bottleneck:
    reasons = [
        f"load process {number} used {result['cpu_share']:.0%} of a core"
        for number, result in enumerate(results)
        if result["cpu_share"] > BUSY
    ]
    if counters.late_sends > LATE * counters.sent:
        reasons.append(late_reason(counters))
    if not held:
        reasons.append(MOVED)
    return Bottleneck(
        tool=bool(reasons),
        reason="; ".join(reasons),
        # Of both ends where brokers are on this machine; else only our own are known.
        retransmissions=max(counts["retransmissions"], sum(each["retransmissions"] for each in results)),
        zero_windows=counts["zero_windows"],
        drops=counts["drops"],
    )
