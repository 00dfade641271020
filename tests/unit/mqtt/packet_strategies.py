"""Hypothesis strategies for every packet that a version of MQTT allows.

The properties' places are written down again here, from the specification's table: a mistake in the
source's table shows as a difference.
"""

from __future__ import annotations

from hypothesis import strategies as st

from brokerweave.mqtt.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
)
from brokerweave.mqtt.properties import Properties, Property, Value

versions = st.sampled_from((3, 4, 5))
_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
_level = st.text(st.sampled_from("ab$ é"), max_size=3)
_topic = st.lists(_level, min_size=1, max_size=4).map("/".join).filter(bool)
_binary = st.binary(max_size=12)
_packet_id = st.integers(1, 65_535)
_qos = st.integers(0, 2)
_code = st.integers(0, 255)
_flag = st.integers(0, 1)
_u16, _u32 = st.integers(0, 65_535), st.integers(0, 2**32 - 1)

_VALUES: dict[Property, st.SearchStrategy[Value]] = {
    Property.PAYLOAD_FORMAT_INDICATOR: _flag,
    Property.MESSAGE_EXPIRY_INTERVAL: _u32,
    Property.CONTENT_TYPE: _text,
    Property.RESPONSE_TOPIC: _topic,
    Property.CORRELATION_DATA: _binary,
    Property.SUBSCRIPTION_IDENTIFIER: st.integers(1, 268_435_455),
    Property.SESSION_EXPIRY_INTERVAL: _u32,
    Property.ASSIGNED_CLIENT_IDENTIFIER: _text,
    Property.SERVER_KEEP_ALIVE: _u16,
    Property.AUTHENTICATION_METHOD: _text,
    Property.AUTHENTICATION_DATA: _binary,
    Property.REQUEST_PROBLEM_INFORMATION: _flag,
    Property.WILL_DELAY_INTERVAL: _u32,
    Property.REQUEST_RESPONSE_INFORMATION: _flag,
    Property.RESPONSE_INFORMATION: _text,
    Property.SERVER_REFERENCE: _text,
    Property.REASON_STRING: _text,
    Property.RECEIVE_MAXIMUM: st.integers(1, 65_535),
    Property.TOPIC_ALIAS_MAXIMUM: _u16,
    Property.TOPIC_ALIAS: st.integers(1, 65_535),
    Property.MAXIMUM_QOS: _flag,
    Property.RETAIN_AVAILABLE: _flag,
    Property.USER_PROPERTY: st.tuples(_text, _text),
    Property.MAXIMUM_PACKET_SIZE: st.integers(1, 2**32 - 1),
    Property.WILDCARD_SUBSCRIPTION_AVAILABLE: _flag,
    Property.SUBSCRIPTION_IDENTIFIER_AVAILABLE: _flag,
    Property.SHARED_SUBSCRIPTION_AVAILABLE: _flag,
}
_ANSWER = {0x1F, 0x26}
_PLACES: dict[str, set[int]] = {
    "connect": {0x11, 0x15, 0x16, 0x17, 0x19, 0x21, 0x22, 0x26, 0x27},
    "will": {0x01, 0x02, 0x03, 0x08, 0x09, 0x18, 0x26},
    "connack": {
        *(0x11, 0x12, 0x13, 0x15, 0x16, 0x1A, 0x1C, 0x1F, 0x21, 0x22),
        *(0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2A),
    },
    "publish": {0x01, 0x02, 0x03, 0x08, 0x09, 0x0B, 0x23, 0x26},
    "subscribe": {0x0B, 0x26},
    "unsubscribe": {0x26},
    "disconnect": {0x11, 0x1C, 0x1F, 0x26},
    "auth": {0x15, 0x16, 0x1F, 0x26},
}


@st.composite
def _properties(draw: st.DrawFn, version: int, place: str = "answer") -> Properties:
    if version < 5:
        return ()
    allowed = sorted(_PLACES.get(place, _ANSWER))
    chosen = [Property(p) for p in draw(st.lists(st.sampled_from(allowed), unique=True))]
    if Property.AUTHENTICATION_DATA in chosen and Property.AUTHENTICATION_METHOD not in chosen:
        chosen.append(Property.AUTHENTICATION_METHOD)
    repeatable = {Property.USER_PROPERTY}
    if place == "publish":
        repeatable.add(Property.SUBSCRIPTION_IDENTIFIER)
    chosen += [p for p in chosen if p in repeatable]
    return tuple((p, draw(_VALUES[p])) for p in chosen)


@st.composite
def _filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(st.one_of(st.just("+"), _level), min_size=1, max_size=4))
    if draw(st.booleans()):
        levels.append("#")
    return "/".join(levels) or "+"


@st.composite
def _connects(draw: st.DrawFn, version: int) -> Connect:
    will = None
    if draw(st.booleans()):
        properties = draw(_properties(version, "will"))
        will = Will(draw(_topic), draw(_binary), draw(_qos), draw(st.booleans()), properties)
    username = draw(st.none() | _text)
    with_password = version == 5 or username is not None
    return Connect(
        client_id=draw(_text),
        version=version,
        clean_start=draw(st.booleans()),
        keep_alive=draw(_u16),
        username=username,
        password=draw(st.none() | _binary) if with_password else None,
        will=will,
        properties=draw(_properties(version, "connect")),
    )


@st.composite
def publishes(draw: st.DrawFn, version: int) -> Publish:
    qos = draw(_qos)
    properties = draw(_properties(version, "publish"))
    aliased = any(p is Property.TOPIC_ALIAS for p, _ in properties)
    return Publish(
        topic=draw(_topic | st.just("") if aliased else _topic),
        payload=draw(st.binary(max_size=200)),
        qos=qos,
        retain=draw(st.booleans()),
        dup=qos > 0 and draw(st.booleans()),
        packet_id=draw(_packet_id) if qos else 0,
        properties=properties,
    )


def _subscriptions(version: int) -> st.SearchStrategy[Subscription]:
    if version < 5:
        return st.builds(Subscription, _filters(), _qos)
    plain = st.builds(Subscription, _filters(), _qos, st.booleans(), st.booleans(), _qos)
    shared = st.builds(Subscription, _filters().map("$share/g/{}".format), _qos)
    return plain | shared


def packets(version: int) -> st.SearchStrategy[Packet]:
    """Any packet that may be sent in this version."""
    answer = _properties(version)
    code = _code if version == 5 else st.just(0)
    granted = (
        (0, 1, 2, 0x80) if version < 5 else (0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2)
    )
    some_codes = st.lists(st.sampled_from(granted), min_size=1, max_size=4).map(tuple)
    unsuback_codes = st.lists(_code, min_size=1, max_size=4).map(tuple) if version == 5 else st.just(())
    kinds: list[st.SearchStrategy[Packet]] = [
        _connects(version),
        st.builds(ConnAck, st.just(0), st.booleans(), _properties(version, "connack")),
        st.builds(ConnAck, _code if version == 5 else st.integers(0, 5), st.just(False)),
        publishes(version),
        st.builds(PubAck, _packet_id, code, answer),
        st.builds(PubRec, _packet_id, code, answer),
        st.builds(PubRel, _packet_id, code, answer),
        st.builds(PubComp, _packet_id, code, answer),
        st.builds(
            Subscribe,
            _packet_id,
            st.lists(_subscriptions(version), min_size=1, max_size=4).map(tuple),
            _properties(version, "subscribe"),
        ),
        st.builds(SubAck, _packet_id, some_codes, answer),
        st.builds(
            Unsubscribe,
            _packet_id,
            st.lists(_filters(), min_size=1, max_size=4).map(tuple),
            _properties(version, "unsubscribe"),
        ),
        st.builds(UnsubAck, _packet_id, unsuback_codes, answer),
        st.just(PingReq()),
        st.just(PingResp()),
        st.builds(Disconnect, code, _properties(version, "disconnect")),
    ]
    if version == 5:
        kinds.append(st.builds(Auth, code, _properties(version, "auth")))
    return st.one_of(kinds)
