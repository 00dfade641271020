"""Reads values one after another from the content of a datagram.

Owns the place in it. Invariant: nothing is read beyond the end. Must not know: what the values mean.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

_U8, _U32, _U64 = Struct("!B"), Struct("!I"), Struct("!Q")


class Cursor:
    """Raises `ValueError` or `struct.error` where there is no such value."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def ended(self) -> bool:
        return self._at >= len(self._data)

    def u8(self) -> int:
        return int(self.values(_U8)[0])

    def u32(self) -> int:
        return int(self.values(_U32)[0])

    def u64(self) -> int:
        return int(self.values(_U64)[0])

    def values(self, form: Struct) -> tuple[Any, ...]:
        found = form.unpack_from(self._data, self._at)
        self._at += form.size
        return found

    def blob(self) -> bytes:
        """Its length is in the byte before it."""
        size = self.u8()
        data = self._data[self._at : self._at + size]
        if len(data) != size:
            raise ValueError("cut short")
        self._at += size
        return data


def blob(data: bytes) -> bytes:
    return bytes([len(data)]) + data
