"""CPU time and memory of other processes, and holding one of them to a share of a core, as this benchmark
wants it.

The reading and the groups are `brokerweave.bench`'s. Where groups are not writable `hold` and `preferred` say
so in what they yield, and the benchmark goes on without.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from brokerweave.bench.quota import Quotas
from brokerweave.bench.resources import cpu_seconds, resident_bytes

__all__ = ["cpu_seconds", "hold", "preferred", "resident_bytes"]


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
