# cython: annotation_typing=False, nonecheck=True
"""Stamps: names of publications, as a user property that only nodes see.

A stamp is a user property of MQTT 5 behind all others of its PUBLISH. Its value is the base64 form (without
padding) of an id of 1 to 12 bytes and a check of 4 bytes. An id of 8 bytes takes 23 bytes on the wire.

Compiled by Cython (types in `stamp.pxd`), and the same file runs uncompiled. Owns the form of a stamp.
Invariants: nobody without the key can make a valid stamp; what is not a valid stamp stays where it is, under
whatever name; a frame that is stamped and then freed of its stamp is the same frame, if its lengths were in
their shortest form [MQTT-1.5.5-1]. Must not know: what an id means, who gets a stamp.
"""

from __future__ import annotations

from binascii import Error, a2b_base64, b2a_base64
from hashlib import blake2b

from brokerweave.errors import LocalProtocolError, RemoteProtocolError
from brokerweave.mqtt.publish import fixed_header
from brokerweave.mqtt.scanner import PublishReader

NAME = "bw"
MOST_ID_BYTES = 12
GROWTH = 31
"""Bytes by which a stamp makes a PUBLISH longer, at most: 29 of its own, and one more for each of the two
lengths before it."""

_CHECK_BYTES = 4
_LONGEST_KEY = 64
_HEAD = b"\x26\x00\x02" + NAME.encode()
_SIZES = [size.to_bytes(2, "big") for size in range(25)]
"""How a string of that length begins."""
_PADDING = (b"", b"===", b"==", b"=")


class Stamps:
    """Makes and finds stamps of one key. Without a key, a check only tells a stamp from something else."""

    __slots__ = ("_check", "_head")

    def __init__(self, key: bytes = b"") -> None:
        if len(key) > _LONGEST_KEY:
            key = blake2b(key).digest()
        self._check = blake2b(digest_size=_CHECK_BYTES, key=key, person=b"brokerweave")
        self._head = PublishReader()

    def stamp(self, frame: bytes, id: bytes) -> bytes:
        """An MQTT 5 PUBLISH with this stamp, and no other. Raises RemoteProtocolError where that is not what
        the frame is."""
        if not 0 < len(id) <= MOST_ID_BYTES:
            raise LocalProtocolError(f"a stamp has 1 to {MOST_ID_BYTES} bytes, not {len(id)}")
        head = self._head
        bare, earlier = self.take_off(frame)
        if earlier is not None:
            head.read_next(bare, 0, len(bare), 5)
        value = self._value(id)
        properties = bare[head.properties : head.payload]
        return self._with_properties(bare, b"".join((properties, _HEAD, _SIZES[len(value)], value)))

    def take_off(self, frame: bytes) -> tuple[bytes, bytes | None]:
        """An MQTT 5 PUBLISH without its stamp, and what that said; the frame itself, and None, if it has
        none. Raises RemoteProtocolError where it is not one PUBLISH."""
        head = self._head
        if not frame or head.read_next(frame, 0, len(frame), 5) != len(frame):
            raise RemoteProtocolError("not exactly one frame")
        if frame.find(_HEAD, head.properties, head.payload) < 0:
            return frame, None
        kept: list[bytes] = []
        found: bytes | None = None
        at = start = head.properties
        while at < head.payload:
            end = head.property_end(frame, at)
            id = self._id(frame[at + len(_HEAD) + 2 : end]) if frame.startswith(_HEAD, at) else None
            if id is not None:
                found = id
                kept.append(frame[start:at])
                start = end
            at = end
        if found is None:
            return frame, None
        kept.append(frame[start : head.payload])
        return self._with_properties(frame, b"".join(kept)), found

    def _with_properties(self, frame: bytes, properties: bytes) -> bytes:
        """The frame that was read last, with others."""
        head = self._head
        size = fixed_header(0, len(properties))[1:]
        topic_and_id = frame[head.body : head.variable_end]
        length = len(topic_and_id) + len(size) + len(properties) + len(frame) - head.payload
        first = fixed_header(frame[0], length)
        return b"".join((first, topic_and_id, size, properties, frame[head.payload :]))

    def _value(self, id: bytes) -> bytes:
        check = self._check.copy()
        check.update(id)
        return b2a_base64(id + check.digest(), newline=False).rstrip(b"=")

    def _id(self, value: bytes) -> bytes | None:
        """What a value says, if this key made it: then it is the one value that says so."""
        try:
            id = a2b_base64(value + _PADDING[len(value) & 3])[:-_CHECK_BYTES]
        except Error:
            return None
        return id if 0 < len(id) <= MOST_ID_BYTES and self._value(id) == value else None
