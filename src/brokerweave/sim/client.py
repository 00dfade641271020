"""A model client: publishes and subscribes through its node, in MQTT's own bytes, as a careful library would.

Owns one client's side of its MQTT session. Invariants: every publication has an identity of its own, its
payload or, where all payloads are to be equal, a user property, and observers see it as the payload; what was
sent at QoS 1 or 2 and not acknowledged is sent again after a reconnect, in order, with DUP and its packet
id; where the broker forgot the session, QoS 2 is given up rather than risked twice. Must not know: nodes
beyond the port it connects to, what is promised.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Disconnect,
    Packet,
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
from brokerweave.mqtt.properties import Properties, Property, user_properties
from brokerweave.mqtt.scanner import Frame, Scanner
from brokerweave.sim.pipes import Handler, PipeEnd, StreamNetwork
from brokerweave.sim.world import VirtualHost, World

_GOODBYE = codec.encode(Disconnect(), 4)
"""The same bytes in both versions."""
_ALL_TYPES = 0xFFFE
_SESSION_EXPIRY = 3600
_RETRY = 0.3
_CONNACK_TIMEOUT = 4.0
_EQUAL = b"="
_IDENTITY = "identity"


def identity(message: Publish) -> bytes:
    """What tells a publication from all others."""
    said = user_properties(message.properties).get(_IDENTITY)
    return said.encode() if said is not None else message.payload


class Observer(Protocol):
    """What hears of everything that a client sees and does."""

    def made(self, client: ModelClient, payload: bytes, topic: str, qos: int, retain: bool) -> None: ...

    def acknowledged(self, payload: bytes) -> None: ...

    def sent(self, client: ModelClient, payload: bytes) -> None: ...

    def resent(self, payload: bytes) -> None: ...

    def welcomed(self, client: ModelClient, resumed: bool) -> None:
        """CONNACK; `resumed`: the broker still had its session."""

    def delivered(self, client: ModelClient, message: Publish) -> None: ...

    def asking(self, client: ModelClient, filters: Iterable[str]) -> None: ...

    def granted(self, client: ModelClient, topic_filter: str, qos: int) -> None: ...

    def unsubscribing(self, client: ModelClient, topic_filter: str) -> None: ...

    def disconnected(self, client: ModelClient) -> None: ...

    def moved(self, client: ModelClient, since: float, will: bytes) -> None:
        """It is about to go on at another site, where it came at `since`: its old connection, with this will,
        is over. `welcomed` follows."""

    def said_goodbye(self, client: ModelClient) -> None: ...

    def will_cancelled(self, payload: bytes) -> None:
        """Its client is back in its session, and heard so through its node, before the will was due."""


@dataclass(slots=True)
class _Out:
    message: Publish
    released: bool = False


class ModelClient:
    def __init__(
        self,
        world: World,
        network: StreamNetwork,
        observer: Observer,
        name: str,
        site: str,
        version: int,
        persistent: bool,
        will_topic: str | None,
        will_delay: int = 0,
        equal: bool = False,
    ) -> None:
        """`equal`: its publications have one payload, but those that are to be retained, and wills."""
        self.host = VirtualHost(world, name)
        self.host.start()
        self.name = name
        self.site = site
        self.version = version
        self.persistent = persistent
        self.wanted: dict[str, int] = {}
        self.online = False
        """Whether it wants to be connected."""
        self.connected = False
        self.balance: Callable[[ModelClient], str] = lambda client: client.site
        """Which site it is to come back to."""
        self.gateway = ""
        """Where it connects instead, if it is behind one: then that knows its site."""
        self._was = site
        """The site of its last session."""
        self._network = network
        self.observer = observer
        self._will_topic = will_topic
        self._will_delay = will_delay
        self._equal = equal
        self._delayed: list[bytes] = []
        """Wills that were to wait for a return, up to that of this connection."""
        self._random = world.random(f"client/{name}")
        self.header: Callable[[ModelClient, str], bytes] = lambda client, site: b""
        """What announces a planned move to a site."""
        self._connection: _ClientSide | None = None
        self._next: _ClientSide | None = None
        """At the site to which it moves as planned."""
        self._connects = 0
        self._made = 0
        self._last_id = 0
        self._waiting: deque[Publish] = deque()
        self._out: dict[int, _Out] = {}
        self._taken: set[int] = set()
        self._asked: dict[int, dict[str, int]] = {}
        self._unwanted: dict[str, int] = {}
        """Filters to be withdrawn -> the packet id that asks for it, until the broker has confirmed."""

    @property
    def end(self) -> PipeEnd | None:
        """Its end of the connection, if it has one."""
        return self._connection.end if self._connection is not None else None

    @property
    def busy(self) -> bool:
        """Whether it waits for an acknowledgement."""
        return bool(self._out or self._waiting)

    # What the schedule does

    def delete(self, topic: str, qos: int) -> None:
        """Publish nothing, to be retained."""
        if self.connected or qos:
            self._offer(topic, b"", qos, True)

    def publish(self, topic: str, qos: int, retain: bool) -> None:
        self._made += 1
        payload = f"{self.name}:{self._made}".encode()
        if not self.connected and qos == 0:
            return
        self._offer(topic, payload, qos, retain)

    def _offer(self, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        self.observer.made(self, payload, topic, qos, retain)
        self._waiting.append(Publish(topic, payload, qos, retain))
        self._flush()

    def subscribe(self, topic_filter: str, qos: int) -> None:
        self.wanted[topic_filter] = qos
        self._unwanted.pop(topic_filter, None)
        if self.connected:
            self._ask({topic_filter: qos})

    def unsubscribe(self, topic_filter: str) -> None:
        if self.wanted.pop(topic_filter, None) is None:
            return
        self.observer.unsubscribing(self, topic_filter)
        self._unwanted[topic_filter] = 0
        if self.connected:
            self._withdraw(topic_filter)

    def arrive(self) -> None:
        """Connect, and stay connected."""
        if not self.online:
            self.online = True
            self._connect()

    def leave(self) -> None:
        """Say good-bye, and stay away."""
        self.online = False
        self._give_up_move()
        if self._connection is not None:
            self.observer.said_goodbye(self)
            end = self._connection.end
            end.write(_GOODBYE)
            end.marks.append((end.written, self.will_payload()))
            end.close()

    def drop(self) -> None:
        """The connection breaks; the client comes back by itself if it is not to stay away."""
        self._give_up_move()
        if self._connection is not None:
            self._connection.end.abort()

    def roam(self) -> None:
        """It comes back from elsewhere, while its node takes the old connection for alive."""
        self._give_up_move()
        if self._connection is not None:
            self._connection.end.vanish()

    def end_session(self) -> None:
        """Forget everything, so that the broker does too."""
        self.persistent = False
        for topic_filter in list(self.wanted):
            self.unsubscribe(topic_filter)

    # The connection

    def _connect(self) -> None:
        if not self.online or self._connection is not None:
            return
        if not self.gateway:
            self.site = self.balance(self)
        port = self.gateway or self.site
        self._network.connect(self.host, port, self._made_connection, self._retry)

    def _retry(self) -> None:
        self.host.later(_RETRY * (0.5 + self._random.random()), self._connect)

    def _made_connection(self, end: PipeEnd) -> Handler:
        self._connection = self._begin(end, self.site)
        return self._connection

    def _begin(self, end: PipeEnd, site: str, header: bytes = b"") -> _ClientSide:
        """Say CONNECT."""
        self._connects += 1
        connection = _ClientSide(self, end, site, self._will_of(self._connects))
        was, self.site = self.site, site
        will = None
        if self._will_topic is not None:
            payload = connection.will
            self.observer.made(self, payload, self._will_topic, 1, False)
            will_properties: Properties = ()
            if self._will_delay:
                will_properties = ((Property.WILL_DELAY_INTERVAL, self._will_delay),)
                self._delayed.append(payload)
            will = Will(self._will_topic, payload, 1, properties=will_properties)
        properties: Properties = ()
        if self.version == 5 and self.persistent:
            properties = ((Property.SESSION_EXPIRY_INTERVAL, _SESSION_EXPIRY),)
        clean = not self.persistent
        connect = Connect(self.name, self.version, clean, 0, will=will, properties=properties)
        end.write(header + codec.encode(connect, self.version))
        self.site = was

        def overdue() -> None:
            if connection.connack is None and connection in (self._connection, self._next):
                end.abort()

        self.host.later(_CONNACK_TIMEOUT, overdue)
        return connection

    def will_payload(self) -> bytes:
        """Of the connection that it has."""
        return self._connection.will if self._connection is not None else self._will_of(self._connects)

    def lost(self, connection: _ClientSide) -> None:
        if connection is self._next:
            self._next = None
            self._flush()
        if connection is not self._connection:
            return
        if self._next is not None:
            self._go_on_at_next()
            return
        self._connection = None
        if self.connected:
            self.connected = False
            self.observer.disconnected(self)
        self._asked.clear()
        if self.online:
            self._retry()

    # A planned move

    def move(self, site: str) -> None:
        """Connect to another site, and answer at this one until its node ends the connection."""
        if not self.connected or self._next is not None or site == self.site or self.gateway:
            return
        was = self._connection

        def made(end: PipeEnd) -> Handler:
            if not self.connected or self._connection is not was or self._next is not None:
                end.close()
                return _ClientSide(self, end, site, b"")
            self._next = self._begin(end, site, self.header(self, site))
            return self._next

        self._network.connect(self.host, site, made, lambda: None)

    def _accepted_at_next(self, connection: _ClientSide, packet: ConnAck) -> None:
        if packet.reason_code:
            connection.end.close()
        elif self.wanted:  # at once, as somebody would who knows nothing of other sites
            self._last_id = self._last_id % 0xFFFF + 1
            connection.asked = {self._last_id: dict(self.wanted)}
            self.observer.asking(self, self.wanted)
            subscriptions = tuple(Subscription(f, qos) for f, qos in self.wanted.items())
            connection.end.write(codec.encode(Subscribe(self._last_id, subscriptions), self.version))

    def _go_on_at_next(self) -> None:
        """The old connection is over, or of no use: the new site has all that the client is to get."""
        old, new, self._next = self._connection, self._next, None
        assert old is not None
        assert new is not None
        if self.connected:
            self.connected = False
            self.observer.moved(self, new.since, old.will)
        self._connection, self.site, self._asked = new, new.site, new.asked
        old.end.abort()
        if new.connack is not None:
            self._welcomed(new.connack)

    def _give_up_move(self) -> None:
        if self._next is not None:
            self._next.end.write(_GOODBYE)
            self._next.end.close()
            self._next = None

    # What its node says

    def packet(self, packet: Packet, connection: _ClientSide) -> None:
        if isinstance(packet, ConnAck):
            connection.connack = packet
        if connection is self._next:
            if isinstance(packet, ConnAck):
                self._accepted_at_next(connection, packet)
                return
            self._go_on_at_next()
        if connection is not self._connection:
            return
        match packet:
            case ConnAck():
                self._welcomed(packet)
            case Publish():
                self._delivered(packet)
            case PubAck():
                self._done(packet.packet_id)
            case PubRec():
                out = self._out.get(packet.packet_id)
                if out is not None:
                    out.released = True
                    self.observer.acknowledged(out.message.payload)
                self._send(PubRel(packet.packet_id))
            case PubComp():
                self._out.pop(packet.packet_id, None)
            case PubRel():
                self._taken.discard(packet.packet_id)
                self._send(PubComp(packet.packet_id))
            case SubAck():
                for topic_filter, qos in self._asked.pop(packet.packet_id, {}).items():
                    if self.wanted.get(topic_filter) == qos:
                        self.observer.granted(self, topic_filter, qos)
            case UnsubAck():
                self._unwanted = {f: n for f, n in self._unwanted.items() if n != packet.packet_id}
            case Disconnect():
                pass
            case _:
                raise AssertionError(f"{packet.type.name} to a client")

    def _will_of(self, number: int) -> bytes:
        return f"{self.name}!{number}".encode()

    def _welcomed(self, packet: ConnAck) -> None:
        if packet.reason_code:
            assert self._connection is not None
            self._connection.end.close()
            return
        self.connected = True
        self.observer.welcomed(self, packet.session_present)
        before, self._delayed = self._delayed[:-1], self._delayed[-1:]
        if packet.session_present:
            for payload in before:
                self.observer.will_cancelled(payload)
        else:
            self._taken.clear()
            # At another site of a mesh what it sends again is known there.
            moved = self.site != self._was
            self._out = {i: out for i, out in self._out.items() if out.message.qos == 1 or moved}
        self._was = self.site
        for packet_id, out in self._out.items():
            if out.released:
                self._send(PubRel(packet_id))
            else:
                self.observer.resent(out.message.payload)
                self._publish_now(out.message, packet_id, dup=True)
        if self.wanted:
            self._ask(dict(self.wanted))
        for topic_filter in self._unwanted:
            self._withdraw(topic_filter)
        self._flush()

    def _ask(self, filters: dict[str, int]) -> None:
        self._last_id = self._last_id % 0xFFFF + 1
        self._asked[self._last_id] = filters
        self.observer.asking(self, filters)
        self._send(Subscribe(self._last_id, tuple(Subscription(f, qos) for f, qos in filters.items())))

    def _withdraw(self, topic_filter: str) -> None:
        self._last_id = self._unwanted[topic_filter] = self._last_id % 0xFFFF + 1
        self._send(Unsubscribe(self._last_id, (topic_filter,)))

    def _flush(self) -> None:
        while self._waiting and self.connected and self._next is None:
            message = self._waiting.popleft()
            packet_id = 0
            if message.qos:
                self._last_id = packet_id = self._last_id % 0xFFFF + 1
                self._out[packet_id] = _Out(message)
            self._publish_now(message, packet_id, dup=False)

    def _publish_now(self, message: Publish, packet_id: int, dup: bool) -> None:
        packet = Publish(message.topic, message.payload, message.qos, message.retain, dup, packet_id)
        if self._equal and message.payload and not message.retain:
            said: Properties = ((Property.USER_PROPERTY, (_IDENTITY, message.payload.decode())),)
            packet = replace(packet, payload=_EQUAL, properties=said)
        self.observer.sent(self, message.payload)
        self._send(packet)
        if self._connection is not None:
            end = self._connection.end
            end.marks.append((end.written, message.payload))

    def _done(self, packet_id: int) -> None:
        out = self._out.pop(packet_id, None)
        if out is not None:
            self.observer.acknowledged(out.message.payload)

    def _delivered(self, packet: Publish) -> None:
        if packet.qos == 2:
            self._send(PubRec(packet.packet_id))
            if packet.packet_id in self._taken:
                return
            self._taken.add(packet.packet_id)
        elif packet.qos == 1:
            self._send(PubAck(packet.packet_id))
        self.observer.delivered(self, replace(packet, payload=identity(packet)))

    def _send(self, packet: Packet) -> None:
        if self._connection is not None:
            self._connection.end.write(codec.encode(packet, self.version))


class _ClientSide:
    def __init__(self, client: ModelClient, end: PipeEnd, site: str, will: bytes) -> None:
        self.end = end
        self.site = site
        self.will = will
        self.since = client.host.world.now
        self.connack: ConnAck | None = None
        self.asked: dict[int, dict[str, int]] = {}
        """What it asked for while it moved there."""
        self._client = client
        self._scanner = Scanner(_ALL_TYPES, 1 << 20)

    def received(self, data: bytes) -> None:
        _, items = self._scanner.feed(data)
        for item in items:
            assert isinstance(item, Frame)
            if not self.end.closed:
                self._client.packet(codec.decode(item.data, self._client.version), self)
        assert self._scanner.error is None, f"{self._client.name} was sent rubbish: {self._scanner.error}"

    def lost(self) -> None:
        self._client.lost(self)

    def writable_again(self) -> None: ...
