"""Packets to bytes and back, for MQTT 3.1, 3.1.1 and 5.

Owns the layout of every packet. Invariants: `decode` raises RemoteProtocolError and `encode`
LocalProtocolError, and nothing else; what decodes can be encoded, and `decode(encode(p)) == p`; `encode`
writes the shortest form. Strict where MQTT says MUST (UTF-8, reserved bits, shortest lengths), but a
bridge's CONNECT is taken, its mark dropped. Must not know: streams (`frames` cuts them into frames),
sessions, what a packet means.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerweave.errors import LocalProtocolError, RemoteProtocolError
from brokerweave.mqtt import primitives
from brokerweave.mqtt.packets import (
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Packet,
    PacketType,
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
from brokerweave.mqtt.primitives import Malformed, Reader, encode_binary, encode_text, encode_uint
from brokerweave.mqtt.properties import Properties, PropertyPlace, encode_properties, read_properties
from brokerweave.mqtt.rules import check

_VERSIONS = (3, 4, 5)
_PROTOCOL_NAMES = {3: "MQIsdp", 4: "MQTT", 5: "MQTT"}
_BRIDGE_BIT = 0x80
_UNSUPPORTED_VERSION = 0x84

_USERNAME, _PASSWORD, _WILL_RETAIN, _WILL, _CLEAN_START, _RESERVED = 0x80, 0x40, 0x20, 0x04, 0x02, 0x01

# [MQTT-2.1.3-1]: all flags but PUBLISH's are fixed; 3.1 may mark these three as repeated.
_FIXED_FLAGS = {PacketType.PUBREL: 2, PacketType.SUBSCRIBE: 2, PacketType.UNSUBSCRIBE: 2}
_DUP = 0x08


def decode(frame: bytes, version: int) -> Packet:
    """The packet in one whole frame, fixed header included.

    `version` is the session's (a CONNECT carries its own, and the argument is not looked at).
    """
    try:
        packet = _decode(frame, version)
        check(packet, packet.version if isinstance(packet, Connect) else version)
    except Malformed as error:
        raise RemoteProtocolError(str(error), error.reason_code) from None
    return packet


def encode(packet: Packet, version: int) -> bytes:
    """The whole frame of `packet`. A CONNECT is written in its own version."""
    if isinstance(packet, Connect):
        version = packet.version
    if version not in _VERSIONS:
        raise LocalProtocolError(f"there is no MQTT protocol level {version}: use 3, 4 or 5")
    try:
        check(packet, version)
        body = _encode_body(packet, version)
        return bytes((packet.type << 4 | _flags(packet),)) + encode_varint(len(body)) + body
    except Malformed as error:
        raise LocalProtocolError(str(error)) from None


def decode_varint(data: bytes, start: int = 0) -> tuple[int, int]:
    """The variable byte integer at `start`, and how many bytes it takes."""
    try:
        return primitives.decode_varint(data, start)
    except Malformed as error:
        raise RemoteProtocolError(str(error), error.reason_code) from None


def encode_varint(value: int) -> bytes:
    """`value` as a variable byte integer, as short as it can be."""
    try:
        return primitives.encode_varint(value)
    except Malformed as error:
        raise LocalProtocolError(str(error)) from None


def _decode(frame: bytes, version: int) -> Packet:
    if not frame:
        raise Malformed("an empty frame")
    length, size = primitives.decode_varint(frame, 1)
    if length != len(frame) - 1 - size:
        raise Malformed(f"a frame of {len(frame)} bytes says that {length} follow its header")
    known = _DECODERS.get(frame[0] >> 4)
    if known is None:
        raise Malformed("there is no packet type 0")
    kind, decoder = known
    if kind is not PacketType.CONNECT and version not in _VERSIONS:
        raise Malformed(f"{kind.name} before CONNECT [MQTT-3.1.0-1]", 0x82)
    flags = frame[0] & 0x0F
    if kind is not PacketType.PUBLISH:
        wanted = _FIXED_FLAGS.get(kind, 0)
        if flags != wanted and not (version == 3 and wanted and flags == wanted | _DUP):
            raise Malformed(f"the reserved flags of {kind.name} are {flags:04b} [MQTT-2.1.3-1]")
    reader = Reader(frame, 1 + size)
    packet = decoder(reader, flags, version)
    if reader.remaining:
        raise Malformed(f"{reader.remaining} bytes too many in a {kind.name}")
    return packet


def _read_properties(reader: Reader, version: int, place: PropertyPlace) -> Properties:
    return read_properties(reader, place) if version == 5 else ()


def _decode_connect(reader: Reader, _flags: int, _version: int) -> Connect:
    name, version = reader.text(), reader.uint(1)
    # Mosquitto's bridges mark their level; what it asks for is between them and their broker.
    if version & ~_BRIDGE_BIT in (3, 4):
        version &= ~_BRIDGE_BIT
    if _PROTOCOL_NAMES.get(version) != name:
        raise Malformed(
            f"unknown protocol {name[:10]!r} level {version} [MQTT-3.1.2-2]", _UNSUPPORTED_VERSION
        )
    flags = reader.uint(1)
    if flags & _RESERVED:
        raise Malformed("the reserved flag of CONNECT is set [MQTT-3.1.2-3]")
    keep_alive = reader.uint(2)
    properties = _read_properties(reader, version, PropertyPlace.CONNECT)
    client_id = reader.text()
    will = _decode_will(reader, flags, version)
    return Connect(
        client_id=client_id,
        version=version,
        clean_start=bool(flags & _CLEAN_START),
        keep_alive=keep_alive,
        username=reader.text() if flags & _USERNAME else None,
        password=reader.binary() if flags & _PASSWORD else None,
        will=will,
        properties=properties,
    )


def _decode_will(reader: Reader, flags: int, version: int) -> Will | None:
    qos, retain = flags >> 3 & 3, bool(flags & _WILL_RETAIN)
    if not flags & _WILL:
        if qos or retain:
            raise Malformed("will QoS or will retain without a will [MQTT-3.1.2-11]")
        return None
    properties = _read_properties(reader, version, PropertyPlace.WILL)
    return Will(reader.text(), reader.binary(), qos, retain, properties)


def _decode_connack(reader: Reader, _flags: int, version: int) -> ConnAck:
    flags, code = reader.uint(1), reader.uint(1)
    if flags > 1:
        raise Malformed("reserved flags of CONNACK are set [MQTT-3.2.2-1]")
    return ConnAck(code, bool(flags), _read_properties(reader, version, PropertyPlace.CONNACK))


def _decode_publish(reader: Reader, flags: int, version: int) -> Publish:
    topic = reader.text()
    qos = flags >> 1 & 3
    packet_id = reader.uint(2) if qos else 0
    properties = _read_properties(reader, version, PropertyPlace.PUBLISH)
    return Publish(topic, reader.rest(), qos, bool(flags & 1), bool(flags & _DUP), packet_id, properties)


def _read_outcome(reader: Reader, version: int, place: PropertyPlace) -> tuple[int, Properties]:
    """The reason code and properties that end a packet; MQTT 5 lets the last ones be left out."""
    if version < 5 or not reader.remaining:
        return 0, ()
    code = reader.uint(1)
    return code, read_properties(reader, place) if reader.remaining else ()


def _decode_puback(reader: Reader, _flags: int, version: int) -> PubAck:
    return PubAck(reader.uint(2), *_read_outcome(reader, version, PropertyPlace.PUBACK))


def _decode_pubrec(reader: Reader, _flags: int, version: int) -> PubRec:
    return PubRec(reader.uint(2), *_read_outcome(reader, version, PropertyPlace.PUBREC))


def _decode_pubrel(reader: Reader, _flags: int, version: int) -> PubRel:
    return PubRel(reader.uint(2), *_read_outcome(reader, version, PropertyPlace.PUBREL))


def _decode_pubcomp(reader: Reader, _flags: int, version: int) -> PubComp:
    return PubComp(reader.uint(2), *_read_outcome(reader, version, PropertyPlace.PUBCOMP))


def _decode_subscribe(reader: Reader, _flags: int, version: int) -> Subscribe:
    packet_id = reader.uint(2)
    properties = _read_properties(reader, version, PropertyPlace.SUBSCRIBE)
    subscriptions = []
    while reader.remaining:
        topic_filter, options = reader.text(), reader.uint(1)
        if options & (0xC0 if version == 5 else 0xFC):
            raise Malformed("reserved subscription options are set [MQTT-3.8.3-5]")
        no_local, as_published = bool(options & 0x04), bool(options & 0x08)
        subscriptions.append(Subscription(topic_filter, options & 3, no_local, as_published, options >> 4))
    return Subscribe(packet_id, tuple(subscriptions), properties)


def _decode_suback(reader: Reader, _flags: int, version: int) -> SubAck:
    packet_id = reader.uint(2)
    properties = _read_properties(reader, version, PropertyPlace.SUBACK)
    return SubAck(packet_id, tuple(reader.rest()), properties)


def _decode_unsubscribe(reader: Reader, _flags: int, version: int) -> Unsubscribe:
    packet_id = reader.uint(2)
    properties = _read_properties(reader, version, PropertyPlace.UNSUBSCRIBE)
    filters = []
    while reader.remaining:
        filters.append(reader.text())
    return Unsubscribe(packet_id, tuple(filters), properties)


def _decode_unsuback(reader: Reader, _flags: int, version: int) -> UnsubAck:
    packet_id = reader.uint(2)
    properties = _read_properties(reader, version, PropertyPlace.UNSUBACK)
    return UnsubAck(packet_id, tuple(reader.rest()), properties)


def _decode_disconnect(reader: Reader, _flags: int, version: int) -> Disconnect:
    return Disconnect(*_read_outcome(reader, version, PropertyPlace.DISCONNECT))


def _decode_auth(reader: Reader, _flags: int, version: int) -> Auth:
    return Auth(*_read_outcome(reader, version, PropertyPlace.AUTH))


_DECODER_OF: dict[PacketType, Callable[[Reader, int, int], Packet]] = {
    PacketType.CONNECT: _decode_connect,
    PacketType.CONNACK: _decode_connack,
    PacketType.PUBLISH: _decode_publish,
    PacketType.PUBACK: _decode_puback,
    PacketType.PUBREC: _decode_pubrec,
    PacketType.PUBREL: _decode_pubrel,
    PacketType.PUBCOMP: _decode_pubcomp,
    PacketType.SUBSCRIBE: _decode_subscribe,
    PacketType.SUBACK: _decode_suback,
    PacketType.UNSUBSCRIBE: _decode_unsubscribe,
    PacketType.UNSUBACK: _decode_unsuback,
    PacketType.PINGREQ: lambda _reader, _flags, _version: PingReq(),
    PacketType.PINGRESP: lambda _reader, _flags, _version: PingResp(),
    PacketType.DISCONNECT: _decode_disconnect,
    PacketType.AUTH: _decode_auth,
}
_DECODERS = {int(kind): (kind, decoder) for kind, decoder in _DECODER_OF.items()}
"""By the number on the wire."""


def _flags(packet: Packet) -> int:
    if isinstance(packet, Publish):
        return packet.dup << 3 | packet.qos << 1 | packet.retain
    return _FIXED_FLAGS.get(packet.type, 0)


def _encode_body(packet: Packet, version: int) -> bytes:
    match packet:
        case Publish():
            packet_id = encode_uint(packet.packet_id, 2) if packet.qos else b""
            properties = _properties(packet.properties, version, PropertyPlace.PUBLISH)
            return encode_text(packet.topic) + packet_id + properties + packet.payload
        case PubAck() | PubRec() | PubRel() | PubComp():
            return encode_uint(packet.packet_id, 2) + _outcome(packet, version)
        case Disconnect() | Auth():
            return _outcome(packet, version)
        case Subscribe():
            head = encode_uint(packet.packet_id, 2) + _properties(
                packet.properties, version, PropertyPlace.SUBSCRIBE
            )
            return head + b"".join(map(_encode_subscription, packet.subscriptions))
        case Unsubscribe():
            head = encode_uint(packet.packet_id, 2)
            head += _properties(packet.properties, version, PropertyPlace.UNSUBSCRIBE)
            return head + b"".join(map(encode_text, packet.topic_filters))
        case SubAck() | UnsubAck():
            head = encode_uint(packet.packet_id, 2)
            head += _properties(packet.properties, version, PropertyPlace[packet.type.name])
            return head + b"".join(encode_uint(code, 1) for code in packet.reason_codes)
        case Connect():
            return _encode_connect(packet)
        case ConnAck():
            head = bytes((packet.session_present,)) + encode_uint(packet.reason_code, 1)
            return head + _properties(packet.properties, version, PropertyPlace.CONNACK)
        case PingReq() | PingResp():
            return b""


def _properties(properties: Properties, version: int, place: PropertyPlace) -> bytes:
    return encode_properties(properties, place) if version == 5 else b""


def _outcome(packet: PubAck | PubRec | PubRel | PubComp | Disconnect | Auth, version: int) -> bytes:
    if version < 5 or not (packet.reason_code or packet.properties):
        return b""
    code = encode_uint(packet.reason_code, 1)
    return (
        code + encode_properties(packet.properties, PropertyPlace[packet.type.name])
        if packet.properties
        else code
    )


def _encode_subscription(subscription: Subscription) -> bytes:
    options = subscription.qos | subscription.no_local << 2 | subscription.retain_as_published << 3
    return encode_text(subscription.topic_filter) + bytes((options | subscription.retain_handling << 4,))


def _encode_connect(packet: Connect) -> bytes:
    flags = _CLEAN_START if packet.clean_start else 0
    payload = [encode_text(packet.client_id)]
    will = packet.will
    if will is not None:
        flags |= _WILL | will.qos << 3 | (_WILL_RETAIN if will.retain else 0)
        payload.append(_properties(will.properties, packet.version, PropertyPlace.WILL))
        payload += encode_text(will.topic), encode_binary(will.payload)
    if packet.username is not None:
        flags |= _USERNAME
        payload.append(encode_text(packet.username))
    if packet.password is not None:
        flags |= _PASSWORD
        payload.append(encode_binary(packet.password))
    head = encode_text(_PROTOCOL_NAMES[packet.version]) + bytes((packet.version, flags))
    head += encode_uint(packet.keep_alive, 2) + _properties(
        packet.properties, packet.version, PropertyPlace.CONNECT
    )
    return head + b"".join(payload)
