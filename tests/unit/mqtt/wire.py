"""MQTT frames as bytes, made without the code under test, and where their topics lead."""

from __future__ import annotations

from hypothesis import strategies as st

PINGREQ = b"\xc0\x00"
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
