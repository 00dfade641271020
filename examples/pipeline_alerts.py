"""A job of one's own: readings above a limit, from two nodes, into a table of their own, exactly once.

    python pipeline_alerts.py grpc://127.0.0.1:8815,grpc://127.0.0.1:8816 alerts

The checkpoint makes a replay repeat the same rows, and the sink makes a replay add nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from brokerweave.pipeline import ParquetSink, open_session

LIMIT = 22.5


def main(nodes: str, folder: str) -> None:
    spark = open_session("local[2]", "alerts")
    sink = ParquetSink(Path(folder) / "table")
    rows = spark.readStream.format("brokerweave").option("nodes", nodes).option("topics", "s/#").load()
    reading = F.get_json_object(F.decode("payload", "UTF-8"), "$.t").cast("double")
    alerts = rows.select("site", "topic", "received", reading.alias("t")).filter(F.col("t") > LIMIT)

    def write(batch: DataFrame, batch_id: int) -> None:
        sink.write(batch, "alerts", batch_id)

    query = (
        alerts.writeStream.foreachBatch(write)
        .option("checkpointLocation", str(Path(folder) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:3])
