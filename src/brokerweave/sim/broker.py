"""A model broker: MQTT 3.1.1 and 5 as far as nodes, their clients and their injectors use it.

Owns sessions (clean and persistent, QoS 0, 1 and 2 both ways), retained messages, wills, takeover. It queues
without limit for persistent sessions, acknowledges at once, and delivers a message once to each session, at
the highest QoS of the filters that match. Invariant: a death with state keeps exactly what was acknowledged.
Must not know: nodes, links.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
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
    UnsubAck,
    Unsubscribe,
    Will,
)
from brokerweave.mqtt.properties import Properties, Property, get_int
from brokerweave.mqtt.scanner import Frame, Scanner
from brokerweave.mqtt.topics import matches
from brokerweave.session.record import expiry_of
from brokerweave.sim.pipes import Handler, PipeEnd
from brokerweave.sim.world import ScheduledEvent, VirtualHost

_ALL_TYPES = 0xFFFE
_MAX_PACKET = 1 << 20
_IN_FLIGHT = 20
"""QoS 1 and 2 messages on their way to one client; the rest waits."""


@dataclass(slots=True)
class ModelSession:
    client_id: str
    persistent: bool
    filters: dict[str, int] = field(default_factory=dict)
    queue: deque[Publish] = field(default_factory=deque)
    sent: dict[int, Publish | None] = field(default_factory=dict)
    """Packet id -> the message, None once its PUBREC came."""
    taken: set[int] = field(default_factory=set)
    """QoS 2 packet ids taken and not yet released."""
    connection: ModelConnection | None = None
    last_id: int = 0
    will: tuple[ScheduledEvent, Will] | None = None
    """It waits for its delay."""


class ModelConnection:
    """One client's connection at the broker."""

    def __init__(self, broker: ModelBroker, end: PipeEnd) -> None:
        self.broker = broker
        self.end = end
        self.version = 4
        self.session: ModelSession | None = None
        self.will: Will | None = None
        self._scanner = Scanner(_ALL_TYPES, _MAX_PACKET)

    def received(self, data: bytes) -> None:
        _, items = self._scanner.feed(data)
        for item in items:
            assert isinstance(item, Frame)
            if self.end.closed:
                return
            packet = codec.decode(item.data, self._scanner.version or self.version)
            self.broker.packet(self, packet)
        if self._scanner.error is not None:
            self.end.close()

    def lost(self) -> None:
        self.broker.gone(self)

    def writable_again(self) -> None: ...

    def send(self, *packets: Packet) -> None:
        self.end.write(b"".join([codec.encode(packet, self.version) for packet in packets]))


class ModelBroker:
    def __init__(
        self,
        host: VirtualHost,
        took: Callable[[str, Publish], None] = lambda client, message: None,
        passed_on: Callable[[str, Publish], None] = lambda client, message: None,
        session_over: Callable[[str], None] = lambda client: None,
    ) -> None:
        """`took` hears of each publication taken (by whom), `passed_on` of each session it was given to."""
        self.host = host
        self.sessions: dict[str, ModelSession] = {}
        self.retained: dict[str, Publish] = {}
        self._took = took
        self._passed_on = passed_on
        self._session_over = session_over

    def retained_payloads(self) -> dict[str, bytes] | None:
        return {topic: m.payload for topic, m in self.retained.items()} if self.host.up else None

    def accept(self, end: PipeEnd) -> Handler:
        return ModelConnection(self, end)

    def die(self, keep_state: bool) -> None:
        self.host.die()
        if not keep_state:
            self.retained.clear()
            for session in self.sessions.values():
                session.persistent = False
        for session in list(self.sessions.values()):
            session.connection = session.will = None
            if not session.persistent:
                self._end(session)

    # What connections bring

    def packet(self, connection: ModelConnection, packet: Packet) -> None:
        session = connection.session
        if isinstance(packet, Connect):
            self._connect(connection, packet)
            return
        assert session is not None, f"{packet.type.name} before CONNECT"
        match packet:
            case Publish():
                self._publish(connection, session, packet)
            case PubAck():
                session.sent.pop(packet.packet_id, None)
            case PubRec():
                if packet.packet_id in session.sent:
                    session.sent[packet.packet_id] = None
                connection.send(PubRel(packet.packet_id))
            case PubRel():
                session.taken.discard(packet.packet_id)
                connection.send(PubComp(packet.packet_id))
            case PubComp():
                session.sent.pop(packet.packet_id, None)
            case Subscribe():
                self._subscribe(connection, session, packet)
            case Unsubscribe():
                for topic_filter in packet.topic_filters:
                    session.filters.pop(topic_filter, None)
                codes = (0,) * len(packet.topic_filters) if connection.version == 5 else ()
                connection.send(UnsubAck(packet.packet_id, codes))
            case PingReq():
                connection.send(PingResp())
            case Disconnect():
                if packet.reason_code == 0:
                    connection.will = None
                if get_int(packet.properties, Property.SESSION_EXPIRY_INTERVAL, -1) == 0:
                    session.persistent = False
                connection.end.close()
        self._pump(session)

    def gone(self, connection: ModelConnection) -> None:
        session = connection.session
        if session is None or session.connection is not connection:
            return
        session.connection = None
        self._send_will(connection)
        if not session.persistent:
            self._end(session)

    def _connect(self, connection: ModelConnection, packet: Connect) -> None:
        connection.version = packet.version
        old = self.sessions.get(packet.client_id)
        if old is not None and old.connection is not None:  # [MQTT-3.1.4-2]
            before, old.connection = old.connection, None
            self._send_will(before)
            before.end.close()
        if old is not None and (packet.clean_start or not old.persistent):
            self._end(old)
            old = None
        session = old or ModelSession(packet.client_id, False)
        if session.will is not None:  # [MQTT-3.1.3-9]
            session.will[0].cancel()
            session.will = None
        session.persistent = expiry_of(packet, 1.0) > 0
        self.sessions[packet.client_id] = session
        session.connection = connection
        connection.session = session
        connection.will = packet.will
        connection.send(ConnAck(0, old is not None))
        for packet_id, message in session.sent.items():  # [MQTT-4.4.0-1]
            connection.send(PubRel(packet_id) if message is None else replace(message, dup=True))

    def _end(self, session: ModelSession) -> None:
        del self.sessions[session.client_id]
        if session.will is not None:
            session.will[0].cancel()
            self._publish_will(session, session.will[1])
        self._session_over(session.client_id)

    def _publish(self, connection: ModelConnection, session: ModelSession, packet: Publish) -> None:
        if packet.qos == 2:
            new = packet.packet_id not in session.taken
            session.taken.add(packet.packet_id)
            connection.send(PubRec(packet.packet_id))
            if not new:
                return
        elif packet.qos == 1:
            connection.send(PubAck(packet.packet_id))
        self._took(session.client_id, packet)
        self.route(packet)

    def _send_will(self, connection: ModelConnection) -> None:
        will, connection.will = connection.will, None
        session = connection.session
        if will is None or session is None:
            return
        delay = get_int(will.properties, Property.WILL_DELAY_INTERVAL, 0)
        if delay and session.persistent:
            session.will = self.host.later(delay, lambda: self._publish_will(session, will)), will
        else:
            self._publish_will(session, will)

    def _publish_will(self, session: ModelSession, will: Will) -> None:
        session.will = None
        message = Publish(will.topic, will.payload, will.qos, will.retain)
        self._took(session.client_id, message)
        self.route(message)

    # What goes out

    def route(self, message: Publish) -> None:
        if message.retain:
            if message.payload:
                self.retained[message.topic] = message
            else:
                self.retained.pop(message.topic, None)
        for session in list(self.sessions.values()):
            granted = [qos for f, qos in session.filters.items() if matches(f, message.topic)]
            if granted:
                self._give(session, message, min(max(granted), message.qos), retain=False)

    def _give(self, session: ModelSession, message: Publish, qos: int, retain: bool) -> None:
        if session.connection is None and qos == 0:
            return
        given = Publish(message.topic, message.payload, qos, retain, properties=_user(message.properties))
        if not retain:
            self._passed_on(session.client_id, given)
        session.queue.append(given)
        self._pump(session)

    def _pump(self, session: ModelSession) -> None:
        connection = session.connection
        if connection is None or connection.end.closed:
            return
        while session.queue and (session.queue[0].qos == 0 or len(session.sent) < _IN_FLIGHT):
            message = session.queue.popleft()
            if message.qos:
                session.last_id = session.last_id % 0xFFFF + 1
                message = replace(message, packet_id=session.last_id)
                session.sent[session.last_id] = message
            connection.send(message)

    def _subscribe(self, connection: ModelConnection, session: ModelSession, packet: Subscribe) -> None:
        known = set(session.filters)
        for subscription in packet.subscriptions:
            session.filters[subscription.topic_filter] = subscription.qos
        connection.send(SubAck(packet.packet_id, tuple(s.qos for s in packet.subscriptions)))
        for subscription in packet.subscriptions:
            handling = subscription.retain_handling  # [MQTT-3.3.1-9] to [MQTT-3.3.1-11]
            if handling == 2 or (handling == 1 and subscription.topic_filter in known):
                continue
            for topic, message in list(self.retained.items()):
                if matches(subscription.topic_filter, topic):
                    qos = min(subscription.qos, message.qos)
                    self._give(session, message, qos, retain=True)


def _user(properties: Properties) -> Properties:
    return tuple(each for each in properties if each[0] is Property.USER_PROPERTY)
