"""The frame scanner, compiled and not: every test runs over both.

`Recorder` flattens what a scanner handed out, so that outcomes compare whatever the chunking: which frames
were joined in one `Routed` depends on it, their order within a group does not.
"""

from __future__ import annotations

import importlib.util
import itertools
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerweave.errors import LocalProtocolError, RemoteProtocolError
from brokerweave.mqtt import frames as installed

SOURCE = Path(__file__).parents[3] / "src/brokerweave/mqtt/frames.py"


def load_uncompiled() -> ModuleType:
    spec = importlib.util.spec_from_file_location("uncompiled_frames", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


UNCOMPILED = load_uncompiled()
if installed.compiled:
    BOTH = [pytest.param(UNCOMPILED, id="uncompiled"), pytest.param(installed, id="compiled")]
else:
    not_built = pytest.mark.skip(reason="the extension is not built here")
    BOTH = [
        pytest.param(UNCOMPILED, id="uncompiled"),
        pytest.param(installed, id="compiled", marks=not_built),
    ]

pytestmark = pytest.mark.parametrize("frames", BOTH)

CONNECT, CONNACK, SUBACK, PUBLISH = 1 << 1, 1 << 2, 1 << 9, 1 << 3
PINGREQ = b"\xc0\x00"
CONNECT_V4 = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01a"
CONNECT_V5 = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x01a"
GROUPS = {b"a": "red", b"b": "blue", b"c": "red"}
MAX_PACKET = 4096


def frame(first: int, body: bytes) -> bytes:
    length, size = b"", len(body)
    while size >= 0x80:
        length += bytes((size & 0x7F | 0x80,))
        size >>= 7
    return bytes((first,)) + length + bytes((size,)) + body


def publish(
    topic: bytes,
    payload: bytes = b"x",
    *,
    qos: int = 0,
    packet_id: int = 7,
    retain: bool = False,
    dup: bool = False,
    properties: bytes | None = None,
) -> bytes:
    body = len(topic).to_bytes(2, "big") + topic
    if qos:
        body += packet_id.to_bytes(2, "big")
    if properties is not None:
        body += frame(0, properties)[1:]
    return frame(0x30 | dup << 3 | qos << 1 | retain, body + payload)


def resolve(topic: bytes, retain: bool) -> object | None:
    return "everybody" if retain else GROUPS.get(topic)


class Recorder:
    """Feeds one scanner and keeps all it handed out."""

    def __init__(self, frames: ModuleType, *, wanted: int = 0, version: int = 4, single_qos: int = 0) -> None:
        self.frames = frames
        self.scanner = frames.Scanner(wanted, MAX_PACKET, frames.RouteCache(resolve))
        self.scanner.version = version
        self.scanner.single_qos = single_qos
        self.whole = b""
        self.routed: dict[object, list[bytes]] = {}
        self.handed_out: list[tuple[int, bytes]] = []
        self.items: list[tuple[object, ...]] = []

    def feed(self, chunks: Iterable[bytes]) -> Recorder:
        for chunk in chunks:
            whole, items = self.scanner.feed(chunk)
            self.whole += whole
            for item in items:
                if isinstance(item, self.frames.Frame):
                    self.handed_out.append((item.type, item.data))
                    self.items.append(("whole", item.data))
                else:
                    split = self.frames.split(item.blob)
                    assert len(split) == item.count
                    assert item.max_qos == max(f[0] >> 1 & 3 for f in split)
                    self.routed.setdefault(item.group, []).extend(split)
                    self.items.append((item.group, *split))
        return self

    @property
    def outcome(self) -> tuple[object, ...]:
        error = self.scanner.error
        reason = None if error is None else (str(error), error.reason_code)
        return self.whole, self.routed, self.handed_out, reason, self.scanner.version, self.scanner.pending


def one_by_one(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


# --- cases: bytes in, and what one feed of all of them gives -------------------------------------------

A, B, C = publish(b"a"), publish(b"b"), publish(b"c", b"y" * 200)
ALIAS = b"\x23\x00\x05"
EVERY_PROPERTY = (
    b"\x01\x01"
    b"\x02\x00\x00\x00\x3c"
    b"\x03\x00\x01t"
    b"\x08\x00\x01r"
    b"\x09\x00\x02\x00\x01"
    b"\x0b\x80\x01"
    b"\x26\x00\x01k\x00\x01v"
)

CASES: dict[str, tuple[dict[str, int], bytes, list[tuple[object, ...]]]] = {
    "frames of one group are joined": ({}, A + C + A, [("red", A, C, A)]),
    "groups come in order of first appearance": ({}, B + A + B + C, [("blue", B, B), ("red", A, C)]),
    "what nobody wants is only relayed": ({}, publish(b"z") + PINGREQ, []),
    "a gap does not end a group": ({}, A + PINGREQ + C, [("red", A, C)]),
    "dollar topics are neither looked up nor handed out": ({}, publish(b"$SYS/a", retain=True), []),
    "retain is part of the route": (
        {},
        publish(b"z", retain=True),
        [("everybody", publish(b"z", retain=True))],
    ),
    "dup is cleared in the copy": (
        {},
        A + publish(b"a", qos=1, dup=True) + C + publish(b"b", qos=2, dup=True),
        [("red", A, publish(b"a", qos=1), C), ("blue", publish(b"b", qos=2))],
    ),
    "wanted types are handed out in place": (
        {"wanted": SUBACK},
        A + b"\x90\x03\x00\x01\x00" + B + A,
        [("red", A), ("whole", b"\x90\x03\x00\x01\x00"), ("blue", B), ("red", A)],
    ),
    "a wanted publish is not routed": ({"wanted": PUBLISH}, A, [("whole", A)]),
    "a single QoS is handed out with or without a route": (
        {"single_qos": 1 << 1},
        A + publish(b"z", qos=1) + publish(b"a", qos=2) + publish(b"$SYS", qos=1),
        [("red", A), ("whole", publish(b"z", qos=1)), ("red", publish(b"a", qos=2))],
    ),
    "the version is read from CONNECT": (
        {"version": 0, "wanted": CONNECT},
        CONNECT_V5 + publish(b"a", properties=b""),
        [("whole", CONNECT_V5), ("red", publish(b"a", properties=b""))],
    ),
    "every property of a PUBLISH is stepped over": (
        {"version": 5},
        publish(b"a", properties=EVERY_PROPERTY),
        [("red", publish(b"a", properties=EVERY_PROPERTY))],
    ),
    "an alias is handed out, with its topic or without, also for a dollar topic": (
        {"version": 5},
        publish(b"a", properties=ALIAS) + publish(b"", properties=ALIAS) + publish(b"$x", properties=ALIAS),
        [("whole", publish(t, properties=ALIAS)) for t in (b"a", b"", b"$x")],
    ),
}

with_each_case = pytest.mark.parametrize(("setup", "data", "expected"), CASES.values(), ids=CASES.keys())


@with_each_case
def test_a_case_fed_whole(frames: ModuleType, setup: dict[str, int], data: bytes, expected: object) -> None:
    recorder = Recorder(frames, **setup).feed([data])
    assert recorder.scanner.error is None
    assert recorder.items == expected
    assert recorder.whole == data
    assert recorder.scanner.pending == 0


@with_each_case
def test_a_case_fed_byte_by_byte(
    frames: ModuleType, setup: dict[str, int], data: bytes, expected: object
) -> None:
    at_once = Recorder(frames, **setup).feed([data])
    assert Recorder(frames, **setup).feed(one_by_one(data)).outcome == at_once.outcome


@with_each_case
def test_a_case_with_trailing_data(
    frames: ModuleType, setup: dict[str, int], data: bytes, expected: object
) -> None:
    trailing = publish(b"a", b"later" * 50, properties=b"")[:100]
    recorder = Recorder(frames, **setup).feed([data + trailing])
    assert recorder.items == expected
    assert recorder.whole == data
    assert recorder.scanner.pending == len(trailing)


def test_a_chunk_that_holds_whole_frames_is_given_back_itself(frames: ModuleType) -> None:
    chunk = A + C
    scanner = Recorder(frames).scanner
    whole, items = scanner.feed(chunk)
    assert whole is chunk
    assert items[0].blob is chunk
    scanner.feed(B[:3])
    assert scanner.feed(B[3:])[0] == B
    assert scanner.feed(chunk)[0] is chunk


def test_groups_are_told_apart_by_identity(frames: ModuleType) -> None:
    groups = {b"a": [1], b"b": [1]}
    scanner = frames.Scanner(0, MAX_PACKET, frames.RouteCache(lambda topic, retain: groups.get(topic)))
    scanner.version = 4
    _, items = scanner.feed(A + B)
    assert [item.group for item in items] == [[1], [1]]
    assert items[0].group is groups[b"a"]
    assert items[1].group is groups[b"b"]


def test_without_routes_a_publish_is_stepped_over_unread(frames: ModuleType) -> None:
    scanner = frames.Scanner(CONNACK, MAX_PACKET)
    unreadable = frame(0x30, b"\xff\xff")
    whole, items = scanner.feed(unreadable + b"\x20\x02\x00\x00" + unreadable)
    assert whole == unreadable + b"\x20\x02\x00\x00" + unreadable
    assert [(item.type, item.data) for item in items] == [(2, b"\x20\x02\x00\x00")]
    assert scanner.error is None


def test_the_version_the_caller_set_is_kept(frames: ModuleType) -> None:
    scanner = frames.Scanner(0, MAX_PACKET)
    scanner.version = 3
    scanner.feed(CONNECT_V5)
    assert scanner.version == 3


@pytest.mark.parametrize(("level", "version"), [(3, 3), (4, 4), (5, 5), (0x84, 4)])
def test_a_bridge_bit_is_not_part_of_the_version(frames: ModuleType, level: int, version: int) -> None:
    scanner = frames.Scanner(0, MAX_PACKET)
    scanner.feed(CONNECT_V4.replace(b"MQTT\x04", b"MQTT" + bytes((level,))))
    assert scanner.version == version


# --- what is malformed ----------------------------------------------------------------------------------

MALFORMED: dict[str, tuple[dict[str, int], bytes, int]] = {
    "type 0": ({}, b"\x00\x00", 0x81),
    "a length of five bytes": ({}, b"\xc0\xff\xff\xff\xff\x01", 0x81),
    "QoS 3": ({}, b"\x36\x05\x00\x01a\x00\x01", 0x81),
    "a frame above the limit, before its body came": ({}, frame(0x30, bytes(MAX_PACKET))[:3], 0x95),
    "no room for a topic length": ({}, b"\x30\x01\x00", 0x81),
    "a topic beyond its frame": ({}, b"\x30\x03\x00\x02a", 0x81),
    "no packet identifier": ({}, b"\x32\x04\x00\x01a\x01", 0x81),
    "packet identifier 0": ({}, publish(b"a", qos=1, packet_id=0), 0x81),
    "no property length": ({"version": 5}, publish(b"a", b""), 0x81),
    "properties beyond their frame": ({"version": 5}, publish(b"a", b"\x05\x01"), 0x81),
    "a property length of five bytes": ({"version": 5}, publish(b"a", b"\xff\xff\xff\xff\x01"), 0x81),
    "a property no PUBLISH has": ({"version": 5}, publish(b"a", properties=b"\x11\x00\x00\x00\x00"), 0x81),
    "a number cut short": ({"version": 5}, publish(b"a", properties=b"\x02\x00\x00\x00"), 0x81),
    "an alias cut short": ({"version": 5}, publish(b"a", properties=b"\x23\x00"), 0x81),
    "a subscription identifier cut short": ({"version": 5}, publish(b"a", properties=b"\x0b\x80"), 0x81),
    "a user property without value": ({"version": 5}, publish(b"a", properties=b"\x26\x00\x01k"), 0x81),
    "a string beyond the properties": ({"version": 5}, publish(b"a", properties=b"\x03\x00\x02k"), 0x81),
    "PUBLISH before CONNECT": ({"version": 0}, A, 0x82),
    "CONNECT without a level": ({"version": 0}, b"\x10\x06\x00\x04MQTT", 0x81),
}

with_each_fault = pytest.mark.parametrize(
    ("setup", "bad", "reason"), MALFORMED.values(), ids=MALFORMED.keys()
)


@with_each_fault
@pytest.mark.parametrize("cut", [lambda data: [data], one_by_one], ids=["whole", "byte by byte"])
def test_frames_before_a_malformed_one_are_not_lost_and_none_comes_after_it(
    frames: ModuleType,
    setup: dict[str, int],
    bad: bytes,
    reason: int,
    cut: Callable[[bytes], list[bytes]],
) -> None:
    properties = b"" if setup.get("version") == 5 else None
    good = PINGREQ if setup.get("version") == 0 else publish(b"a", properties=properties)
    recorder = Recorder(frames, **setup).feed(cut(good + bad + A))
    assert recorder.whole == good
    assert recorder.routed == ({} if good is PINGREQ else {"red": [good]})
    assert recorder.scanner.error.reason_code == reason
    assert recorder.scanner.pending == 0


def test_an_error_stays(frames: ModuleType) -> None:
    scanner = Recorder(frames).scanner
    scanner.feed(b"\x00")
    error = scanner.error
    assert isinstance(error, RemoteProtocolError)
    assert scanner.feed(A) == (b"", [])
    assert scanner.error is error


def test_a_packet_of_exactly_the_limit_passes(frames: ModuleType) -> None:
    largest = publish(b"a", bytes(MAX_PACKET - 6))
    assert len(largest) == MAX_PACKET
    assert Recorder(frames).feed(one_by_one(largest)).routed == {"red": [largest]}


# --- any stream in any chunking ------------------------------------------------------------------------

payloads = st.binary(max_size=300)
streams = st.lists(
    st.one_of(
        st.builds(
            lambda topic, payload, qos, retain, dup, properties: publish(
                topic, payload, qos=qos, retain=retain, dup=dup and qos > 0, properties=properties
            ),
            st.sampled_from([b"a", b"b", b"c", b"z", b"$SYS/x", b"", b"\xff"]),
            payloads,
            st.integers(0, 2),
            st.booleans(),
            st.booleans(),
            st.sampled_from([b"", ALIAS, EVERY_PROPERTY]),
        ),
        st.builds(lambda kind, body: frame(kind << 4, body), st.integers(4, 14), payloads),
    ),
    max_size=12,
).map(b"".join)
wanted_masks = st.sampled_from([0, SUBACK, SUBACK | PUBLISH])
cuts = st.lists(st.integers(0, 3000), max_size=30)


def chunked(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(data=streams, places=cuts, wanted=wanted_masks, single_qos=st.integers(0, 7))
@settings(max_examples=150, deadline=None)
def test_chunking_changes_nothing(
    frames: ModuleType, data: bytes, places: list[int], wanted: int, single_qos: int
) -> None:
    def record(variant: ModuleType, chunks: list[bytes]) -> tuple[object, ...]:
        return Recorder(variant, wanted=wanted, version=5, single_qos=single_qos).feed(chunks).outcome

    at_once = record(UNCOMPILED, [data])
    assert at_once[0] == data
    assert record(frames, chunked(data, places)) == at_once


@given(
    data=streams,
    noise=st.binary(max_size=4),
    at=st.integers(0, 500),
    wanted=wanted_masks,
    single_qos=st.integers(0, 7),
)
@settings(max_examples=300, deadline=None)
def test_a_chunk_passes_if_and_only_if_feeding_it_would_give_it_back_and_nothing_else(
    frames: ModuleType, data: bytes, noise: bytes, at: int, wanted: int, single_qos: int
) -> None:
    data = data[:at] + noise + data[at + len(noise) :]
    one, other = (Recorder(frames, wanted=wanted, version=5, single_qos=single_qos).scanner for _ in "12")
    whole, items = other.feed(data)
    assert one.passes(data) == (other.error is None and whole == data and not items)
    assert one.error is None
    assert one.pending == 0


@given(
    data=streams, noise=st.binary(max_size=40), at=st.integers(0, 500), places=cuts, version=st.integers(0, 5)
)
@settings(max_examples=300, deadline=None)
def test_garbage_ends_in_an_error_or_is_relayed_the_same_in_any_chunking(
    frames: ModuleType, data: bytes, noise: bytes, at: int, places: list[int], version: int
) -> None:
    mutated = data[:at] + noise + data[at + len(noise) // 2 :]
    at_once = Recorder(UNCOMPILED, wanted=SUBACK, version=version).feed([mutated])
    in_parts = Recorder(frames, wanted=SUBACK, version=version).feed(chunked(mutated, places))
    assert in_parts.outcome == at_once.outcome
    assert mutated.startswith(at_once.whole)
    if at_once.scanner.error is None:
        assert len(at_once.whole) + at_once.scanner.pending == len(mutated)


@given(blob=st.one_of(streams, st.binary(max_size=60)), version=st.sampled_from([4, 5]))
@settings(max_examples=200, deadline=None)
def test_both_variants_agree_on_any_blob(frames: ModuleType, blob: bytes, version: int) -> None:
    def outcome(variant: ModuleType, name: str, *arguments: object) -> object:
        try:
            return getattr(variant, name)(blob, *arguments)
        except RemoteProtocolError as error:
            return str(error), error.reason_code

    for name, arguments in (("split", ()), ("convert", (version, 9 - version))):
        assert outcome(frames, name, *arguments) == outcome(UNCOMPILED, name, *arguments)
    assert outcome(frames, "route_run", version, frames.RouteCache(resolve)) == outcome(
        UNCOMPILED, "route_run", version, UNCOMPILED.RouteCache(resolve)
    )


def test_a_big_frame_in_small_chunks_is_put_together_once(frames: ModuleType) -> None:
    big = publish(b"a", bytes(1 << 20))
    scanner = frames.Scanner(0, 2 << 20, frames.RouteCache(resolve))
    scanner.version = 4
    allocated = 0
    tracemalloc.start()
    try:
        for at in range(0, len(big), 64):
            assert scanner.pending == at
            chunk = big[at : at + 64]
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            whole, items = scanner.feed(chunk)
            allocated += tracemalloc.get_traced_memory()[1] - before
            assert whole == (big if at + 64 >= len(big) else b"")
    finally:
        tracemalloc.stop()
    assert items[0].blob == big
    assert scanner.pending == 0
    # Joining anew at each chunk would have allocated some 8 GiB.
    assert allocated < 8 * len(big)


@given(data=streams, size=st.integers(1, 64))
@settings(max_examples=50, deadline=None)
def test_never_more_than_one_packet_waits(frames: ModuleType, data: bytes, size: int) -> None:
    scanner = frames.Scanner(0, 400, frames.RouteCache(resolve))
    scanner.version = 5
    for at in range(0, len(data), size):
        scanner.feed(data[at : at + size])
        assert scanner.pending < 400


# --- the route cache ------------------------------------------------------------------------------------


def test_a_topic_is_resolved_once_until_the_cache_is_cleared(frames: ModuleType) -> None:
    asked: list[tuple[bytes, bool]] = []
    routes = frames.RouteCache(lambda topic, retain: asked.append((topic, retain)))
    for _ in range(2):
        assert routes.lookup(b"a", False) is None
        assert routes.lookup(b"a", True) is None
    assert asked == [(b"a", False), (b"a", True)]
    routes.clear()
    routes.lookup(b"a", False)
    assert asked[2:] == [(b"a", False)]
    assert routes.misses == 3


def test_a_full_cache_starts_again(frames: ModuleType) -> None:
    routes = frames.RouteCache(lambda topic, retain: topic, capacity=2)
    for topic in (b"a", b"b", b"a", b"b"):
        assert routes.lookup(topic, False) == topic
    assert routes.misses == 2
    routes.lookup(b"c", False)
    routes.lookup(b"c", False)
    assert routes.misses == 3
    routes.lookup(b"a", False)
    assert routes.misses == 4


def test_a_single_topic_can_be_forgotten_and_leaves_its_room(frames: ModuleType) -> None:
    routes = frames.RouteCache(lambda topic, retain: topic, capacity=3)
    for topic, retain in ((b"a", False), (b"a", True), (b"b", False)):
        routes.lookup(topic, retain)
    routes.discard(b"a")
    routes.discard(b"never heard of")
    for topic, retain in ((b"b", False), (b"a", False), (b"a", True), (b"b", False)):
        routes.lookup(topic, retain)
    assert routes.misses == 5


def test_a_long_topic_takes_more_of_the_capacity(frames: ModuleType) -> None:
    routes = frames.RouteCache(lambda topic, retain: topic, capacity=10)
    routes.lookup(b"a", False)
    routes.lookup(b"x" * 65_535, False)
    routes.lookup(b"a", False)
    assert routes.misses == 3


# --- blobs ------------------------------------------------------------------------------------------------


def test_a_run_is_cut_where_the_group_changes(frames: ModuleType) -> None:
    unwanted, dollar = publish(b"z"), publish(b"$x")
    runs = frames.route_run(A + C + B + unwanted + dollar + A, 4, frames.RouteCache(resolve))
    assert runs == [
        ("red", 0, 2, A + C),
        ("blue", 2, 1, B),
        (None, 3, 2, unwanted + dollar),
        ("red", 5, 1, A),
    ]


def test_a_run_of_one_group_is_the_blob_itself(frames: ModuleType) -> None:
    for blob in (A + C, publish(b"z") * 3):
        ((_, first, count, part),) = frames.route_run(blob, 4, frames.RouteCache(resolve))
        assert part is blob
        assert (first, count) == (0, len(frames.split(blob)))
    assert frames.route_run(b"", 4, frames.RouteCache(resolve)) == []


@pytest.mark.parametrize(
    "blob",
    [A + PINGREQ, A + A[:-1], A + b"\x30", publish(b""), b"\x36\x03\x00\x01a", b"\x00\x00"],
    ids=["not a PUBLISH", "cut short", "no length", "no topic", "QoS 3", "type 0"],
)
def test_a_run_with_anything_else_in_it_is_refused(frames: ModuleType, blob: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        frames.route_run(blob, 4, frames.RouteCache(resolve))


def test_a_run_with_an_alias_is_refused(frames: ModuleType) -> None:
    with pytest.raises(RemoteProtocolError):
        frames.route_run(publish(b"a", properties=ALIAS), 5, frames.RouteCache(resolve))


def test_split_gives_each_frame(frames: ModuleType) -> None:
    assert frames.split(A + PINGREQ + C) == [A, PINGREQ, C]
    assert frames.split(b"") == []
    for cut in (A + C[:-1], A[:1]):
        with pytest.raises(RemoteProtocolError):
            frames.split(cut)


def test_convert_leaves_the_same_family_alone(frames: ModuleType) -> None:
    blob = A + C
    assert frames.convert(blob, 3, 4) is blob
    assert frames.convert(blob, 5, 5) is blob


@pytest.mark.parametrize("size", [0, 123, 124, 125, 16_379, 16_380], ids=str)
def test_convert_recomputes_lengths(frames: ModuleType, size: int) -> None:
    payload = bytes(size)
    old = publish(b"a", payload) + publish(b"b", payload, retain=True) + publish(b"c", payload, qos=1)
    new = b"".join(
        (
            publish(b"a", payload, properties=b""),
            publish(b"b", payload, retain=True, properties=b""),
            publish(b"c", payload, qos=1, properties=b""),
        )
    )
    assert frames.convert(old, 4, 5) == new
    assert frames.convert(new, 5, 3) == old


def test_convert_drops_properties(frames: ModuleType) -> None:
    assert frames.convert(publish(b"a", properties=EVERY_PROPERTY), 5, 4) == publish(b"a")


def test_publish_head_reads_what_precedes_the_payload(frames: ModuleType) -> None:
    data = publish(b"a/b", b"payload", qos=2, packet_id=513, retain=True, dup=True, properties=EVERY_PROPERTY)
    head = frames.publish_head(data, 5)
    assert (head.topic, head.qos, head.retain, head.dup, head.packet_id) == (b"a/b", 2, True, True, 513)
    assert head.properties == EVERY_PROPERTY
    assert data[head.payload_start :] == b"payload"
    plain = frames.publish_head(A, 4)
    assert (plain.qos, plain.retain, plain.dup, plain.packet_id, plain.properties) == (
        0,
        False,
        False,
        0,
        b"",
    )


@pytest.mark.parametrize(
    "data", [b"", A + A, A[:-1], PINGREQ], ids=["none", "two", "cut short", "not a PUBLISH"]
)
def test_publish_head_takes_exactly_one_publish(frames: ModuleType, data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        frames.publish_head(data, 4)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("to_version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("to_qos", [0, 1, 2])
def test_with_qos_rewrites_all_but_topic_retain_and_payload(
    frames: ModuleType, version: int, to_version: int, qos: int, to_qos: int
) -> None:
    before = EVERY_PROPERTY if version == 5 else None
    after = (EVERY_PROPERTY if version == 5 else b"") if to_version == 5 else None
    original = publish(b"a", b"p", qos=qos, retain=True, properties=before)
    packet_id, dup = (300, True) if to_qos else (0, False)
    expected = publish(b"a", b"p", qos=to_qos, packet_id=300, retain=True, dup=dup, properties=after)
    assert frames.with_qos(original, version, to_version, to_qos, packet_id, dup) == expected


@pytest.mark.parametrize(
    ("qos", "packet_id", "dup"),
    [(3, 1, False), (1, 0, False), (1, 65_536, False), (0, 1, False), (0, 0, True)],
)
def test_with_qos_refuses_what_no_publish_has(
    frames: ModuleType, qos: int, packet_id: int, dup: bool
) -> None:
    with pytest.raises(LocalProtocolError):
        frames.with_qos(A, 4, 4, qos, packet_id, dup)


def test_what_had_dup_set_is_named_by_its_place(frames: ModuleType) -> None:
    scanner = frames.Scanner(0, 1 << 20, frames.RouteCache(lambda topic, retain: topic != b"no" or None))
    scanner.version = 4
    chunk = b"".join(
        publish(topic, b"x", qos=1, dup=dup)
        for topic, dup in ((b"a", False), (b"no", True), (b"b", True), (b"a", False), (b"a", True))
    )
    _, (routed,) = scanner.feed(chunk)
    assert (routed.count, routed.resent) == (4, [1, 3])
    _, (routed,) = scanner.feed(publish(b"a", b"x"))
    assert routed.resent is None


class Way:
    """What a passage leads to, and what it leaves to others."""

    def __init__(self, frames: ModuleType, room: int = 1 << 20) -> None:
        self.scanner = frames.Scanner(SUBACK, MAX_PACKET)
        self.scanner.version = 4
        self.passage = frames.Passage(self.scanner, self.attended_append)
        self.attended: list[bytes] = []
        self.written: list[bytes] = []
        self.rest: list[bytes] = []
        self.room = room
        self.waiting, self.closing = 0, False
        self.passage.lead_to(9, self.write, self.rest.append, lambda: self.waiting, lambda: self.closing)
        self.passage.open = True

    def attended_append(self, data: bytes) -> None:
        self.attended.append(data)

    def write(self, file: int, data: bytes) -> int:
        assert file == 9
        if self.room < 0:
            raise BlockingIOError
        self.written.append(data[: self.room])
        return min(len(data), self.room)


def test_an_open_passage_writes_what_concerns_nobody_and_hands_over_the_rest(frames: ModuleType) -> None:
    way = Way(frames)
    suback = frame(0x90, b"\x00\x01\x00")
    for chunk in (A + B, A + suback, A[:3], PINGREQ):
        way.passage(chunk)
    assert way.written == [A + B, PINGREQ]
    assert way.attended == [A + suback, A[:3]]
    assert way.rest == []


def test_a_passage_passes_nothing_while_part_of_a_frame_waits(frames: ModuleType) -> None:
    way = Way(frames)
    way.scanner.feed(A[:3])
    way.passage(B)
    assert (way.written, way.attended) == ([], [B])


@pytest.mark.parametrize("state", ["shut", "waiting", "closing"])
def test_a_passage_writes_only_while_open_to_a_way_that_is_clear(frames: ModuleType, state: str) -> None:
    way = Way(frames)
    way.passage.open = state != "shut"
    way.waiting = 5 if state == "waiting" else 0
    way.closing = state == "closing"
    way.passage(A)
    assert (way.written, way.attended) == ([], [A])


@pytest.mark.parametrize("room", [-1, 0, 4])
def test_what_a_passage_could_not_write_goes_where_the_rest_does(frames: ModuleType, room: int) -> None:
    way = Way(frames, room)
    way.passage(A)
    assert b"".join(way.written) + b"".join(way.rest) == A
    assert way.rest
    assert way.attended == []


def test_publications_and_bytes_are_counted_once_whichever_way_a_chunk_takes(frames: ModuleType) -> None:
    way = Way(frames)
    suback = frame(0x90, b"\x00\x01\x00")
    way.passage(A + PINGREQ + B)
    assert (way.scanner.publishes, way.scanner.passed) == (2, len(A + PINGREQ + B))
    way.waiting = 5
    for chunk in (A, B + suback, A[:3], A[3:]):
        way.passage(chunk)
        way.scanner.feed(way.attended[-1])  # as the pair does
    assert way.scanner.publishes == 5
    assert way.scanner.passed == len(A + PINGREQ + B) + len(A + B + suback + A)
