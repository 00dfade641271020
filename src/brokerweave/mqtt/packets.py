"""MQTT's control packets as plain values, the same classes for 3.1, 3.1.1 and 5.

Owns the names and defaults of their fields. What a version cannot carry stays at its default: reason
codes and properties of most packets exist in MQTT 5 only. Nothing is checked here: the codec knows the
rules. Must not know: bytes, sessions.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from brokerweave.mqtt.properties import Properties


class PacketType(enum.IntEnum):
    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker publishes when its client is lost."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Connect:
    """`version` is the protocol level: 3 (MQTT 3.1), 4 (3.1.1) or 5."""

    type: ClassVar[PacketType] = PacketType.CONNECT
    client_id: str
    version: int = 4
    clean_start: bool = True
    keep_alive: int = 60
    username: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class ConnAck:
    """`reason_code` is the return code (0 to 5) before MQTT 5."""

    type: ClassVar[PacketType] = PacketType.CONNACK
    reason_code: int = 0
    session_present: bool = False
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Publish:
    """`packet_id` is 0 at QoS 0. An empty topic stands for the topic alias among the properties."""

    type: ClassVar[PacketType] = PacketType.PUBLISH
    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class PubAck:
    type: ClassVar[PacketType] = PacketType.PUBACK
    packet_id: int
    reason_code: int = 0
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class PubRec:
    type: ClassVar[PacketType] = PacketType.PUBREC
    packet_id: int
    reason_code: int = 0
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class PubRel:
    type: ClassVar[PacketType] = PacketType.PUBREL
    packet_id: int
    reason_code: int = 0
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class PubComp:
    type: ClassVar[PacketType] = PacketType.PUBCOMP
    packet_id: int
    reason_code: int = 0
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Subscription:
    """One line of a SUBSCRIBE. All but `qos` exist in MQTT 5 only."""

    topic_filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(frozen=True, slots=True)
class Subscribe:
    type: ClassVar[PacketType] = PacketType.SUBSCRIBE
    packet_id: int
    subscriptions: tuple[Subscription, ...]
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class SubAck:
    """One code a subscription, in their order: the QoS granted, or 0x80 and above for a refusal."""

    type: ClassVar[PacketType] = PacketType.SUBACK
    packet_id: int
    reason_codes: tuple[int, ...]
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    type: ClassVar[PacketType] = PacketType.UNSUBSCRIBE
    packet_id: int
    topic_filters: tuple[str, ...]
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class UnsubAck:
    """`reason_codes` is empty before MQTT 5."""

    type: ClassVar[PacketType] = PacketType.UNSUBACK
    packet_id: int
    reason_codes: tuple[int, ...] = ()
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class PingReq:
    type: ClassVar[PacketType] = PacketType.PINGREQ


@dataclass(frozen=True, slots=True)
class PingResp:
    type: ClassVar[PacketType] = PacketType.PINGRESP


@dataclass(frozen=True, slots=True)
class Disconnect:
    type: ClassVar[PacketType] = PacketType.DISCONNECT
    reason_code: int = 0
    properties: Properties = ()


@dataclass(frozen=True, slots=True)
class Auth:
    """MQTT 5 only."""

    type: ClassVar[PacketType] = PacketType.AUTH
    reason_code: int = 0
    properties: Properties = ()


Packet: TypeAlias = (
    Connect
    | ConnAck
    | Publish
    | PubAck
    | PubRec
    | PubRel
    | PubComp
    | Subscribe
    | SubAck
    | Unsubscribe
    | UnsubAck
    | PingReq
    | PingResp
    | Disconnect
    | Auth
)
