"""One run of the load through one way, and boiling many runs down to medians.

Owns the scenario that `brokerweave.bench.load` carries out, and what of its indexes is a result here. Must
not know: how a result is printed or judged.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.relay.scene import Scene, Way
from brokerweave.bench import run_indexes
from brokerweave.bench.figures import Indexes
from brokerweave.bench.folder import RECEIVES, EdgeServer, RunFolder, Times, read_log
from brokerweave.bench.limit import rest
from brokerweave.bench.load.driver import LoadTarget, measure
from brokerweave.bench.load.plan import worker_plans
from brokerweave.bench.scenario import ClientGroup, Place, Scenario
from brokerweave.lab.broker import HOST

NEAR, FAR = "near", "far"
TOPICS, PUBLISHERS, SUBSCRIBERS = 5, 10, 10
"""Of each topic so many clients; one more subscriber of the first may be at another node."""
WARM_UP, COOL_DOWN = 1.0, 0.2
LATENCY_INTERVAL = 0.01


@dataclass(frozen=True, slots=True)
class Load:
    """What to do. Seconds; `rate` is publications a second over all publishers."""

    rate: float
    seconds: float
    tick: float = 0.002
    """Between two rounds of sending."""
    eager: bool = True
    """Read at once whatever arrives, as real clients do. Otherwise once a tick: whoever writes to the load
    then never pays for waking it, as if the clients were on another machine."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run through one way. Latency in milliseconds; CPU in microseconds for each message that went into
    the relay or out of it."""

    relay_us: float
    broker_us: float
    median_ms: float
    p99_ms: float
    held: float
    """Delivered over expected."""
    lost: int
    load_cpu: float
    """Cores that the load itself used, ..."""
    others: float
    """... and cores that processes outside this benchmark used."""
    crossed_per_s: float
    """Delivered at the other node."""
    bottleneck: str = ""
    """Why the load may have been what limited it."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and how far single runs lay from it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


def scenario(load: Load, *, far: bool, latency: bool) -> Scenario:
    """`latency`: with a publisher and a subscriber that measure it, in a process of their own."""
    topics = [f"bench/{number}" for number in range(TOPICS)]
    groups = [ClientGroup(NEAR, topic, PUBLISHERS, SUBSCRIBERS) for topic in topics]
    if far:
        groups.append(ClientGroup(FAR, topics[0], subscribers=1))
    if latency:
        groups.append(ClientGroup(NEAR, "bench/latency", 1, 1, latency=True))
    return Scenario(
        "relay",
        tuple(Place(name, f"{HOST}:1") for name in ((NEAR, FAR) if far else (NEAR,))),
        tuple(groups),
        Times(WARM_UP, load.seconds, COOL_DOWN),
        interval=TOPICS * PUBLISHERS / load.rate,
        latency_interval=LATENCY_INTERVAL,
        workers=1,
        tick=load.tick,
        eager=load.eager,
    )


def target(scene: Scene, way: Way) -> LoadTarget:
    pids = {"broker": scene.broker_pid} | ({"relay": way.relay_pid} if way.relay_pid else {})
    far = {str(number): pid for number, pid in enumerate(way.far_pids)}
    addresses = {NEAR: (HOST, way.port)} | ({FAR: (HOST, way.far_port)} if way.far_port else {})
    return LoadTarget(addresses, (EdgeServer(NEAR, pids=pids), EdgeServer(FAR, pids=far)))


def sample(scene: Scene, way: Way, load: Load, *, latency: bool = True) -> Sample:
    """One run, once broker and relay have next to nothing left to do."""
    wanted, there = scenario(load, far=way.far_port is not None, latency=latency), target(scene, way)
    rest(there, limit=5.0)
    with tempfile.TemporaryDirectory() as path:
        folder = RunFolder(Path(path))
        done = measure(wanted, there, folder)
        (indexes,) = run_indexes.compute(folder)
        crossed = _crossed(wanted, there, folder, done.window_ns) / load.seconds
    return as_sample(indexes, wanted, crossed, done.bottleneck.reason)


def as_sample(indexes: Indexes, wanted: Scenario, crossed: float, reason: str) -> Sample:
    cpu = {each.role: each.cpu for each in indexes.usage}
    near = indexes.egress_per_s - crossed
    relayed = indexes.ingress_per_s + near
    return Sample(
        relay_us=cpu.get(f"{NEAR}/relay", 0.0) / relayed * 1e6,
        broker_us=cpu[f"{NEAR}/broker"] / relayed * 1e6,
        median_ms=indexes.latency.p50,
        p99_ms=indexes.latency.p99,
        held=near / (wanted.rate * SUBSCRIBERS),
        lost=indexes.lost,
        load_cpu=sum(cores for role, cores in cpu.items() if role.startswith("load/")),
        others=max(0.0, indexes.noise or 0.0),
        crossed_per_s=crossed,
        bottleneck=reason,
    )


def _crossed(wanted: Scenario, there: LoadTarget, folder: RunFolder, window: tuple[int, int]) -> int:
    """Deliveries to the subscriber at the other node, in the window."""
    if FAR not in there.addresses:
        return 0
    plans = worker_plans(wanted, there.addresses, "", "")
    address = there.addresses[FAR]
    (client,) = [each for plan in plans for each in plan.clients if (each.host, each.port) == address]
    received = read_log(folder.logs(1, RECEIVES), RECEIVES)
    clients, times = received["client"].to_numpy(), received["received_ns"].to_numpy()
    begin, end = window
    return int(np.count_nonzero((clients == client.number) & (times >= begin) & (times < end)))
