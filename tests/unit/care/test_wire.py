"""What homes and holders tell each other reads back equal, and garbage is refused."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.care import wire
from brokerweave.care.ids import MessageId
from brokerweave.care.record import Cover, Snapshot
from brokerweave.care.wire import ANSWER, DONE, LATE, STALE, ClientClaim, Give, LogEntry, Release
from brokerweave.errors import RemoteProtocolError
from tests.unit.care.messages import held

NOW = 1 << 20
DECODERS: list[Callable[[bytes], object]] = [
    wire.decode_claims,
    lambda payload: wire.decode_give(payload, NOW),
    wire.decode_release,
    lambda payload: wire.decode_log(payload, NOW),
    wire.decode_logged,
]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
names = texts.filter(bool)
numbers = st.integers(0, (1 << 64) - 1)
ids = st.builds(MessageId, names, numbers, st.integers(0, 255), numbers)
publications = st.builds(
    lambda one, topic, qos, born: held(
        one.sequence,
        origin=one.origin,
        epoch=one.epoch,
        lane=one.lane,
        topic=topic,
        qos=qos,
        born=float(born),
    ),
    ids,
    st.sampled_from(("t", "a/b", "é")),
    st.integers(0, 2),
    st.integers(0, NOW),
)
covers = st.builds(
    Cover,
    st.frozensets(texts, max_size=2),
    st.dictionaries(st.tuples(names, numbers, st.integers(0, 255)), numbers, max_size=3),
)
snapshots = st.builds(
    Snapshot,
    texts,
    numbers,
    st.dictionaries(names, st.integers(0, 2), max_size=3),
    st.lists(publications, max_size=3),
    st.lists(covers, max_size=2),
    st.sets(ids, max_size=3),
    st.binary(max_size=20),
    st.none() | numbers,
)
gives = st.builds(
    Give,
    texts,
    numbers,
    st.sampled_from((ANSWER, STALE, LATE, DONE)),
    st.none() | snapshots,
    st.lists(st.tuples(st.integers(0, 65535), st.binary(max_size=8), ids), max_size=3).map(tuple),
    texts,
    numbers,
    st.none() | numbers,
)
entries = st.builds(
    LogEntry,
    names,
    texts,
    st.lists(ids, max_size=3).map(tuple),
    st.none() | publications,
    st.none() | snapshots,
    numbers,
    numbers,
    st.lists(st.tuples(texts, numbers), max_size=3).map(tuple),
)

SNAPSHOT = Snapshot(
    "c",
    7,
    {"t": 1},
    [held(1), held(2)],
    [Cover(frozenset("t"), {("a", 1, 0): 4})],
    {MessageId("b", 1, 0, 3)},
    b"will",
    9,
)
PAYLOADS = [
    wire.encode_claims([ClientClaim("c", 7, 2), ClientClaim("é", 8, 0)]),
    wire.encode_give(Give("c", 7, ANSWER, SNAPSHOT, ((3, b"content.", MessageId("a", 1, 0, 2)),), "b"), NOW),
    wire.encode_release(Release("c", 7, ("a", "b"))),
    wire.encode_log(
        3,
        9,
        [
            LogEntry("record", "c", record=SNAPSHOT),
            LogEntry("add", "c", held=held(3)),
            LogEntry("has", "c", ids=(MessageId("a", 1, 0, 2),)),
            LogEntry("holders", holders=(("a", 1), ("b", 2))),
        ],
        NOW,
    ),
    wire.encode_logged(3, 9),
]


@given(st.lists(st.builds(ClientClaim, texts, numbers, st.integers(0, 2), planned=st.booleans()), max_size=5))
def test_claims_read_back_equal(claims: list[ClientClaim]) -> None:
    assert wire.decode_claims(wire.encode_claims(claims)) == claims


@given(gives)
def test_what_is_given_reads_back_equal(give: Give) -> None:
    assert wire.decode_give(wire.encode_give(give, NOW), NOW) == give


@given(texts, numbers)
def test_a_release_reads_back_equal(client: str, generation: int) -> None:
    release = Release(client, generation)
    assert wire.decode_release(wire.encode_release(release)) == release


@given(numbers, numbers, st.lists(entries, max_size=5))
def test_a_log_reads_back_equal(life: int, last: int, log: list[LogEntry]) -> None:
    assert wire.decode_log(wire.encode_log(life, last, log, NOW), NOW) == (life, last, log)


@given(numbers, numbers)
def test_how_far_a_log_is_known_reads_back_equal(life: int, last: int) -> None:
    assert wire.decode_logged(wire.encode_logged(life, last)) == (life, last)


def test_a_publication_has_its_age_on_the_clock_of_who_reads_it() -> None:
    payload = wire.encode_log(1, 1, [LogEntry("add", "c", held=held(1, born=100.0))], 107.0)
    _, _, (entry,) = wire.decode_log(payload, 50.0)
    assert entry.held == held(1, born=43.0)


def test_a_publication_from_the_future_is_as_old_as_its_arrival() -> None:
    payload = wire.encode_log(1, 1, [LogEntry("add", "c", held=held(1, born=100.0))], 90.0)
    _, _, (entry,) = wire.decode_log(payload, 50.0)
    assert entry.held == held(1, born=50.0)


# Garbage


@pytest.mark.parametrize("decode", DECODERS)
@given(st.binary(max_size=200))
def test_random_bytes_are_refused(decode: Callable[[bytes], object], payload: bytes) -> None:
    with suppress(RemoteProtocolError):
        decode(payload)


@pytest.mark.parametrize("decode", DECODERS)
@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_of_another_message_raises_nothing_else(
    decode: Callable[[bytes], object], payload: bytes
) -> None:
    with suppress(RemoteProtocolError):
        decode(payload)


@pytest.mark.parametrize(("decode", "payload"), zip(DECODERS, PAYLOADS, strict=True))
def test_a_payload_that_is_cut_off_raises_nothing_else(
    decode: Callable[[bytes], object], payload: bytes
) -> None:
    decode(payload)
    (said,) = struct.unpack_from(">I", payload)
    for length in range(len(payload)):
        with pytest.raises(RemoteProtocolError) if length < 4 + said else suppress(RemoteProtocolError):
            decode(payload[:length])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterable[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    if not path:
        return by
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], by)
    return copy


def packed(head: object, rest: bytes = b"") -> bytes:
    said = json.dumps(head).encode()
    return struct.pack(">I", len(said)) + said + rest


@pytest.mark.parametrize(("decode", "payload"), zip(DECODERS, PAYLOADS, strict=True))
@given(st.data())
def test_anything_in_the_place_of_something_raises_nothing_else(
    decode: Callable[[bytes], object], payload: bytes, data: st.DataObject
) -> None:
    (length,) = struct.unpack_from(">I", payload)
    head, rest = json.loads(payload[4 : 4 + length]), payload[4 + length :]
    path = data.draw(st.sampled_from(list(places(head))))
    with suppress(RemoteProtocolError):
        decode(packed(replaced(head, path, data.draw(json_values)), rest))


@pytest.mark.parametrize(
    "head",
    [None, 1, "x", [], [1], {}, ["c", 7, "never heard of", None, [], ""], ["c", 7, ANSWER, [1], [], ""]],
)
def test_what_has_another_form_is_refused(head: object) -> None:
    with pytest.raises(RemoteProtocolError):
        wire.decode_give(packed(head), NOW)


@pytest.mark.parametrize("filters", [{"": 1}, {"t": 3}, {"t": None}, {"t": "1"}, ["t"]])
def test_filters_without_a_qos_are_refused(filters: object) -> None:
    record = ["c", 7, filters, 0, 0, [], [], "", None, []]
    with pytest.raises(RemoteProtocolError):
        wire.decode_give(packed(["c", 7, ANSWER, record, [], ""]), NOW)
