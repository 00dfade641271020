"""Blocks as Arrow record batches, for bulk readers. The one file of the edge log that needs pyarrow.

Owns the schema of the rows, in types that Spark's Python sources take (no dictionaries, no unsigned numbers).
Invariants: buffers that the compiled scanner filled are used as they are; no row is touched in Python unless
it has properties or was resent. Must not know: files, who asked.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import pyarrow as pa

from brokerweave.edgelog.folder import Identity
from brokerweave.edgelog.layout import START, VERSION, Block, Position, run_fields
from brokerweave.edgelog.rows import property_pairs
from brokerweave.errors import ConfigError
from brokerweave.mqtt.frames import PublishColumns, RouteCache

_LAST = 2**62
_QOS = bytes(first >> 1 & 3 for first in range(256))
_RETAIN = bytes(first & 1 for first in range(256))

SCHEMA = pa.schema(
    [
        ("log_id", pa.string()),
        ("epoch", pa.int64()),
        ("sequence", pa.int64()),
        ("site", pa.string()),
        ("client", pa.string()),
        ("topic", pa.string()),
        ("payload", pa.binary()),
        ("received", pa.timestamp("us", tz="UTC")),
        ("qos", pa.int8()),
        ("retain", pa.bool_()),
        ("dup", pa.bool_()),
        ("packet_id", pa.int32()),
        ("properties", pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))),
        ("schema_version", pa.int8()),
    ]
)


def batch(
    identity: Identity,
    blocks: Iterable[Block],
    after: Position = START,
    up_to: Position | None = None,
    wanted: RouteCache | None = None,
    columns: Sequence[str] | None = None,
) -> pa.RecordBatch:
    """The rows of some blocks after one position and up to another, whose topics `wanted` resolves.

    Keep the payloads of one batch below 2 GiB together: a hundred blocks or so.
    """
    found = PublishColumns()
    epochs, times, clients, dups = array("q"), array("q"), _Repeated(), bytearray()
    marked: set[int] = set()
    for block in blocks:
        low = after.sequence + 1 if block.epoch == after.epoch else 0
        high = up_to.sequence if up_to is not None and block.epoch == up_to.epoch else _LAST
        sequence, before = block.first, len(dups)
        for time, client, version, count, blob, resent in run_fields(block.body):
            added = found.fill(blob, version, sequence, low, high, wanted)
            if added == 1:
                times.append(time)
            else:
                times += array("q", (time,)) * added
            clients.add(client, added)
            if resent:
                marked.update(sequence + index for index in resent)
            sequence += count
        added = len(found.sequences) - before
        epochs += array("q", (block.epoch,)) * added
        dups += bytes(added)
        if marked:
            _mark(dups, found.sequences, before, marked)
            marked.clear()
    made = _assemble(identity, found, epochs, times, clients, dups)
    return made if columns is None else made.select(list(columns))


def project(columns: Sequence[str] | None) -> pa.Schema:
    """The schema of some columns, in their order. Raises `ConfigError`."""
    if columns is None:
        return SCHEMA
    for name in columns:
        if name not in SCHEMA.names:
            raise ConfigError(f"there is no column {name[:80]!r}; known are {', '.join(SCHEMA.names)}")
    if not columns or len(set(columns)) != len(columns):
        raise ConfigError("columns should be one or more names, each once")
    return pa.schema([SCHEMA.field(name) for name in columns])


def _mark(dups: bytearray, sequences: array[int], at: int, marked: set[int]) -> None:
    for place in range(at, len(dups)):
        if sequences[place] in marked:
            dups[place] = 1


class _Repeated:
    """A text column in which the same value comes many times in a row."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ends = array("i", (0,))

    def add(self, value: bytes, count: int) -> None:
        start, size = len(self.data), len(value)
        self.data += value * count
        if count == 1:
            self.ends.append(start + size)
        elif size:
            self.ends.extend(range(start + size, start + size * count + 1, size))
        else:
            self.ends.extend((start,) * count)


def _assemble(
    identity: Identity,
    columns: PublishColumns,
    epochs: array[int],
    times: array[int],
    clients: _Repeated,
    dups: bytearray,
) -> pa.RecordBatch:
    count = len(columns.sequences)
    arrays = [
        pa.repeat(pa.scalar(identity.log_id), count),
        _numbers(pa.int64(), epochs),
        _numbers(pa.int64(), columns.sequences),
        pa.repeat(pa.scalar(identity.node), count),
        _texts(pa.string(), clients.ends, clients.data),
        _texts(pa.string(), columns.topic_ends, columns.topics),
        _texts(pa.binary(), columns.payload_ends, columns.payloads),
        _numbers(pa.timestamp("us", tz="UTC"), times),
        _bytes(columns.heads.translate(_QOS)),
        _bytes(columns.heads.translate(_RETAIN)).cast(pa.bool_()),
        _bytes(dups).cast(pa.bool_()),
        _numbers(pa.uint16(), columns.packet_ids).cast(pa.int32()),
        _properties(columns, count),
        pa.repeat(pa.scalar(VERSION, pa.int8()), count),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _numbers(kind: pa.DataType, values: array[int]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _bytes(values: bytearray) -> pa.Array:
    return pa.Array.from_buffers(pa.int8(), len(values), [None, pa.py_buffer(values)])


def _texts(kind: pa.DataType, ends: array[int], data: bytearray) -> pa.Array:
    return pa.Array.from_buffers(kind, len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])


def _properties(columns: PublishColumns, count: int) -> pa.Array:
    kind = SCHEMA.field("properties").type
    if not columns.properties:
        offsets = pa.array([0] * (count + 1), pa.int32())
        return pa.ListArray.from_arrays(offsets, pa.array([], kind.value_type))
    ends = columns.property_ends
    pairs = [property_pairs(bytes(columns.properties[ends[i] : ends[i + 1]])) for i in range(count)]
    return pa.array([[{"key": key, "value": value} for key, value in row] for row in pairs], kind)
