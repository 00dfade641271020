"""Blocks as rows: what was published, by whom, when. For people and tests; bulk readers take `arrow`.

Owns what a row's fields are, and how MQTT 5 properties become keys and values. Must not know: files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from brokerweave.edgelog.layout import START, Block, Position, decode_runs
from brokerweave.mqtt.frames import publish_head, split
from brokerweave.mqtt.primitives import Malformed, Reader, encode_varint
from brokerweave.mqtt.properties import Property, PropertyPlace, read_properties

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class LogRow:
    epoch: int
    sequence: int
    received: int
    """Microseconds since 1970."""
    client: str
    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    """The client had sent it before and heard no acknowledgement."""
    packet_id: int
    """0 at QoS 0. With client and payload it tells a resent publication from a new one."""
    properties: Pairs
    """User properties under their own names, the others as `mqtt.content_type` and so on."""

    @property
    def position(self) -> Position:
        return Position(self.epoch, self.sequence)


def rows(block: Block, after: Position = START) -> Iterator[LogRow]:
    """The block's rows that come after a position."""
    sequence = block.first
    for run in decode_runs(block.body):
        if Position(block.epoch, sequence + run.count - 1) <= after:
            sequence += run.count
            continue
        for index, frame in enumerate(split(run.blob)):
            if Position(block.epoch, sequence) > after:
                head = publish_head(frame, run.version)
                yield LogRow(
                    block.epoch,
                    sequence,
                    run.time,
                    run.client,
                    head.topic.decode(),
                    frame[head.payload_start :],
                    head.qos,
                    head.retain,
                    index in run.resent,
                    head.packet_id,
                    property_pairs(head.properties),
                )
            sequence += 1


def property_pairs(encoded: bytes) -> Pairs:
    """MQTT 5 properties, without their length, as keys and values."""
    if not encoded:
        return ()
    pairs: list[tuple[str, str]] = []
    try:
        found = read_properties(Reader(encode_varint(len(encoded)) + encoded), PropertyPlace.PUBLISH)
    except Malformed:
        return (("mqtt.malformed", encoded.hex()),)  # the broker judges them, not the log
    for identifier, value in found:
        if isinstance(value, tuple):
            pairs.append(value)
        else:
            text = value.hex() if isinstance(value, bytes) else str(value)
            pairs.append((f"mqtt.{Property(identifier).name.lower()}", text))
    return tuple(pairs)
