"""Which frames a pair looks at: all others pass without a line of Python.

Owns what the two scanners hand out one by one, and what of that means something to the pair itself; the rest
is for listeners. A mask has a bit for each packet type, or for each QoS of a PUBLISH. Must not know: what is
done about a frame.
"""

from __future__ import annotations

from brokerweave.mqtt.packets import PacketType

EVERY_QOS = 1 << 0 | 1 << 1 | 1 << 2
"""Publications one by one, before it is known whose they are."""
ACKNOWLEDGED = 1 << 1 | 1 << 2
"""One by one where it counts what the broker answers."""
QOS_2 = 1 << 2
"""One by one in any case: one that is sent again is the same one."""

_EVERYTHING = 0xFFFE
_FROM_CLIENT = sum(
    1 << t
    for t in (
        PacketType.CONNECT,
        PacketType.SUBSCRIBE,
        PacketType.UNSUBSCRIBE,
        PacketType.PUBREL,
        PacketType.DISCONNECT,
    )
)
_FROM_BROKER = sum(
    1 << t for t in (PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.DISCONNECT)
)
PUBLISH_ACKS = 1 << PacketType.PUBACK | 1 << PacketType.PUBREC

ANSWERS = frozenset({PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBCOMP, PacketType.PINGREQ})
"""What a client that is watched says to the broker, or to the node that sent something in its stead."""
ANSWERED = frozenset({PacketType.PUBACK, PacketType.PUBREC})
DELIVERS = frozenset({PacketType.PUBLISH, PacketType.PUBREL})
ABOUT_FILTERS = frozenset({PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE})
ACTED_ON = frozenset(
    {
        PacketType.CONNECT,
        PacketType.CONNACK,
        PacketType.PUBLISH,
        PacketType.PUBACK,
        PacketType.PUBREC,
        PacketType.PUBREL,
        PacketType.SUBSCRIBE,
        PacketType.SUBACK,
        PacketType.UNSUBSCRIBE,
        PacketType.UNSUBACK,
        PacketType.DISCONNECT,
    }
)


def from_client(listened: bool, watched: bool) -> int:
    """`listened`: listeners want to see something of this side's."""
    if listened:
        return _EVERYTHING
    return _FROM_CLIENT | (sum(1 << t for t in ANSWERS) if watched else 0)


def from_broker(listened: bool, cluster: bool, watched: bool) -> int:
    if listened or watched:
        return _EVERYTHING
    return _FROM_BROKER | (PUBLISH_ACKS if cluster else 0)
