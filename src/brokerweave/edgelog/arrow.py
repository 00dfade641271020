"""Blocks as Arrow record batches, for bulk readers. The one file of the edge log that needs pyarrow.

Owns the schema of the rows, in types that Spark's Python sources take (no dictionaries, no unsigned numbers).
Invariants: buffers that the compiled `Columns` filled are used as they are; no row is touched in Python; a
column that was not asked for costs no copy. Must not know: files, who asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from brokerweave.edgelog.folder import LogIdentity
from brokerweave.edgelog.layout import START, VERSION, Block, Position
from brokerweave.edgelog.rows import property_pairs
from brokerweave.errors import ConfigError
from brokerweave.mqtt.frames import Columns, RouteCache

_LAST = 2**62
_SIZES = {"q": 8, "i": 4, "B": 1}

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


CONSTANT = ("log_id", "site", "schema_version")
"""Columns whose value is the same in all rows of a log."""


def constants(identity: LogIdentity) -> dict[str, str | int]:
    return {"log_id": identity.log_id, "site": identity.node, "schema_version": VERSION}


def batch(
    identity: LogIdentity,
    blocks: Iterable[Block],
    after: Position = START,
    up_to: Position | None = None,
    wanted: RouteCache | None = None,
    columns: Sequence[str] | None = None,
) -> pa.RecordBatch:
    """The rows of some blocks after one position and up to another, whose topics `wanted` resolves.

    Keep the payloads of one batch below 2 GiB together: a hundred blocks or so. Raises `ConfigError` if there
    is no such column.
    """
    schema, found = project(columns), list(blocks)
    buffers: dict[str, pa.Buffer] = {}

    def room(name: str, kind: str, count: int) -> memoryview:
        buffers[name] = pa.allocate_buffer(count * _SIZES[kind])
        return memoryview(buffers[name]).cast("B").cast(kind)  # type: ignore[call-overload,no-any-return]

    filled = Columns(
        sum(block.rows for block in found),
        sum(len(block.body) for block in found),
        room,
        frozenset(schema.names),
    )
    for block in found:
        low = after.sequence + 1 if block.epoch == after.epoch else 0
        high = up_to.sequence if up_to is not None and block.epoch == up_to.epoch else _LAST
        filled.add(block.body, block.epoch, block.first, low, high, wanted)
    make = _Made(identity, filled, buffers)
    return pa.RecordBatch.from_arrays([make.column(name) for name in schema.names], schema=schema)


def project(columns: Sequence[str] | None) -> pa.Schema:
    """The schema of some columns, in their order. Raises `ConfigError`."""
    if columns is None:
        return SCHEMA
    for name in columns:
        if name not in SCHEMA.names:
            raise ConfigError(f"there is no column {name[:80]!r}; known are {', '.join(SCHEMA.names)}")
    if len(set(columns)) != len(columns):
        raise ConfigError("a column is asked for twice")
    return pa.schema([SCHEMA.field(name) for name in columns])


def constant(name: str, value: str | int, count: int) -> pa.Array:
    """A column of `CONSTANT`."""
    return pa.repeat(pa.scalar(value, SCHEMA.field(name).type), count)


class _Made:
    """Arrow's arrays over what `Columns` filled."""

    def __init__(self, identity: LogIdentity, filled: Columns, buffers: dict[str, pa.Buffer]) -> None:
        self._identity = identity
        self._filled = filled
        self._buffers = buffers
        self._rows = filled.rows

    def column(self, name: str) -> pa.Array:
        if name in CONSTANT:
            return constant(name, constants(self._identity)[name], self._rows)
        kind, rows, buffers = SCHEMA.field(name).type, self._rows, self._buffers
        if name == "topic":
            return self._joined(kind, "topic_ends", self._filled.topics)
        if name == "payload":
            return self._joined(kind, "payload_ends", self._filled.payloads)
        if name == "client":
            names = pa.array(self._filled.clients, pa.binary()).cast(pa.string())
            return names.take(self._numbers(pa.int32(), "client_at"))
        if name == "properties":
            return self._properties(kind)
        if name in ("retain", "dup"):
            return self._numbers(pa.int8(), name).cast(pa.bool_())
        return pa.Array.from_buffers(kind, rows, [None, buffers[_NUMBERS[name]]])

    def _numbers(self, kind: pa.DataType, name: str) -> pa.Array:
        return pa.Array.from_buffers(kind, self._rows, [None, self._buffers[name]])

    def _joined(self, kind: pa.DataType, ends: str, data: bytearray) -> pa.Array:
        return pa.Array.from_buffers(kind, self._rows, [None, self._buffers[ends], pa.py_buffer(data)])

    def _properties(self, kind: pa.DataType) -> pa.Array:
        """Most rows have none, or the same as others: each set is read once."""
        sets = [
            [{"key": key, "value": value} for key, value in property_pairs(encoded)]
            for encoded in self._filled.property_sets
        ]
        if len(sets) > 1:
            return pa.array(sets, kind).take(self._numbers(pa.int32(), "properties_at"))
        none = pa.py_buffer(bytes(4 * (self._rows + 1)))
        return pa.Array.from_buffers(kind, self._rows, [None, none], children=[pa.array([], kind.value_type)])


_NUMBERS = {
    "epoch": "epochs",
    "sequence": "sequences",
    "received": "received",
    "qos": "qos",
    "packet_id": "packet_ids",
}
