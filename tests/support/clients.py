"""A client of another maker (paho), with everything that happened to it.

Owns one connection and a thread. Invariants: every wait is bounded; it never reconnects by itself, so that
what a test sees is what one connection saw. Must not know: nodes.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.support.verdicts import BrokenPromise
from tests.support.waiting import LIMIT, wait_until


@dataclass(frozen=True)
class Message:
    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: dict[str, Any] = field(default_factory=dict)


class MqttClient:
    """Connected when made, unless `expect_refusal`: then `code` is why not."""

    def __init__(
        self,
        port: int,
        client_id: str = "",
        *,
        version: int = 4,
        clean: bool = True,
        login: tuple[str, str] | None = None,
        will: tuple[str, bytes, int, bool] | None = None,
        will_properties: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
        expect_refusal: bool = False,
    ) -> None:
        self.received: list[Message] = []
        self.code = -1
        self.session_present = False
        self.ended = threading.Event()
        self._answered = threading.Event()
        self._granted: dict[int, list[int]] = {}
        self._v5 = version == 5
        self._client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=None if self._v5 else clean,
            protocol=MQTTProtocolVersion(version),
            reconnect_on_failure=False,
        )
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = lambda *_: self.ended.set()
        self._client.on_message = self._on_message
        self._client.on_subscribe = lambda _c, _u, mid, codes, _p: self._granted.update(
            {mid: [code.value for code in codes]}
        )
        self._client.on_unsubscribe = lambda _c, _u, mid, _codes, _p: self._granted.update({mid: []})
        if login is not None:
            self._client.username_pw_set(*login)
        if will is not None:
            late = _properties(PacketTypes.WILLMESSAGE, will_properties) if self._v5 else None
            self._client.will_set(*will, properties=late)
        self._client.connect(
            "127.0.0.1",
            port,
            clean_start=clean if self._v5 else paho.MQTT_CLEAN_START_FIRST_ONLY,
            properties=_properties(PacketTypes.CONNECT, properties) if self._v5 else None,
        )
        self._client.loop_start()
        try:
            wait_until(lambda: self._answered.is_set() or self.ended.is_set(), "an answer to CONNECT")
            if not expect_refusal:
                assert self.code == 0, f"the broker refused with 0x{self.code:02x}"
        except AssertionError:
            self.close()  # nobody else can
            raise

    def subscribe(self, topic_filter: str, qos: int = 0, **options: Any) -> int:
        """Subscribe, wait for SUBACK and give its code."""
        if self._v5:
            _, mid = self._client.subscribe(topic_filter, options=SubscribeOptions(qos, **options))
        else:
            _, mid = self._client.subscribe(topic_filter, qos)
        assert mid is not None
        wait_until(lambda: mid in self._granted, f"SUBACK for {topic_filter}")
        return self._granted[mid][0]

    def unsubscribe(self, topic_filter: str) -> None:
        _, mid = self._client.unsubscribe(topic_filter)
        assert mid is not None
        wait_until(lambda: mid in self._granted, f"UNSUBACK for {topic_filter}")

    def publish(
        self, topic: str, payload: bytes | str, qos: int = 0, retain: bool = False, **properties: Any
    ) -> None:
        """Publish, and wait until it is sent (QoS 0) or acknowledged."""
        carried = _properties(PacketTypes.PUBLISH, properties) if self._v5 else None
        info = self._client.publish(topic, payload, qos, retain, carried)
        info.wait_for_publish(LIMIT)
        assert info.is_published(), f"{topic} was not acknowledged"

    def publish_unwatched(self, topic: str, payload: bytes, qos: int) -> Callable[[], bool]:
        """Publish without waiting; what is given tells whether it is acknowledged by now."""
        return self._client.publish(topic, payload, qos).is_published

    def publish_all(self, topic: str, payloads: Iterable[bytes], qos: int) -> None:
        """Publish without waiting between messages, then wait for the last."""
        sent = [self._client.publish(topic, payload, qos) for payload in payloads]
        for info in sent:
            info.wait_for_publish(LIMIT)

    def payloads(self, topic: str | None = None) -> list[bytes]:
        return [message.payload for message in self.received if topic in (None, message.topic)]

    def wait_for(self, condition: Callable[[list[Message]], bool], seconds: float = LIMIT) -> None:
        """Until what was received is enough; what a connected client did not get by then is lost."""
        try:
            wait_until(lambda: condition(self.received), "what was to be received", seconds)
        except AssertionError as error:
            kind = AssertionError if self.ended.is_set() else BrokenPromise
            raise kind(f"{error}; received {len(self.received)}, last {self.received[-50:]}") from None

    def wait_for_payload(self, payload: bytes, seconds: float = LIMIT) -> None:
        self.wait_for(lambda received: any(message.payload == payload for message in received), seconds)

    def come_back(self) -> None:
        """Connect once more, with all that a persistent session keeps on the client's side."""
        assert self.ended.wait(LIMIT)
        self._client.loop_stop()
        self._client._reset_sockets()  # loop_start makes new ones to wake its thread with
        self.ended.clear()
        self._answered.clear()
        self._client.reconnect()
        self._client.loop_start()
        wait_until(lambda: self._answered.is_set() or self.ended.is_set(), "an answer to CONNECT")
        assert self.code == 0, f"the broker refused with 0x{self.code:02x}"

    def cut(self) -> None:
        """End the connection without a word, as a crash would."""
        sock = self._client.socket()
        assert isinstance(sock, socket.socket)
        sock.shutdown(socket.SHUT_RDWR)
        assert self.ended.wait(LIMIT)
        self._client.loop_stop()

    def close(self) -> None:
        end(self._client)

    def _on_connect(self, _client: Any, _data: Any, flags: Any, code: Any, _properties: Any) -> None:
        self.code = code.value
        self.session_present = flags.session_present
        self._answered.set()

    def _on_message(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        properties: dict[str, Any] = {}
        if self._v5 and message.properties is not None:
            properties = message.properties.json()  # type: ignore[no-untyped-call]
        payload = bytes(message.payload)
        self.received.append(Message(message.topic, payload, message.qos, message.retain, properties))


def end(client: paho.Client) -> None:
    """Disconnect, and leave nothing open.

    paho has a pair of sockets to wake its thread with, and closes it only when the client is finalized. In a
    cycle (its callbacks know their owner) the garbage collector may finalize the sockets first, and warns.
    """
    client.disconnect()
    client.loop_stop()
    client._reset_sockets()


def _properties(kind: int, values: dict[str, Any] | None) -> Properties:
    properties = Properties(kind)  # type: ignore[no-untyped-call]
    for name, value in (values or {}).items():
        setattr(properties, name, value)
    return properties
