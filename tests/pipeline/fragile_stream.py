"""A streaming query into the Parquet sink that dies at a step it is told: `python -m ... FOLDER [STEP]`.

Each task's first attempt dies too, halfway through its rows, with the worker process it runs in.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from brokerweave.pipeline.lake import durable
from brokerweave.pipeline.sinks.parquet import ParquetSink
from tests.pipeline.test_parquet_sink import DDL


def _die_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    for batch in batches:
        yield batch.slice(0, batch.num_rows // 2)
        if context is not None and context.attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch.slice(batch.num_rows // 2)


def main(folder: Path, deadly: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )

    def reached(name: str) -> None:
        if deadly and name.startswith(deadly):
            os.kill(os.getpid(), signal.SIGKILL)

    durable.at_step = reached
    sink = ParquetSink(folder / "bronze")

    def take(batch: DataFrame, batch_id: int) -> None:
        sink.write(batch.mapInArrow(_die_once, batch.schema), "q", batch_id)
        reached(f"written {batch_id}")

    query = (
        spark.readStream.schema(DDL)
        .option("maxFilesPerTrigger", 2)
        .parquet(str(folder / "input"))
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(100)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "")
