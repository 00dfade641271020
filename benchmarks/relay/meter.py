"""CPU time and memory of other processes, and holding one of them to a share of a core.

Owns reading /proc and CPU control groups (v1). Linux only. Where groups are not writable `hold` and
`preferred` say so in what they yield, and the benchmark goes on without.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup/cpu")
_PERIOD_US = 10_000  # short, so that a held process never freezes for long
_HIGHEST_SHARES = 262_144
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of a process so far, to the nanosecond where the kernel tells."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def cpu_split(pid: int) -> tuple[float, float]:
    """(user, system) seconds of a process, in the kernel's coarse ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / _TICKS, int(fields[12]) / _TICKS


def machine_busy_seconds() -> float:
    """CPU time of everything on this machine so far, with what a hypervisor took from it."""
    user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = map(
        int, Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) / _TICKS


def resident_bytes(pid: int) -> int:
    """Memory of a process in RAM. What the kernel keeps for its sockets is not in it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no VmRSS line for process {pid}")


@contextlib.contextmanager
def hold(pid: int, share_of_core: float) -> Iterator[bool]:
    """Hold a process to a share of a core while the block runs; yields whether that was possible."""
    quota = {"cpu.cfs_period_us": _PERIOD_US, "cpu.cfs_quota_us": round(_PERIOD_US * share_of_core)}
    with _grouped(pid, quota) as possible:
        yield possible


@contextlib.contextmanager
def preferred() -> Iterator[bool]:
    """Let this process and its children go before everybody else on the machine; yields whether they do."""
    with _grouped(os.getpid(), {"cpu.shares": _HIGHEST_SHARES}) as possible:
        yield possible


@contextlib.contextmanager
def _grouped(pid: int, settings: dict[str, int]) -> Iterator[bool]:
    """Put a process into a new group inside this process's own, and back when the block ends."""
    parent = _own_group()
    group = parent / f"brokerweave-bench-{pid}"
    try:
        group.mkdir()
        for name, value in settings.items():
            (group / name).write_text(str(value))
        (group / "cgroup.procs").write_text(str(pid))
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):
            (parent / "cgroup.procs").write_text(str(pid))
        _remove(group)


def _remove(group: Path) -> None:
    """A group stays busy for a moment after its last process ended."""
    for _ in range(30):
        with contextlib.suppress(OSError):
            group.rmdir()
            return
        time.sleep(0.1)


def _own_group() -> Path:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return _GROUPS / path.lstrip("/")
    return _GROUPS
