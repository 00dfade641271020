"""The codec against the case tables, against itself (hypothesis), and against anything at all."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from brokerweave.errors import LocalProtocolError, RemoteProtocolError
from brokerweave.mqtt.codec import decode, decode_varint, encode, encode_varint
from brokerweave.mqtt.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PubAck,
    Publish,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
)
from brokerweave.mqtt.properties import (
    Property,
    get_bytes,
    get_int,
    get_str,
    user_properties,
    without,
)
from tests.unit.mqtt.packet_cases import BAD_CASES, CASES, LENIENT_CASES, BadCase, Case
from tests.unit.mqtt.packet_strategies import packets, versions

every_case = pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)


@pytest.mark.parametrize("case", CASES + LENIENT_CASES, ids=lambda c: c.name)
def test_bytes_decode_to_their_packet(case: Case) -> None:
    assert decode(case.frame, case.version) == case.packet


@every_case
def test_packets_encode_to_their_bytes(case: Case) -> None:
    assert encode(case.packet, case.version) == case.frame


@every_case
def test_a_frame_cut_anywhere_is_refused(case: Case) -> None:
    for length in range(len(case.frame)):
        with pytest.raises(RemoteProtocolError):
            decode(case.frame[:length], case.version)


@every_case
def test_a_frame_with_a_byte_more_is_refused(case: Case) -> None:
    with pytest.raises(RemoteProtocolError):
        decode(case.frame + b"\0", case.version)


@every_case
def test_a_shorter_body_under_an_honest_header_is_refused_or_another_packet(case: Case) -> None:
    _, size = decode_varint(case.frame, 1)
    body = case.frame[1 + size :]
    for length in range(len(body)):
        frame = case.frame[:1] + encode_varint(length) + body[:length]
        assert _decode_or_refuse(frame, case.version) != case.packet


@pytest.mark.parametrize("case", BAD_CASES, ids=lambda c: c.name)
def test_what_mqtt_forbids_is_refused_with_its_reason_code(case: BadCase) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(case.frame, case.version)
    assert caught.value.reason_code == case.reason_code
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("packet", "version"),
    [
        (Connect("c", 6), 4),
        (Connect("c", password=b"p"), 4),
        (Connect("c", keep_alive=65_536), 4),
        (Connect("c", will=Will("a/#", b"")), 4),
        (Connect("c", will=Will("a", b"", properties=((Property.WILL_DELAY_INTERVAL, 1),))), 4),
        (Connect("c", will=Will("a", b"x" * 65_536)), 4),
        (ConnAck(6), 4),
        (ConnAck(5, session_present=True), 4),
        (ConnAck(256), 5),
        (Publish("a"), 6),
        (Publish("a", qos=3, packet_id=1), 4),
        (Publish("a", qos=1), 4),
        (Publish("a", packet_id=1), 4),
        (Publish("a", dup=True), 4),
        (Publish(""), 5),
        (Publish("a\0"), 4),
        (Publish("\ud800"), 4),
        (Publish("a" * 65_536), 4),
        (Publish("a", properties=((Property.TOPIC_ALIAS, 1),)), 4),
        (Publish("a", properties=((Property.TOPIC_ALIAS, 65_536),)), 5),
        (Publish("a", properties=((Property.TOPIC_ALIAS, "1"),)), 5),
        (Publish("a", properties=((Property.USER_PROPERTY, ("a", "\0")),)), 5),
        (Publish("a", properties=((Property.RECEIVE_MAXIMUM, 1),)), 5),
        (PubAck(65_536), 4),
        (PubAck(0), 4),
        (PubAck(1, 0x83), 4),
        (PubRel(1, 0x92), 3),
        (Subscribe(1, ()), 4),
        (Subscribe(1, (Subscription("a", no_local=True),)), 4),
        (Subscribe(1, (Subscription("a", 3),)), 5),
        (Subscribe(1, (Subscription("a", retain_handling=3),)), 5),
        (Subscribe(1, (Subscription("$share/g/a", no_local=True),)), 5),
        (SubAck(1, (3,)), 5),
        (SubAck(1, ()), 4),
        (Unsubscribe(1, ()), 4),
        (UnsubAck(1, (0,)), 4),
        (UnsubAck(1), 5),
        (Disconnect(0x8B), 4),
        (Auth(), 4),
    ],
    ids=str,
)
def test_we_never_send_what_mqtt_forbids(packet: Packet, version: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode(packet, version)


def test_a_publish_too_large_for_mqtt_is_never_sent() -> None:
    with pytest.raises(LocalProtocolError):
        encode(Publish("a", bytes(268_435_455)), 4)


def test_connect_decodes_in_its_own_version_whatever_the_session_thinks() -> None:
    for case in CASES:
        if isinstance(case.packet, Connect):
            assert {decode(case.frame, version) for version in (0, 3, 4, 5)} == {case.packet}


@given(st.data())
def test_every_packet_survives_its_bytes(data: st.DataObject) -> None:
    version = data.draw(versions)
    packet = data.draw(packets(version))
    assert decode(encode(packet, version), version) == packet


@given(st.binary(max_size=64), versions)
@example(b"\x10\x0c\x00\x04MQTT\x04\xc2\x00\x00\x00\x00", 4)
def test_any_bytes_decode_or_are_the_peers_fault(frame: bytes, version: int) -> None:
    _decode_or_refuse(frame, version)


@given(st.data())
def test_any_damaged_packet_decodes_or_is_the_peers_fault(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(CASES))
    frame = bytearray(case.frame)
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    _decode_or_refuse(bytes(frame), case.version)


def _decode_or_refuse(frame: bytes, version: int) -> Packet | None:
    try:
        packet = decode(frame, version)
    except RemoteProtocolError:
        return None
    assert decode(encode(packet, version), version) == packet
    return packet


@given(st.integers(0, 268_435_455))
@example(127)
@example(128)
@example(268_435_455)
def test_every_length_survives_its_bytes(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varint(b"\xff" + encoded + b"\xff", 1) == (value, len(encoded))


def test_lengths_that_mqtt_cannot_write_are_refused() -> None:
    for value in (-1, 268_435_456):
        with pytest.raises(LocalProtocolError):
            encode_varint(value)
    for data in (b"", b"\x80", b"\x80\x00", b"\xff\xff\xff\xff\x01"):
        with pytest.raises(RemoteProtocolError):
            decode_varint(data)


def test_a_packet_full_of_properties_is_too_much_to_read() -> None:
    bomb = tuple((Property.USER_PROPERTY, ("", "")) for _ in range(1001))
    decode(encode(PubRel(1, properties=bomb[:1000]), 5), 5)
    with pytest.raises(RemoteProtocolError) as refused:
        decode(encode(PubRel(1, properties=bomb), 5), 5)
    assert refused.value.reason_code == 0x95


def test_properties_are_found_by_their_id_and_type() -> None:
    properties = (
        (Property.USER_PROPERTY, ("k", "v")),
        (Property.CONTENT_TYPE, "json"),
        (Property.TOPIC_ALIAS, 3),
        (Property.CORRELATION_DATA, b"c"),
        (Property.USER_PROPERTY, ("k", "w")),
    )
    assert get_int(properties, Property.TOPIC_ALIAS) == 3
    assert get_int(properties, Property.MESSAGE_EXPIRY_INTERVAL, 9) == 9
    assert get_str(properties, Property.CONTENT_TYPE) == "json"
    assert get_str(properties, Property.REASON_STRING, "none") == "none"
    assert get_bytes(properties, Property.CORRELATION_DATA) == b"c"
    assert get_bytes(properties, Property.AUTHENTICATION_DATA, b"none") == b"none"
    assert user_properties(properties) == {"k": "w"}
    assert without(properties, Property.USER_PROPERTY, Property.TOPIC_ALIAS) == (
        (Property.CONTENT_TYPE, "json"),
        (Property.CORRELATION_DATA, b"c"),
    )
