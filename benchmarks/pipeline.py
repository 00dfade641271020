"""Our source against Spark's own for Parquet and Kafka, the same rows: `python -m benchmarks.pipeline`.

Owns the rows (payloads of 34 to 103 bytes of JSON), the two queries and the order of the runs. Each way is
run once to warm up and then in turns, so that what else the machine does meets all of them alike. What counts
is the time from a query's start to its end (AvailableNow), its starting included; beside it is printed what
the rows alone took, since a source in Python takes a second or more to start, once. Ends with 1 when a ratio
is under its goal. Kafka is left out, with a word, where it or Spark's connector is not installed. Must not
know: nodes.

`brokerweave` is the source as it is by default: log and Spark are on one machine here, so workers read the
log's own files, as Spark reads its Parquet files. `over Flight` is the same source as on any other machine
(option local = never): another process reads and sends all rows. The goals are for the first.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import kafka, machine
from brokerweave.edgelog import arrow
from brokerweave.edgelog.reader import LogReader
from brokerweave.edgelog.writer import LogWriter, Policy
from brokerweave.lab.kafka import Kafka
from brokerweave.lab.makers import tools
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish
from brokerweave.pipeline import kafka as kafka_source
from brokerweave.pipeline.spark.session import open_session

ROWS = 5_000_000
ROUNDS = 5
RUN_ROWS = 500
"""Publications that a node got together."""
A_SECOND = 5_000
FILES = 10
COLUMNS = ["topic", "payload", "received"]
SHORTEST, LONGEST = 34, 103
GOALS = {"windows": (0.7, 0.9), "bare": (0.6, 0.9)}
"""Of our source, as a part of Parquet's speed: what is accepted, and the aim."""
OURS = "brokerweave"
FIELDS = "sensor STRING, value DOUBLE, note STRING"

Query = Callable[[DataFrame], DataFrame]
Ways = dict[str, Callable[[SparkSession], DataFrame]]


def frame(chosen: random.Random) -> bytes:
    """A PUBLISH frame with JSON of 34 to 103 bytes, the lengths evenly spread, hardly one like another."""
    start = b'{"sensor":"s%d","value":%.2f,"note":"' % (chosen.randrange(100), chosen.uniform(-40, 90))
    note = b"%x" % chosen.getrandbits(256)
    missing = chosen.randint(SHORTEST, LONGEST) - len(start) - 2
    payload = (start + note[: max(missing, 0)] + b'"}').ljust(SHORTEST)
    return codec.encode(Publish(f"hall/{chosen.randrange(100)}/heat", payload), 4)


def write_log(folder: Path, rows: int) -> None:
    """What a node would have recorded at 5,000 messages a second."""
    chosen = random.Random(4)
    writer = LogWriter(folder, "bench", Policy(fsync="never", max_bytes=16 << 30, min_free=0))
    for number in range(rows // RUN_ROWS):
        blob = b"".join(frame(chosen) for _ in range(RUN_ROWS))
        writer.append(number * RUN_ROWS * 1_000_000 // A_SECOND, b"sensor-17", 4, RUN_ROWS, blob)
    writer.close()


def write_parquet(log: Path, folder: Path, rows: int) -> None:
    """The log's rows, all columns, as files that Spark reads."""
    folder.mkdir()
    reader = LogReader(log)
    blocks, identity = reader.blocks(), reader.identity()
    number = 0
    table: list[pa.RecordBatch] = []
    count = 0
    while gathered := list(islice(blocks, 20)):
        table.append(arrow.batch(identity, gathered))
        count += table[-1].num_rows
        if count >= rows // FILES:
            pq.write_table(pa.Table.from_batches(table), folder / f"{number}.parquet", compression="snappy")
            table, count, number = [], 0, number + 1
    if table:
        pq.write_table(pa.Table.from_batches(table), folder / f"{number}.parquet", compression="snappy")


@contextmanager
def serving(log: Path) -> Iterator[str]:
    """A Flight service of the log, in its own process; its address."""
    command = [sys.executable, "-m", "brokerweave.flight", "--log", str(log), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        yield service.stdout.readline().split()[1]


def windows(stream: DataFrame) -> DataFrame:
    """JSON, then count, mean and extremes for each sensor in windows of ten seconds."""
    parsed = stream.select(
        "received", "topic", F.from_json(F.col("payload").cast("string"), FIELDS).alias("json")
    )
    value = F.col("json.value")
    return parsed.groupBy(F.window("received", "10 seconds"), "topic", "json.sensor").agg(
        F.count("*").alias("rows"), F.avg(value).alias("mean"), F.min(value), F.max(value)
    )


def bare(stream: DataFrame) -> DataFrame:
    """Topic, payload and time of every row, and nothing else."""
    return stream


QUERIES: dict[str, Query] = {"windows": windows, "bare": bare}


@dataclass(frozen=True, slots=True)
class Took:
    """Seconds of one run."""

    whole: float
    """From the query's start to its end."""
    batches: float
    """Of which Spark was at the rows; the rest is what starting a query takes, once."""


def run(stream: DataFrame, query: Query, rows: int) -> Took:
    """One run to its end, with a new checkpoint; all rows must have come."""
    with tempfile.TemporaryDirectory() as checkpoint:
        started = time.perf_counter()
        running = (
            query(stream)
            .writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        running.awaitTermination()
        whole = time.perf_counter() - started
    read = sum(int(each["numInputRows"]) for each in running.recentProgress)
    if read != rows:
        raise RuntimeError(f"{read:,} rows came, not {rows:,}")
    return Took(whole, sum(each["durationMs"]["triggerExecution"] for each in running.recentProgress) / 1000)


def measure(spark: SparkSession, ways: Ways, names: list[str], rows: int, rounds: int) -> bool:
    """Print everything; whether all goals are met."""
    met = True
    for name in names:
        times: dict[str, list[Took]] = {way: [] for way in ways}
        for number in range(rounds + 1):  # the first one warms up
            for way, stream in ways.items():
                took = run(stream(spark), QUERIES[name], rows)
                if number:
                    times[way].append(took)
        print(f"{name}: {(QUERIES[name].__doc__ or '').strip()}")
        whole = {way: statistics.median(took.whole for took in each) for way, each in times.items()}
        batches = {way: statistics.median(took.batches for took in each) for way, each in times.items()}
        for way, each in times.items():
            print(
                f"  {way:12} {rows / whole[way]:12,.0f} rows/s"
                f"   {whole['parquet'] / whole[way]:5.2f} x parquet"
                f"   {batches['parquet'] / batches[way]:5.2f} x without starting"
                f"   ({', '.join(f'{took.whole:.1f}, rows {took.batches:.1f}' for took in each)} s)"
            )
        accepted, aim = GOALS[name]
        ratio = whole["parquet"] / whole[OURS]
        met = met and ratio >= accepted
        print(f"  goal {accepted}, aim {aim}: {'met' if ratio >= accepted else 'MISSED'}", flush=True)
    return met


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pipeline", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--query", choices=list(QUERIES), action="append", help="one or more; default: all")
    parser.add_argument("--data", type=Path, help="where the rows are kept for the next time")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the source")
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of Spark")
    flags = parser.parse_args()
    rows = flags.rows // RUN_ROWS * RUN_ROWS
    print("; ".join(f"{name} {value}" for name, value in machine.facts().items()))
    with machine.one_benchmark(), tempfile.TemporaryDirectory() as name:
        folder = (flags.data or Path(name)) / str(rows)
        if not folder.exists():
            folder.mkdir(parents=True)
            write_log(folder / "log", rows)
            write_parquet(folder / "log", folder / "parquet", rows)
        settings = {"spark.driver.memory": "2g", "spark.log.level": "ERROR"}
        jars = tools() / "spark-kafka"
        with_kafka = not flags.no_kafka and Kafka.missing() is None and (jars / "VERSION").exists()
        if with_kafka:
            settings |= kafka_source.connector(jars)
        else:
            print("without Kafka (scripts/install-brokers kafka spark-kafka)")
        settings |= dict(each.split("=", 1) for each in flags.set)
        spark = open_session("local[2]", "benchmark", settings)
        with serving(folder / "log") as address, ExitStack() as stack:
            options = {"nodes": address, "columns": ",".join(COLUMNS)}
            options |= dict(each.split("=", 1) for each in flags.option)
            schema = spark.read.parquet(str(folder / "parquet")).schema
            ways: Ways = {
                "parquet": lambda spark: (
                    spark.readStream.schema(schema).parquet(str(folder / "parquet")).select(*COLUMNS)
                ),
                OURS: lambda spark: spark.readStream.format("brokerweave").options(**options).load(),
                "over Flight": lambda spark: (
                    spark.readStream.format("brokerweave").options(**options, local="never").load()
                ),
            }
            if with_kafka:
                broker = stack.enter_context(kafka.in_kafka(folder / "log"))
                ways["kafka"] = lambda spark: kafka_source.read_stream(spark, broker, [kafka.TOPIC]).select(
                    *COLUMNS
                )
            met = measure(spark, ways, flags.query or list(QUERIES), rows, flags.rounds)
            spark.stop()
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
