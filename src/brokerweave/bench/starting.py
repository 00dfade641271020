"""What every benchmark run begins with: its folder, the facts without which a result means nothing, its turn.

Owns `run.json`, and that two benchmarks never measure each other. Every fact that cannot be read is
"unknown", never a failure. Must not know: what is measured.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import brokerweave
from brokerweave import lab
from brokerweave.bench.folder import RunFolder, RunInfo
from brokerweave.bench.load.driver import Progress, silent
from brokerweave.bench.quota import Quotas
from brokerweave.errors import BrokerweaveError, ConfigError, Unavailable
from brokerweave.lab.broker import find_program, first_line
from brokerweave.mqtt import frames

UNKNOWN = "unknown"
RUNS = Path("bench-runs")
_UNREADABLE = (OSError, ValueError, LookupError, ImportError, BrokerweaveError)
"""What a broker whose version cannot be told may raise: it may be measured all the same."""


def open_run(kind: str, scenario: Mapping[str, Any], path: Path | None) -> RunFolder:
    """The folder of a run: a new one, or the one at `path`, to go on with if it is of the same kind and
    scenario."""
    now = datetime.now(UTC)
    folder = RunFolder(path or RUNS / f"{kind}-{now:%Y%m%d-%H%M%S}")
    if (folder.path / "run.json").exists():
        before = folder.run()
        if before.kind != kind or _plain(before.scenario) != _plain(scenario):
            raise ConfigError(f"{folder.path}: holds another run; give another --to, or remove it")
        if (here := commit()) not in before.commit.split(", "):
            # What is measured from now on is of this one.
            folder.write_run(replace(before, commit=f"{before.commit}, {here}"))
        return folder
    started = now.isoformat(timespec="seconds")
    run = RunInfo(kind, _plain(scenario), machine(), versions(), commit(), started)
    try:
        folder.write_run(run)
    except OSError as error:
        why = f"{error.strerror}; give another folder with --to"
        raise ConfigError(f"{folder.path}: cannot keep a run there: {why}") from None
    return folder


def _plain(value: Any) -> Any:
    """As JSON gives it back."""
    return json.loads(json.dumps(value))


def machine() -> dict[str, Any]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": memory,
        "kernel": f"{platform.system()} {platform.release()}",
    }


def versions() -> dict[str, str]:
    found = {
        "brokerweave": brokerweave.__version__,
        "frame scanner": "compiled" if frames.compiled else "plain Python",
        "python": platform.python_version(),
    }
    for package in ("uvloop", "pyarrow", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = UNKNOWN
    for program, flag in (("mosquitto", "-h"), ("haproxy", "-v")):
        path = find_program(program)
        found[program] = first_line(path, flag) if path else "not installed"
    for name, lacks in lab.available().items():
        if lacks is None and name not in found:
            found[name] = UNKNOWN
            with suppress(*_UNREADABLE), closing(lab.BROKERS[name]()) as broker:
                found[name] = broker.version
    return found


def commit() -> str:
    """The commit of the working tree that this runs from, with `+` if tracked files differ from it."""
    here = str(Path(__file__).resolve().parent)
    head = _output("git", "-C", here, "rev-parse", "--short", "HEAD")
    changed = _output("git", "-C", here, "status", "--porcelain", "--untracked-files=no")
    return f"{head or UNKNOWN}{'+' if changed else ''}"


@contextmanager
def one_benchmark(show: Progress = silent) -> Iterator[None]:
    """Alone, and before all other work on this machine."""
    with alone(show), Quotas() as quotas:
        quotas.go_first()
        yield


@contextmanager
def alone(show: Progress = silent) -> Iterator[None]:
    """Wait until no other benchmark runs on this machine; Ctrl-C and SIGTERM end this one well."""
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    path = Path(tempfile.gettempdir()) / "brokerweave-bench.lock"
    try:
        lock = path.open("a")
    except OSError as error:
        why = f"{error.strerror}; it tells benchmarks of each other: remove it, or set TMPDIR"
        raise Unavailable(f"{path}: {why}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            show("another benchmark is running: waiting for its end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _end(number: int, _frame: object) -> None:
    """Once: from now on all that was started is ended, and nothing may interrupt that."""
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine() or UNKNOWN


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()
