"""Runs pytest, and what a busy machine may have failed once more, alone.

`python -m tests.support.run_tests [--workers N] [--busy N] [-m MARKERS] [--timeout S] [PATH...]`

Owns what counts as a failure of the run. A test with real processes (marker `real`) that failed is run once
more, alone, at the end; if it holds then, it is *unsteady*: named, with what it said both times, and the run
passes, with at most two of them. Invariants: tests without real processes get no second try, nor does a
message that was lost, doubled or out of order (`tests/support/verdicts.py`); the last line has the counts.
Must not know: what is tested.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.outcomes import Failure, Outcomes

MOST_UNSTEADY = 2
_BUSY_LIMIT = 3 * 3600
_BUSY = f"""
import os, time
parent, end = os.getppid(), time.monotonic() + {_BUSY_LIMIT}
while os.getppid() == parent and time.monotonic() < end:
    for _ in range(1_000_000):
        pass
"""
"""A loop that ends by itself, should nobody end it: with its parent, or after three hours."""
_TESTS_FAILED = 1
"""pytest's exit code for that; with any other but 0 the run itself went wrong."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="run_tests", description="pytest, with a second try for real processes"
    )
    parser.add_argument("--workers", type=int, default=0, help="processes side by side")
    parser.add_argument("--busy", type=int, default=0, help="busy loops beside the tests")
    parser.add_argument("-m", dest="markers", default="", help="as pytest's")
    parser.add_argument("--timeout", default="", help="as pytest's")
    parser.add_argument("paths", nargs="*")
    wanted = parser.parse_args(arguments)
    spread = ["-n", str(wanted.workers), "--dist", "loadgroup", "--no-loadscope-reorder"]
    always = ["--timeout", wanted.timeout] if wanted.timeout else []
    chosen = [*always, *(["-m", wanted.markers] if wanted.markers else []), *wanted.paths]
    began = time.monotonic()
    with busy_loops(wanted.busy):
        code, first = run_pytest([*(spread if wanted.workers else []), *chosen])
        if code != _TESTS_FAILED or not (doubtful := worth_a_second_try(first)):
            return code
        print(f"\n{len(doubtful)} with real processes failed: once more, alone.", flush=True)
        second = {each.test: run_pytest([*always, each.test])[1] for each in doubtful}
    unsteady = [each for each in doubtful if held(second[each.test])]
    for each in doubtful:
        print(told(each, second[each.test]))
    print(closing(first, unsteady, time.monotonic() - began), flush=True)
    return 0 if len(unsteady) == len(doubtful) else _TESTS_FAILED


@contextmanager
def busy_loops(count: int) -> Iterator[list[int]]:
    """Their process ids, while they run."""
    loops = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(count)]
    try:
        yield [loop.pid for loop in loops]
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run_pytest(arguments: Sequence[str]) -> tuple[int, Outcomes]:
    """Its exit code, and what became of the tests."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "outcomes")
        command = [sys.executable, "-m", "pytest", "-p", "tests.support.outcomes", f"--outcomes={file}"]
        code = subprocess.run([*command, *arguments], check=False).returncode
        return code, Outcomes.read(file)


def worth_a_second_try(first: Outcomes) -> list[Failure]:
    """All that failed, or none if the run has failed whatever a second try says."""
    hopeless = len(first.failures) > MOST_UNSTEADY or not all(each.may_try_again for each in first.failures)
    return [] if hopeless else first.failures


def held(second: Outcomes) -> bool:
    """A test that is skipped, or not found, has not held."""
    return second.counts == {"passed": 1}


def told(first: Failure, second: Outcomes) -> str:
    again = "\n".join(each.output for each in second.failures) or f"{dict(second.counts)}\n"
    word = "UNSTEADY" if held(second) else "FAILED TWICE"
    return f"\n{word} {first.test}\n=== first, beside others ===\n{first.output}=== then, alone ===\n{again}"


def closing(first: Outcomes, unsteady: Sequence[Failure], seconds: float) -> str:
    """As pytest's last line, with the unsteady ones by themselves."""
    counts = first.counts.copy()
    counts["failed"] -= len(unsteady)
    counts["unsteady"] = len(unsteady)
    order = ("failed", "passed", "unsteady", "skipped", "xfailed", "xpassed")
    shown = ", ".join(f"{counts[word]} {word}" for word in order if counts[word])
    names = "".join(f"UNSTEADY {each.test}\n" for each in unsteady)
    return f"{names}===== {shown} in {seconds:.2f}s ====="


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
