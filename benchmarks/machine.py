"""Facts that a result means nothing without: machine, date, versions, commit. `python -m benchmarks.machine`.

Owns reading them, and that two benchmarks never measure each other. Every fact that cannot be read is
"unknown", never a failure. Must not know: what is measured.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from brokerweave.lab.broker import find_program, first_line

UNKNOWN = "unknown"


def facts() -> dict[str, str]:
    """Everything to be written beside a result, in the order to be printed."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "machine": f"{_processor()}, {len(os.sched_getaffinity(0))} cores, {_memory_gib():.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "uvloop": _package("uvloop"),
        "frames": frames_kind(),
        "mosquitto": _program("mosquitto", "-h", "mosquitto version "),
        "haproxy": _program("haproxy", "-v", "HAProxy version ").partition(" ")[0],
    }


def commit() -> str:
    """The commit of the working tree, with `+` if tracked files differ from it."""
    here = Path(__file__).resolve().parent
    head = _output("git", "-C", str(here), "rev-parse", "--short", "HEAD")
    changed = _output("git", "-C", str(here), "status", "--porcelain", "--untracked-files=no")
    return f"{head or UNKNOWN}{'+' if changed else ''}"


def frames_kind() -> str:
    """Does the frame scanner run compiled or as plain Python?"""
    try:
        from brokerweave.mqtt import frames
    except ImportError:
        return UNKNOWN
    return "plain Python" if str(frames.__file__).endswith(".py") else "compiled"


@contextlib.contextmanager
def one_benchmark() -> Iterator[None]:
    """Wait until no other benchmark runs on this machine; let SIGTERM end this one in good order."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with (Path(tempfile.gettempdir()) / "brokerweave-bench.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("another benchmark is running: waiting for its end", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return platform.machine() or UNKNOWN


def _memory_gib() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30


def _package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return UNKNOWN


def _program(name: str, flag: str, prefix: str) -> str:
    path = find_program(name)
    return first_line(path, flag).removeprefix(prefix) if path else UNKNOWN


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def main() -> None:
    for name, value in facts().items():
        print(f"{name:10} {value}")


if __name__ == "__main__":
    main()
