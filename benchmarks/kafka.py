"""A log's rows in a local Kafka, for `benchmarks.pipeline`; and how fast they get there.

`python -m benchmarks.kafka` measures the feeding alone: rows a second into one Kafka on the same machine, and
the feeder's CPU. Must not know: queries.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import machine
from brokerweave.edgelog.reader import LogReader
from brokerweave.edgelog.readers import Readers
from brokerweave.edgelog.writer import LogWriter, Policy
from brokerweave.kafka.cluster import Cluster
from brokerweave.kafka.feeder import Feeder
from brokerweave.lab.kafka import Kafka
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish

TOPIC = "bench"
RUN_ROWS = 500


def feed(log: Path, address: str) -> None:
    """All rows of a log, from its beginning, in this process."""
    readers, end = Readers(log), LogReader(log).end()
    if "bench" in readers.all():
        readers.forget("bench")

    def fed(_: float) -> bool:
        return readers.position("bench") == end

    Feeder(log, "bench", TOPIC, lambda name: Cluster(address, name, "lz4", {}), fed).run()


@contextmanager
def in_kafka(log: Path, partitions: int = 2) -> Iterator[str]:
    """A Kafka that has the log's rows; its address."""
    with Kafka(partitions) as kafka:
        feed(log, kafka.address)
        yield kafka.address


def _write(folder: Path, rows: int) -> None:
    blob = b"".join(codec.encode(Publish(f"hall/{n % 100}/heat", bytes(70)), 4) for n in range(RUN_ROWS))
    writer = LogWriter(folder, "bench", Policy(fsync="never", max_bytes=16 << 30, min_free=0))
    for number in range(rows // RUN_ROWS):
        writer.append(number * 100_000, b"sensor-17", 4, RUN_ROWS, blob)
    writer.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kafka", description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000)
    rows = parser.parse_args().rows
    print("; ".join(f"{name} {value}" for name, value in machine.facts().items()))
    with machine.one_benchmark(), tempfile.TemporaryDirectory() as name, Kafka() as kafka:
        log = Path(name) / "log"
        _write(log, rows)
        began, cpu = time.perf_counter(), time.process_time()
        feed(log, kafka.address)
        took, used = time.perf_counter() - began, time.process_time() - cpu
    print(f"{rows:,} rows in {took:.1f} s: {rows / took:,.0f} a second, {used / rows * 1e6:.1f} µs CPU each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
