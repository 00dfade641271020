"""What was published in a time, straight from the nodes, without a lake: counts for each topic.

python pipeline_batch.py grpc://127.0.0.1:8815 2026-01-31T00:00:00Z 2026-02-01T00:00:00Z
"""

from __future__ import annotations

import sys

from brokerweave.pipeline import open_session


def main(nodes: str, since: str, until: str) -> None:
    spark = open_session("local[2]", "counts")
    rows = (
        spark.read.format("brokerweave")
        .option("nodes", nodes)
        .option("columns", "site,topic,received")
        .option("startingTime", since)
        .option("endingTime", until)
        .load()
    )
    for row in rows.groupBy("site", "topic").count().orderBy("site", "topic").collect():
        print(f"{row['site']}  {row['topic']}  {row['count']}")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4])
