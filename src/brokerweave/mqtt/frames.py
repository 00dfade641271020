# cython: annotation_typing=False, nonecheck=True
"""The frame scanner: cuts a byte stream into MQTT frames and groups PUBLISH frames by their route.

The hot path, compiled by Cython (types in `frames.pxd`), and the same file runs uncompiled: `compiled`
says which. Owns: where frames begin and end, the route cache, the passage of chunks that concern nobody,
rewriting of PUBLISH frames as bytes, taking the edge log's runs of them apart into columns.
Invariants: what `Scanner` hands on as whole is what was fed, byte for byte; it waits for at most one
packet of at most `max_packet` bytes; each byte is looked at once and copied a fixed number of times,
however the stream is cut. Every index is checked; where `_copy` reads and writes, both ends are. Must not
know: what a group is, packets beyond their fixed header (but PUBLISH, and the version in CONNECT), sockets.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerweave.errors import LocalProtocolError, RemoteProtocolError

compiled: bool = __file__.endswith((".so", ".pyd"))

_CONNECT = 1
_PUBLISH = 3
_TOO_LARGE = 0x95
_WEIGHT = 128
_DOLLAR = 0x24
_MISSING = object()
_COMPILED = compiled
_RUN_HEAD = 23
"""Bytes, as `layout` packs it: time, rows, size of frames, resent rows, size of the client id, version."""
_MOST_BYTES = 2**31 - 1
"""Arrow counts them in 32 bits."""


class RouteCache:
    """Topic bytes -> group, filled by `resolve(topic, retain)` on a miss, forgotten as a whole.

    `capacity` is in topics; a long topic counts once more for each 128 bytes, so memory is bounded by
    some 300 * `capacity` bytes whatever clients publish. When full, everything is forgotten: cheaper than
    an eviction order that every look-up would have to keep.
    """

    __slots__ = ("_capacity", "_plain", "_resolve", "_retained", "_weight", "misses")

    def __init__(self, resolve: Callable[[bytes, bool], object | None], capacity: int = 100_000) -> None:
        self._resolve = resolve
        self._capacity = capacity
        self._plain: dict[bytes, object | None] = {}
        self._retained: dict[bytes, object | None] = {}
        self._weight = 0
        self.misses = 0

    def lookup(self, topic: bytes, retain: bool) -> object | None:
        known = self._retained if retain else self._plain
        group = known.get(topic, _MISSING)
        if group is _MISSING:
            self.misses += 1
            group = self._resolve(topic, retain)
            self._weight += 1 + len(topic) // _WEIGHT
            if self._weight > self._capacity:
                self.clear()
                self._weight = 1 + len(topic) // _WEIGHT
            known[topic] = group
        return group

    def discard(self, topic: bytes) -> None:
        """Forget one topic."""
        for known in (self._plain, self._retained):
            if known.pop(topic, _MISSING) is not _MISSING:
                self._weight -= 1 + len(topic) // _WEIGHT

    def clear(self) -> None:
        self._plain.clear()
        self._retained.clear()
        self._weight = 0


class Frame:
    """A frame handed out whole: `data` begins with its fixed header, `at` is its place among the frames."""

    __slots__ = ("at", "data", "type")

    def __init__(self, type: int, data: bytes, at: int = 0) -> None:
        self.type = type
        self.data = data
        self.at = at


class Routed:
    """The PUBLISH frames of one group, joined in stream order; none has DUP set: `resent` says which had it.

    Until the scanner closes it, it collects ranges of the chunk: neighbouring frames are sliced once.
    """

    __slots__ = ("_end", "_parts", "_start", "blob", "count", "group", "max_qos", "resent")

    def __init__(self, group: object, count: int = 0, blob: bytes = b"", max_qos: int = 0) -> None:
        self.group = group
        self.count = count
        self.blob = blob
        self.max_qos = max_qos
        self.resent: list[int] | None = None
        self._parts: list[bytes] = []
        self._start = 0
        self._end = 0

    def _add(self, data: bytes, at: int, end: int) -> None:
        first = data[at]
        qos = first >> 1 & 3
        self.count += 1
        if qos > self.max_qos:
            self.max_qos = qos
        if at != self._end or first & 8:
            self._cut(data)
            self._start = at
        if first & 8:  # a forwarded copy is no redelivery [MQTT-3.3.1-3]
            self._parts.append((first & 0xF7).to_bytes(1, "big"))
            self._start = at + 1
            if self.resent is None:
                self.resent = []
            self.resent.append(self.count - 1)
        self._end = end

    def _cut(self, data: bytes) -> None:
        if self._end > self._start:
            self._parts.append(data[self._start : self._end])

    def _close(self, data: bytes) -> None:
        self._cut(data)
        self.blob = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts = []


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


class _Publish:
    """Positions inside one PUBLISH frame: the only parser of it, reused from frame to frame."""

    __slots__ = (
        "alias",
        "body",
        "packet_id",
        "payload",
        "properties",
        "qos",
        "topic",
        "topic_end",
        "variable_end",
    )

    def __init__(self) -> None:
        self.qos = 0
        self.body = 0  # of the topic's length
        self.topic = 0
        self.topic_end = 0
        self.packet_id = 0
        self.variable_end = 0  # after topic and packet id
        self.properties = 0
        self.payload = 0
        self.alias = False

    def read(self, data: bytes, at: int, end: int, version: int) -> None:
        """Read the frame at `at`, whose end is known to be inside `data`."""
        self.qos = data[at] >> 1 & 3
        self.body = _after_varint(data, at + 1)
        self.topic = self.body + 2
        position = _after_string(data, self.body, end)
        self.topic_end = position
        self.packet_id = 0
        if self.qos:
            if position + 2 > end:
                raise RemoteProtocolError("PUBLISH ends before its packet identifier")
            self.packet_id = data[position] << 8 | data[position + 1]
            if self.packet_id == 0:  # [MQTT-2.2.1-3]
                raise RemoteProtocolError("PUBLISH has packet identifier 0")
            position += 2
        self.variable_end = position
        self.properties = position
        self.payload = position
        self.alias = False
        if version >= 5:
            self._read_properties(data, position, end)

    def read_next(self, data: bytes, at: int, version: int) -> int:
        """Read the frame at `at` of a blob that must hold whole PUBLISH frames only; its end."""
        end = _frame_end(data, at, len(data))
        if end == 0 or end > len(data):
            raise RemoteProtocolError("the last frame is cut short")
        if data[at] >> 4 != _PUBLISH:
            raise RemoteProtocolError("a frame is not a PUBLISH")
        self.read(data, at, end, version)
        return end

    def _read_properties(self, data: bytes, at: int, end: int) -> None:
        self.payload = _after_prefixed(data, at, end)
        if self.payload == 0 or self.payload > end:
            raise RemoteProtocolError("PUBLISH ends inside its properties")
        self.properties = _after_varint(data, at)
        position = self.properties
        while position < self.payload:
            position = self._after_property(data, position, self.payload)

    def _after_property(self, data: bytes, at: int, end: int) -> int:
        """MQTT 5, 2.2.2.2: the properties that a PUBLISH may have."""
        identifier = data[at]
        at += 1
        if identifier == 0x26:  # user property
            return _after_string(data, _after_string(data, at, end), end)
        if identifier in (0x03, 0x08, 0x09):  # content type, response topic, correlation data
            return _after_string(data, at, end)
        if identifier == 0x23:
            self.alias = True
            at += 2
        elif identifier == 0x01:  # payload format
            at += 1
        elif identifier == 0x02:  # message expiry
            at += 4
        elif identifier == 0x0B:  # subscription identifier
            if _after_prefixed(data, at, end) == 0:
                raise RemoteProtocolError("a property is cut short")
            at = _after_varint(data, at)
        else:
            raise RemoteProtocolError(f"PUBLISH has property 0x{identifier:02x}")
        if at > end:
            raise RemoteProtocolError("a property is cut short")
        return at


class _Found:
    """What one scan found in `data`, in stream order."""

    __slots__ = ("_last", "_open", "data", "items", "retain")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.retain = 0
        self.items: list[Routed | Frame] = []
        self._open: dict[int, Routed] = {}
        self._last: Routed | None = None

    def whole(self, at: int, end: int) -> None:
        self.close()  # or a later frame of a topic could end up before this one
        self.items.append(Frame(self.data[at] >> 4, self.data[at:end], at))

    def routed(self, group: object, at: int, end: int) -> None:
        last = self._last
        if last is None or last.group is not group:
            last = self._open.get(id(group))
            if last is None:
                last = Routed(group)
                self._open[id(group)] = last
                self.items.append(last)
            self._last = last
        last._add(self.data, at, end)

    def close(self) -> None:
        for routed in self._open.values():
            routed._close(self.data)
        self._open.clear()
        self._last = None


class Scanner:
    """Cuts one direction of one connection into frames.

    `wanted` has a bit `1 << type` for each packet type to be handed out whole. `single_qos` has a bit
    `1 << qos` for each QoS whose PUBLISH frames are handed out whole too instead of being routed.
    `version` is read from CONNECT, or set by the caller. Without `routes` a PUBLISH is only stepped over.
    `publishes` counts the PUBLISH frames so far, `passed` the bytes of all whole frames.
    """

    __slots__ = (
        "_head",
        "_max_packet",
        "_needed",
        "_passing",
        "_waiting",
        "error",
        "passed",
        "publishes",
        "routes",
        "single_qos",
        "version",
        "wanted",
    )

    def __init__(self, wanted: int, max_packet: int, routes: RouteCache | None = None) -> None:
        self.wanted = wanted
        self.routes = routes
        self.version = 0
        self.single_qos = 0
        self.error: RemoteProtocolError | None = None
        self.publishes = 0
        self.passed = 0
        self._passing = 0
        self._max_packet = max_packet
        self._head = _Publish()
        self._waiting = bytearray()
        self._needed = 0

    @property
    def pending(self) -> int:
        """Bytes of the incomplete frame that wait inside."""
        return len(self._waiting)

    def feed(self, chunk: bytes) -> tuple[bytes, list[Routed | Frame]]:
        """Take the next bytes; give all frames that are whole now, joined, and the items found in them.

        Never raises for what the peer sent: at the first malformed frame `error` is set, the frames
        before it are given, and from then on nothing more. The joined frames are `chunk` itself when
        it began and ended with a frame.
        """
        if self.error is not None:
            return b"", []
        if not self._waiting:
            return self._scan(chunk)
        if len(self._waiting) + len(chunk) < self._needed:
            self._waiting += chunk
            return b"", []
        data = b"".join((self._waiting, chunk))
        self._waiting.clear()
        return self._scan(data)

    def passes(self, chunk: bytes) -> bool:
        """Whether a chunk is whole frames that concern nobody, so that it may go on without being fed.

        False says nothing, also of a malformed frame: `feed` does.
        """
        if self._waiting or self.error is not None:
            return False
        size = len(chunk)
        at = 0
        publishes = 0
        try:
            while at < size:
                end = _frame_end(chunk, at, size)
                if end == 0 or end > size or end - at > self._max_packet:
                    return False
                kind = chunk[at] >> 4
                if self.wanted >> kind & 1:
                    return False
                if kind == _PUBLISH:
                    if self._concerns(chunk, at, end):
                        return False
                    publishes += 1
                at = end
        except RemoteProtocolError:
            return False
        self._passing = publishes
        return True

    def count_passage(self, size: int) -> None:
        """The chunk that `passes` was last asked about went on without being fed."""
        self.publishes += self._passing
        self.passed += size

    def _concerns(self, data: bytes, at: int, end: int) -> bool:
        """Whether a PUBLISH goes anywhere but on."""
        routes = self.routes
        if routes is None:
            return False
        head = self._head
        head.read(data, at, end, self.version)
        if head.alias or head.topic == head.topic_end:
            return True
        if data[head.topic] == _DOLLAR:
            return False
        if self.single_qos >> head.qos & 1:
            return True
        return routes.lookup(data[head.topic : head.topic_end], data[at] & 1 != 0) is not None

    def _scan(self, data: bytes) -> tuple[bytes, list[Routed | Frame]]:
        size = len(data)
        at = 0
        found = _Found(data)
        try:
            while at < size:
                end = _frame_end(data, at, size)
                if end - at > self._max_packet:
                    raise RemoteProtocolError(f"packet of {end - at} bytes is too large", _TOO_LARGE)
                if end == 0 or end > size:
                    self._wait(data, at, end)
                    break
                kind = data[at] >> 4
                if kind == _CONNECT and self.version == 0:
                    self.version = _connect_version(data, at, end)
                if self.wanted >> kind & 1:
                    found.whole(at, end)
                elif kind == _PUBLISH and self.routes is not None:
                    self._publish(self.routes, found, at, end)
                self.publishes += kind == _PUBLISH
                at = end
        except RemoteProtocolError as error:
            self.error = error.with_traceback(None)
        self.passed += at
        found.close()
        return data[:at], found.items

    def _publish(self, routes: RouteCache, found: _Found, at: int, end: int) -> None:
        """Route a PUBLISH by its topic, or hand it out where the topic alone does not decide."""
        if self.version == 0:
            raise RemoteProtocolError("PUBLISH before CONNECT", 0x82)  # [MQTT-3.1.0-1]
        data = found.data
        head = self._head
        head.read(data, at, end, self.version)
        # An alias goes before all: the caller must learn it whatever the topic is.
        if head.alias or head.topic == head.topic_end:
            found.whole(at, end)
        elif data[head.topic] != _DOLLAR:
            if self.single_qos >> head.qos & 1:
                found.whole(at, end)
            else:
                retain = data[at] & 1
                if retain != found.retain:  # the two are routed apart, but a topic's order holds over both
                    found.close()
                    found.retain = retain
                group = routes.lookup(data[head.topic : head.topic_end], retain != 0)
                if group is not None:
                    found.routed(group, at, end)

    def _wait(self, data: bytes, at: int, end: int) -> None:
        # While the length itself is cut one more byte may do: at most four such steps.
        self._waiting += data[at:]
        self._needed = end - at if end else len(data) - at + 1


class Passage:
    """What is called with each chunk of one direction: on to the other side if it concerns nobody, else to
    `attend`.

    Straight on only while `open`, and while what was written before is all gone and the way is not closing:
    a file's number may have a new owner then. `write` takes a file's number and bytes, and says how many it
    took; `rest` takes what is left.
    """

    __slots__ = ("_attend", "_closing", "_file", "_rest", "_scanner", "_waiting", "_write", "open")

    def __init__(self, scanner: Scanner, attend: Callable[[bytes], None]) -> None:
        self.open = False
        self._scanner = scanner
        self._attend = attend
        self._file: int
        self._write: Callable[[int, bytes], int]
        self._rest: Callable[[bytes], None]
        self._waiting: Callable[[], int]
        self._closing: Callable[[], bool]

    def lead_to(
        self,
        file: int,
        write: Callable[[int, bytes], int],
        rest: Callable[[bytes], None],
        waiting: Callable[[], int],
        closing: Callable[[], bool],
    ) -> None:
        """The other side, before this is opened."""
        self._file, self._write, self._rest = file, write, rest
        self._waiting, self._closing = waiting, closing

    def __call__(self, data: bytes) -> None:
        if not self.open or not self._scanner.passes(data) or self._waiting() or self._closing():
            self._attend(data)
            return
        self._scanner.count_passage(len(data))
        try:
            written = self._write(self._file, data)
        except OSError:
            written = 0  # full, or gone: who takes the rest finds out which
        if written < len(data):
            self._rest(data[written:])


def _frame_end(data: bytes, at: int, size: int) -> int:
    """Where the frame at `at` ends, be it beyond `size`; 0 while its length is cut."""
    first = data[at]
    if first < 0x10:
        raise RemoteProtocolError("packet type 0 is reserved")
    if first & 0xF6 == 0x36:  # [MQTT-3.3.1-4]
        raise RemoteProtocolError("PUBLISH has QoS 3")
    return _after_prefixed(data, at + 1, size)


def _after_prefixed(data: bytes, at: int, size: int) -> int:
    """Where ends what the variable byte integer at `at` gives the length of; 0 if that integer is cut."""
    length = 0
    shift = 0
    while shift < 28:
        if at >= size:
            return 0
        byte = data[at]
        length |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return at + length
        shift += 7
    raise RemoteProtocolError("a length takes more than four bytes")


def _after_varint(data: bytes, at: int) -> int:
    """Where a variable byte integer ends that `_after_prefixed` has accepted."""
    while data[at] >= 0x80:
        at += 1
    return at + 1


def _after_string(data: bytes, at: int, end: int) -> int:
    """Where ends the string or binary data whose two-byte length is at `at`."""
    if at + 2 <= end:
        at += 2 + (data[at] << 8 | data[at + 1])
        if at <= end:
            return at
    raise RemoteProtocolError("a string is longer than its packet")


def _connect_version(data: bytes, at: int, end: int) -> int:
    """The protocol level of a CONNECT; some bridges set its highest bit."""
    at = _after_string(data, _after_varint(data, at + 1), end)
    if at >= end or data[at] & 0x7F == 0:
        raise RemoteProtocolError("CONNECT has no protocol level")
    return data[at] & 0x7F


def route_run(blob: bytes, version: int, routes: RouteCache) -> list[tuple[object | None, int, int, bytes]]:
    """Cut a blob of PUBLISH frames into runs of one group: (group, first index, count, part of the blob).

    Frames that nobody wants are runs of the group None, and so are `$` topics. Raises
    RemoteProtocolError, before any run is given, when a frame is malformed, cut, no PUBLISH or aliased.
    """
    runs: list[tuple[object | None, int, int, bytes]] = []
    head = _Publish()
    at = start = index = first = 0
    current: object | None = None
    while at < len(blob):
        end = head.read_next(blob, at, version)
        if head.alias or head.topic == head.topic_end:
            raise RemoteProtocolError("a forwarded PUBLISH has no topic of its own")
        group: object | None = None
        if blob[head.topic] != _DOLLAR:
            group = routes.lookup(blob[head.topic : head.topic_end], blob[at] & 1 != 0)
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


def split(blob: bytes) -> list[bytes]:
    """The frames of a blob of whole frames; RemoteProtocolError if they are not."""
    frames = []
    at = 0
    while at < len(blob):
        end = _frame_end(blob, at, len(blob))
        if end == 0 or end > len(blob):
            raise RemoteProtocolError("the last frame is cut short")
        frames.append(blob[at:end])
        at = end
    return frames


class Columns:
    """The rows of some blocks, at most `rows`, whose bodies have at most `size` bytes together.

    `room(name, kind, count)` makes room for a column of numbers: a writable memoryview of C's long long, int
    or unsigned char (q, i, B). Topics and payloads are joined, and `..._ends` says where each ends. A client
    and MQTT 5 properties are given by their place in `clients` and `property_sets`.
    """

    __slots__ = (
        "_clients",
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
        while at < end and sequence <= high:
            head = body[at]
            if head >> 4 != 3:
                raise RemoteProtocolError("a frame is not a PUBLISH")
            at += 1
            frame_end = _end_inside(body, at, end)
            while body[at] >= 0x80:
                at += 1
            topic = at + 3
            position = topic
            if topic <= frame_end:
                position += body[at + 1] << 8 | body[at + 2]
            topic_end = position
            if head & 6:
                position += 2
            if topic > frame_end or position > frame_end:
                raise RemoteProtocolError("a PUBLISH is cut short")
            properties = position
            if version >= 5:
                payload = _end_inside(body, position, frame_end)
                while body[properties] >= 0x80:
                    properties += 1
                properties += 1
            else:
                payload = position
            if sequence >= low and (
                wanted is None or wanted.lookup(body[topic:topic_end], head & 1 != 0) is not None
            ):
                row = self.rows
                if row >= self._limit:
                    raise ValueError("there are more rows than were announced")
                self.rows = row + 1
                self.sequences[row] = sequence
                self.qos[row] = head >> 1 & 3
                self.retain[row] = head & 1
                self.packet_ids[row] = body[topic_end] << 8 | body[topic_end + 1] if head & 6 else 0
                if self.want_topic:
                    _copy(self._topics, self.topics, self._topic_bytes, body, topic, topic_end - topic)
                    self._topic_bytes += topic_end - topic
                    self.topic_ends[row + 1] = self._topic_bytes
                if self.want_payload:
                    _copy(
                        self._payloads, self.payloads, self._payload_bytes, body, payload, frame_end - payload
                    )
                    self._payload_bytes += frame_end - payload
                    self.payload_ends[row + 1] = self._payload_bytes
                self.properties_at[row] = 0
                if payload > properties and self.want_properties:
                    self.properties_at[row] = self._property_set(body[properties:payload])
            sequence += 1
            at = frame_end
        if at > end:
            raise RemoteProtocolError("a frame is longer than its run")

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


def _end_inside(body: bytes, at: int, end: int) -> int:
    """Where ends what the variable byte integer at `at` gives the length of, which is inside `end`."""
    length = 0
    shift = 0
    while at < end and shift < 28:
        byte = body[at]
        length |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            if length > end - at:
                break
            return at + length
    raise RemoteProtocolError("a length is wrong")


def _copy(raw: bytearray, room: bytearray, to: int, body: bytes, at: int, size: int) -> None:
    """`raw` is `room`; compiled, it is where its bytes lie, and the loop becomes a few wide moves."""
    if _COMPILED:
        source = body  # compiled, where these lie: a checked index would make it one byte at a time
        for index in range(size):
            raw[to + index] = source[at + index]
    else:
        room[to : to + size] = body[at : at + size]


def convert(blob: bytes, from_version: int, to_version: int) -> bytes:
    """A blob of PUBLISH frames for another protocol version: MQTT 5 properties are dropped, or left empty."""
    if (from_version >= 5) == (to_version >= 5):
        return blob
    parts: list[bytes] = []
    head = _Publish()
    at = 0
    while at < len(blob):
        end = head.read_next(blob, at, from_version)
        properties = b"\x00" if to_version >= 5 else b""
        length = head.variable_end - head.body + len(properties) + end - head.payload
        parts.append(_fixed_header(blob[at], length))
        parts.append(blob[head.body : head.variable_end])
        parts.append(properties)
        parts.append(blob[head.payload : end])
        at = end
    return b"".join(parts)


def publish_head(frame: bytes, version: int) -> PublishHead:
    """What stands before the payload of one PUBLISH frame."""
    head = _read_single(frame, version)
    return PublishHead(
        topic=frame[head.topic : head.topic_end],
        qos=head.qos,
        retain=frame[0] & 1 != 0,
        dup=frame[0] & 8 != 0,
        packet_id=head.packet_id,
        properties=frame[head.properties : head.payload],
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
    return b"".join((_fixed_header(first, len(topic) + len(middle) + len(payload)), topic, middle, payload))


def _read_single(frame: bytes, version: int) -> _Publish:
    head = _Publish()
    if not frame or head.read_next(frame, 0, version) != len(frame):
        raise RemoteProtocolError("not exactly one frame")
    return head


def _fixed_header(first: int, length: int) -> bytes:
    header = bytearray((first,))
    while length >= 0x80:
        header.append(length & 0x7F | 0x80)
        length >>= 7
    header.append(length)
    return bytes(header)
