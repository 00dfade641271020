"""Reads what nodes fed into Kafka with Spark's own Kafka source, as the columns of `format("brokerweave")`.

Owns which of Spark's options make that exact, and how headers become columns again. Invariants: only
committed records are read, so what a feeding process had begun when it was killed is never seen; the columns
and their types are those of `edgelog.arrow.SCHEMA`. A record without our headers, somebody else's, is left
out. Must not know: how records got there, what jobs do with rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_NEED = {"includeHeaders": "true", "kafka.isolation.level": "read_committed"}
_PAIRS = "array<struct<key:string,value:string>>"


def connector(jars: Path | None = None, version: str | None = None) -> dict[str, str]:
    """The setting that gives a session the connector, which pyspark does not bring: for `open_session`.

    With the folder `jars` its jars are used; else Spark fetches `version`, by default that of pyspark itself.
    """
    if jars is not None:
        return {"spark.jars": ",".join(sorted(map(str, jars.glob("*.jar"))))}
    if version is None:
        from pyspark import __version__ as version
    return {"spark.jars.packages": f"{PACKAGE}:{version}"}


def read_stream(
    spark: SparkSession,
    servers: str,
    topics: Sequence[str] | str,
    *,
    starting: str = "earliest",
    rows_per_batch: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> DataFrame:
    """A stream of rows. `topics` are names, or one pattern (a Java regular expression).

    `settings` are Kafka's client settings by their Java names, such as `security.protocol`. Rows that Kafka
    has deleted before they were read stop the query, as they do with the edge log.
    """
    options = _options(servers, topics, settings) | {"startingOffsets": starting, "failOnDataLoss": "true"}
    if rows_per_batch is not None:
        options["maxOffsetsPerTrigger"] = str(rows_per_batch)
    return rows(spark.readStream.format("kafka").options(**options).load())


def read_batch(
    spark: SparkSession,
    servers: str,
    topics: Sequence[str] | str,
    *,
    settings: Mapping[str, str] | None = None,
) -> DataFrame:
    """All rows that Kafka has now."""
    return rows(spark.read.format("kafka").options(**_options(servers, topics, settings)).load())


def rows(records: DataFrame) -> DataFrame:
    """Kafka's columns as ours."""
    return records.select(
        _text("log_id").alias("log_id"),
        _text("epoch").cast("bigint").alias("epoch"),
        _text("sequence").cast("bigint").alias("sequence"),
        _text("site").alias("site"),
        _text("client").alias("client"),
        f.col("key").cast("string").alias("topic"),
        f.col("value").alias("payload"),
        f.timestamp_micros(_text("received").cast("bigint")).alias("received"),
        _text("qos").cast("tinyint").alias("qos"),
        _text("retain").cast("boolean").alias("retain"),
        _text("dup").cast("boolean").alias("dup"),
        _text("packet_id").cast("int").alias("packet_id"),
        f.coalesce(f.from_json(_text("properties"), _PAIRS), f.array().cast(_PAIRS)).alias("properties"),
        _text("schema_version").cast("tinyint").alias("schema_version"),
    ).where(f.col("log_id").isNotNull())


def _text(header: str) -> Column:
    """A header's value; null if there is none."""
    found = f.filter("headers", lambda each: each["key"] == header)
    return f.get(found, f.lit(0))["value"].cast("string")


def _options(servers: str, topics: Sequence[str] | str, settings: Mapping[str, str] | None) -> dict[str, str]:
    wanted = {"subscribePattern": topics} if isinstance(topics, str) else {"subscribe": ",".join(topics)}
    given = {f"kafka.{name}": value for name, value in (settings or {}).items()}
    return {"kafka.bootstrap.servers": servers, **given, **_NEED, **wanted}
