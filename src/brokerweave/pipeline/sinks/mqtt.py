"""Back to MQTT: rows as JSON messages through a node, so that any client of any site can subscribe to them.

Owns one MQTT connection a batch. Invariants: a batch is done only when the broker has acknowledged (QoS 1)
every message of it; else `write` raises, and Spark hands the batch over again. So a message comes at least
once. Each carries `batch` and `row`, the same for the same row in a repetition, by which a consumer drops
what it has. Must not know: what the rows mean.

All rows go through the driver: meant for alerts and aggregates.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Iterator
from hashlib import sha256

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from brokerweave.config import Address
from brokerweave.errors import ConfigError, Unavailable
from brokerweave.mqtt.packets import PubAck, Publish
from brokerweave.mqtt.properties import Property
from brokerweave.pipeline.sinks import Written
from brokerweave.runtime.client import Client, ConnectRefused

WINDOW = 100
"""Messages that wait for their acknowledgement at a time, if the broker lets us."""
TIMEOUT = 10.0
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_NOT_IN_TOPIC = re.compile(r"[+#\x00]")
_OLDER_ONLY = (0x84, 0x01)
"""Refusals of MQTT 5: unsupported protocol version."""


class MqttSink:
    """Implements `Sink`. In `topic`, `{column}` is a row's value of that column."""

    def __init__(
        self,
        host: str,
        port: int,
        topic: str,
        *,
        username: str | None = None,
        password: bytes | None = None,
        retain: bool = False,
    ) -> None:
        self._broker, self._topic = Address(host, port), topic
        self._login, self._retain = (username, password), retain

    def write(self, batch: DataFrame, query: str, batch_id: int) -> Written:
        """Raises `Unavailable` if not all of it was acknowledged."""
        messages = list(self._messages(batch, query, batch_id))
        if messages:
            asyncio.run(self._publish(messages, query))
        return Written(len(messages), size=sum(len(payload) for _, payload in messages))

    def _messages(self, batch: DataFrame, query: str, batch_id: int) -> Iterator[tuple[str, bytes]]:
        names = _PLACEHOLDER.findall(self._topic)
        if missing := set(names) - set(batch.columns):
            raise ConfigError(f"no column {', '.join(sorted(missing))} for the topic {self._topic}")
        value = f.to_json(f.struct("*"), {"ignoreNullFields": "false"})
        levels = [f.coalesce(f.col(name).cast("string"), f.lit("")) for name in names]
        # Sorted, so that a repetition numbers its rows alike.
        found = sorted(batch.select(value, f.array(*levels)).collect())
        for number, (text, parts) in enumerate(found):
            values = iter(parts)
            topic = _PLACEHOLDER.sub(lambda _, values=values: next(values), self._topic)  # type: ignore[misc]
            payload = {**json.loads(text), "batch": f"{query}/{batch_id}", "row": number}
            yield _NOT_IN_TOPIC.sub("_", topic), json.dumps(payload).encode()

    async def _publish(self, messages: list[tuple[str, bytes]], query: str) -> None:
        client = await self._connect(query)
        try:
            allowed = client.property(Property.RECEIVE_MAXIMUM)
            window = min(WINDOW, allowed) if isinstance(allowed, int) else WINDOW
            await _publish_all(client, messages, window, self._retain)
        except BaseException:
            await client.abort()
            raise
        await client.disconnect()

    async def _connect(self, query: str) -> Client:
        username, password = self._login
        for version in (5, 4):
            try:
                return await Client.connect(
                    self._broker,
                    version=version,
                    # One for each query: 23 characters, as older brokers want.
                    client_id=f"bw-sink-{sha256(query.encode()).hexdigest()[:15]}",
                    username=username,
                    password=password,
                    timeout=TIMEOUT,
                )
            except ConnectRefused as error:
                if version == 4 or error.reason_code not in _OLDER_ONLY:
                    raise
        raise AssertionError("unreachable")


async def _publish_all(
    client: Client, messages: Iterable[tuple[str, bytes]], window: int, retain: bool
) -> None:
    waiting: dict[int, str] = {}
    for topic, payload in messages:
        while len(waiting) >= window:
            await _acknowledged(client, waiting)
        packet_id = client.next_id()
        waiting[packet_id] = topic
        client.send(Publish(topic, payload, 1, retain, packet_id=packet_id))
    while waiting:
        await _acknowledged(client, waiting)


async def _acknowledged(client: Client, waiting: dict[int, str]) -> None:
    answer = await client.next_answer()
    if not isinstance(answer, PubAck) or answer.packet_id not in waiting:
        return
    topic = waiting.pop(answer.packet_id)
    if answer.reason_code >= 0x80:
        raise Unavailable(f"the broker refuses what is published to {topic}: 0x{answer.reason_code:02x}")
