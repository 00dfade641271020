"""Rows and aggregates as JSON into a Kafka topic.

Owns the form of a record. Invariant: a batch is one transaction, which also says that this batch of this
query is there; so for readers of committed records each row is there once, however often Spark hands the
batch over. Must not know: what the rows mean.

All rows go through the driver: meant for what a pipeline has condensed, some ten thousand rows a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import time

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from brokerweave.edgelog.layout import Position
from brokerweave.errors import ConfigError, Unavailable
from brokerweave.kafka.cluster import Cluster
from brokerweave.kafka.feeder import TooLarge
from brokerweave.kafka.records import KafkaRecord
from brokerweave.pipeline.sinks import Written

TRANSACTION_MS = 300_000
"""One batch has to be through by then."""


class KafkaSink:
    """Implements `Sink`. `key` names the column that becomes the records' key, beside being in the value."""

    def __init__(
        self,
        servers: str,
        topic: str,
        *,
        key: str | None = None,
        compression: str = "lz4",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`settings` are for librdkafka, by its names."""
        self._servers, self._topic, self._key = servers, topic, key
        self._compression, self._settings = compression, dict(settings or {})

    def write(self, batch: DataFrame, query: str, batch_id: int) -> Written:
        """Raises `Unavailable` if Kafka does not take it; nothing of the batch is there then."""
        here = Position(1, batch_id + 1)
        name = f"brokerweave-sink-{query}"
        counted = _Counted()
        with Cluster(self._servers, name, self._compression, self._settings, TRANSACTION_MS) as cluster:
            if cluster.begin() >= here:
                return Written(0, replayed=True)
            try:
                cluster.send(counted.each(self._records(batch, query, batch_id)), here)
            except TooLarge as error:
                raise Unavailable(f"batch {batch_id} of {query}: {error}; raise message.max.bytes") from error
        return Written(counted.rows, size=counted.bytes)

    def _records(self, batch: DataFrame, query: str, batch_id: int) -> Iterator[KafkaRecord]:
        if self._key is not None and self._key not in batch.columns:
            raise ConfigError(f"no column {self._key} for Kafka's key; there are {', '.join(batch.columns)}")
        key = f.lit("") if self._key is None else f.coalesce(f.col(self._key).cast("string"), f.lit(""))
        value = f.to_json(f.struct("*"), {"ignoreNullFields": "false"})
        headers: list[tuple[str, str | bytes | None]] = [("query", query), ("batch", str(batch_id))]
        now = int(time() * 1000)
        for number, (name, text) in enumerate(batch.select(key, value).toLocalIterator()):
            yield KafkaRecord(self._topic, name.encode(), text.encode(), headers, now, Position(1, number))


class _Counted:
    def __init__(self) -> None:
        self.rows = 0
        self.bytes = 0

    def each(self, records: Iterator[KafkaRecord]) -> Iterator[KafkaRecord]:
        for record in records:
            self.rows += 1
            self.bytes += len(record.value)
            yield record
