"""One transactional producer to Kafka, which keeps the position that it has reached there too.

Owns the client library. Invariants: `send` has put all of its records and the position into Kafka in one
transaction, or none of it, for readers of committed records; after an error the object is of no more use:
open another, which asks Kafka where it stands. A second producer of the same log and reader ends the first
(Kafka fences it). Must not know: where records come from.

The position is the committed offset of a consumer group of this name, on the topics that were written to: its
metadata holds EPOCH:SEQUENCE, so no topic of our own is needed for it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import Any

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from brokerweave.edgelog.layout import START, Position
from brokerweave.errors import ConfigError, Unavailable
from brokerweave.kafka.feeder import TooLarge
from brokerweave.kafka.records import KafkaRecord

log = logging.getLogger("brokerweave.kafka")

CALL_SECONDS = 15.0
"""How long one answer of Kafka may take."""
TRANSACTION_MS = 30_000
"""After a kill -9, readers of committed records wait this long at most for what the dead one had begun."""
_SILENT = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
_OURS = (
    "bootstrap.servers",
    "transactional.id",
    "enable.idempotence",
    "compression.type",
    "group.id",
    "acks",
)


def client_settings(path: Path | None) -> dict[str, str]:
    """`key=value` lines for the client library: security.protocol and so on. Raises `ConfigError`."""
    if path is None:
        return {}
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from error
    settings = {}
    for number, line in enumerate(lines, 1):
        key, equals, value = (part.strip() for part in line.partition("="))
        if not key or key.startswith("#"):
            continue
        if not equals:
            raise ConfigError(f"line {number} of {path} should be key=value")
        if key in _OURS:
            raise ConfigError(f"{key} in line {number} of {path} is not for this file: brokerweave sets it")
        settings[key] = value
    return settings


class Cluster:
    """A context manager. `name` is the same for the same log and reader at every start."""

    def __init__(
        self,
        servers: str,
        name: str,
        compression: str,
        settings: Mapping[str, str],
        transaction_ms: int = TRANSACTION_MS,
    ) -> None:
        """Raises `ConfigError` for settings that the client library does not take."""
        self._servers, self._group = servers, name
        self._doubtful: list[Position] = []
        """Records of which one or more are too large, if Kafka says that one is."""
        self._trouble = ""
        common: dict[str, Any] = {**settings, "bootstrap.servers": servers, "logger": log}
        try:
            self._admin = AdminClient(common)
            self._consumer = Consumer({**common, "group.id": name, "enable.auto.commit": False})
            self._producer = Producer(
                {
                    "linger.ms": 5,
                    "transaction.timeout.ms": transaction_ms,
                    **common,
                    "transactional.id": name,
                    "compression.type": compression,
                    "error_cb": self._heard,
                }
            )
        except KafkaException as error:
            raise ConfigError(f"Kafka's client settings: {_text(error)}") from error

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(KafkaException):
            self._producer.purge()
        self._consumer.close()
        # Now, not when the garbage collector comes by: each holds threads and descriptors.
        del self._producer, self._consumer, self._admin

    def begin(self) -> Position:
        """Take over from whoever fed before; how far Kafka has it, START if it does not know."""
        with self._translated():
            self._producer.init_transactions(CALL_SECONDS)
            wanted = [ConsumerGroupTopicPartitions(self._group)]
            asked = self._admin.list_consumer_group_offsets(
                wanted, require_stable=True, request_timeout=CALL_SECONDS
            )
            (answer,) = [future.result(CALL_SECONDS) for future in asked.values()]
        found = [_position(each.metadata) for each in answer.topic_partitions if each.error is None]
        return max(found, default=START)

    def send(self, records: Iterable[KafkaRecord], reached: Position) -> None:
        """All of it, or nothing. Raises `Unavailable` or `TooLarge`; after either, this object is done."""
        self._doubtful, topics = [], set()
        with self._translated():
            self._producer.begin_transaction()
            for record in records:
                self._produce(record)
                self._doubtful.append(record.position)
                topics.add(record.topic)
            offsets = [TopicPartition(topic, 0, reached.sequence, str(reached)) for topic in topics]
            if offsets:
                group = self._consumer.consumer_group_metadata()
                self._producer.send_offsets_to_transaction(offsets, group, CALL_SECONDS)
            self._producer.commit_transaction(CALL_SECONDS)

    def _produce(self, record: KafkaRecord) -> None:
        deadline = monotonic() + CALL_SECONDS
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    headers=record.headers,
                    timestamp=record.timestamp,
                )
                return
            except BufferError:  # as much is on its way as the client keeps
                if monotonic() > deadline:
                    raise
                self._producer.poll(0.1)
            except KafkaException:
                self._doubtful = [record.position]
                raise

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            code = error.args[0].code() if isinstance(error.args[0], KafkaError) else None
            if code in _SILENT:
                raise self._silent() from error
            if code == KafkaError.MSG_SIZE_TOO_LARGE and self._doubtful:
                raise TooLarge(frozenset(self._doubtful)) from error
            raise Unavailable(f"Kafka: {_text(error)}") from error
        except (BufferError, TimeoutError) as error:
            raise self._silent() from error

    def _silent(self) -> Unavailable:
        self._producer.poll(0)  # lets `_heard` hear
        why = f": {self._trouble}" if self._trouble else ""
        return Unavailable(f"Kafka at {self._servers} does not answer{why}")

    def _heard(self, error: KafkaError) -> None:
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self._trouble:
            self._trouble = error.str().partition(" (after ")[0]  # how long varies, and says nothing


def _position(metadata: str | None) -> Position:
    try:
        return Position.parse(metadata or "")
    except ValueError:
        return START


def _text(error: KafkaException) -> str:
    cause = error.args[0]
    return cause.str() if isinstance(cause, KafkaError) else str(cause)
