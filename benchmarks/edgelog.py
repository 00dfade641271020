"""What one edge log takes and gives in a second: `python -m benchmarks.edgelog`.

Owns the measurement: QoS 0 publications with payloads of 68 bytes over a hundred topics, the best of several
rounds, in a temporary folder (`--folder` for another disk). Ends with 1 when bulk appending with the default
fsync stays under its goal. What recording costs a relay is measured by
`python -m benchmarks.relay --recording --searches 0`. Must not know: sockets, nodes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from benchmarks import machine
from brokerweave.edgelog.layout import Block
from brokerweave.edgelog.reader import LogReader
from brokerweave.edgelog.rows import rows
from brokerweave.edgelog.writer import LogWriter, Policy
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish

GOAL = 200_000
ROWS = 400_000
ROUNDS = 3
PAYLOAD = 68
BLOCKS_IN_A_BATCH = 20
ROWS_SEEN = 50_000


def runs(size: int) -> list[bytes]:
    """Publications as the node hands them over: so many in one run."""
    frames = [codec.encode(Publish(f"sensors/hall/{n}", bytes(PAYLOAD)), 4) for n in range(100)]
    return [b"".join(frames[(start + n) % 100] for n in range(size)) for start in range(100)]


def append(folder: Path, fsync: str, size: int, count: int = ROWS) -> float:
    """Rows a second, with the fsyncs that the policy asks for: the interval's, here, in the same thread."""
    blobs = runs(size)
    writer = LogWriter(folder, "bench", Policy(fsync=fsync, max_bytes=4 << 30, min_free=0))
    started = synced = time.perf_counter()
    for number in range(count // size):
        writer.append(number, b"sensor-17", 4, size, blobs[number % 100])
        if fsync == "interval" and number % 100 == 0 and time.perf_counter() - synced > 1.0:
            sync = writer.begin_sync()
            if sync is not None:
                writer.synced(sync, sync.run(), number)
            synced = time.perf_counter()
    writer.close()
    took = time.perf_counter() - started
    if writer.counts.recorded != count // size * size:
        raise RuntimeError(f"not everything was recorded: {writer.counts}, {writer.reason}")
    return writer.counts.recorded / took


def read(folder: Path, take: Callable[[LogReader, Iterator[Block]], int]) -> float:
    reader = LogReader(folder)
    started = time.perf_counter()
    count = take(reader, reader.blocks())
    return count / (time.perf_counter() - started)


def whole_blocks(reader: LogReader, blocks: Iterator[Block]) -> int:
    return sum(block.rows for block in blocks)


def plain_rows(reader: LogReader, blocks: Iterator[Block]) -> int:
    return sum(1 for _ in islice((row for block in blocks for row in rows(block)), ROWS_SEEN))


def arrow_batches(reader: LogReader, blocks: Iterator[Block]) -> int:
    from brokerweave.edgelog import arrow

    identity, count = reader.identity(), 0
    while batch := list(islice(blocks, BLOCKS_IN_A_BATCH)):
        count += arrow.batch(identity, batch).num_rows
    return count


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.edgelog", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where to write; its disk is what is measured")
    flags = parser.parse_args()
    print("; ".join(f"{name} {value}" for name, value in machine.facts().items()))
    print(f"{'messages a second':44} {'best of ' + str(ROUNDS):>14}")

    def say(name: str, value: float) -> float:
        print(f"{name:44} {value:14,.0f}", flush=True)
        return value

    with machine.one_benchmark(), tempfile.TemporaryDirectory(dir=flags.folder) as name:
        folder = Path(name)
        number = 0

        def appended(fsync: str, size: int, count: int = ROWS) -> float:
            nonlocal number
            found = []
            for _ in range(ROUNDS):
                number += 1
                found.append(append(folder / str(number), fsync, size, count))
            return max(found)

        bulk = say("append, runs of 500, fsync interval", appended("interval", 500))
        say("append, runs of 500, fsync never", appended("never", 500))
        say("append, runs of 500, fsync always", appended("always", 500))
        say("append, runs of 1, fsync interval", appended("interval", 1))
        for title, take in (
            ("read, blocks checked but not opened", whole_blocks),
            ("read, Arrow batches, runs of 500", arrow_batches),
            ("read, plain rows", plain_rows),
        ):
            say(title, max(read(folder / "1", take) for _ in range(ROUNDS)))
        say(
            "read, Arrow batches, runs of 1", max(read(folder / str(number), arrow_batches) for _ in range(2))
        )
    print(f"goal: {GOAL:,} messages a second in bulk, with the default fsync")
    return 0 if bulk >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
