# cython: annotation_typing=False, nonecheck=True
"""The edge log's blocks as columns, for bulk readers: runs and their PUBLISH frames in one compiled loop.

Compiled by Cython (types in `columns.pxd`), and the same file runs uncompiled. Owns how the rows of blocks
lie in columns. Invariants: every index is checked, and where `_copy` reads and writes, both ends are. Must
not know: files, Arrow, how a PUBLISH is read (`mqtt.scanner` does).
"""

from __future__ import annotations

from collections.abc import Callable

from brokerweave.errors import RemoteProtocolError
from brokerweave.mqtt.scanner import PublishReader, RouteCache

_COMPILED: bool = __file__.endswith((".so", ".pyd"))
_RUN_HEAD = 23
"""Bytes, as `layout` packs it: time, rows, size of frames, resent rows, size of the client id, version."""
_MOST_BYTES = 2**31 - 1
"""Arrow counts them in 32 bits."""


class Columns:
    """The rows of some blocks, at most `rows`, whose bodies have at most `size` bytes together.

    `room(name, kind, count)` makes room for a column of numbers: a writable memoryview of C's long long, int
    or unsigned char (q, i, B). Topics and payloads are joined, and `..._ends` says where each ends. A client
    and MQTT 5 properties are given by their place in `clients` and `property_sets`.
    """

    __slots__ = (
        "_clients",
        "_head",
        "_limit",
        "_payload_bytes",
        "_payloads",
        "_places",
        "_room",
        "_sets",
        "_topic_bytes",
        "_topics",
        "client_at",
        "clients",
        "dup",
        "epochs",
        "packet_ids",
        "payload_ends",
        "payloads",
        "properties_at",
        "property_sets",
        "qos",
        "received",
        "retain",
        "rows",
        "sequences",
        "topic_ends",
        "topics",
        "want_client",
        "want_payload",
        "want_properties",
        "want_topic",
    )

    def __init__(
        self, rows: int, size: int, room: Callable[[str, str, int], memoryview], wants: frozenset[str]
    ) -> None:
        if size > _MOST_BYTES:
            raise ValueError("so many bytes do not fit into one batch")
        self._head = PublishReader()
        self._limit = rows
        self._room = size
        self.rows = 0
        self.want_topic = "topic" in wants
        self.want_payload = "payload" in wants
        self.want_client = "client" in wants
        self.want_properties = "properties" in wants
        self.epochs = room("epochs", "q", rows)
        self.sequences = room("sequences", "q", rows)
        self.received = room("received", "q", rows)
        self.qos = room("qos", "B", rows)
        self.retain = room("retain", "B", rows)
        self.dup = room("dup", "B", rows)
        self.packet_ids = room("packet_ids", "i", rows)
        self.client_at = room("client_at", "i", rows)
        self.properties_at = room("properties_at", "i", rows)
        self.topic_ends = room("topic_ends", "i", rows + 1)
        self.payload_ends = room("payload_ends", "i", rows + 1)
        self.topic_ends[0] = 0
        self.payload_ends[0] = 0
        self.topics = bytearray(size if self.want_topic else 0)
        self.payloads = bytearray(size if self.want_payload else 0)
        self._topics = self.topics
        self._payloads = self.payloads
        self._topic_bytes = 0
        self._payload_bytes = 0
        self.clients: list[bytes] = []
        self._clients: dict[bytes, int] = {}
        self.property_sets: list[bytes] = [b""]
        self._sets: dict[bytes, int] = {}

    def add(
        self, body: bytes, epoch: int, first: int, low: int, high: int, wanted: RouteCache | None
    ) -> None:
        """Add the rows of a block that are numbered `low` to `high`, its first one being `first`.

        With `wanted`, only those whose topic it does not resolve to None. Raises `RemoteProtocolError`.
        """
        end = len(body)
        self._room -= end
        if self._room < 0:
            raise ValueError("there is no room for this block")
        at = 0
        sequence = first
        while at < end and sequence <= high:
            if at + _RUN_HEAD > end:
                raise RemoteProtocolError("a run is cut short")
            time = _number(body, at, 8)
            count = _number(body, at + 8, 4)
            size = _number(body, at + 12, 4)
            marks = _number(body, at + 16, 4)
            client = at + _RUN_HEAD
            client_end = client + _number(body, at + 20, 2)
            version = body[at + 22]
            at = client_end + 4 * marks
            if at + size > end:
                raise RemoteProtocolError("a run is longer than its block")
            if sequence + count > low:
                place = self._client(body[client:client_end]) if self.want_client else 0
                before = self.rows
                self._frames(body, at, at + size, version, sequence, low, high, wanted)
                for row in range(before, self.rows):
                    self.epochs[row] = epoch
                    self.received[row] = time
                    self.client_at[row] = place
                    self.dup[row] = 0
                if marks:
                    self._mark(body, client_end, marks, sequence, before)
            sequence += count
            at += size

    def _frames(
        self,
        body: bytes,
        at: int,
        end: int,
        version: int,
        sequence: int,
        low: int,
        high: int,
        wanted: RouteCache | None,
    ) -> None:
        head = self._head
        while at < end and sequence <= high:
            frame_end = head.read_next(body, at, end, version)
            if sequence >= low and (
                wanted is None or wanted.lookup(head.topic_of(body), body[at] & 1 != 0) is not None
            ):
                row = self.rows
                if row >= self._limit:
                    raise ValueError("there are more rows than were announced")
                self.rows = row + 1
                self.sequences[row] = sequence
                self.qos[row] = head.qos
                self.retain[row] = body[at] & 1
                self.packet_ids[row] = head.packet_id
                if self.want_topic:
                    start = head.topic
                    size = head.topic_end - start
                    _copy(self._topics, self.topics, self._topic_bytes, body, start, size)
                    self._topic_bytes += size
                    self.topic_ends[row + 1] = self._topic_bytes
                payload = head.payload
                if self.want_payload:
                    size = frame_end - payload
                    _copy(self._payloads, self.payloads, self._payload_bytes, body, payload, size)
                    self._payload_bytes += size
                    self.payload_ends[row + 1] = self._payload_bytes
                self.properties_at[row] = 0
                if payload > head.properties and self.want_properties:
                    self.properties_at[row] = self._property_set(head.properties_of(body))
            sequence += 1
            at = frame_end

    def _mark(self, body: bytes, at: int, marks: int, sequence: int, before: int) -> None:
        """Rows that the client had sent before, by their index in the run."""
        resent = {sequence + _number(body, at + 4 * mark, 4) for mark in range(marks)}
        for row in range(before, self.rows):
            if self.sequences[row] in resent:
                self.dup[row] = 1

    def _client(self, name: bytes) -> int:
        place = self._clients.get(name)
        if place is None:
            place = self._clients[name] = len(self.clients)
            self.clients.append(name)
        return place

    def _property_set(self, encoded: bytes) -> int:
        place = self._sets.get(encoded)
        if place is None:
            place = self._sets[encoded] = len(self.property_sets)
            self.property_sets.append(encoded)
        return place


def client_bytes(body: bytes) -> int:
    """What the column of a block's clients takes: a name may have 64 KiB, and comes again in each row."""
    end = len(body)
    at = total = 0
    while at + _RUN_HEAD <= end:
        name = _number(body, at + 20, 2)
        total += name * _number(body, at + 8, 4)
        at += _RUN_HEAD + name + 4 * _number(body, at + 16, 4) + _number(body, at + 12, 4)
    return total


def _number(body: bytes, at: int, size: int) -> int:
    """Little-endian; of eight bytes the highest bit is never set before the year 290000."""
    value = 0
    for index in range(size - 1, -1, -1):
        value = value << 8 | body[at + index]
    return value


def _copy(raw: bytearray, room: bytearray, to: int, body: bytes, at: int, size: int) -> None:
    """`raw` is `room`; compiled, it is where its bytes lie, and the loop becomes a few wide moves."""
    if _COMPILED:
        source = body  # compiled, where these lie: a checked index would make it one byte at a time
        for index in range(size):
            raw[to + index] = source[at + index]
    else:
        room[to : to + size] = body[at : at + size]
