"""Plays a scenario once: starts everything, lets the events happen at their times, and keeps what was seen.

Owns the order of all that, and the second-by-second look at the sites. Invariant: a measurement counts only
if every process of the load ended well. Must not know: what the logs mean.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from brokerweave.bench import indexes
from brokerweave.bench.folder import (
    LOAD,
    RECEIVES,
    RESOURCES,
    SENDS,
    Measurement,
    RunEvent,
    RunFolder,
    Times,
    WindowCounts,
    read_log,
)
from brokerweave.bench.load.driver import Progress
from brokerweave.bench.migration import records
from brokerweave.bench.migration.deployment import MigrationDeployment
from brokerweave.bench.migration.load import MigrationLoad
from brokerweave.bench.migration.network import region_network
from brokerweave.bench.migration.procedures import ControllerTimes, Procedure
from brokerweave.bench.migration.records import RunMove, SiteSample
from brokerweave.bench.migration.scenario import EventKind, MigrationScenario, ScenarioEvent, round_trip
from brokerweave.bench.resources import Sampler
from brokerweave.errors import BrokerweaveError, Unavailable

_EVERY = 1.0
"""Seconds between two looks at the sites."""


@dataclass(frozen=True, slots=True)
class PlayOptions:
    procedure: Procedure
    times: ControllerTimes
    policy: str
    kill: bool = False
    """The site that stops is killed; else it gets SIGTERM."""


def play(scenario: MigrationScenario, options: PlayOptions, folder: RunFolder, show: Progress) -> Measurement:
    with ExitStack() as stack:
        show("making the regions")
        network = stack.enter_context(region_network(scenario.regions, round_trip))
        deployment = MigrationDeployment(network, options.procedure, options.times, options.policy)
        stack.enter_context(deployment)
        deployment.prepare(scenario.sites)
        show("starting sites, the controller and gateways")
        for event in scenario.events:
            if event.number == 0:
                for name in event.names:
                    deployment.start_site(name)
        deployment.start_controller()
        deployment.start_gateways(scenario.groups)
        number, path = folder.begin_measurement()
        addresses = {name: (each.host, each.port) for name, each in deployment.gateways.items()}
        load = MigrationLoad(scenario, network, addresses, path)
        stack.callback(load.end)
        player = _Player(scenario, options, deployment, load, show)
        done = player.play(number, path)
    folder.end_measurement(done)
    show(f"{done.name}: {done.counters.sent:,} sent, {done.counters.received:,} received\n")
    return done


class _Player:
    def __init__(
        self,
        scenario: MigrationScenario,
        options: PlayOptions,
        deployment: MigrationDeployment,
        load: MigrationLoad,
        show: Progress,
    ) -> None:
        self._scenario = scenario
        self._options = options
        self._deployment = deployment
        self._load = load
        self._show = show
        self._events: list[RunEvent] = []

    def play(self, number: int, path: Path) -> Measurement:
        deployment, load = self._deployment, self._load
        processes = Sampler(
            {**self._processes(), **{f"{LOAD}{name}": pid for name, pid in load.pids.items()}}
        )
        sites = _SiteWatch(deployment)
        processes.start()
        sites.start()
        try:
            begin, end = self._happen(processes)
            load.results(end)
            moves = run_moves(deployment.moves(), load.label)
            faults = deployment.tracebacks()
            counters = deployment.counters()
            servers = tuple(deployment.servers())
        finally:
            sites.stop()
            processes.stop()
        if faults or counters.get("internal_errors"):
            raise Unavailable(f"an accident in {', '.join(faults) or 'a gateway'}: {counters}")
        records.write(path, "moves", moves)
        records.write(path, "sites", sites.samples)
        records.write(path, "clients", load.clients)
        records.settle(path, load.clients)
        processes.write(path / "resources.arrow")
        found = Measurement(
            id=number,
            name=self._options.procedure.value,
            rate=self._scenario.publishers * self._scenario.rate,
            interval_s=1 / self._scenario.rate,
            times=Times(0.0, end - begin, 0.0),
            window_ns=(int(begin * 1e9), int(end * 1e9)),
            servers=servers,
            events=tuple(self._events),
        )
        return counted(found, path)

    def _processes(self) -> dict[str, int]:
        servers = self._deployment.servers()
        return {f"{each.name}/{role}": pid for each in servers for role, pid in each.pids.items()}

    def _happen(self, processes: Sampler) -> tuple[float, float]:
        """All events; from when to when that was, in monotonic seconds."""
        events = [each for each in self._scenario.events if each.number]
        begin, phase = time.monotonic(), self._scenario.phase
        end = begin + len(events) * phase
        ends = {
            name: begin + place * phase
            for place, event in enumerate(events)
            if event.kind is EventKind.LEAVE
            for name in event.names
        }
        for place, event in enumerate(events):
            time.sleep(max(0.0, begin + place * phase - time.monotonic()))
            self._show(f"event {event.number}: {event.said}")
            self._events.append(RunEvent(time.monotonic_ns(), f"{event.number}: {event.said}"))
            self._do(event, ends, end)
            processes.watch(self._processes())
        return begin, end

    def _do(self, event: ScenarioEvent, ends: dict[str, float], end: float) -> None:
        if event.kind is EventKind.CLIENTS:
            self._load.appear(event.names, ends, end)
        elif event.kind is EventKind.SITE:
            for name in event.names:
                self._deployment.start_site(name)
        elif event.kind is EventKind.STOP:
            for name in event.names:
                self._deployment.stop_site(name, kill=self._options.kill)


def run_moves(rows: Sequence[Mapping[str, Any]], label: str) -> list[RunMove]:
    """What the controller decided (its answer, the latest first), the first first."""
    now = time.monotonic()
    return [_move(row, now, label) for row in reversed(rows)]


def _move(row: Mapping[str, Any], now: float, known: str) -> RunMove:
    label, _, number = str(row["client"]).rpartition("-")
    begin = now - row["seconds_ago"]
    end = 0.0 if row["took"] is None else begin + row["took"]
    return RunMove(
        int(number) if label == known else -1,
        row["origin"],
        row["target"],
        row["cause"],
        row["outcome"],
        int(begin * 1e9),
        int(end * 1e9),
    )


def counted(done: Measurement, path: Path) -> Measurement:
    """With what the logs say, for who only wants to see that all is there."""
    sends = read_log(sorted(path.glob("sends-*.arrow")), SENDS)
    receives = read_log(sorted(path.glob("receives-*.arrow")), RECEIVES)
    found, _ = indexes.compute(done, sends, receives, RESOURCES.empty_table())
    names = WindowCounts.__dataclass_fields__.keys()
    counted = {name: getattr(found, name) for name in names if hasattr(found, name)}
    latency = found.latency
    counts = WindowCounts(
        **counted,
        latency_mean_ms=latency.mean,
        latency_p50_ms=latency.p50,
        latency_p99_ms=latency.p99,
        latency_worst_ms=latency.worst,
    )
    return replace(done, counters=counts)


class _SiteWatch:
    """Looks at the counters of all sites, from a thread of its own."""

    def __init__(self, deployment: MigrationDeployment) -> None:
        self.samples: list[SiteSample] = []
        self._deployment = deployment
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.start: Callable[[], None] = self._thread.start

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(_EVERY):
            with suppress(BrokerweaveError, OSError):
                self._look()

    def _look(self) -> None:
        rows = self._deployment.ask_controller("sites")["sites"]
        clients = {row["site"]: row["clients"] for row in rows}
        for name, node in self._deployment.running_sites():
            with suppress(BrokerweaveError):
                status = node.status()
                traffic = status["traffic"]
                injected = sum(row["injected"] for row in status["injectors"])
                taken = traffic["messages_in"] + injected
                self.samples.append(
                    SiteSample(
                        time.monotonic_ns(), name, taken, traffic["messages_out"], clients.get(name, 0)
                    )
                )
