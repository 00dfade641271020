"""Running load and latency against one way, and boiling many runs down to medians.

Owns the child processes of the load and the arithmetic over their results. Must not know: how a result is
printed or judged.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.relay.latency import LatencyResult, LatencySpec
from benchmarks.relay.load import LoadResult, LoadSpec
from benchmarks.relay.meter import cpu_seconds
from benchmarks.relay.scene import Scene, Way


@dataclass(frozen=True, slots=True)
class Sample:
    """One run through one way."""

    load: LoadResult
    latency: LatencyResult

    @property
    def relayed(self) -> int:
        """Messages that went into the relay and out of it: publications and deliveries."""
        return self.load.published + self.load.delivered

    @property
    def relay_us(self) -> float:
        """Microseconds of the relay's CPU for each relayed message."""
        return self.load.cpu.get("relay", 0.0) / self.relayed * 1e6

    @property
    def broker_us(self) -> float:
        return self.load.cpu["broker"] / self.relayed * 1e6


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and how far single runs lay from it."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))


def watch_list(scene: Scene, way: Way) -> dict[str, int]:
    far = {f"far {number}": pid for number, pid in enumerate(way.far_pids)}
    return {"broker": scene.broker_pid} | ({"relay": way.relay_pid} if way.relay_pid else {}) | far


def sample(scene: Scene, way: Way, **wanted: float) -> Sample:
    """Load and latency together. `wanted`: fields of `LoadSpec` (rate, seconds, tick, eager)."""
    settle(scene, way)
    load = _start_load(scene, way, wanted)
    latency = _child("latency", asdict(LatencySpec(port=way.port, seconds=wanted["seconds"])))
    limit = wanted["seconds"] + 60
    return Sample(LoadResult(**_result(load, limit)), LatencyResult(**_result(latency, limit)))


def load_only(scene: Scene, way: Way, **wanted: float) -> LoadResult:
    settle(scene, way)
    return LoadResult(**_result(_start_load(scene, way, wanted), wanted["seconds"] + 60))


def _start_load(scene: Scene, way: Way, wanted: dict[str, Any]) -> subprocess.Popen[str]:
    spec = LoadSpec(port=way.port, far_port=way.far_port, watch=watch_list(scene, way), **wanted)
    return _child("load", asdict(spec))


def settle(scene: Scene, way: Way, limit: float = 5.0) -> None:
    """Wait until broker and relay have next to nothing left to do."""
    pids = watch_list(scene, way).values()
    end = time.monotonic() + limit
    before = sum(map(cpu_seconds, pids))
    while time.monotonic() < end:
        time.sleep(0.1)
        now = sum(map(cpu_seconds, pids))
        if now - before < 0.002:
            return
        before = now


def _child(module: str, spec: dict[str, Any]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", f"benchmarks.relay.{module}", json.dumps(spec)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _result(child: subprocess.Popen[str], limit: float) -> dict[str, Any]:
    try:
        output, _ = child.communicate(timeout=limit)
    except BaseException:
        child.kill()
        child.wait()
        raise
    if child.returncode != 0:
        raise RuntimeError(f"a load process ended with {child.returncode}")
    result: dict[str, Any] = json.loads(output)
    return result
