"""PUBLISH frames rewritten as bytes, by compiled code and not: every test runs over both."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerweave.errors import LocalProtocolError, RemoteProtocolError
from tests.unit.mqtt.wire import ALIAS, EVERY_PROPERTY, PINGREQ, A, B, C, publish, resolve, streams
from tests.unit.variants import BOTH, UNCOMPILED

pytestmark = pytest.mark.parametrize("module", BOTH)


@given(blob=st.one_of(streams, st.binary(max_size=60)), version=st.sampled_from([4, 5]))
@settings(max_examples=200, deadline=None)
def test_both_variants_agree_on_any_blob(module: SimpleNamespace, blob: bytes, version: int) -> None:
    def outcome(variant: SimpleNamespace, name: str, *arguments: object) -> object:
        try:
            return getattr(variant, name)(blob, *arguments)
        except RemoteProtocolError as error:
            return str(error), error.reason_code

    for name, arguments in (("split", ()), ("convert", (version, 9 - version))):
        assert outcome(module, name, *arguments) == outcome(UNCOMPILED, name, *arguments)
    assert outcome(module, "route_run", version, module.RouteCache(resolve)) == outcome(
        UNCOMPILED, "route_run", version, UNCOMPILED.RouteCache(resolve)
    )


def test_a_run_is_cut_where_the_group_changes(module: SimpleNamespace) -> None:
    unwanted, dollar = publish(b"z"), publish(b"$x")
    runs = module.route_run(A + C + B + unwanted + dollar + A, 4, module.RouteCache(resolve))
    assert runs == [
        ("red", 0, 2, A + C),
        ("blue", 2, 1, B),
        (None, 3, 2, unwanted + dollar),
        ("red", 5, 1, A),
    ]


def test_a_run_of_one_group_is_the_blob_itself(module: SimpleNamespace) -> None:
    for blob in (A + C, publish(b"z") * 3):
        ((_, first, count, part),) = module.route_run(blob, 4, module.RouteCache(resolve))
        assert part is blob
        assert (first, count) == (0, len(module.split(blob)))
    assert module.route_run(b"", 4, module.RouteCache(resolve)) == []


@pytest.mark.parametrize(
    "blob",
    [A + PINGREQ, A + A[:-1], A + b"\x30", publish(b""), b"\x36\x03\x00\x01a", b"\x00\x00"],
    ids=["not a PUBLISH", "cut short", "no length", "no topic", "QoS 3", "type 0"],
)
def test_a_run_with_anything_else_in_it_is_refused(module: SimpleNamespace, blob: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        module.route_run(blob, 4, module.RouteCache(resolve))


def test_a_run_with_an_alias_is_refused(module: SimpleNamespace) -> None:
    with pytest.raises(RemoteProtocolError):
        module.route_run(publish(b"a", properties=ALIAS), 5, module.RouteCache(resolve))


def test_convert_leaves_the_same_family_alone(module: SimpleNamespace) -> None:
    blob = A + C
    assert module.convert(blob, 3, 4) is blob
    assert module.convert(blob, 5, 5) is blob


@pytest.mark.parametrize("size", [0, 123, 124, 125, 16_379, 16_380], ids=str)
def test_convert_recomputes_lengths(module: SimpleNamespace, size: int) -> None:
    payload = bytes(size)
    old = publish(b"a", payload) + publish(b"b", payload, retain=True) + publish(b"c", payload, qos=1)
    new = b"".join(
        (
            publish(b"a", payload, properties=b""),
            publish(b"b", payload, retain=True, properties=b""),
            publish(b"c", payload, qos=1, properties=b""),
        )
    )
    assert module.convert(old, 4, 5) == new
    assert module.convert(new, 5, 3) == old


def test_convert_drops_properties(module: SimpleNamespace) -> None:
    assert module.convert(publish(b"a", properties=EVERY_PROPERTY), 5, 4) == publish(b"a")


def test_publish_head_reads_what_precedes_the_payload(module: SimpleNamespace) -> None:
    data = publish(b"a/b", b"payload", qos=2, packet_id=513, retain=True, dup=True, properties=EVERY_PROPERTY)
    head = module.publish_head(data, 5)
    assert (head.topic, head.qos, head.retain, head.dup, head.packet_id) == (b"a/b", 2, True, True, 513)
    assert head.properties == EVERY_PROPERTY
    assert data[head.payload_start :] == b"payload"
    plain = module.publish_head(A, 4)
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
def test_publish_head_takes_exactly_one_publish(module: SimpleNamespace, data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        module.publish_head(data, 4)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("to_version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("to_qos", [0, 1, 2])
def test_with_qos_rewrites_all_but_topic_retain_and_payload(
    module: SimpleNamespace, version: int, to_version: int, qos: int, to_qos: int
) -> None:
    before = EVERY_PROPERTY if version == 5 else None
    after = (EVERY_PROPERTY if version == 5 else b"") if to_version == 5 else None
    original = publish(b"a", b"p", qos=qos, retain=True, properties=before)
    packet_id, dup = (300, True) if to_qos else (0, False)
    expected = publish(b"a", b"p", qos=to_qos, packet_id=300, retain=True, dup=dup, properties=after)
    assert module.with_qos(original, version, to_version, to_qos, packet_id, dup) == expected


@pytest.mark.parametrize(
    ("qos", "packet_id", "dup"),
    [(3, 1, False), (1, 0, False), (1, 65_536, False), (0, 1, False), (0, 0, True)],
)
def test_with_qos_refuses_what_no_publish_has(
    module: SimpleNamespace, qos: int, packet_id: int, dup: bool
) -> None:
    with pytest.raises(LocalProtocolError):
        module.with_qos(A, 4, 4, qos, packet_id, dup)
