"""MQTT 5's properties: their ids, types, values and places (MQTT 5, 2.2.2).

Owns the one table that says which property may stand where, and how often. Properties keep the order
they have on the wire, so that user properties can be passed on unchanged [MQTT-3.3.2-18]. Must not know:
packets' other fields.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, TypeAlias

from brokerweave.mqtt.primitives import (
    VARINT_MAX,
    Malformed,
    Reader,
    encode_binary,
    encode_text,
    encode_uint,
    encode_varint,
)

MOST_PROPERTIES = 1_000
"""In one packet: one user property takes five bytes, and a packet full of them half a minute to read."""


class Property(enum.IntEnum):
    PAYLOAD_FORMAT_INDICATOR = 0x01
    MESSAGE_EXPIRY_INTERVAL = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_IDENTIFIER = 0x0B
    SESSION_EXPIRY_INTERVAL = 0x11
    ASSIGNED_CLIENT_IDENTIFIER = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM_INFORMATION = 0x17
    WILL_DELAY_INTERVAL = 0x18
    REQUEST_RESPONSE_INFORMATION = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_SUBSCRIPTION_AVAILABLE = 0x28
    SUBSCRIPTION_IDENTIFIER_AVAILABLE = 0x29
    SHARED_SUBSCRIPTION_AVAILABLE = 0x2A


Value: TypeAlias = int | str | bytes | tuple[str, str]
Properties: TypeAlias = tuple[tuple[Property, Value], ...]


class PropertyPlace(enum.Flag):
    """Where properties can stand: most packets, and the will inside CONNECT."""

    CONNECT = enum.auto()
    WILL = enum.auto()
    CONNACK = enum.auto()
    PUBLISH = enum.auto()
    PUBACK = enum.auto()
    PUBREC = enum.auto()
    PUBREL = enum.auto()
    PUBCOMP = enum.auto()
    SUBSCRIBE = enum.auto()
    SUBACK = enum.auto()
    UNSUBSCRIBE = enum.auto()
    UNSUBACK = enum.auto()
    DISCONNECT = enum.auto()
    AUTH = enum.auto()


class _Type(enum.Enum):
    INTEGER = enum.auto()
    VARINT = enum.auto()
    TEXT = enum.auto()
    BINARY = enum.auto()
    PAIR = enum.auto()


class _Rule(NamedTuple):
    type: _Type
    places: PropertyPlace
    size: int = 0
    low: int = 0
    high: int = 0


_MESSAGE = PropertyPlace.PUBLISH | PropertyPlace.WILL
_ANSWERS = (
    PropertyPlace.CONNACK
    | PropertyPlace.PUBACK
    | PropertyPlace.PUBREC
    | PropertyPlace.PUBREL
    | PropertyPlace.PUBCOMP
    | PropertyPlace.SUBACK
    | PropertyPlace.UNSUBACK
    | PropertyPlace.DISCONNECT
    | PropertyPlace.AUTH
)
_ANYWHERE = _ANSWERS | _MESSAGE | PropertyPlace.CONNECT | PropertyPlace.SUBSCRIBE | PropertyPlace.UNSUBSCRIBE
_BOTH_CONNECTS = PropertyPlace.CONNECT | PropertyPlace.CONNACK
_AUTHENTICATING = _BOTH_CONNECTS | PropertyPlace.AUTH


def _flag(places: PropertyPlace) -> _Rule:
    return _Rule(_Type.INTEGER, places, 1, 0, 1)


def _integer(size: int, places: PropertyPlace, low: int = 0) -> _Rule:
    return _Rule(_Type.INTEGER, places, size, low, (1 << (8 * size)) - 1)


_RULES: dict[Property, _Rule] = {
    Property.PAYLOAD_FORMAT_INDICATOR: _flag(_MESSAGE),
    Property.MESSAGE_EXPIRY_INTERVAL: _integer(4, _MESSAGE),
    Property.CONTENT_TYPE: _Rule(_Type.TEXT, _MESSAGE),
    Property.RESPONSE_TOPIC: _Rule(_Type.TEXT, _MESSAGE),
    Property.CORRELATION_DATA: _Rule(_Type.BINARY, _MESSAGE),
    Property.SUBSCRIPTION_IDENTIFIER: _Rule(
        _Type.VARINT, PropertyPlace.PUBLISH | PropertyPlace.SUBSCRIBE, 0, 1, VARINT_MAX
    ),
    Property.SESSION_EXPIRY_INTERVAL: _integer(4, _BOTH_CONNECTS | PropertyPlace.DISCONNECT),
    Property.ASSIGNED_CLIENT_IDENTIFIER: _Rule(_Type.TEXT, PropertyPlace.CONNACK),
    Property.SERVER_KEEP_ALIVE: _integer(2, PropertyPlace.CONNACK),
    Property.AUTHENTICATION_METHOD: _Rule(_Type.TEXT, _AUTHENTICATING),
    Property.AUTHENTICATION_DATA: _Rule(_Type.BINARY, _AUTHENTICATING),
    Property.REQUEST_PROBLEM_INFORMATION: _flag(PropertyPlace.CONNECT),
    Property.WILL_DELAY_INTERVAL: _integer(4, PropertyPlace.WILL),
    Property.REQUEST_RESPONSE_INFORMATION: _flag(PropertyPlace.CONNECT),
    Property.RESPONSE_INFORMATION: _Rule(_Type.TEXT, PropertyPlace.CONNACK),
    Property.SERVER_REFERENCE: _Rule(_Type.TEXT, PropertyPlace.CONNACK | PropertyPlace.DISCONNECT),
    Property.REASON_STRING: _Rule(_Type.TEXT, _ANSWERS),
    Property.RECEIVE_MAXIMUM: _integer(2, _BOTH_CONNECTS, low=1),
    Property.TOPIC_ALIAS_MAXIMUM: _integer(2, _BOTH_CONNECTS),
    Property.TOPIC_ALIAS: _integer(2, PropertyPlace.PUBLISH, low=1),
    Property.MAXIMUM_QOS: _flag(PropertyPlace.CONNACK),
    Property.RETAIN_AVAILABLE: _flag(PropertyPlace.CONNACK),
    Property.USER_PROPERTY: _Rule(_Type.PAIR, _ANYWHERE),
    Property.MAXIMUM_PACKET_SIZE: _integer(4, _BOTH_CONNECTS, low=1),
    Property.WILDCARD_SUBSCRIPTION_AVAILABLE: _flag(PropertyPlace.CONNACK),
    Property.SUBSCRIPTION_IDENTIFIER_AVAILABLE: _flag(PropertyPlace.CONNACK),
    Property.SHARED_SUBSCRIPTION_AVAILABLE: _flag(PropertyPlace.CONNACK),
}
_ID_OF = {int(p): p for p in Property}


def get_int(properties: Properties, wanted: Property, default: int = 0) -> int:
    for property_id, value in properties:
        if property_id == wanted and isinstance(value, int):
            return value
    return default


def get_str(properties: Properties, wanted: Property, default: str = "") -> str:
    for property_id, value in properties:
        if property_id == wanted and isinstance(value, str):
            return value
    return default


def get_bytes(properties: Properties, wanted: Property, default: bytes = b"") -> bytes:
    for property_id, value in properties:
        if property_id == wanted and isinstance(value, bytes):
            return value
    return default


def user_properties(properties: Properties) -> dict[str, str]:
    """All user properties; of a name that comes twice, the last one."""
    return dict(v for p, v in properties if p == Property.USER_PROPERTY and isinstance(v, tuple))


def without(properties: Properties, *unwanted: Property) -> Properties:
    return tuple(pair for pair in properties if pair[0] not in unwanted)


def read_properties(reader: Reader, place: PropertyPlace) -> Properties:
    """Read the length and the properties that follow it."""
    size = reader.varint()
    if not size:
        return ()
    part = reader.part(size)
    properties: list[tuple[Property, Value]] = []
    while part.remaining:
        if len(properties) == MOST_PROPERTIES:
            raise Malformed(f"more than {MOST_PROPERTIES:,} properties in one packet", 0x95)
        number = part.varint()
        property_id = _ID_OF.get(number)
        if property_id is None:
            raise Malformed(f"there is no property 0x{number:02x}")
        properties.append((property_id, _read_value(part, _RULES[property_id])))
    found = tuple(properties)
    if found:
        _check(found, place)
    return found


def encode_properties(properties: Properties, place: PropertyPlace) -> bytes:
    """The properties with their length before them."""
    if not properties:
        return b"\0"
    _check(properties, place)
    body = b"".join(encode_varint(p) + _encode_value(p, value, _RULES[p]) for p, value in properties)
    return encode_varint(len(body)) + body


def _read_value(reader: Reader, rule: _Rule) -> Value:
    if rule.type is _Type.INTEGER:
        return reader.uint(rule.size)
    if rule.type is _Type.VARINT:
        return reader.varint()
    if rule.type is _Type.TEXT:
        return reader.text()
    if rule.type is _Type.BINARY:
        return reader.binary()
    return reader.text(), reader.text()


def _encode_value(property_id: Property, value: Value, rule: _Rule) -> bytes:
    if rule.type is _Type.INTEGER and isinstance(value, int):
        return encode_uint(value, rule.size)
    if rule.type is _Type.VARINT and isinstance(value, int):
        return encode_varint(value)
    if rule.type is _Type.TEXT and isinstance(value, str):
        return encode_text(value)
    if rule.type is _Type.BINARY and isinstance(value, bytes):
        return encode_binary(value)
    if rule.type is _Type.PAIR and isinstance(value, tuple):
        return encode_text(value[0]) + encode_text(value[1])
    raise Malformed(f"property {property_id.name} cannot have the value {value!r}")


def _check(properties: Properties, place: PropertyPlace) -> None:
    seen: set[Property] = set()
    for property_id, value in properties:
        rule = _RULES[property_id]
        if not rule.places & place:
            raise Malformed(f"property {property_id.name} may not stand in {place.name}")
        if property_id in seen and not _may_repeat(property_id, place):
            raise Malformed(f"property {property_id.name} comes twice in {place.name}", 0x82)
        seen.add(property_id)
        if rule.high and isinstance(value, int) and not rule.low <= value <= rule.high:
            code = 0x94 if property_id is Property.TOPIC_ALIAS else 0x82
            raise Malformed(f"property {property_id.name} cannot be {value}", code)
        if property_id is Property.RESPONSE_TOPIC and isinstance(value, str) and set(value) & {"+", "#"}:
            raise Malformed("a response topic holds a wildcard [MQTT-3.3.2-14]", 0x82)
    if Property.AUTHENTICATION_DATA in seen and Property.AUTHENTICATION_METHOD not in seen:
        raise Malformed("authentication data without a method", 0x82)


def _may_repeat(property_id: Property, place: PropertyPlace) -> bool:
    if property_id is Property.USER_PROPERTY:
        return True
    # A message that several of a client's subscriptions match carries all of their identifiers.
    return property_id is Property.SUBSCRIPTION_IDENTIFIER and place is PropertyPlace.PUBLISH
