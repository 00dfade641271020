# cython: annotation_typing=False, nonecheck=True
"""The frame scanner: cuts a byte stream into MQTT frames and groups PUBLISH frames by their route.

The hot path, compiled by Cython (types in `scanner.pxd`), and the same file runs uncompiled. Owns: where
frames begin and end, the only parser of PUBLISH, the route cache. Invariants: what `Scanner` hands on as
whole is what was fed, byte for byte; it waits for at most one packet of at most `max_packet` bytes; each byte
is looked at once and copied a fixed number of times, however the stream is cut; what cannot be read is handed
out whole, never routed. Every index is checked. Must not know: what a group is, packets beyond their fixed
header (but PUBLISH, and the version in CONNECT), sockets.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerweave.errors import Refused, RemoteProtocolError

_CONNECT = 1
_PUBLISH = 3
_RESERVED = 1
"""The bit of packet type 0, which does not exist."""
_TOO_LARGE = 0x95
_WEIGHT = 128
_DOLLAR = 0x24
_MISSING = object()


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


class PublishReader:
    """Positions inside one PUBLISH frame: the only parser of it, reused from frame to frame.

    It checks what must hold to know where each part is. What topics, strings and numbers may say is up to who
    uses them.
    """

    __slots__ = (
        "alias",
        "body",
        "packet_id",
        "payload",
        "problem",
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
        self.problem = ""

    def read(self, data: bytes, at: int, end: int, version: int) -> bool:
        """Read the frame at `at`, whose end is known to be inside `data`; False: `problem` says why not."""
        self.qos = data[at] >> 1 & 3
        if self.qos == 3:  # [MQTT-3.3.1-4]
            return self._fail("PUBLISH has QoS 3")
        self.body = _after_varint(data, at + 1)
        self.topic = self.body + 2
        position = _after_string(data, self.body, end)
        if position == 0:
            return self._fail("the topic is longer than its PUBLISH")
        self.topic_end = position
        self.packet_id = 0
        if self.qos:
            if position + 2 > end:
                return self._fail("PUBLISH ends before its packet identifier")
            self.packet_id = data[position] << 8 | data[position + 1]
            if self.packet_id == 0:  # [MQTT-2.2.1-3]
                return self._fail("PUBLISH has packet identifier 0")
            position += 2
        self.variable_end = position
        self.properties = position
        self.payload = position
        self.alias = False
        return version < 5 or self._read_properties(data, position, end)

    def read_next(self, data: bytes, at: int, limit: int, version: int) -> int:
        """Read the frame at `at` of whole PUBLISH frames that end before `limit`; its end.

        Raises RemoteProtocolError, also where it is something else.
        """
        end = _frame_end(data, at, limit)
        if end <= 0 or end > limit:
            raise RemoteProtocolError("the last frame is cut short")
        if data[at] >> 4 != _PUBLISH:
            raise RemoteProtocolError("a frame is not a PUBLISH")
        if not self.read(data, at, end, version):
            raise RemoteProtocolError(self.problem)
        return end

    def topic_of(self, data: bytes) -> bytes:
        """Of the frame that was read last, from the same bytes."""
        return _cut(data, self.topic, self.topic_end)

    def properties_of(self, data: bytes) -> bytes:
        """The same, without their length."""
        return _cut(data, self.properties, self.payload)

    def property_end(self, data: bytes, at: int) -> int:
        """Where the property at `at` ends, of the frame that was read last, from the same bytes."""
        end = self._after_property(data, at, self.payload)
        if end <= at:
            raise IndexError("no property of what was read begins there")
        return end

    def _fail(self, problem: str) -> bool:
        self.problem = problem
        return False

    def _read_properties(self, data: bytes, at: int, end: int) -> bool:
        if at < end and data[at] == 0:  # most have none
            self.properties = self.payload = at + 1
            return True
        self.payload = _after_prefixed(data, at, end)
        if self.payload <= 0 or self.payload > end:
            return self._fail("PUBLISH ends inside its properties")
        self.properties = _after_varint(data, at)
        position = self.properties
        while position < self.payload:
            position = self._after_property(data, position, self.payload)
            if position == 0 or position > self.payload:
                return self._fail("a property is cut short, or no PUBLISH has it")
        return True

    def _after_property(self, data: bytes, at: int, end: int) -> int:
        """MQTT 5, 2.2.2.2: the properties that a PUBLISH may have; 0 for another, or for one that is cut."""
        identifier = data[at]
        at += 1
        if identifier == 0x26:  # user property
            at = _after_string(data, at, end)
            return _after_string(data, at, end) if at else 0
        if identifier in (0x03, 0x08, 0x09):  # content type, response topic, correlation data
            return _after_string(data, at, end)
        if identifier == 0x23:
            self.alias = True
            return at + 2
        if identifier == 0x01:  # payload format
            return at + 1
        if identifier == 0x02:  # message expiry
            return at + 4
        if identifier == 0x0B and _after_prefixed(data, at, end) > 0:  # subscription identifier
            return _after_varint(data, at)
        return 0


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

    `wanted` has a bit `1 << type` for each packet type to be handed out whole; type 0, which does not exist,
    is in any case. `single_qos` has a bit `1 << qos` for each QoS whose PUBLISH frames are handed out whole
    too instead of being routed, as is a PUBLISH that cannot be read. `version` is read from CONNECT, or set
    by the caller. Without `routes` a PUBLISH is only stepped over.
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
        self.wanted = wanted | _RESERVED
        self.routes = routes
        self.version = 0
        self.single_qos = 0
        self.error: RemoteProtocolError | None = None
        self.publishes = 0
        self.passed = 0
        self._passing = 0
        self._max_packet = max_packet
        self._head = PublishReader()
        self._waiting = bytearray()
        self._needed = 0

    @property
    def pending(self) -> int:
        """Bytes of the incomplete frame that wait inside."""
        return len(self._waiting)

    def feed(self, chunk: bytes) -> tuple[bytes, list[Routed | Frame]]:
        """Take the next bytes; give all frames that are whole now, joined, and the items found in them.

        Never raises for what the peer sent: where no frame can be cut off, or one is too large (`Refused`),
        `error` is set, the frames before it are given, and from then on nothing more; `take_rest` gives what
        follows them. The joined frames are `chunk` itself when it began and ended with a frame.
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

        False says nothing, also of what is malformed: `feed` does.
        """
        if self._waiting or self.error is not None:
            return False
        size = len(chunk)
        at = 0
        publishes = 0
        while at < size:
            end = _frame_end(chunk, at, size)
            if end <= 0 or end > size or end - at > self._max_packet:
                return False
            kind = chunk[at] >> 4
            if self.wanted >> kind & 1:
                return False
            if kind == _PUBLISH:
                if self._concerns(chunk, at, end):
                    return False
                publishes += 1
            at = end
        self._passing = publishes
        return True

    def take_rest(self) -> bytes:
        """What was fed and is in no frame; the scanner forgets it."""
        rest = bytes(self._waiting)
        self._waiting.clear()
        return rest

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
        if not head.read(data, at, end, self.version) or head.alias or head.topic == head.topic_end:
            return True
        if data[head.topic] == _DOLLAR:
            return False
        if self.single_qos >> head.qos & 1:
            return True
        return routes.lookup(head.topic_of(data), data[at] & 1 != 0) is not None

    def _scan(self, data: bytes) -> tuple[bytes, list[Routed | Frame]]:
        size = len(data)
        at = 0
        found = _Found(data)
        while at < size:
            end = _frame_end(data, at, size)
            if end - at > self._max_packet:
                self._fail(data, at, Refused(f"packet of {end - at} bytes is too large", _TOO_LARGE))
                break
            if end < 0:
                self._fail(data, at, RemoteProtocolError("a length takes more than four bytes"))
                break
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
        self.passed += at
        found.close()
        return data[:at], found.items

    def _fail(self, data: bytes, at: int, error: RemoteProtocolError) -> None:
        self._waiting += data[at:]
        self.error = error

    def _publish(self, routes: RouteCache, found: _Found, at: int, end: int) -> None:
        """Route a PUBLISH by its topic, or hand it out where the topic alone does not decide."""
        data = found.data
        head = self._head
        # An alias goes before all: the caller must learn it whatever the topic is.
        if (
            self.version == 0
            or not head.read(data, at, end, self.version)
            or head.alias
            or head.topic == head.topic_end
        ):
            found.whole(at, end)
        elif data[head.topic] != _DOLLAR:
            if self.single_qos >> head.qos & 1:
                found.whole(at, end)
            else:
                retain = data[at] & 1
                if retain != found.retain:  # the two are routed apart, but a topic's order holds over both
                    found.close()
                    found.retain = retain
                group = routes.lookup(head.topic_of(data), retain != 0)
                if group is not None:
                    found.routed(group, at, end)

    def _wait(self, data: bytes, at: int, end: int) -> None:
        # While the length itself is cut one more byte may do: at most four such steps.
        self._waiting += data[at:]
        self._needed = end - at if end else len(data) - at + 1


def _cut(data: bytes, start: int, end: int) -> bytes:
    if not 0 <= start <= end <= len(data):
        raise IndexError("these are not the bytes that were read")
    raw = data  # compiled, where these lie: a slice of an object would make three objects
    return raw[start:end]


def _frame_end(data: bytes, at: int, size: int) -> int:
    """Where the frame at `at` ends, be it beyond `size`; 0 while its length is cut, -1 if it has none."""
    return _after_prefixed(data, at + 1, size)


def _after_prefixed(data: bytes, at: int, size: int) -> int:
    """Where ends what the variable byte integer at `at` gives the length of; 0 if that integer is cut, -1 if
    it takes more than four bytes."""
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
    return -1


def _after_varint(data: bytes, at: int) -> int:
    """Where a variable byte integer ends that `_after_prefixed` has accepted."""
    while data[at] >= 0x80:
        at += 1
    return at + 1


def _after_string(data: bytes, at: int, end: int) -> int:
    """Where ends the string or binary data whose two-byte length is at `at`; 0 if that is beyond `end`."""
    if at + 2 <= end:
        at += 2 + (data[at] << 8 | data[at + 1])
        if at <= end:
            return at
    return 0


def _connect_version(data: bytes, at: int, end: int) -> int:
    """The protocol level of a CONNECT, 0 if it has none; some bridges set its highest bit."""
    at = _after_string(data, _after_varint(data, at + 1), end)
    return data[at] & 0x7F if 0 < at < end else 0


def split(blob: bytes) -> list[bytes]:
    """The frames of a blob of whole frames; RemoteProtocolError if they are not."""
    frames = []
    at = 0
    while at < len(blob):
        end = _frame_end(blob, at, len(blob))
        if end <= 0 or end > len(blob):
            raise RemoteProtocolError("the last frame is cut short")
        frames.append(blob[at:end])
        at = end
    return frames
