"""What is in a Kafka topic, for readers of committed records."""

from __future__ import annotations

import time
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from brokerweave.edgelog.layout import Position
from tests.support.waiting import LIMIT


@dataclass(frozen=True)
class Found:
    key: str
    value: bytes
    headers: dict[str, str]
    partition: int

    @property
    def position(self) -> Position:
        return Position(int(self.headers["epoch"]), int(self.headers["sequence"]))


def make_topic(address: str, topic: str, settings: dict[str, str], partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    (made,) = admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]).values()
    made.result(LIMIT)


def everything(address: str, topic: str) -> list[Found]:
    """All that is committed in a topic now; nothing if there is no such topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reading-all",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    try:
        partitions = consumer.list_topics(topic, LIMIT).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        return _read(consumer, len(partitions))
    finally:
        consumer.close()


def _read(consumer: Consumer, partitions: int) -> list[Found]:
    found, ended, deadline = [], 0, time.monotonic() + 3 * LIMIT
    while ended < partitions:
        if time.monotonic() > deadline:
            raise AssertionError(f"Kafka did not let {partitions} partitions be read to their ends")
        message = consumer.poll(0.1)
        if message is None:
            continue
        if (error := message.error()) is not None:
            if error.code() != error._PARTITION_EOF:
                raise KafkaException(error)
            ended += 1
            continue
        key, value = message.key() or b"", message.value()
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        headers = {name: bytes(text).decode() for name, text in message.headers() or []}  # type: ignore[arg-type,str-unpack]
        found.append(Found(key.decode(), value, headers, message.partition() or 0))
    return found
