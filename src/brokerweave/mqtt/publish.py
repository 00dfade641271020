# cython: annotation_typing=False, nonecheck=True
"""PUBLISH frames as bytes: what stands before the payload, the same publication in another form, and runs.

Compiled by Cython (types in `publish.pxd`), and the same file runs uncompiled. Owns the rewriting of whole
PUBLISH frames. Invariant: a payload is never changed. Must not know: streams, how a frame is read (`scanner`
does).
"""

from __future__ import annotations

from brokerweave.errors import LocalProtocolError, RemoteProtocolError
from brokerweave.mqtt.scanner import PublishReader, RouteCache

_DOLLAR = 0x24


class PublishHead:
    """What precedes a PUBLISH frame's payload. `properties` without their length; `packet_id` 0 at QoS 0."""

    __slots__ = ("dup", "packet_id", "payload_start", "properties", "qos", "retain", "topic")

    def __init__(
        self,
        topic: bytes,
        qos: int,
        retain: bool,
        dup: bool,
        packet_id: int,
        properties: bytes,
        payload_start: int,
    ) -> None:
        self.topic = topic
        self.qos = qos
        self.retain = retain
        self.dup = dup
        self.packet_id = packet_id
        self.properties = properties
        self.payload_start = payload_start


def route_run(blob: bytes, version: int, routes: RouteCache) -> list[tuple[object | None, int, int, bytes]]:
    """Cut a blob of PUBLISH frames into runs of one group: (group, first index, count, part of the blob).

    Frames that nobody wants are runs of the group None, and so are `$` topics. Raises
    RemoteProtocolError, before any run is given, when a frame is malformed, cut, no PUBLISH or aliased.
    """
    runs: list[tuple[object | None, int, int, bytes]] = []
    head = PublishReader()
    at = start = index = first = 0
    current: object | None = None
    while at < len(blob):
        end = head.read_next(blob, at, len(blob), version)
        if head.alias or head.topic == head.topic_end:
            raise RemoteProtocolError("a forwarded PUBLISH has no topic of its own")
        group: object | None = None
        if blob[head.topic] != _DOLLAR:
            group = routes.lookup(head.topic_of(blob), blob[at] & 1 != 0)
        if group is not current and index > first:
            runs.append((current, first, index - first, blob[start:at]))
            start = at
            first = index
        current = group
        index += 1
        at = end
    if index > first:
        runs.append((current, first, index - first, blob[start:]))
    return runs


def convert(blob: bytes, from_version: int, to_version: int) -> bytes:
    """A blob of PUBLISH frames for another protocol version: MQTT 5 properties are dropped, or left empty."""
    if (from_version >= 5) == (to_version >= 5):
        return blob
    parts: list[bytes] = []
    head = PublishReader()
    at = 0
    while at < len(blob):
        end = head.read_next(blob, at, len(blob), from_version)
        properties = b"\x00" if to_version >= 5 else b""
        length = head.variable_end - head.body + len(properties) + end - head.payload
        parts.append(fixed_header(blob[at], length))
        parts.append(blob[head.body : head.variable_end])
        parts.append(properties)
        parts.append(blob[head.payload : end])
        at = end
    return b"".join(parts)


def publish_head(frame: bytes, version: int) -> PublishHead:
    """What stands before the payload of one PUBLISH frame."""
    head = _read_single(frame, version)
    return PublishHead(
        topic=head.topic_of(frame),
        qos=head.qos,
        retain=frame[0] & 1 != 0,
        dup=frame[0] & 8 != 0,
        packet_id=head.packet_id,
        properties=head.properties_of(frame),
        payload_start=head.payload,
    )


def with_qos(frame: bytes, version: int, to_version: int, qos: int, packet_id: int, dup: bool) -> bytes:
    """The same publication at another QoS, packet identifier (0 at QoS 0), DUP and protocol version."""
    if not 0 <= qos <= 2 or not (0 < packet_id <= 0xFFFF if qos else packet_id == 0 and not dup):
        raise LocalProtocolError(f"no PUBLISH has QoS {qos}, packet identifier {packet_id}, dup {dup}")
    head = _read_single(frame, version)
    middle = packet_id.to_bytes(2, "big") if qos else b""
    if to_version >= 5:
        middle += frame[head.variable_end : head.payload] if version >= 5 else b"\x00"
    topic = frame[head.body : head.topic_end]
    payload = frame[head.payload :]
    first = 0x30 | dup << 3 | qos << 1 | frame[0] & 1
    return b"".join((fixed_header(first, len(topic) + len(middle) + len(payload)), topic, middle, payload))


def _read_single(frame: bytes, version: int) -> PublishReader:
    head = PublishReader()
    if not frame or head.read_next(frame, 0, len(frame), version) != len(frame):
        raise RemoteProtocolError("not exactly one frame")
    return head


def fixed_header(first: int, length: int) -> bytes:
    """What stands before `length` bytes of a packet."""
    if length < 0x80:  # many are that short
        return bytes((first, length))
    header = bytearray((first,))
    while length >= 0x80:
        header.append(length & 0x7F | 0x80)
        length >>= 7
    header.append(length)
    return bytes(header)
