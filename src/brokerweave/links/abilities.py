"""What a broker can do for an injector, and how a message is made to fit it.

Owns the rewriting of one PUBLISH, or a run of them, for a broker: QoS, packet identifier, protocol version,
retain flag, expiry. Invariants: topic and payload never change; properties change only in their expiry (a
stamp is put on by `sender`). Must not know: sessions, what is in flight, why a message is sent again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from brokerweave.errors import LocalProtocolError, RemoteProtocolError
from brokerweave.links.inflight import Message
from brokerweave.links.run import Run
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.properties import Properties, Property, get_int
from brokerweave.mqtt.publish import convert, with_qos

DEFAULT_WINDOW = 100
"""QoS 1 and 2 messages in flight where the broker does not say (3.1.1 cannot)."""

MAX_WINDOW = 1_000
"""However many a broker offers: after a death each of them is repeated alone."""

EXPIRY_SHOWS = 1.0
"""Seconds a message waits before its expiry, which counts seconds, has to be looked at."""


@dataclass(frozen=True, slots=True)
class BrokerAbilities:
    """What is known before connecting, from a probe or the configuration; MQTT 5's CONNACK knows better.

    `version` is the MQTT version to speak: 4 or 5. `receive_maximum` bounds the messages in flight;
    `maximum_packet` is in bytes, None for no bound.
    """

    version: int = 4
    max_qos: int = 2
    retain: bool = True
    receive_maximum: int = DEFAULT_WINDOW
    maximum_packet: int | None = None
    persistent_sessions: bool = True
    user_properties: bool = False
    """It delivers user properties as they were published: so stamps come back with deliveries."""

    def corrected(self, version: int, properties: Properties) -> BrokerAbilities:
        """The same with the version agreed on and what CONNACK says (MQTT 5, 3.2.2.3); the rest as given.

        A missing Receive Maximum means 65,535 to the broker; staying at our own bound is allowed.
        """
        size = get_int(properties, Property.MAXIMUM_PACKET_SIZE, self.maximum_packet or 0)
        return replace(
            self,
            version=version,
            max_qos=get_int(properties, Property.MAXIMUM_QOS, self.max_qos),
            retain=bool(get_int(properties, Property.RETAIN_AVAILABLE, self.retain)),
            receive_maximum=min(
                get_int(properties, Property.RECEIVE_MAXIMUM, self.receive_maximum), MAX_WINDOW
            ),
            maximum_packet=size or None,
            user_properties=self.user_properties and version == 5,
        )


def remaining_expiry(message: Message, now: float) -> int | None:
    """Seconds the message may still live, 0 or less if it may not; None without a limit."""
    if message.expiry is None:
        return None
    return message.expiry - max(int(now - message.born), 0)


def fit(message: Message, limits: BrokerAbilities, now: float) -> bytes:
    """The frame to write, with the message's own `qos`, `packet_id` and `dup`."""
    frame = message.frame
    left = remaining_expiry(message, now)
    if left != message.expiry and left is not None and limits.version == 5:
        # What the broker may have seen already must be repeated even if its time is over.
        frame = _with_expiry(frame, max(left, 1))
    fitted = with_qos(frame, message.version, limits.version, message.qos, message.packet_id, message.dup)
    if fitted[0] & 1 and not limits.retain:  # [MQTT-3.2.2-14]
        fitted = bytes((fitted[0] & 0xFE,)) + fitted[1:]
    return fitted


def fit_whole(run: Run, limits: BrokerAbilities, now: float) -> bytes | None:
    """The fast path: a run of QoS 0 as it is to be written, or None if its messages need a look each."""
    if not limits.retain:
        return None
    if run.version == 5 and now - run.born >= EXPIRY_SHOWS and Property.MESSAGE_EXPIRY_INTERVAL in run.blob:
        return None
    try:
        blob = convert(run.blob, run.version, limits.version)
    except RemoteProtocolError:
        return None
    if limits.maximum_packet is not None and len(blob) > limits.maximum_packet:
        return None
    return blob


def _with_expiry(frame: bytes, seconds: int) -> bytes:
    packet = codec.decode(frame, 5)
    if not isinstance(packet, Publish):
        raise LocalProtocolError("only a PUBLISH expires")
    properties: Properties = tuple(
        (name, seconds if name is Property.MESSAGE_EXPIRY_INTERVAL else value)
        for name, value in packet.properties
    )
    return codec.encode(replace(packet, properties=properties), 5)
