"""A row of the edge log as a Kafka record, and which Kafka topic it goes to.

Owns the names of the headers, which readers rely on (`pipeline/kafka.py` turns them back into columns).
Invariants: the key is the MQTT topic, so one topic's messages stay in one partition, in order; an empty
payload stays an empty value (none at all would be a tombstone); a Kafka topic's name is always one that Kafka
takes. Must not know: brokers, files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from brokerweave.edgelog.folder import LogIdentity
from brokerweave.edgelog.layout import VERSION, Position
from brokerweave.edgelog.rows import LogRow
from brokerweave.errors import ConfigError

Headers = list[tuple[str, str | bytes | None]]

_NOT_IN_TOPIC = re.compile(r"[^A-Za-z0-9._-]")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_LONGEST_TOPIC = 249
_MOST_CACHED = 100_000


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    topic: str
    key: bytes
    value: bytes
    headers: Headers
    timestamp: int
    """Milliseconds since 1970, as Kafka has it; the header `received` has microseconds."""
    position: Position


class TopicPattern:
    """`mqtt`: one topic for all. `mqtt.{node}.{1}`: with this node's id and the MQTT topic's first level."""

    def __init__(self, text: str, node: str) -> None:
        """Raises `ConfigError`."""
        wrong = [name for name in _PLACEHOLDER.findall(text) if name != "node" and not name.isdecimal()]
        plain = _PLACEHOLDER.sub("x", text)
        if wrong or not plain or _NOT_IN_TOPIC.search(plain):
            raise ConfigError(
                f"a Kafka topic has A-Z a-z 0-9 . _ - and {{node}}, {{1}}, {{2}} and so on; not {text!r}"
            )
        self._text = _PLACEHOLDER.sub(lambda match: node if match[1] == "node" else match[0], text)
        self._fixed = None if _PLACEHOLDER.search(self._text) else _legal(self._text)
        self._known: dict[str, str] = {}

    def topic(self, mqtt_topic: str) -> str:
        if self._fixed is not None:
            return self._fixed
        found = self._known.get(mqtt_topic)
        if found is None:
            levels = mqtt_topic.split("/")

            def level(match: re.Match[str]) -> str:
                number = int(match[1])
                return levels[number - 1] if 0 < number <= len(levels) else ""

            found = _legal(
                _PLACEHOLDER.sub(lambda match: _NOT_IN_TOPIC.sub("_", level(match)) or "_", self._text)
            )
            if len(self._known) >= _MOST_CACHED:
                self._known.clear()
            self._known[mqtt_topic] = found
        return found


def _legal(name: str) -> str:
    name = _NOT_IN_TOPIC.sub("_", name)[:_LONGEST_TOPIC]
    return "_" if name in (".", "..") else name


def maker(identity: LogIdentity, pattern: TopicPattern) -> Callable[[LogRow], KafkaRecord]:
    """What makes a log's rows into records."""
    same: Headers = [
        ("log_id", identity.log_id.encode()),
        ("site", identity.node.encode()),
        ("schema_version", b"%d" % VERSION),
    ]

    def record(row: LogRow) -> KafkaRecord:
        headers = [
            *same,
            ("epoch", b"%d" % row.epoch),
            ("sequence", b"%d" % row.sequence),
            ("client", row.client.encode()),
            ("received", b"%d" % row.received),
            ("qos", b"%d" % row.qos),
            ("retain", b"true" if row.retain else b"false"),
            ("dup", b"true" if row.dup else b"false"),
            ("packet_id", b"%d" % row.packet_id),
        ]
        if row.properties:
            pairs = [{"key": key, "value": value} for key, value in row.properties]
            headers.append(("properties", json.dumps(pairs).encode()))
        topic = pattern.topic(row.topic)
        return KafkaRecord(
            topic, row.topic.encode(), row.payload, headers, row.received // 1000, row.position
        )

    return record
