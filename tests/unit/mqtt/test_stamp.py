"""Stamps on PUBLISH frames and off again, by compiled code and not: every test runs over both."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from brokerweave.errors import LocalProtocolError, RemoteProtocolError
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.properties import Property
from tests.unit.mqtt.packet_strategies import publishes
from tests.unit.mqtt.wire import ALIAS, EVERY_PROPERTY, PINGREQ, A, publish
from tests.unit.variants import BOTH, UNCOMPILED

pytestmark = pytest.mark.parametrize("module", BOTH)

KEY = b"a key of this deployment"
ID = b"12345678"
ids = st.binary(min_size=1, max_size=12)
frames = publishes(5).map(lambda packet: codec.encode(packet, 5))
NEAR_A_LONGER_LENGTH = [size + more for size in (127, 16_383, 2_097_151) for more in range(-60, 3)]
"""Sizes at which a length takes one byte more soon, with a stamp or without."""


def user_property(name: bytes, value: bytes) -> bytes:
    return b"\x26" + len(name).to_bytes(2, "big") + name + len(value).to_bytes(2, "big") + value


@given(frame=frames, id=ids, key=st.sampled_from([b"", KEY, KEY * 9]))
@settings(max_examples=300, deadline=None)
def test_a_frame_that_is_stamped_and_freed_of_it_is_the_same_frame(
    module: SimpleNamespace, frame: bytes, id: bytes, key: bytes
) -> None:
    stamps = module.Stamps(key)
    stamped = stamps.stamp(frame, id)
    assert stamps.take_off(stamped) == (frame, id)
    assert UNCOMPILED.Stamps(key).stamp(frame, id) == stamped
    assert len(frame) < len(stamped) <= len(frame) + module.GROWTH
    before, after = codec.decode(frame, 5), codec.decode(stamped, 5)
    assert isinstance(before, Publish)
    assert isinstance(after, Publish)
    assert after.properties[:-1] == before.properties
    assert after.properties[-1][0] is Property.USER_PROPERTY
    assert after == Publish(
        after.topic, before.payload, before.qos, before.retain, before.dup, before.packet_id, after.properties
    )


@given(frame=st.one_of(frames, st.binary(max_size=60), st.builds(publish, st.just(b"t"), properties=ids)))
@settings(max_examples=300, deadline=None)
def test_both_variants_agree_on_any_bytes(module: SimpleNamespace, frame: bytes) -> None:
    def outcome(variant: SimpleNamespace, name: str, *arguments: object) -> object:
        try:
            return getattr(variant.Stamps(KEY), name)(frame, *arguments)
        except RemoteProtocolError as error:
            return str(error)

    assert outcome(module, "take_off") == outcome(UNCOMPILED, "take_off")
    assert outcome(module, "stamp", ID) == outcome(UNCOMPILED, "stamp", ID)


@pytest.mark.parametrize("properties", [0, 90, 100, 120, 16_000, 16_380])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_lengths_may_become_longer_with_a_stamp(module: SimpleNamespace, qos: int, properties: int) -> None:
    stamps = module.Stamps(KEY)
    own = user_property(b"k", bytes(properties)) if properties else b""
    for size in NEAR_A_LONGER_LENGTH[: 63 * 2]:
        frame = publish(b"t", bytes(size), qos=qos, properties=own)
        assert stamps.take_off(stamps.stamp(frame, ID)) == (frame, ID)
    for more in range(40):
        frame = publish(b"t", qos=qos, properties=user_property(b"k", b"v" * (properties + more)))
        assert stamps.take_off(stamps.stamp(frame, ID)) == (frame, ID)


def test_a_large_publication_gets_one_too(module: SimpleNamespace) -> None:
    stamps = module.Stamps(KEY)
    for size in NEAR_A_LONGER_LENGTH[63 * 2 :]:
        frame = publish(b"t", bytes(size), qos=1, properties=b"")
        assert stamps.take_off(stamps.stamp(frame, ID)) == (frame, ID)


def test_an_id_of_eight_bytes_takes_23(module: SimpleNamespace) -> None:
    frame = publish(b"t", qos=1, properties=b"")
    stamps = module.Stamps(KEY)
    assert len(stamps.stamp(frame, ID)) == len(frame) + 23
    assert len(stamps.stamp(frame, bytes(12))) == len(frame) + 29


@pytest.mark.parametrize("id", [b"", bytes(13)])
def test_an_id_has_1_to_12_bytes(module: SimpleNamespace, id: bytes) -> None:
    with pytest.raises(LocalProtocolError):
        module.Stamps().stamp(publish(b"t", properties=b""), id)


@pytest.mark.parametrize("frame", [b"", PINGREQ, A + A, publish(b"t"), publish(b"t", properties=b"")[:-2]])
def test_what_is_no_single_publish_is_refused(module: SimpleNamespace, frame: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        module.Stamps().take_off(frame)
    with pytest.raises(RemoteProtocolError):
        module.Stamps().stamp(frame, ID)


@given(value=st.text(max_size=24), name=st.sampled_from(["bw", "b", "w", "bwb"]))
@example(value="", name="bw")
@example(value="AAAA", name="bw")
@example(value="A" * 16, name="bw")
@example(value="A" * 17, name="bw")
@settings(max_examples=200, deadline=None)
def test_a_clients_own_property_is_no_stamp_whatever_its_name(
    module: SimpleNamespace, value: str, name: str
) -> None:
    stamps = module.Stamps(KEY)
    frame = publish(b"t", properties=user_property(name.encode(), value.encode("utf-8", "replace")))
    assert stamps.take_off(frame) == (frame, None)
    assert stamps.take_off(stamps.stamp(frame, ID)) == (frame, ID)


def test_nobody_without_the_key_makes_a_stamp(module: SimpleNamespace) -> None:
    frame = publish(b"t", properties=b"")
    for key in (b"", b"another key"):
        forged = module.Stamps(key).stamp(frame, ID)
        assert module.Stamps(KEY).take_off(forged) == (forged, None)


def test_one_value_says_an_id_and_no_other(module: SimpleNamespace) -> None:
    """Base64 can be written in several ways: with padding, with bits that count for nothing, with spaces."""
    stamps = module.Stamps(KEY)
    stamped = stamps.stamp(publish(b"t", properties=b""), b"123")  # 7 bytes: 10 letters, and 4 bits over
    value = stamped[-11:-1]
    other_bits = value[:-1] + bytes((value[-1] + 1,))
    for other in (value + b"==", value + b"=", other_bits, value + b" ", b"\n" + value, value + b"!"):
        frame = publish(b"t", properties=user_property(b"bw", other))
        assert stamps.take_off(frame) == (frame, None)
    frame = publish(b"t", properties=user_property(b"bw", value))
    assert stamps.take_off(frame) == (publish(b"t", properties=b""), b"123")


def test_a_broker_may_put_it_anywhere_among_the_properties(module: SimpleNamespace) -> None:
    stamps = module.Stamps(KEY)
    stamped = stamps.stamp(publish(b"t", properties=b""), ID)
    stamp = stamped[-24:-1]
    own = user_property(b"bw", b"a client's own")
    for before, after in [(b"", EVERY_PROPERTY), (EVERY_PROPERTY, own), (own + ALIAS, EVERY_PROPERTY)]:
        frame = publish(b"t", b"payload", qos=2, properties=before + stamp + after)
        assert stamps.take_off(frame) == (publish(b"t", b"payload", qos=2, properties=before + after), ID)


def test_what_only_looks_like_one_inside_another_property_or_the_payload_stays(
    module: SimpleNamespace,
) -> None:
    stamps = module.Stamps(KEY)
    stamp = stamps.stamp(publish(b"t", properties=b""), ID)[-24:-1]
    value = stamp[-16:]
    inside = user_property(b"xy", value) + user_property(b"bw", b"own") + user_property(b"k", stamp)
    inside += b"\x09" + len(stamp).to_bytes(2, "big") + stamp
    frame = publish(b"t", stamp, qos=1, properties=inside)
    assert stamps.take_off(frame) == (frame, None)
    assert stamps.take_off(stamps.stamp(frame, b"x")) == (frame, b"x")


def test_a_new_stamp_takes_the_place_of_an_old_one(module: SimpleNamespace) -> None:
    stamps = module.Stamps(KEY)
    frame = publish(b"t", qos=1, properties=EVERY_PROPERTY)
    assert stamps.stamp(stamps.stamp(frame, b"old"), ID) == stamps.stamp(frame, ID)


def test_a_frame_without_a_stamp_is_not_copied(module: SimpleNamespace) -> None:
    for frame in (publish(b"t", properties=b""), publish(b"t", properties=EVERY_PROPERTY)):
        assert module.Stamps(KEY).take_off(frame)[0] is frame
