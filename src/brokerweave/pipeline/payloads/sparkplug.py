"""Sparkplug B: the payload of the industry's convention on MQTT, by the field numbers of its published
definition.

Owns one message's columns and its list of metrics, and the names that a BIRTH gives to aliases. Invariants:
a metric whose alias nobody explained keeps its alias and value, without a name; numbers that a double
cannot hold exactly are also kept as text. Must not know: where births are remembered (silver), other rules.

Not decoded further: data sets, templates, arrays and property sets; they are kept as base64 text.
"""

from __future__ import annotations

import base64
import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from brokerweave.pipeline.payloads import REST, Decoded
from brokerweave.pipeline.payloads.protobuf import BYTES, VARINT, as_double, as_float, fields
from brokerweave.pipeline.payloads.times import EARLIEST, LATEST, TIME

_DATATYPES = (
    "Unknown Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Float Double Boolean String DateTime Text "
    "UUID DataSet Bytes File Template PropertySet PropertySetList Int8Array Int16Array Int32Array Int64Array "
    "UInt8Array UInt16Array UInt32Array UInt64Array FloatArray DoubleArray BooleanArray StringArray "
    "DateTimeArray"
)
DATATYPES = _DATATYPES.split()
"""In the order of their numbers."""
_SIGNED = {1: 8, 2: 16, 3: 32, 4: 64}
"""Bits of the signed types: they travel as unsigned numbers."""
EXACT = 2**53
BIRTHS = ("NBIRTH", "DBIRTH")
METRIC = pa.struct(
    [
        ("name", pa.string()),
        ("alias", pa.int64()),
        ("time", TIME),
        ("datatype", pa.string()),
        ("value", pa.float64()),
        ("text", pa.string()),
        ("historical", pa.bool_()),
    ]
)
SCHEMA = pa.schema(
    [
        ("sp_group", pa.string()),
        ("sp_type", pa.string()),
        ("sp_node", pa.string()),
        ("sp_device", pa.string()),
        ("sp_time", TIME),
        ("sp_seq", pa.int64()),
        ("sp_bdseq", pa.int64()),
        ("metrics", pa.list_(METRIC)),
        (REST, pa.string()),
    ]
)
Names = Mapping[int, tuple[str, int]]
"""(name, datatype) by alias."""


@dataclass(frozen=True, slots=True)
class Birth:
    """What one BIRTH explained, and when: (µs received, sequence)."""

    at: tuple[int, int]
    names: Names


class SparkplugDecoder:
    """`aliases`: for each "group/node/device" its births, oldest first; a row uses the last one before it."""

    schema = SCHEMA

    def __init__(self, aliases: Mapping[str, list[Birth]]) -> None:
        self._births = {key: sorted(births, key=lambda birth: birth.at) for key, births in aliases.items()}

    def decode(self, rows: pa.RecordBatch) -> Decoded:
        made: list[dict[str, Any]] = []
        errors: list[str | None] = []
        topics = rows.column("topic").to_pylist()
        places = _places(rows)
        for at, payload in enumerate(rows.column("payload").to_pylist()):
            try:
                made.append(self._row(topics[at], payload, places[at]))
                errors.append(None)
            except (ValueError, TypeError) as error:  # TypeError: a field of another wire type than published
                made.append({})
                errors.append(f"not Sparkplug B: {error}")
        table = pa.RecordBatch.from_pylist(made, schema=SCHEMA)
        return Decoded(list(table.columns), pa.array(errors, pa.string()))

    def _row(self, topic: str, payload: bytes, place: tuple[int, int]) -> dict[str, Any]:
        group, kind, node, device = address(topic)
        row: dict[str, Any] = {"sp_group": group, "sp_type": kind, "sp_node": node, "sp_device": device}
        if kind == "STATE":  # a host's own message: text, no protocol buffer
            return row | {REST: payload.decode(), "metrics": []}
        time, sequence, metrics = message(payload)
        names = self._names(f"{group}/{node}/{device or ''}", place)
        made = [each.named(names) for each in metrics]
        bdseq = next((each.number for each in made if each.name == "bdSeq"), None)
        return row | {
            "sp_time": believed(time),
            "sp_seq": _int64(sequence),
            "sp_bdseq": _int64(bdseq),
            "metrics": [each.as_row() for each in made],
        }

    def _names(self, key: str, place: tuple[int, int]) -> Names:
        births = self._births.get(key)
        if not births:
            return {}
        # A row before the first birth that is known (the log began in between) most likely has its names.
        last = bisect_right([birth.at for birth in births], place) - 1
        return births[max(last, 0)].names


def address(topic: str) -> tuple[str | None, str, str | None, str | None]:
    """Group, message type, edge node and device of a topic. Raises ValueError."""
    levels = topic.split("/")
    if len(levels) == 3 and levels[1] == "STATE":
        return None, "STATE", levels[2], None
    if len(levels) not in (4, 5):
        raise ValueError("the topic is not namespace/group/type/node[/device]")
    return levels[1], levels[2], levels[3], levels[4] if len(levels) == 5 else None


@dataclass(slots=True)
class Metric:
    """One metric as it came; `field` is the number of its value's field."""

    name: str | None = None
    alias: int | None = None
    time: int | None = None
    datatype: int = 0
    historical: bool = False
    null: bool = False
    field: int = 0
    value: int | bytes = 0

    def named(self, names: Names) -> Metric:
        if self.alias is not None and self.alias in names:
            name, datatype = names[self.alias]
            self.name = self.name or name
            self.datatype = self.datatype or datatype
        return self

    @property
    def number(self) -> int | None:
        if self.null or self.field not in (10, 11) or not isinstance(self.value, int):
            return None
        bits = _SIGNED.get(self.datatype)
        if bits is None:
            return self.value
        low = self.value & ((1 << bits) - 1)
        return low - (1 << bits) if low >> (bits - 1) else low

    def as_row(self) -> dict[str, Any]:
        value, text = self._value()
        known = 0 <= self.datatype < len(DATATYPES)
        return {
            "name": self.name,
            "alias": _int64(self.alias),
            "time": believed(self.time),
            "datatype": DATATYPES[self.datatype] if known else str(self.datatype),
            "value": value,
            "text": text,
            "historical": self.historical,
        }

    def _value(self) -> tuple[float | None, str | None]:
        number, value = self.number, self.value
        if number is not None:
            return float(number), str(number) if abs(number) > EXACT else None
        if self.null or not self.field:
            return None, None
        if self.field == 14 and isinstance(value, int):
            return float(bool(value)), None
        if not isinstance(value, bytes):
            raise ValueError(f"field {self.field} of a metric is no bytes")
        if self.field in (12, 13):
            if len(value) != (4 if self.field == 12 else 8):
                raise ValueError(f"field {self.field} of a metric has {len(value)} bytes")
            read = as_float(value) if self.field == 12 else as_double(value)
            return (read, None) if math.isfinite(read) else (None, str(read))
        if self.field == 15:
            return None, value.decode()
        return None, base64.b64encode(value).decode()


def message(payload: bytes) -> tuple[int | None, int | None, list[Metric]]:
    """Timestamp, sequence number and metrics of a payload. Raises ValueError or TypeError."""
    time = sequence = None
    metrics = []
    for number, wire, value in fields(payload):
        if number == 1 and wire == VARINT:
            time = int(value)
        elif number == 2 and wire == BYTES:
            metrics.append(_metric(bytes(value)))
        elif number == 3 and wire == VARINT:
            sequence = int(value)
        elif number in (1, 2, 3):
            raise ValueError(f"field {number} has wire type {wire}")
    return time, sequence, metrics


def _metric(data: bytes) -> Metric:
    made = Metric()
    for number, _, value in fields(data):
        if number >= 10:
            if number <= 19:
                made.field, made.value = number, value
        elif isinstance(value, bytes):
            if number == 1:
                made.name = value.decode()
        elif number == 2:
            made.alias = value
        elif number == 3:
            made.time = value
        elif number == 4:
            made.datatype = value
        elif number == 5:
            made.historical = bool(value)
        elif number == 7:
            made.null = bool(value)
    return made


def births(rows: pa.RecordBatch | pa.Table) -> dict[str, list[Birth]]:
    """What the BIRTH messages among some rows explain, by "group/node/device"."""
    found: dict[str, list[Birth]] = {}
    topics, payloads = rows.column("topic").to_pylist(), rows.column("payload").to_pylist()
    for topic, payload, place in zip(topics, payloads, _places(rows), strict=True):
        try:
            group, kind, node, device = address(topic)
            if kind not in BIRTHS:
                continue
            metrics = message(payload)[2]
        except (ValueError, TypeError):
            continue  # the decoder tells why
        names = {
            each.alias: (each.name, each.datatype)
            for each in metrics
            if each.alias is not None and each.name is not None
        }
        found.setdefault(f"{group}/{node}/{device or ''}", []).append(Birth(place, names))
    return found


def _places(rows: pa.RecordBatch | pa.Table) -> list[tuple[int, int]]:
    """(µs received, sequence) of each row."""
    if "received" not in rows.schema.names:
        return [(0, 0)] * rows.num_rows
    times = rows.column("received").cast(pa.int64()).to_pylist()
    return list(zip(times, rows.column("sequence").to_pylist(), strict=True))


def believed(milliseconds: int | None) -> int | None:
    """µs, if the clock can be believed."""
    if milliseconds is None or not EARLIEST <= milliseconds * 1000 < LATEST:
        return None
    return milliseconds * 1000


def _int64(number: int | None) -> int | None:
    return number if number is not None and -(2**63) <= number < 2**63 else None
