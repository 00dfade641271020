"""MQTT's data types on the wire: integers, strings, binary data (MQTT 5, 1.5).

Owns their byte forms in both directions and `Malformed`, what all of this package raises inside itself
when a rule of MQTT is broken, whoever broke it; the codec alone turns it into a public error that names
the culprit. Must not know: packets, properties.
"""

from __future__ import annotations

VARINT_MAX = 268_435_455
_TOO_SHORT = "the packet ends in the middle of a value"


class Malformed(ValueError):
    """A rule of MQTT is broken; `reason_code` is the MQTT 5 code that says which kind."""

    def __init__(self, message: str, reason_code: int = 0x81) -> None:
        super().__init__(message)
        self.reason_code = reason_code


class Reader:
    """Reads values from a part of a frame, one after the other, and never beyond its end."""

    __slots__ = ("_at", "_data", "_end")

    def __init__(self, data: bytes, start: int = 0, end: int | None = None) -> None:
        self._data = data
        self._at = start
        self._end = len(data) if end is None else end

    @property
    def remaining(self) -> int:
        return self._end - self._at

    def take(self, size: int) -> bytes:
        start, end = self._at, self._at + size
        if end > self._end:
            raise Malformed(_TOO_SHORT)
        self._at = end
        return self._data[start:end]

    def rest(self) -> bytes:
        return self.take(self.remaining)

    def uint(self, size: int) -> int:
        start, end = self._at, self._at + size
        if end > self._end:
            raise Malformed(_TOO_SHORT)
        self._at = end
        return int.from_bytes(self._data[start:end], "big")

    def varint(self) -> int:
        value, size = decode_varint(self._data, self._at, self._end)
        self._at += size
        return value

    def binary(self) -> bytes:
        return self.take(self.uint(2))

    def text(self) -> str:
        return decode_text(self.binary())

    def part(self, size: int) -> Reader:
        """A reader for the next `size` bytes only."""
        start = self._at
        self.take(size)
        return Reader(self._data, start, start + size)


def decode_text(encoded: bytes) -> str:
    try:
        text = encoded.decode()
    except UnicodeDecodeError:
        raise Malformed("a string is not valid UTF-8 [MQTT-1.5.4-1]") from None
    if "\0" in text:
        raise Malformed("a string holds U+0000 [MQTT-1.5.4-2]")
    return text


def decode_varint(data: bytes, start: int = 0, end: int | None = None) -> tuple[int, int]:
    """The variable byte integer at `start`, and how many bytes it takes."""
    stop = len(data) if end is None else end
    if 0 <= start < stop and data[start] < 0x80:
        return data[start], 1  # most are that short
    value = 0
    for size in range(1, 5):
        if start + size > stop:
            raise Malformed("the packet ends in the middle of a length")
        byte = data[start + size - 1]
        value |= (byte & 0x7F) << (7 * (size - 1))
        if byte < 0x80:
            if byte == 0 and size > 1:
                raise Malformed("a length takes more bytes than it needs [MQTT-1.5.5-1]")
            return value, size
    raise Malformed("a length takes more than four bytes")


def encode_varint(value: int) -> bytes:
    if 0 <= value <= 0x7F:
        return bytes((value,))
    if not 0 <= value <= VARINT_MAX:
        raise Malformed(f"{value} does not fit into a variable byte integer", 0x95)
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_uint(value: int, size: int) -> bytes:
    if not 0 <= value < 1 << (8 * size):
        raise Malformed(f"{value} does not fit into {size} byte(s)")
    return value.to_bytes(size, "big")


def encode_binary(data: bytes) -> bytes:
    if len(data) > 0xFFFF:
        raise Malformed(f"{len(data)} bytes are too long for a string or binary value (at most 65,535)")
    return len(data).to_bytes(2, "big") + data


def encode_text(text: str) -> bytes:
    if "\0" in text:
        raise Malformed("a string holds U+0000 [MQTT-1.5.4-2]")
    try:
        return encode_binary(text.encode())
    except UnicodeEncodeError:
        raise Malformed("a string holds a lone surrogate [MQTT-1.5.4-1]") from None
