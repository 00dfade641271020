"""Objects (of JSON, of CBOR) as typed columns: the types, the schema of a sample, and what fits nowhere.

Owns which value fits which type. Invariants: a member that the schema does not name goes into `_rest` as
JSON text, never away; a value of the wrong type makes its row undecodable, with the reason; column names
differ also for readers that ignore case, as Spark does. Must not know: how an object was encoded.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from brokerweave.edgelog.arrow import SCHEMA as BRONZE
from brokerweave.errors import ConfigError
from brokerweave.pipeline.payloads import REST, Decoded
from brokerweave.pipeline.payloads.times import moment

TYPES = {
    "double": pa.float64(),
    "long": pa.int64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "json": pa.string(),
}
LONGEST_SCHEMA = 200
"""Members that a sample may turn into columns; further ones stay in `_rest`."""
EXACT = 2**53
"""From here on not every whole number is a double."""
RESERVED = frozenset([*BRONZE.names, "event_time", "payload_hash", "date", "metrics", REST]) - {"payload"}
"""Columns that silver has, or readers make (`date`), whatever payloads hold."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_NOTHING = type(None)
# Numbers of thousands of digits, lone surrogates, structures that hold themselves: all of these can come in.
_MISFITS = (ValueError, OverflowError, UnicodeError, RecursionError, TypeError)
_KINDS: Mapping[str, frozenset[type]] = {
    "double": frozenset({float, int, _NOTHING}),
    "long": frozenset({int, _NOTHING}),
    "string": frozenset({str, _NOTHING}),
    "boolean": frozenset({bool, _NOTHING}),
}


def column_of(member: str) -> str:
    """The column of a member; what would hide one of silver's own columns is called payload_..."""
    return f"payload_{member}" if member.lower() in RESERVED else member


def check(fields: Mapping[str, str]) -> None:
    """Raises `ConfigError` for a schema that cannot be kept."""
    seen: dict[str, str] = {}
    for member, kind in fields.items():
        if kind not in TYPES:
            raise ConfigError(f"field '{member}' has type '{kind}': use one of {', '.join(TYPES)}")
        if not _NAME.fullmatch(member):
            raise ConfigError(
                f"field '{member}': a column's name is letters, digits and _; leave it to {REST}"
            )
        other = seen.setdefault(column_of(member).lower(), member)
        if other != member:
            raise ConfigError(f"fields '{other}' and '{member}' would be one column for Spark")


def infer(sample: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The types of a sample's members. Numbers become double: the next reading of 21 may be 21.5."""
    kinds: dict[str, set[str]] = {}
    for each in sample:
        for member, value in each.items():
            if value is not None and (member in kinds or len(kinds) < LONGEST_SCHEMA):
                kinds.setdefault(member, set()).add(_kind(value))
    made: dict[str, str] = {}
    taken: set[str] = set()
    for member in sorted(kinds):
        column = column_of(member).lower()
        if _NAME.fullmatch(member) and column not in taken:
            taken.add(column)
            found = kinds[member]
            made[member] = found.pop() if len(found) == 1 else _wider(found)
    return made


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "double" if abs(value) <= EXACT else "long" if abs(value) < 2**63 else "json"
    if isinstance(value, float):
        return "double"
    return "string" if isinstance(value, str) else "json"


def _wider(kinds: set[str]) -> str:
    return "long" if kinds == {"double", "long"} else "json"


class Fields:
    """Builds the columns of one schema."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        check(fields)
        self.fields = dict(fields)
        self._members = frozenset(fields)
        columns = [pa.field(column_of(member), TYPES[kind]) for member, kind in self.fields.items()]
        self.schema = pa.schema([*columns, pa.field(REST, pa.string())])

    def build(self, rows: Sequence[Mapping[str, Any] | None], errors: list[str | None]) -> Decoded:
        """Columns of the rows' objects (None where `errors` has a reason already)."""
        whole: list[Mapping[str, Any]] = [row if row is not None else {} for row in rows]
        columns = []
        for member, kind in self.fields.items():
            values = [row.get(member) for row in whole]
            columns.append(_column(member, kind, values, errors))
        members = self._members
        rest = [
            None if row.keys() <= members else self._rest(at, row, errors) for at, row in enumerate(whole)
        ]
        columns.append(pa.array(rest, pa.string()))
        return Decoded(columns, pa.array(errors, pa.string()))

    def _rest(self, at: int, row: Mapping[str, Any], errors: list[str | None]) -> str | None:
        try:
            return as_text({member: value for member, value in row.items() if member not in self._members})
        except _MISFITS as error:
            errors[at] = errors[at] or f"a member cannot be written as JSON: {_short(str(error))}"
            return None


def _column(member: str, kind: str, values: list[Any], errors: list[str | None]) -> pa.Array:
    if kind in _KINDS and set(map(type, values)) <= _KINDS[kind]:
        try:
            return pa.array(values, TYPES[kind])
        except (pa.ArrowException, OverflowError, UnicodeError):
            pass  # one of them is too large, or no text: find out which
    fitting: list[Any] = []
    for at, value in enumerate(values):
        try:
            fitting.append(None if value is None else _fit(kind, value))
        except _MISFITS:
            fitting.append(None)
            errors[at] = errors[at] or f"field {member}: {_shown(value)} is no {kind}"
    return pa.array(fitting, TYPES[kind])


def _fit(kind: str, value: Any) -> Any:
    """The value as the type has it. Raises ValueError and its kin if it does not fit without loss."""
    if kind == "json":
        return as_text(value)
    if kind == "timestamp":
        return moment(value)
    if kind == "string" and isinstance(value, str):
        value.encode()
        return value
    if kind == "boolean" and isinstance(value, bool):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if kind == "double" and (isinstance(value, float) or int(float(value)) == value):
            return float(value)
        if kind == "long" and int(value) == value and -(2**63) <= value < 2**63:
            return int(value)
    raise ValueError(kind)


def as_text(value: Any) -> str:
    """JSON text of a value; what JSON has no word for becomes text or null."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError):
        return json.dumps(_plain(value), separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value)


def _shown(value: object) -> str:
    """A value in a reason: short, on one line, text that can be stored."""
    try:
        return _short(ascii(value))
    except (ValueError, RecursionError):
        return f"a very large {type(value).__name__}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
