"""Five million random and damaged inputs to codec and frame scanner: no crash, no hang, no growth.

    python -m benchmarks.fuzz [--inputs 5000000] [--seed 1] [--processes 2]

Each input goes to the codec and, cut in two ways, to the scanner. Prints what was refused, what was taken,
the time and the memory. Fails (exit 1) on any exception but RemoteProtocolError, on a broken promise (see
`tests/fuzz/fuzz_codec.py`), when a process grows by more than 64 MiB, or when it does not end in time.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.fuzz.fuzz_codec import check_blob, check_codec, check_scanner
from tests.unit.mqtt.packet_cases import BAD_CASES, CASES, LENIENT_CASES

from brokerweave.mqtt.codec import encode_varint
from brokerweave.mqtt.scanner import RouteCache
from brokerweave.runtime import compiled

GROWTH_ALLOWED = 64 << 20
WARM_UP = 20_000
SECONDS_PER_INPUT = 1e-3
SLOW = 0.5
FAILURES_SHOWN = 5
SEEDS = [(case.frame, case.version) for case in CASES + LENIENT_CASES]
SEEDS += [(case.frame, case.version) for case in BAD_CASES]


class Outcome(NamedTuple):
    counts: Counter[str]
    failures: list[str]
    rss_before: int
    rss_after: int


def make_input(random: Random) -> tuple[bytes, int]:
    """Bytes, and the version to read them in."""
    kind = random.getrandbits(3)
    if kind == 0:
        return random.randbytes(random.getrandbits(5)), 3 + random.getrandbits(8) % 3
    if kind == 1:
        body = random.randbytes(random.getrandbits(5))
        return bytes((random.getrandbits(8),)) + encode_varint(len(body)) + body, 3 + random.getrandbits(
            8
        ) % 3
    frame, version = SEEDS[random.getrandbits(16) % len(SEEDS)]
    data = bytearray(frame)
    for _ in range(1 + random.getrandbits(1)):
        _damage(data, random)
    if kind == 2:
        data += SEEDS[random.getrandbits(16) % len(SEEDS)][0]
    elif kind < 6 and 1 < len(data) < 130:
        data[1] = len(data) - 2  # an honest length leads deeper into the packet
    return bytes(data), version


def _damage(data: bytearray, random: Random) -> None:
    at = random.getrandbits(16) % (len(data) or 1)
    kind = random.getrandbits(2)
    if kind == 0:
        data[at:at] = random.randbytes(1 + random.getrandbits(2))
    elif kind == 1:
        del data[at : at + 1 + random.getrandbits(2)]
    elif data:
        data[at] = random.getrandbits(8) if kind == 2 else data[at] ^ 1 << random.getrandbits(2)


def run(inputs: int, seed: int) -> Outcome:
    random = Random(seed)
    counts: Counter[str] = Counter()
    failures: list[str] = []
    routes = RouteCache(lambda topic, retain: topic[:1] or None, 1_000)
    rss_before = _resident_bytes()
    for number in range(inputs):
        if number == WARM_UP:
            rss_before = _resident_bytes()
        data, version = make_input(random)
        started = time.perf_counter()
        try:
            counts["codec: packet" if check_codec(data, version) else "codec: RemoteProtocolError"] += 1
            clean = check_scanner(data, version, number, routes)
            counts["scanner: clean stream" if clean else "scanner: RemoteProtocolError"] += 1
            if number % 8 == 0:
                counts["publish functions: accepted"] += check_blob(data, 5 if version == 5 else 4, routes)
        except Exception as error:
            counts[f"UNEXPECTED {type(error).__name__}"] += 1
            if len(failures) < FAILURES_SHOWN:
                failures.append(f"input {data.hex()} version {version}\n{traceback.format_exc()}")
        if time.perf_counter() - started > SLOW:
            counts["slower than half a second"] += 1
    return Outcome(counts, failures, rss_before, _resident_bytes())


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    parser = argparse.ArgumentParser(description="Feed garbage to codec and frame scanner.")
    parser.add_argument("--inputs", type=int, default=5_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    share = -(-options.inputs // options.processes)
    tasks = [(share, options.seed + n) for n in range(options.processes)]
    started = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        # Leaving the block ends the processes, so one that hangs cannot hold us.
        outcomes = pool.starmap_async(run, tasks, chunksize=1).get(60 + share * SECONDS_PER_INPUT)
    return report(outcomes, share, options.seed, time.perf_counter() - started)


def report(outcomes: list[Outcome], share: int, seed: int, elapsed: float) -> int:
    kind = compiled.state()
    total = sum((outcome.counts for outcome in outcomes), Counter[str]())
    print(f"{share * len(outcomes):,} inputs, seed {seed}, scanner {kind}: {elapsed:.0f} s")
    for name, count in sorted(total.items()):
        print(f"  {name}: {count:,}")
    growth = 0
    for outcome in outcomes:
        growth = max(growth, outcome.rss_after - outcome.rss_before)
        before, after = outcome.rss_before / 2**20, outcome.rss_after / 2**20
        print(f"  memory of a process: {before:.1f} MiB before, {after:.1f} MiB after")
        print("\n".join(outcome.failures), end="")
    unexpected = any(outcome.failures for outcome in outcomes)
    return 1 if unexpected or growth > GROWTH_ALLOWED else 0


if __name__ == "__main__":
    sys.exit(main())
