"""What MQTT forbids a packet to say, whichever way it travels.

Owns the rules over packets' fields, so that decoding and encoding cannot disagree about them. Codes that
only tell why (all of MQTT 5's but those of SUBACK) are not checked: a relay must carry what it does not
know. Nor are rules that a broker answers by itself with a CONNACK, as for an empty client id. Must not
know: bytes (`codec`), properties' own rules (`properties`).
"""

from __future__ import annotations

from collections.abc import Callable

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
)
from brokerweave.mqtt.primitives import Malformed
from brokerweave.mqtt.properties import Property, get_int
from brokerweave.mqtt.topics import shared_filter, validate_filter, validate_topic

_PROTOCOL_ERROR = 0x82
_TOPIC_FILTER_INVALID, _TOPIC_NAME_INVALID = 0x8F, 0x90


def check(packet: Packet, version: int) -> None:
    """Raise Malformed if `packet` may not be sent in this version of MQTT."""
    if version < 5 and not isinstance(packet, (PingReq, PingResp)) and packet.properties:
        raise Malformed("properties exist in MQTT 5 only")
    match packet:
        case Publish():
            _check_publish(packet)
        case PubAck() | PubRec() | PubRel() | PubComp():
            _check_packet_id(packet.packet_id)
            _check_reason_code(packet.reason_code, version)
        case Subscribe():
            _check_packet_id(packet.packet_id)
            _check_any(packet.subscriptions, "a SUBSCRIBE asks for nothing [MQTT-3.8.3-2]")
            for subscription in packet.subscriptions:
                _check_subscription(subscription, version)
        case SubAck():
            _check_packet_id(packet.packet_id)
            _check_grants(packet.reason_codes, version)
        case Unsubscribe():
            _check_packet_id(packet.packet_id)
            _check_any(packet.topic_filters, "an UNSUBSCRIBE names no filter [MQTT-3.10.3-2]")
            for topic_filter in packet.topic_filters:
                _check_filter(topic_filter, version)
        case UnsubAck():
            _check_packet_id(packet.packet_id)
            if (version == 5) is not bool(packet.reason_codes):
                raise Malformed("an UNSUBACK has one reason code a filter in MQTT 5, and none before")
        case Connect():
            _check_connect(packet)
        case ConnAck():
            _check_connack(packet, version)
        case Disconnect():
            _check_reason_code(packet.reason_code, version)
        case Auth():
            if version < 5:
                raise Malformed("AUTH exists in MQTT 5 only")
        case PingReq() | PingResp():
            pass


def _check_connect(packet: Connect) -> None:
    if packet.version < 5 and packet.password is not None and packet.username is None:
        raise Malformed("a password without a user name [MQTT-3.1.2-22]")
    will = packet.will
    if will is None:
        return
    _check_qos(will.qos)
    _check_name(validate_topic, will.topic, _TOPIC_NAME_INVALID)
    if packet.version < 5 and will.properties:
        raise Malformed("properties exist in MQTT 5 only")


def _check_connack(packet: ConnAck, version: int) -> None:
    if packet.reason_code and packet.session_present:
        raise Malformed("a refusal with a session [MQTT-3.2.2-4]")
    if version < 5 and packet.reason_code > 5:
        raise Malformed(f"there is no CONNACK return code {packet.reason_code} before MQTT 5")


def _check_publish(packet: Publish) -> None:
    _check_qos(packet.qos)
    if packet.qos:
        _check_packet_id(packet.packet_id)
    elif packet.packet_id:
        raise Malformed("a packet id at QoS 0 [MQTT-2.2.1-2]")
    elif packet.dup:
        raise Malformed("DUP at QoS 0 [MQTT-3.3.1-2]")
    # Without properties there is no alias, so before MQTT 5 an empty topic is always refused.
    if packet.topic or not get_int(packet.properties, Property.TOPIC_ALIAS):
        _check_name(validate_topic, packet.topic, _TOPIC_NAME_INVALID)


def _check_subscription(subscription: Subscription, version: int) -> None:
    _check_qos(subscription.qos)
    _check_filter(subscription.topic_filter, version)
    if not 0 <= subscription.retain_handling <= 2:
        raise Malformed(f"there is no retain handling {subscription.retain_handling}", _PROTOCOL_ERROR)
    if version < 5:
        if subscription.no_local or subscription.retain_as_published or subscription.retain_handling:
            raise Malformed("subscription options exist in MQTT 5 only")
    elif subscription.no_local and shared_filter(subscription.topic_filter)[0] is not None:
        raise Malformed("no local on a shared subscription [MQTT-3.8.3-4]", _PROTOCOL_ERROR)


def _check_grants(reason_codes: tuple[int, ...], version: int) -> None:
    _check_any(reason_codes, "a SUBACK answers nothing [MQTT-3.9.3-1]")
    for code in reason_codes:
        if 2 < code < 0x80 or (version < 5 and code > 0x80):
            raise Malformed(f"there is no SUBACK code 0x{code:02x} [MQTT-3.9.3-2]")


def _check_filter(topic_filter: str, version: int) -> None:
    _check_name(validate_filter, topic_filter, _TOPIC_FILTER_INVALID)
    if version == 5 and topic_filter.startswith("$share/") and shared_filter(topic_filter)[0] is None:
        raise Malformed("a shared subscription is $share/group/filter [MQTT-4.8.2-1]", _TOPIC_FILTER_INVALID)


def _check_name(validate: Callable[[str], None], name: str, reason_code: int) -> None:
    try:
        validate(name)
    except ValueError as error:
        raise Malformed(str(error), reason_code) from None


def _check_qos(qos: int) -> None:
    if not 0 <= qos <= 2:
        raise Malformed(f"there is no QoS {qos} [MQTT-3.3.1-4]")


def _check_packet_id(packet_id: int) -> None:
    if packet_id == 0:
        raise Malformed("a packet id must not be 0 [MQTT-2.2.1-3]", _PROTOCOL_ERROR)


def _check_reason_code(reason_code: int, version: int) -> None:
    if version < 5 and reason_code:
        raise Malformed("only MQTT 5 has a reason code here")


def _check_any(items: tuple[object, ...], otherwise: str) -> None:
    if not items:
        raise Malformed(otherwise, _PROTOCOL_ERROR)
