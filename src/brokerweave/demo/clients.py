"""The clients of the demo: sensors and one subscriber a site, on a library that is not ours (paho-mqtt).

Owns what was given to a client, what was acknowledged, what arrived. Invariants: a message counts as
published when its PUBACK came; while a node is away its sensors go on measuring, and their client library
keeps the messages and sends them when it is connected again. Must not know: nodes, brokers, the summary.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from brokerweave.demo.deliveries import Key, SentMessage
from brokerweave.errors import Unavailable

FILTER = "plant/+/sensor/+"
CONNECT_SECONDS = 20.0
SESSION_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Speaks:
    """How a client talks: the version of MQTT, 4 being 3.1.1, and the QoS."""

    version: int = 4
    qos: int = 1


USUAL = Speaks()


def _client(client_id: str, port: int, username: str | None, version: int) -> Client:
    """With a session that outlives its connections."""
    clean = None if version == 5 else False
    protocol = MQTTProtocolVersion(version)
    client = Client(CallbackAPIVersion.VERSION2, client_id, clean_session=clean, protocol=protocol)
    client.username_pw_set(username)
    client.reconnect_delay_set(1, 2)
    if version == 5:
        kept = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        kept.SessionExpiryInterval = SESSION_SECONDS
        client.connect_async("127.0.0.1", port, keepalive=30, clean_start=False, properties=kept)
    else:
        client.connect_async("127.0.0.1", port, keepalive=30)
    return client


class Sensor:
    """Publishes a temperature each time it is told to measure."""

    def __init__(self, site: str, name: str, port: int, username: str | None, speaks: Speaks = USUAL) -> None:
        self.site = site
        self.name = name
        self._qos = speaks.qos
        self._client = _client(f"{site}-{name}", port, username, speaks.version)
        # The library calls back from its own thread, and holds its lock meanwhile: these two dictionaries
        # are each written by one thread only, and matched by `sent`.
        self._given: dict[int, tuple[Key, float]] = {}
        self._acked: dict[int, float] = {}
        self._client.on_publish = self._published

    @property
    def acknowledged(self) -> int:
        return len(self._acked)

    @property
    def waiting(self) -> int:
        return len(self._given) - len(self._acked)

    @property
    def connected(self) -> bool:
        return self._client.is_connected()

    def start(self) -> None:
        self._client.loop_start()

    def measure(self) -> None:
        sequence, now = len(self._given) + 1, time.time()
        payload = {
            "sensor": self.name,
            "site": self.site,
            "seq": sequence,
            "sent": now,
            "temperature": round(20 + 5 * math.sin(sequence / 7 + len(self.name)), 2),
        }
        info = self._client.publish(f"plant/{self.site}/sensor/{self.name}", json.dumps(payload), self._qos)
        self._given[info.mid] = ((self.site, self.name, sequence), now)

    def _published(self, client: Any, userdata: Any, mid: int, *_: Any) -> None:
        self._acked[mid] = time.time()

    def sent(self) -> list[SentMessage]:
        return [SentMessage(key, at, self._acked.get(mid)) for mid, (key, at) in list(self._given.items())]

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Subscriber:
    """Listens to every site's sensors."""

    def __init__(
        self, site: str, port: int, username: str | None, speaks: Speaks = USUAL, name: str = "subscriber"
    ) -> None:
        self.site = site
        self._qos = speaks.qos
        self.arrivals: list[tuple[Key, float]] = []
        self.distinct: set[Key] = set()
        self._client = _client(f"{site}-{name}", port, username, speaks.version)
        self._subscribed = threading.Event()
        self._client.on_connect = self._connected
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_message = self._arrived

    @property
    def connected(self) -> bool:
        return self._client.is_connected()

    def start(self) -> None:
        self._client.loop_start()

    def wait_until_subscribed(self) -> None:
        """Raises `Unavailable` if the broker does not grant the filter in time."""
        if not self._subscribed.wait(CONNECT_SECONDS):
            raise Unavailable(f"site {self.site}: the subscriber got no SUBACK in {CONNECT_SECONDS:g} s")

    def _connected(self, client: Client, userdata: Any, flags: Any, reason: Any, properties: Any) -> None:
        # Again after each reconnect, as clients do that do not trust their session to be there.
        if not reason.is_failure:
            client.subscribe(FILTER, self._qos)

    def _arrived(self, client: Any, userdata: Any, message: Any) -> None:
        now = time.time()
        reading = json.loads(message.payload)
        key = (reading["site"], reading["sensor"], reading["seq"])
        self.arrivals.append((key, now))
        self.distinct.add(key)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def close_all(clients: Iterable[Sensor | Subscriber]) -> None:
    """Clients wait for their thread, which may sit in a connect: all at once."""
    leaving = [threading.Thread(target=client.close, daemon=True) for client in clients]
    for each in leaving:
        each.start()
    for each in leaving:
        each.join(5)


class Measuring(threading.Thread):
    """Lets all sensors measure in turn, evenly spread over each period, until stopped."""

    def __init__(self, sensors: list[Sensor], period: float) -> None:
        super().__init__(name="sensors", daemon=True)
        self._sensors = sensors
        self._pause = period / len(sensors)
        self._stop_asked = threading.Event()

    def run(self) -> None:
        due, turn = time.monotonic(), 0
        while not self._stop_asked.wait(max(due - time.monotonic(), 0)):
            self._sensors[turn % len(self._sensors)].measure()
            turn += 1
            due += self._pause

    def stop(self) -> None:
        self._stop_asked.set()
        if self.is_alive():
            self.join(5)
