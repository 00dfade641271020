"""Runs overlay scenarios in processes of their own, with what each cost.

Owns the processes. Invariant: results do not depend on their number. Must not know: what the scenarios are.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from brokerweave.sim.overlay_run import OverlayOptions, OverlayResult, OverlayRun

PROCESSES = 2


@dataclass(frozen=True, slots=True)
class Measured:
    """A run's result, the seconds of CPU it took, and the most memory that its process ever had, in bytes."""

    result: OverlayResult
    cpu: float
    peak: int


def measure(
    wanted: Sequence[OverlayOptions],
    show: Callable[[str], None],
    processes: int = PROCESSES,
    *,
    fresh: bool = False,
) -> dict[OverlayOptions, Measured]:
    """`fresh`: a new process for each, so that its memory is its own."""
    began, found = time.monotonic(), dict[OverlayOptions, Measured]()
    context = multiprocessing.get_context("fork")
    with context.Pool(processes, maxtasksperchild=1 if fresh else None) as pool:
        for options, measured in pool.imap_unordered(_one, wanted):
            found[options] = measured
            done, spent = len(found), time.monotonic() - began
            rest = f", about {spent / done * (len(wanted) - done):.0f} s to go" if done > PROCESSES else ""
            show(f"{done} of {len(wanted)} runs, {spent:.0f} s{rest}")
    return found


def _one(options: OverlayOptions) -> tuple[OverlayOptions, Measured]:
    gc.collect()
    gc.disable()  # what a run makes lives to its end: the collector would find nothing
    began = time.process_time()
    result = OverlayRun(options).run()
    return options, Measured(result, time.process_time() - began, _peak())


def _peak() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
