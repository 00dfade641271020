"""Holding a process to a share of a core, by a CPU control group (v1): a broker held to a tenth stands for a
small edge server.

Owns the groups that it makes, and removes them. Where groups are not writable it says so, once, and the
benchmark goes on without. Must not know: what is held.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Self

_GROUPS = Path("/sys/fs/cgroup/cpu")
_PREFIX = "brokerweave-bench-"
_PERIOD_US = 10_000
"""Short, so that a held process never freezes for long."""
_LEAST_QUOTA_US = 1_000
"""What the kernel takes at least: below a tenth of a core the period gets longer instead."""
_HIGHEST_SHARES = 262_144
"""A benchmark goes before all others on the machine: what else runs must not count."""
_HELD_SHARES = 1_024
"""Within it, who is held comes behind who makes the load, which stands for machines of its own: ten servers
that are let go at the same moment must not make it late."""


def settings_for(share: float) -> dict[str, int]:
    """The group's files and what to write into them, for a share of a core."""
    period = max(_PERIOD_US, round(_LEAST_QUOTA_US / share))
    return {
        "cpu.cfs_period_us": period,
        "cpu.cfs_quota_us": max(_LEAST_QUOTA_US, round(period * share)),
        "cpu.shares": _HELD_SHARES,
    }


_open: list[Quotas] = []


def all_in_place() -> bool:
    """Put every process of every open `Quotas` back into its group; whether all were still there.

    Whoever manages this machine's groups may move processes between them, and they are free of their quota
    then.
    """
    return all([quotas.in_place() for quotas in _open])  # noqa: C419  each one, also after the first that is not


class Quotas:
    """All groups of one benchmark; gone when the block ends. `impossible` says why processes are not held."""

    def __init__(self) -> None:
        self._groups: list[tuple[Path, int]] = []
        self.impossible = ""

    def hold(self, pid: int, share: float) -> None:
        """Hold a process to a share of a core from now on, if that is possible."""
        self._move(pid, settings_for(share))

    def go_first(self) -> None:
        """Let this process and all that it starts go before everybody else on the machine, if possible."""
        _forget_the_dead()
        self._move(os.getpid(), {"cpu.shares": _HIGHEST_SHARES})

    def _move(self, pid: int, settings: dict[str, int]) -> None:
        group = group_of() / f"{_PREFIX}{pid}"
        try:
            group.mkdir(exist_ok=True)  # one of a benchmark that was killed, perhaps
            self._groups.append((group, pid))
            for name, value in settings.items():
                (group / name).write_text(str(value))
            (group / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            self.impossible = f"CPU groups cannot be used here ({error.strerror}): no quota is kept"

    def in_place(self) -> bool:
        """Put its processes back into their groups; whether all that still run were there."""
        if self.impossible:
            return True
        strayed = [(group, pid) for group, pid in self._groups if _strayed(pid, group)]
        for group, pid in strayed:
            with contextlib.suppress(OSError):
                (group / "cgroup.procs").write_text(str(pid))
        return not strayed

    def __enter__(self) -> Self:
        _open.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _open.remove(self)
        for group, pid in self._groups:
            with contextlib.suppress(OSError):
                (group.parent / "cgroup.procs").write_text(str(pid))
            _remove(group)


def _forget_the_dead() -> None:
    """Groups of a benchmark that was killed before it could remove them; those of its servers are inside."""
    for group in sorted(group_of().rglob(f"{_PREFIX}*"), reverse=True):
        if not Path(f"/proc/{group.name.removeprefix(_PREFIX)}").exists():
            with contextlib.suppress(OSError):
                group.rmdir()


def _strayed(pid: int, group: Path) -> bool:
    """Not if it has ended, on purpose or not, even if nobody has asked how yet."""
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in ("Z", "X") and group_of(pid) != group
    return False


def _remove(group: Path) -> None:
    """A group stays busy for a moment after its last process ended."""
    for _ in range(30):
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.1)
        else:
            return


def group_of(process: int | str = "self") -> Path:
    """The CPU group that a process is in."""
    for line in Path(f"/proc/{process}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return _GROUPS / path.lstrip("/")
    return _GROUPS
