"""How old rows are when they can be read in bronze: 5,000 messages a second from three nodes.

    python -m benchmarks.freshness [--intervals 5,2,1] [--seconds 30] [--rate 5000]

Each message carries the time at which it was published. A row counts as readable at the moment its file is
seen in the table's folder. For each trigger interval: the median and the 95th percentile of the age, in
seconds and in intervals. An interval holds if the median is at most 1.5 of it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
from tests.pipeline.fire import Driver, Pulse, RecordingSite, recording_sites

from benchmarks import machine
from brokerweave.edgelog.layout import Position
from brokerweave.flight.client import LogClient

HOLDS = 1.5
ENOUGH = 0.9
"""Of the rate that is asked for: below it, the machine was too slow to say anything."""
SITES = {"a": "mosquitto", "b": "mosquitto", "c": "mosquitto"}
WARM_SECONDS = 15.0
"""The first batches of a session pay for its start."""


@dataclass
class Watch:
    """Looks for new files, and notes when each was seen first."""

    folder: Path
    seen: dict[Path, float] = field(default_factory=dict)
    _ending: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self._ending.wait(0.01):
            for path in self.folder.glob("date=*/batch-*.parquet"):
                self.seen.setdefault(path, time.time())

    def stop(self) -> None:
        self._ending.set()

    def ages(self, since: float, until: float) -> list[float]:
        """Of all rows that were published in a time."""
        found = []
        for path, seen in self.seen.items():
            published = (
                float(each) for each in pq.read_table(path, columns=["payload"])["payload"].to_pylist()
            )
            found += [seen - each for each in published if since <= each < until]
        return sorted(found)


def measure(sites: dict[str, RecordingSite], trigger: str, rate: int, seconds: float) -> list[float]:
    """The ages of all rows of `seconds`, with one trigger."""
    with tempfile.TemporaryDirectory(prefix="brokerweave-freshness-") as folder:
        place = Path(folder)
        addresses = [site.address for site in sites.values()]
        reader = f"freshness-{trigger.replace(' ', '-')}"
        driver = Driver(
            place / "lake", place / "check", addresses, ["--layers", "bronze", "--reader", reader]
        )
        watch = Watch(place / "lake" / "bronze")
        with driver:
            driver.start(trigger)
            watching = threading.Thread(target=watch.run, daemon=True)
            pulses = [
                Pulse(site.node.port, name, rate // len(sites), lambda _: b"%.6f" % time.time())
                for name, site in sites.items()
            ]
            driver.wait_for_more(list(sites))
            watching.start()
            time.sleep(WARM_SECONDS)
            since = time.time()
            time.sleep(seconds)
            until = time.time()
            for pulse in pulses:
                pulse.finish()
            ends = {name: _end(site) for name, site in sites.items()}
            driver.wait_for(
                lambda held: all(held[name] >= end for name, end in ends.items()), f"all rows up to {ends}"
            )
            time.sleep(1)  # what the notes call written was seen a moment before
            watch.stop()
            watching.join()
        return watch.ages(since, until)


def _end(site: RecordingSite) -> Position:
    with LogClient(site.address) as client:
        before = client.state().end
        # What was acknowledged is recorded, and served after the next fsync.
        while (state := client.wait(before, 2)).end > before:
            before = state.end
        return before


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--intervals", default="5,3,2,1", help="seconds, separated by commas")
    arguments.add_argument("--seconds", type=float, default=30.0)
    arguments.add_argument("--rate", type=int, default=5_000, help="messages a second, of all nodes together")
    chosen = arguments.parse_args()
    for name, fact in machine.facts().items():
        print(f"{name}: {fact}")
    shortest = None
    for text in chosen.intervals.split(","):
        every = float(text)
        with machine.one_benchmark(), recording_sites(SITES) as sites:
            ages = measure(sites, f"{every:g} seconds", chosen.rate, chosen.seconds)
        wanted = chosen.rate * chosen.seconds
        if len(ages) < ENOUGH * wanted:
            print(f"every {every:g} s: only {len(ages):,} of {wanted:,.0f} rows were published; no result")
            continue
        middle, late = ages[len(ages) // 2], ages[len(ages) * 95 // 100]
        holds = middle <= HOLDS * every
        shortest = min(every, shortest or every) if holds else shortest
        verdict = "holds" if holds else "does not hold"
        print(
            f"every {every:g} s: {len(ages):,} rows, median {middle:.2f} s = {middle / every:.2f} intervals, "
            f"95 % {late:.2f} s; {verdict}",
            flush=True,
        )
    print(f"shortest interval that holds: {shortest} s" if shortest else "no interval holds")
    return 0 if shortest else 1


if __name__ == "__main__":
    sys.exit(main())
