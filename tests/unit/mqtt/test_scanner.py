"""The frame scanner, compiled and not: every test runs over both.

`Recorder` flattens what a scanner handed out, so that outcomes compare whatever the chunking: which frames
were joined in one `Routed` depends on it, their order within a group does not.
"""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Iterable
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerweave.errors import RemoteProtocolError
from tests.unit.mqtt.wire import (
    ALIAS,
    EVERY_PROPERTY,
    MAX_PACKET,
    PINGREQ,
    A,
    B,
    C,
    frame,
    publish,
    resolve,
    streams,
)
from tests.unit.variants import BOTH, UNCOMPILED

pytestmark = pytest.mark.parametrize("module", BOTH)

CONNECT, CONNACK, SUBACK, PUBLISH = 1 << 1, 1 << 2, 1 << 9, 1 << 3
CONNECT_V4 = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01a"
CONNECT_V5 = b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x01a"


class Recorder:
    """Feeds one scanner and keeps all it handed out."""

    def __init__(
        self, module: SimpleNamespace, *, wanted: int = 0, version: int = 4, single_qos: int = 0
    ) -> None:
        self.module = module
        self.scanner = module.Scanner(wanted, MAX_PACKET, module.RouteCache(resolve))
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
                if isinstance(item, self.module.Frame):
                    self.handed_out.append((item.type, item.data))
                    self.items.append(("whole", item.data))
                else:
                    split = self.module.split(item.blob)
                    assert len(split) == item.count
                    assert item.max_qos == max(f[0] >> 1 & 3 for f in split)
                    self.routed.setdefault(item.group, []).extend(split)
                    self.items.append((item.group, *split))
        return self

    @property
    def outcome(self) -> tuple[object, ...]:
        error = self.scanner.error
        reason = None if error is None else (str(error), error.reason_code)
        waits = self.scanner.pending if error is None else None
        return self.whole, self.routed, self.handed_out, reason, self.scanner.version, waits


def one_by_one(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


# --- cases: bytes in, and what one feed of all of them gives -------------------------------------------

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
def test_a_case_fed_whole(
    module: SimpleNamespace, setup: dict[str, int], data: bytes, expected: object
) -> None:
    recorder = Recorder(module, **setup).feed([data])
    assert recorder.scanner.error is None
    assert recorder.items == expected
    assert recorder.whole == data
    assert recorder.scanner.pending == 0


@with_each_case
def test_a_case_fed_byte_by_byte(
    module: SimpleNamespace, setup: dict[str, int], data: bytes, expected: object
) -> None:
    at_once = Recorder(module, **setup).feed([data])
    assert Recorder(module, **setup).feed(one_by_one(data)).outcome == at_once.outcome


@with_each_case
def test_a_case_with_trailing_data(
    module: SimpleNamespace, setup: dict[str, int], data: bytes, expected: object
) -> None:
    trailing = publish(b"a", b"later" * 50, properties=b"")[:100]
    recorder = Recorder(module, **setup).feed([data + trailing])
    assert recorder.items == expected
    assert recorder.whole == data
    assert recorder.scanner.pending == len(trailing)


def test_a_chunk_that_holds_whole_frames_is_given_back_itself(module: SimpleNamespace) -> None:
    chunk = A + C
    scanner = Recorder(module).scanner
    whole, items = scanner.feed(chunk)
    assert whole is chunk
    assert items[0].blob is chunk
    scanner.feed(B[:3])
    assert scanner.feed(B[3:])[0] == B
    assert scanner.feed(chunk)[0] is chunk


def test_groups_are_told_apart_by_identity(module: SimpleNamespace) -> None:
    groups = {b"a": [1], b"b": [1]}
    scanner = module.Scanner(0, MAX_PACKET, module.RouteCache(lambda topic, retain: groups.get(topic)))
    scanner.version = 4
    _, items = scanner.feed(A + B)
    assert [item.group for item in items] == [[1], [1]]
    assert items[0].group is groups[b"a"]
    assert items[1].group is groups[b"b"]


def test_without_routes_a_publish_is_stepped_over_unread(module: SimpleNamespace) -> None:
    scanner = module.Scanner(CONNACK, MAX_PACKET)
    unreadable = frame(0x30, b"\xff\xff")
    whole, items = scanner.feed(unreadable + b"\x20\x02\x00\x00" + unreadable)
    assert whole == unreadable + b"\x20\x02\x00\x00" + unreadable
    assert [(item.type, item.data) for item in items] == [(2, b"\x20\x02\x00\x00")]
    assert scanner.error is None


def test_the_version_the_caller_set_is_kept(module: SimpleNamespace) -> None:
    scanner = module.Scanner(0, MAX_PACKET)
    scanner.version = 3
    scanner.feed(CONNECT_V5)
    assert scanner.version == 3


@pytest.mark.parametrize(("level", "version"), [(3, 3), (4, 4), (5, 5), (0x84, 4)])
def test_a_bridge_bit_is_not_part_of_the_version(module: SimpleNamespace, level: int, version: int) -> None:
    scanner = module.Scanner(0, MAX_PACKET)
    scanner.feed(CONNECT_V4.replace(b"MQTT\x04", b"MQTT" + bytes((level,))))
    assert scanner.version == version


# --- what is malformed ----------------------------------------------------------------------------------

UNREADABLE: dict[str, tuple[dict[str, int], bytes]] = {
    "type 0": ({}, b"\x00\x00"),
    "QoS 3": ({}, b"\x36\x05\x00\x01a\x00\x01"),
    "no room for a topic length": ({}, b"\x30\x01\x00"),
    "a topic beyond its frame": ({}, b"\x30\x03\x00\x02a"),
    "no packet identifier": ({}, b"\x32\x04\x00\x01a\x01"),
    "packet identifier 0": ({}, publish(b"a", qos=1, packet_id=0)),
    "no property length": ({"version": 5}, publish(b"a", b"")),
    "properties beyond their frame": ({"version": 5}, publish(b"a", b"\x05\x01")),
    "a property length of five bytes": ({"version": 5}, publish(b"a", b"\xff\xff\xff\xff\x01")),
    "a property no PUBLISH has": ({"version": 5}, publish(b"a", properties=b"\x11\x00\x00\x00\x00")),
    "a number cut short": ({"version": 5}, publish(b"a", properties=b"\x02\x00\x00\x00")),
    "an alias cut short": ({"version": 5}, publish(b"a", properties=b"\x23\x00")),
    "a subscription identifier cut short": ({"version": 5}, publish(b"a", properties=b"\x0b\x80")),
    "a user property without value": ({"version": 5}, publish(b"a", properties=b"\x26\x00\x01k")),
    "a string beyond the properties": ({"version": 5}, publish(b"a", properties=b"\x03\x00\x02k")),
    "PUBLISH before CONNECT": ({"version": 0}, A),
    "CONNECT without a level": ({"version": 0}, b"\x10\x06\x00\x04MQTT"),
}


@pytest.mark.parametrize(("setup", "bad"), UNREADABLE.values(), ids=UNREADABLE.keys())
@pytest.mark.parametrize("cut", [lambda data: [data], one_by_one], ids=["whole", "byte by byte"])
def test_a_frame_that_cannot_be_read_is_handed_out_whole_and_the_stream_goes_on(
    module: SimpleNamespace, setup: dict[str, int], bad: bytes, cut: Callable[[bytes], list[bytes]]
) -> None:
    good = publish(b"a", properties=b"" if setup.get("version") == 5 else None)
    connect = CONNECT_V4 if setup.get("version") == 0 else b""
    setup = {**setup, "wanted": CONNECT}
    recorder = Recorder(module, **setup).feed(cut(bad + connect + good))
    assert recorder.whole == bad + connect + good
    assert recorder.items[0] == ("whole", bad)
    assert recorder.items[-1] == ("red", good)
    assert recorder.scanner.error is None


BROKEN: dict[str, tuple[bytes, int]] = {
    "a length of five bytes": (b"\xc0\xff\xff\xff\xff\x01", 0x81),
    "a frame above the limit, before its body came": (frame(0x30, bytes(MAX_PACKET))[:3], 0x95),
}


@pytest.mark.parametrize(("bad", "reason"), BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("cut", [lambda data: [data], one_by_one], ids=["whole", "byte by byte"])
def test_frames_before_a_broken_stream_are_not_lost_and_the_rest_can_be_had(
    module: SimpleNamespace, bad: bytes, reason: int, cut: Callable[[bytes], list[bytes]]
) -> None:
    recorder = Recorder(module)
    chunks = iter(cut(A + bad + C))
    while recorder.scanner.error is None:
        recorder.feed([next(chunks)])
    assert recorder.whole == A
    assert recorder.routed == {"red": [A]}
    assert recorder.scanner.error.reason_code == reason
    assert recorder.scanner.take_rest() + b"".join(chunks) == bad + C
    assert recorder.scanner.pending == 0


def test_an_error_stays(module: SimpleNamespace) -> None:
    scanner = Recorder(module).scanner
    scanner.feed(b"\xc0\xff\xff\xff\xff\x01")
    error = scanner.error
    assert isinstance(error, RemoteProtocolError)
    assert scanner.feed(A) == (b"", [])
    assert scanner.error is error


def test_a_packet_of_exactly_the_limit_passes(module: SimpleNamespace) -> None:
    largest = publish(b"a", bytes(MAX_PACKET - 6))
    assert len(largest) == MAX_PACKET
    assert Recorder(module).feed(one_by_one(largest)).routed == {"red": [largest]}


# --- any stream in any chunking ------------------------------------------------------------------------

wanted_masks = st.sampled_from([0, SUBACK, SUBACK | PUBLISH])
cuts = st.lists(st.integers(0, 3000), max_size=30)


def chunked(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(data=streams, places=cuts, wanted=wanted_masks, single_qos=st.integers(0, 7))
@settings(max_examples=150, deadline=None)
def test_chunking_changes_nothing(
    module: SimpleNamespace, data: bytes, places: list[int], wanted: int, single_qos: int
) -> None:
    def record(variant: SimpleNamespace, chunks: list[bytes]) -> tuple[object, ...]:
        return Recorder(variant, wanted=wanted, version=5, single_qos=single_qos).feed(chunks).outcome

    at_once = record(UNCOMPILED, [data])
    assert at_once[0] == data
    assert record(module, chunked(data, places)) == at_once


@given(
    data=streams,
    noise=st.binary(max_size=4),
    at=st.integers(0, 500),
    wanted=wanted_masks,
    single_qos=st.integers(0, 7),
)
@settings(max_examples=300, deadline=None)
def test_a_chunk_passes_if_and_only_if_feeding_it_would_give_it_back_and_nothing_else(
    module: SimpleNamespace, data: bytes, noise: bytes, at: int, wanted: int, single_qos: int
) -> None:
    data = data[:at] + noise + data[at + len(noise) :]
    one, other = (Recorder(module, wanted=wanted, version=5, single_qos=single_qos).scanner for _ in "12")
    whole, items = other.feed(data)
    assert one.passes(data) == (other.error is None and whole == data and not items)
    assert one.error is None
    assert one.pending == 0


@given(
    data=streams, noise=st.binary(max_size=40), at=st.integers(0, 500), places=cuts, version=st.integers(0, 5)
)
@settings(max_examples=300, deadline=None)
def test_garbage_ends_in_an_error_or_is_relayed_the_same_in_any_chunking(
    module: SimpleNamespace, data: bytes, noise: bytes, at: int, places: list[int], version: int
) -> None:
    mutated = data[:at] + noise + data[at + len(noise) // 2 :]
    at_once = Recorder(UNCOMPILED, wanted=SUBACK, version=version).feed([mutated])
    in_parts = Recorder(module, wanted=SUBACK, version=version).feed(chunked(mutated, places))
    assert in_parts.outcome == at_once.outcome
    assert mutated.startswith(at_once.whole)
    if at_once.scanner.error is None:
        assert len(at_once.whole) + at_once.scanner.pending == len(mutated)


def test_a_big_frame_in_small_chunks_is_put_together_once(module: SimpleNamespace) -> None:
    big = publish(b"a", bytes(1 << 20))
    scanner = module.Scanner(0, 2 << 20, module.RouteCache(resolve))
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
def test_never_more_than_one_packet_waits(module: SimpleNamespace, data: bytes, size: int) -> None:
    scanner = module.Scanner(0, 400, module.RouteCache(resolve))
    scanner.version = 5
    for at in range(0, len(data), size):
        scanner.feed(data[at : at + size])
        assert scanner.pending < 400


# --- the route cache ------------------------------------------------------------------------------------


def test_a_topic_is_resolved_once_until_the_cache_is_cleared(module: SimpleNamespace) -> None:
    asked: list[tuple[bytes, bool]] = []
    routes = module.RouteCache(lambda topic, retain: asked.append((topic, retain)))
    for _ in range(2):
        assert routes.lookup(b"a", False) is None
        assert routes.lookup(b"a", True) is None
    assert asked == [(b"a", False), (b"a", True)]
    routes.clear()
    routes.lookup(b"a", False)
    assert asked[2:] == [(b"a", False)]
    assert routes.misses == 3


def test_a_full_cache_starts_again(module: SimpleNamespace) -> None:
    routes = module.RouteCache(lambda topic, retain: topic, capacity=2)
    for topic in (b"a", b"b", b"a", b"b"):
        assert routes.lookup(topic, False) == topic
    assert routes.misses == 2
    routes.lookup(b"c", False)
    routes.lookup(b"c", False)
    assert routes.misses == 3
    routes.lookup(b"a", False)
    assert routes.misses == 4


def test_a_long_topic_takes_more_of_the_capacity(module: SimpleNamespace) -> None:
    routes = module.RouteCache(lambda topic, retain: topic, capacity=10)
    routes.lookup(b"a", False)
    routes.lookup(b"x" * 65_535, False)
    routes.lookup(b"a", False)
    assert routes.misses == 3


def test_what_had_dup_set_is_named_by_its_place(module: SimpleNamespace) -> None:
    scanner = module.Scanner(0, 1 << 20, module.RouteCache(lambda topic, retain: topic != b"no" or None))
    scanner.version = 4
    chunk = b"".join(
        publish(topic, b"x", qos=1, dup=dup)
        for topic, dup in ((b"a", False), (b"no", True), (b"b", True), (b"a", False), (b"a", True))
    )
    _, (routed,) = scanner.feed(chunk)
    assert (routed.count, routed.resent) == (4, [1, 3])
    _, (routed,) = scanner.feed(publish(b"a", b"x"))
    assert routed.resent is None


def test_split_gives_each_frame(module: SimpleNamespace) -> None:
    assert module.split(A + PINGREQ + C) == [A, PINGREQ, C]
    assert module.split(b"") == []
    for cut in (A + C[:-1], A[:1]):
        with pytest.raises(RemoteProtocolError):
            module.split(cut)


def test_a_single_topic_can_be_forgotten_and_leaves_its_room(module: SimpleNamespace) -> None:
    routes = module.RouteCache(lambda topic, retain: topic, capacity=3)
    for topic, retain in ((b"a", False), (b"a", True), (b"b", False)):
        routes.lookup(topic, retain)
    routes.discard(b"a")
    routes.discard(b"never heard of")
    for topic, retain in ((b"b", False), (b"a", False), (b"a", True), (b"b", False)):
        routes.lookup(topic, retain)
    assert routes.misses == 5
