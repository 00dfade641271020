"""Times as payloads write them: numbers since 1970 in some unit, or ISO 8601 text.

Owns the guess of the unit and which times are believed. Must not know: columns' names, rows.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

TIME = pa.timestamp("us", tz="UTC")
# A number is seconds, milli-, micro- or nanoseconds, whichever puts it between 1970 and the year 5000: the
# ranges do not overlap before 1973 for any of them.
_UNITS = ((1e11, 1_000_000.0), (1e14, 1_000.0), (1e17, 1.0), (math.inf, 0.001))
EARLIEST = 946_684_800_000_000
LATEST = 4_102_444_800_000_000
"""2000 and 2100, in µs. A clock that says something else is not set."""
_FIRST = -62_135_596_800_000_000
"""The year 1, in µs: neither Python nor Spark has a time before it."""


def moment(value: Any) -> int:
    """µs since 1970 of a number or an ISO text. Raises ValueError."""
    if isinstance(value, datetime):
        return _microseconds(value)
    if isinstance(value, str):
        return _microseconds(datetime.fromisoformat(value.strip()))
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _scaled(value)
    raise ValueError("no time")


def _microseconds(time: datetime) -> int:
    known = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    since = known - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _scaled(number: float) -> int:
    size = abs(number)
    if not size < 1e19:
        raise ValueError("no time")
    factor = next(factor for limit, factor in _UNITS if size < limit)
    if isinstance(number, int):
        found = number * int(factor) if factor >= 1 else number // 1000
    else:
        found = round(number * factor)
    if found < _FIRST:
        raise ValueError("no time")
    return found


def event_times(values: pa.Array, received: pa.Array) -> pa.Array:
    """A payload column as event times; where it says nothing believable, the time of receipt."""
    if pa.types.is_timestamp(values.type):
        numbers = values.cast(pa.int64()).to_pylist()
    else:
        numbers = [_or_none(value) for value in values.to_pylist()]
    believed = [each if each is not None and EARLIEST <= each < LATEST else None for each in numbers]
    return pa.compute.coalesce(pa.array(believed, pa.int64()).cast(TIME), received)


def _or_none(value: object) -> int | None:
    try:
        return None if value is None else moment(value)
    except (ValueError, OverflowError):
        return None
