"""What a look-up in the filter trie costs among 1,000 and among 1,000,000 filters.

    python -m benchmarks.trie

Filters are those of sites with devices with metrics: nine in ten exact, the others with wildcards at the
end, in the middle or in front, and one for each whole site, so that a topic is wanted by some two clients
in either trie. Each size is measured in turns with the
other, and the best of the rounds counts, so that a busy machine disturbs both alike. Fails (exit 1) if the
large trie costs more than three times the small one.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from random import Random

from brokerweave.mqtt.trie import FilterTrie

SIZES = (1_000, 1_000_000)
METRICS = 10
ROUNDS = 7
TOPICS = 20_000
ALLOWED = 3.0


def build(size: int, random: Random) -> tuple[FilterTrie, list[str]]:
    """A trie of `size` filters, and topics of which each is wanted by somebody."""
    trie = FilterTrie()
    devices = size // METRICS
    per_site = max(10, round(devices**0.5))
    for number in range(size):
        device = number // METRICS
        site, metric = device // per_site, number % METRICS
        exact = f"site/{site}/device/{device % per_site}/metric{metric}"
        kind = random.randrange(40)
        if kind == 0:
            wanted = f"site/{site}/device/{device % per_site}/#"
        elif kind == 1:
            wanted = f"site/{site}/+/{device % per_site}/metric{metric}"
        elif kind == 2:
            wanted = f"+/{site}/device/{device % per_site}/metric{metric}"
        elif number % (per_site * METRICS) == 0:
            wanted = f"site/{site}/#"
        else:
            wanted = exact
        trie.add(wanted, f"client{number % 50}", number % 3)
    topics = []
    for _ in range(TOPICS):
        device = random.randrange(devices)
        topics.append(
            f"site/{device // per_site}/device/{device % per_site}/metric{random.randrange(METRICS)}"
        )
    return trie, topics


def seconds_per_match(trie: FilterTrie, topics: list[str]) -> float:
    match = trie.match
    started = time.perf_counter()
    for topic in topics:
        match(topic)
    return (time.perf_counter() - started) / len(topics)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    random = Random(1)
    built = []
    for size in SIZES:
        before, started = _resident_bytes(), time.perf_counter()
        trie, topics = build(size, random)
        built.append((trie, topics))
        took = time.perf_counter() - started
        memory = (_resident_bytes() - before) / len(trie)
        hits = sum(len(trie.match(topic)) for topic in topics) / len(topics)
        print(
            f"{len(trie):>9,} filters: built in {took:.1f} s, {memory:,.0f} bytes each, "
            f"{hits:.2f} keys a topic"
        )
    best = [float("inf")] * len(SIZES)
    for _ in range(ROUNDS):
        for index, (trie, topics) in enumerate(built):
            best[index] = min(best[index], seconds_per_match(trie, topics))
    ratio = best[1] / best[0]
    print(f"match: {best[0] * 1e6:.2f} µs among 1,000, {best[1] * 1e6:.2f} µs among 1,000,000: {ratio:.2f} x")
    return 0 if ratio <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
