"""Facts that a result means nothing without, in a few words each: `python -m benchmarks.machine`.

Owns how they are put. They are read, and benchmarks kept apart, by `brokerweave.bench.starting`. Must not
know: what is measured.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from datetime import UTC, datetime

from brokerweave.bench import starting


def facts() -> dict[str, str]:
    """Everything to be written beside a result, in the order to be printed."""
    found, versions = starting.machine(), starting.versions()
    memory = found["memory_bytes"] / 2**30
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": starting.commit(),
        "machine": f"{found['processor']}, {found['cores']} cores, {memory:.1f} GiB",
        "kernel": found["kernel"],
        "python": versions["python"],
        "uvloop": versions["uvloop"],
        "frames": versions["frame scanner"],
        "mosquitto": versions["mosquitto"].removeprefix("mosquitto version "),
        "haproxy": versions["haproxy"].removeprefix("HAProxy version ").partition(" ")[0],
    }


def one_benchmark() -> AbstractContextManager[None]:
    """Wait until no other benchmark runs on this machine; let SIGTERM end this one in good order."""
    return starting.alone(lambda text: print(text, file=sys.stderr))


def main() -> None:
    for name, value in facts().items():
        print(f"{name:10} {value}")


if __name__ == "__main__":
    main()
