"""CPU time and memory of other processes, and holding one of them to a share of a core, as this benchmark
wants it.

The reading and the groups are `brokerweave.bench`'s. Where groups are not writable `hold` and `preferred` say
so in what they yield, and the benchmark goes on without.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from brokerweave.bench.quota import Quotas
from brokerweave.bench.resources import cpu_seconds, machine_busy_seconds, resident_bytes

__all__ = ["cpu_seconds", "cpu_split", "hold", "machine_busy_seconds", "preferred", "resident_bytes"]

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_split(pid: int) -> tuple[float, float]:
    """(user, system) seconds of a process, in the kernel's coarse ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / _TICKS, int(fields[12]) / _TICKS


@contextlib.contextmanager
def hold(pid: int, share_of_core: float) -> Iterator[bool]:
    """Hold a process to a share of a core while the block runs; yields whether that was possible."""
    with Quotas() as quotas:
        quotas.hold(pid, share_of_core)
        yield not quotas.impossible


@contextlib.contextmanager
def preferred() -> Iterator[bool]:
    """Let this process and its children go before everybody else on the machine; yields whether they do."""
    with Quotas() as quotas:
        quotas.go_first()
        yield not quotas.impossible
