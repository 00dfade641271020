"""One table of bytes and the packets they stand for, and one of bytes that are no packets.

Written by hand from the specifications, so that the codec is not compared with itself.
"""

from __future__ import annotations

from typing import NamedTuple

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
from brokerweave.mqtt.properties import Property


class Case(NamedTuple):
    name: str
    version: int
    frame: bytes
    packet: Packet


class BadCase(NamedTuple):
    name: str
    version: int
    frame: bytes
    reason_code: int


CASES = [
    Case(
        "connect 3.1", 3, b"\x10\x0f\x00\x06MQIsdp\x03\x02\x00\x1e\x00\x01c", Connect("c", 3, keep_alive=30)
    ),
    Case("connect 3.1.1", 4, b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01c", Connect("c")),
    Case(
        "connect 3.1.1 without client id",
        4,
        b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00",
        Connect("", keep_alive=0),
    ),
    Case(
        "connect 3.1.1 with will, user and password",
        4,
        b"\x10\x1b\x00\x04MQTT\x04\xec\x00\x0a\x00\x01c\x00\x03w/t\x00\x01x\x00\x01u\x00\x01\xff",
        Connect("c", 4, False, 10, "u", b"\xff", Will("w/t", b"x", 1, True)),
    ),
    Case("connect 5", 5, b"\x10\x0e\x00\x04MQTT\x05\x00\x00\x3c\x00\x00\x01c", Connect("c", 5, False)),
    Case(
        "connect 5 with properties, will properties and a password alone",
        5,
        b"\x10\x2a\x00\x04MQTT\x05\x56\x00\x3c"
        b"\x08\x11\x00\x00\x00\x78\x21\x00\x14\x00\x01c"
        b"\x0b\x18\x00\x00\x00\x05\x03\x00\x03a/b\x00\x01w\x00\x00\x00\x01p",
        Connect(
            "c",
            5,
            password=b"p",
            will=Will(
                "w",
                b"",
                qos=2,
                properties=((Property.WILL_DELAY_INTERVAL, 5), (Property.CONTENT_TYPE, "a/b")),
            ),
            properties=((Property.SESSION_EXPIRY_INTERVAL, 120), (Property.RECEIVE_MAXIMUM, 20)),
        ),
    ),
    Case("connack", 4, b"\x20\x02\x00\x00", ConnAck()),
    Case("connack with session", 4, b"\x20\x02\x01\x00", ConnAck(0, True)),
    Case("connack refused", 3, b"\x20\x02\x00\x05", ConnAck(5)),
    Case("connack 5", 5, b"\x20\x03\x00\x00\x00", ConnAck()),
    Case("connack 5 refused", 5, b"\x20\x03\x00\x88\x00", ConnAck(0x88)),
    Case(
        "connack 5 with properties",
        5,
        b"\x20\x11\x00\x00\x0e\x24\x01\x25\x00\x27\x00\x00\x10\x00\x12\x00\x02id",
        ConnAck(
            properties=(
                (Property.MAXIMUM_QOS, 1),
                (Property.RETAIN_AVAILABLE, 0),
                (Property.MAXIMUM_PACKET_SIZE, 4096),
                (Property.ASSIGNED_CLIENT_IDENTIFIER, "id"),
            )
        ),
    ),
    Case("publish", 4, b"\x30\x07\x00\x03a/bhi", Publish("a/b", b"hi")),
    Case("publish without payload, retained", 4, b"\x31\x03\x00\x01a", Publish("a", retain=True)),
    Case("publish qos 1", 3, b"\x32\x06\x00\x01a\x00\x0ax", Publish("a", b"x", 1, packet_id=10)),
    Case("publish qos 2 again", 4, b"\x3d\x06\x00\x01a\xff\xffx", Publish("a", b"x", 2, True, True, 65_535)),
    Case("publish to non-ascii topic", 4, "\x30\x05\x00\x03€".encode(), Publish("€")),
    Case("publish of 128 bytes", 4, b"\x30\x80\x01\x00\x01a" + b"x" * 125, Publish("a", b"x" * 125)),
    Case("publish 5", 5, b"\x30\x05\x00\x01a\x00x", Publish("a", b"x")),
    Case(
        "publish 5 by alias",
        5,
        b"\x32\x09\x00\x00\x00\x01\x03\x23\x00\x07x",
        Publish("", b"x", 1, packet_id=1, properties=((Property.TOPIC_ALIAS, 7),)),
    ),
    Case(
        "publish 5 with repeated properties in order",
        5,
        b"\x30\x1b\x00\x01a\x16\x26\x00\x01k\x00\x01v\x0b\x01\x0b\x80\x01\x26\x00\x01k\x00\x01w\x09\x00\x00x",
        Publish(
            "a",
            b"x",
            properties=(
                (Property.USER_PROPERTY, ("k", "v")),
                (Property.SUBSCRIPTION_IDENTIFIER, 1),
                (Property.SUBSCRIPTION_IDENTIFIER, 128),
                (Property.USER_PROPERTY, ("k", "w")),
                (Property.CORRELATION_DATA, b""),
            ),
        ),
    ),
    Case("puback", 4, b"\x40\x02\x00\x01", PubAck(1)),
    Case("puback 5", 5, b"\x40\x02\x01\x00", PubAck(256)),
    Case("puback 5 with code", 5, b"\x40\x03\x00\x01\x10", PubAck(1, 0x10)),
    Case(
        "puback 5 with reason",
        5,
        b"\x40\x08\x00\x01\x83\x04\x1f\x00\x01n",
        PubAck(1, 0x83, ((Property.REASON_STRING, "n"),)),
    ),
    Case("pubrec", 4, b"\x50\x02\x00\x01", PubRec(1)),
    Case("pubrec 5 with code", 5, b"\x50\x03\x00\x01\x97", PubRec(1, 0x97)),
    Case("pubrel", 4, b"\x62\x02\x00\x01", PubRel(1)),
    Case("pubrel 5 with code", 5, b"\x62\x03\x00\x01\x92", PubRel(1, 0x92)),
    Case("pubcomp", 3, b"\x70\x02\x00\x01", PubComp(1)),
    Case("pubcomp 5 with code", 5, b"\x70\x03\x00\x01\x92", PubComp(1, 0x92)),
    Case(
        "subscribe",
        4,
        b"\x82\x0c\x00\x01\x00\x03a/#\x01\x00\x01+\x00",
        Subscribe(1, (Subscription("a/#", 1), Subscription("+"))),
    ),
    Case(
        "subscribe 5 with options and identifier",
        5,
        b"\x82\x09\x00\x01\x02\x0b\x05\x00\x01a\x2e",
        Subscribe(1, (Subscription("a", 2, True, True, 2),), ((Property.SUBSCRIPTION_IDENTIFIER, 5),)),
    ),
    Case(
        "subscribe 5 shared",
        5,
        b"\x82\x10\x00\x01\x00\x00\x0a$share/g/a\x01",
        Subscribe(1, (Subscription("$share/g/a", 1),)),
    ),
    Case("suback", 4, b"\x90\x04\x00\x01\x02\x80", SubAck(1, (2, 0x80))),
    Case("suback 5", 5, b"\x90\x05\x00\x01\x00\x01\x87", SubAck(1, (1, 0x87))),
    Case("unsubscribe", 4, b"\xa2\x08\x00\x01\x00\x01a\x00\x01b", Unsubscribe(1, ("a", "b"))),
    Case("unsubscribe 5", 5, b"\xa2\x06\x00\x01\x00\x00\x01a", Unsubscribe(1, ("a",))),
    Case("unsuback", 4, b"\xb0\x02\x00\x01", UnsubAck(1)),
    Case("unsuback 5", 5, b"\xb0\x05\x00\x01\x00\x00\x11", UnsubAck(1, (0, 0x11))),
    Case("pingreq", 4, b"\xc0\x00", PingReq()),
    Case("pingresp", 5, b"\xd0\x00", PingResp()),
    Case("disconnect", 4, b"\xe0\x00", Disconnect()),
    Case("disconnect 5", 5, b"\xe0\x00", Disconnect()),
    Case("disconnect 5 with will", 5, b"\xe0\x01\x04", Disconnect(4)),
    Case(
        "disconnect 5 with expiry",
        5,
        b"\xe0\x07\x00\x05\x11\x00\x00\x00\x00",
        Disconnect(0, ((Property.SESSION_EXPIRY_INTERVAL, 0),)),
    ),
    Case("auth", 5, b"\xf0\x00", Auth()),
    Case(
        "auth with data",
        5,
        b"\xf0\x0a\x18\x08\x15\x00\x01m\x16\x00\x01\x00",
        Auth(0x18, ((Property.AUTHENTICATION_METHOD, "m"), (Property.AUTHENTICATION_DATA, b"\0"))),
    ),
]

# What decodes, but is not how we write it.
LENIENT_CASES = [
    Case("puback 5 with success spelt out", 5, b"\x40\x03\x00\x01\x00", PubAck(1)),
    Case("puback 5 with no properties spelt out", 5, b"\x40\x04\x00\x01\x00\x00", PubAck(1)),
    Case("disconnect 5 spelt out", 5, b"\xe0\x02\x00\x00", Disconnect()),
    Case("a bridge's connect", 4, b"\x10\x0d\x00\x04MQTT\x84\x02\x00\x3c\x00\x01c", Connect("c")),
    Case("subscribe 3.1 again", 3, b"\x8a\x06\x00\x01\x00\x01a\x00", Subscribe(1, (Subscription("a"),))),
]

BAD_CASES = [
    BadCase("nothing", 4, b"", 0x81),
    BadCase("packet type 0", 4, b"\x00\x00", 0x81),
    BadCase("auth before MQTT 5", 4, b"\xf0\x00", 0x81),
    BadCase("two packets", 4, b"\xc0\x00\xc0\x00", 0x81),
    BadCase("a length of five bytes", 4, b"\xc0\x80\x80\x80\x80\x00", 0x81),
    BadCase("a length longer than needed", 4, b"\xc0\x80\x00", 0x81),
    BadCase("a ping before connect", 0, b"\xc0\x00", 0x82),
    BadCase("a ping with a body", 4, b"\xc0\x01\x00", 0x81),
    BadCase("reserved flags of a ping", 4, b"\xc1\x00", 0x81),
    BadCase("flags of pubrel", 4, b"\x60\x02\x00\x01", 0x81),
    BadCase("flags of subscribe with dup after 3.1", 4, b"\x8a\x06\x00\x01\x00\x01a\x00", 0x81),
    BadCase("connect of another protocol", 4, b"\x10\x0d\x00\x04HTTP\x04\x02\x00\x3c\x00\x01c", 0x84),
    BadCase("connect of a later version", 4, b"\x10\x0d\x00\x04MQTT\x06\x02\x00\x3c\x00\x01c", 0x84),
    BadCase("connect 3.1 under the new name", 4, b"\x10\x0d\x00\x04MQTT\x03\x02\x00\x3c\x00\x01c", 0x84),
    BadCase("connect with the reserved flag", 4, b"\x10\x0d\x00\x04MQTT\x04\x03\x00\x3c\x00\x01c", 0x81),
    BadCase("connect with will qos only", 4, b"\x10\x0d\x00\x04MQTT\x04\x0a\x00\x3c\x00\x01c", 0x81),
    BadCase("connect with will retain only", 4, b"\x10\x0d\x00\x04MQTT\x04\x22\x00\x3c\x00\x01c", 0x81),
    BadCase(
        "connect with will qos 3", 4, b"\x10\x12\x00\x04MQTT\x04\x1c\x00\x3c\x00\x01c\x00\x01w\x00\x00", 0x81
    ),
    BadCase(
        "connect with a wildcard will topic",
        4,
        b"\x10\x12\x00\x04MQTT\x04\x04\x00\x3c\x00\x01c\x00\x01#\x00\x00",
        0x90,
    ),
    BadCase(
        "connect 3.1.1 with password only", 4, b"\x10\x10\x00\x04MQTT\x04\x42\x00\x3c\x00\x01c\x00\x01p", 0x81
    ),
    BadCase("connect with more behind it", 4, b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x01c\x00", 0x81),
    BadCase(
        "connect 5 with receive maximum 0",
        5,
        b"\x10\x11\x00\x04MQTT\x05\x02\x00\x3c\x03\x21\x00\x00\x00\x01c",
        0x82,
    ),
    BadCase("connack with reserved flags", 4, b"\x20\x02\x02\x00", 0x81),
    BadCase("connack refusing with a session", 4, b"\x20\x02\x01\x05", 0x81),
    BadCase("connack code 6 before MQTT 5", 4, b"\x20\x02\x00\x06", 0x81),
    BadCase("publish qos 3", 4, b"\x36\x05\x00\x01a\x00\x01", 0x81),
    BadCase("publish dup at qos 0", 4, b"\x38\x03\x00\x01a", 0x81),
    BadCase("publish qos 1 with packet id 0", 4, b"\x32\x05\x00\x01a\x00\x00", 0x81),
    BadCase("publish to no topic", 4, b"\x30\x02\x00\x00", 0x90),
    BadCase("publish 5 to no topic and no alias", 5, b"\x30\x03\x00\x00\x00", 0x90),
    BadCase("publish to +", 4, b"\x30\x05\x00\x03a/+", 0x90),
    BadCase("publish to #", 4, b"\x30\x05\x00\x03a/#", 0x90),
    BadCase("publish to a topic with U+0000", 4, b"\x30\x05\x00\x03a\x00b", 0x81),
    BadCase("publish to a topic with a surrogate", 4, b"\x30\x05\x00\x03\xed\xa0\x80", 0x81),
    BadCase("publish to an overlong encoding", 4, b"\x30\x04\x00\x02\xc0\xaf", 0x81),
    BadCase("publish 5 with alias 0", 5, b"\x30\x07\x00\x01a\x03\x23\x00\x00", 0x94),
    BadCase("publish 5 with two aliases", 5, b"\x30\x0a\x00\x01a\x06\x23\x00\x01\x23\x00\x01", 0x82),
    BadCase("publish 5 with an unknown property", 5, b"\x30\x06\x00\x01a\x02\x7f\x00", 0x81),
    BadCase("publish 5 with another packet's property", 5, b"\x30\x07\x00\x01a\x03\x21\x00\x01", 0x81),
    BadCase("publish 5 with a wildcard response topic", 5, b"\x30\x08\x00\x01a\x04\x08\x00\x01#", 0x82),
    BadCase("publish 5 with subscription identifier 0", 5, b"\x30\x06\x00\x01a\x02\x0b\x00", 0x82),
    BadCase("publish 5 with properties beyond its end", 5, b"\x30\x06\x00\x01a\x05\x23\x00", 0x81),
    BadCase("puback with packet id 0", 4, b"\x40\x02\x00\x00", 0x82),
    BadCase("puback 3.1.1 with a reason code", 4, b"\x40\x03\x00\x01\x00", 0x81),
    BadCase("subscribe to nothing", 4, b"\x82\x02\x00\x01", 0x82),
    BadCase("subscribe with packet id 0", 4, b"\x82\x06\x00\x00\x00\x01a\x00", 0x82),
    BadCase("subscribe with qos 3", 4, b"\x82\x06\x00\x01\x00\x01a\x03", 0x81),
    BadCase("subscribe 3.1.1 with options", 4, b"\x82\x06\x00\x01\x00\x01a\x04", 0x81),
    BadCase("subscribe 5 with reserved options", 5, b"\x82\x07\x00\x01\x00\x00\x01a\x40", 0x81),
    BadCase("subscribe 5 with retain handling 3", 5, b"\x82\x07\x00\x01\x00\x00\x01a\x30", 0x82),
    BadCase("subscribe to a#", 4, b"\x82\x07\x00\x01\x00\x02a#\x00", 0x8F),
    BadCase("subscribe to the empty filter", 4, b"\x82\x05\x00\x01\x00\x00\x00", 0x8F),
    BadCase("subscribe 5 shared without group", 5, b"\x82\x0f\x00\x01\x00\x00\x09$share//a\x00", 0x8F),
    BadCase("subscribe 5 shared and no local", 5, b"\x82\x10\x00\x01\x00\x00\x0a$share/g/a\x04", 0x82),
    BadCase(
        "subscribe 5 with two identifiers", 5, b"\x82\x0b\x00\x01\x04\x0b\x01\x0b\x02\x00\x01a\x00", 0x82
    ),
    BadCase("suback without codes", 4, b"\x90\x02\x00\x01", 0x82),
    BadCase("suback granting qos 3", 4, b"\x90\x03\x00\x01\x03", 0x81),
    BadCase("suback 3.1.1 with a code of MQTT 5", 4, b"\x90\x03\x00\x01\x87", 0x81),
    BadCase("unsubscribe from nothing", 4, b"\xa2\x02\x00\x01", 0x82),
    BadCase("unsubscribe from +a", 4, b"\xa2\x06\x00\x01\x00\x02+a", 0x8F),
    BadCase("unsuback 3.1.1 with codes", 4, b"\xb0\x03\x00\x01\x00", 0x81),
    BadCase("unsuback 5 without codes", 5, b"\xb0\x03\x00\x01\x00", 0x81),
    BadCase("disconnect 3.1.1 with a reason code", 4, b"\xe0\x01\x00", 0x81),
    BadCase("auth with data and no method", 5, b"\xf0\x06\x18\x04\x16\x00\x01\x00", 0x82),
]
