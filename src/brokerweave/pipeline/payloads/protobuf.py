"""The wire format of protocol buffers, so far as reading needs it: fields by number.

Owns varints, the four wire types and their bounds. Invariants: malformed bytes raise ValueError and nothing
else; no length is believed beyond the bytes that are there. Must not know: any message.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def fields(data: bytes) -> Iterator[tuple[int, int, int | bytes]]:
    """(number, wire type, value) of each field: a varint as unsigned number, everything else as its bytes."""
    at, end = 0, len(data)
    while at < end:
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("field number 0")
        if wire == VARINT:
            value, at = varint(data, at)
            yield number, wire, value
            continue
        if wire == BYTES:
            size, at = varint(data, at)
        elif wire in (FIXED32, FIXED64):
            size = 4 if wire == FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire}")
        if size > end - at:
            raise ValueError("a field ends after the payload")
        yield number, wire, data[at : at + size]
        at += size


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and the place after it."""
    number = shift = 0
    for place in range(at, min(at + 10, len(data))):
        byte = data[place]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, place + 1
        shift += 7
    raise ValueError("a number does not end")


def as_float(data: bytes) -> float:
    value: float = struct.unpack("<f", data)[0]
    return value


def as_double(data: bytes) -> float:
    value: float = struct.unpack("<d", data)[0]
    return value
