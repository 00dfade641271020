"""CPU time and memory of the processes in a measurement, and of the machine, read at intervals while it runs.

Owns reading /proc (Linux only) and `resources.arrow`. Invariant: a process that ended has no more rows, and
disturbs nobody else's. Must not know: what the processes are.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from brokerweave.bench.folder import MACHINE, RESOURCES, log_writer

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads that a process has, to the nanosecond where the kernel tells."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # threads come and go
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def resident_bytes(pid: int) -> int:
    """Memory of a process in RAM. What the kernel keeps for its sockets is not in it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no VmRSS line for process {pid}")


def machine_busy_seconds() -> float:
    """CPU time of everything on this machine so far, with what a hypervisor took from it."""
    user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = map(
        int, Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) / _TICKS


def machine_memory() -> int:
    """Bytes of memory in use."""
    found = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return (int(found["MemTotal"].split()[0]) - int(found["MemAvailable"].split()[0])) * 1024


class Sampler:
    """Reads from `start` to `stop`, in a thread; `processes` maps roles to process ids."""

    def __init__(self, processes: Mapping[str, int], every: float = 0.5) -> None:
        self._processes = dict(processes)
        self._every = every
        self._rows: list[tuple[int, str, float, int]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def watch(self, processes: Mapping[str, int]) -> None:
        """These as well, from now on."""
        self._processes = {**self._processes, **processes}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        self._sample()
        while not self._end.wait(self._every):
            self._sample()
        self._sample()

    def _sample(self) -> None:
        now = time.monotonic_ns()
        for role, pid in self._processes.items():
            try:
                self._rows.append((now, role, cpu_seconds(pid), resident_bytes(pid)))
            except OSError:
                continue
        self._rows.append((now, MACHINE, machine_busy_seconds(), machine_memory()))

    def write(self, path: Path) -> None:
        columns = [list(column) for column in zip(*self._rows, strict=True)] or [[], [], [], []]
        with log_writer(path, RESOURCES) as writer:
            writer.write_batch(pa.record_batch([pa.array(c) for c in columns], schema=RESOURCES))
