"""What a site offers a client in its CONNACK, and whether that is less than the client was told before.

Owns the defaults of MQTT 5, 3.2.2.3. Invariant: who was told something by one site may go on relying on it at
another. Must not know: where the sites are.
"""

from __future__ import annotations

from brokerweave.mqtt.packets import ConnAck
from brokerweave.mqtt.properties import Property, get_int

_LEAST: dict[Property, int] = {
    Property.RECEIVE_MAXIMUM: 65_535,
    Property.MAXIMUM_QOS: 2,
    Property.RETAIN_AVAILABLE: 1,
    Property.MAXIMUM_PACKET_SIZE: 2**32,
    Property.WILDCARD_SUBSCRIPTION_AVAILABLE: 1,
    Property.SUBSCRIPTION_IDENTIFIER_AVAILABLE: 1,
    Property.SHARED_SUBSCRIPTION_AVAILABLE: 1,
}
"""What holds where a CONNACK does not say it."""
_FOR_EVER = 2**32


def lacks(told: ConnAck, offered: ConnAck, keep_alive: int) -> str:
    """What `offered` has less of than `told`, in words; empty if nothing. `keep_alive`: the client's own."""
    for each, default in _LEAST.items():
        if get_int(offered.properties, each, default) < get_int(told.properties, each, default):
            return each.name.lower().replace("_", " ")
    times = [
        get_int(connack.properties, Property.SERVER_KEEP_ALIVE, keep_alive) or _FOR_EVER
        for connack in (told, offered)
    ]
    return "server keep alive" if times[1] < times[0] else ""
