"""A broker that is only a state machine, and a wire between it and an injector that can be cut anywhere.

It keeps QoS 2 identifiers per session as MQTT asks, delivers a message when its PUBLISH arrives, and can be
told which messages it refuses or dies over. What the injector does wrong (identifiers in use, too much in
flight, bytes before CONNACK) fails an assertion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from brokerweave.links.dead_letters import DeadLetters
from brokerweave.links.injector import BrokerAbilities, Injector, InjectorState
from brokerweave.links.outbox import Outbox
from brokerweave.links.run import Run
from brokerweave.mqtt import codec
from brokerweave.mqtt.frames import Frame, Scanner
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
)
from brokerweave.mqtt.properties import Properties


def no(_: Publish) -> bool:
    return False


@dataclass
class ModelBroker:
    versions: tuple[int, ...] = (4, 5)
    persistent: bool = True
    properties: Properties = ()
    window: int = 100
    deadly: Callable[[Publish], bool] = no
    refused: Callable[[Publish], bool] = no
    silent: bool = False
    """Reads, and answers nothing but CONNECT."""
    mute: Callable[[Publish], bool] = no
    """Never acknowledges these."""
    taken: list[Publish] = field(default_factory=list)
    arrived: list[Publish] = field(default_factory=list)
    connects: list[Connect] = field(default_factory=list)
    deaths: int = 0
    has_session: bool = False
    unreleased: set[int] = field(default_factory=set)
    stays: bool = False
    version: int = 0
    closed: bool = True
    _scanner: Scanner = field(default_factory=lambda: Scanner(0xFFFE, 1 << 20))
    _unanswered: set[int] = field(default_factory=set)

    def open(self) -> None:
        self.closed = False
        self.version = 0
        self._unanswered = set()
        self._scanner = Scanner(0xFFFE, 1 << 20)

    def close(self) -> None:
        self.closed = True
        if not self.stays:
            self.forget()

    def forget(self) -> None:
        """As after a restart without a disk."""
        self.has_session = False
        self.unreleased = set()

    def feed(self, data: bytes) -> bytes:
        answers = b""
        _, items = self._scanner.feed(data)
        assert self._scanner.error is None
        for item in items:
            assert isinstance(item, Frame)
            if not self.closed:
                packet = codec.decode(item.data, self.version)
                answers += b"".join(codec.encode(p, self.version) for p in self._answer(packet))
        return answers

    def _answer(self, packet: Packet) -> list[Packet]:
        match packet:
            case Connect():
                return self._connect(packet)
            case Publish():
                assert self.version, "PUBLISH before CONNACK"
                return [] if self._publish_kills(packet) else self._publish(packet)
            case PubRel():
                self.unreleased.discard(packet.packet_id)
                self._unanswered.discard(packet.packet_id)
                return [] if self.silent else [PubComp(packet.packet_id)]
            case PingReq():
                return [] if self.silent else [PingResp()]
            case Disconnect():
                self.close()
                return []
        raise AssertionError(f"a publisher sent {packet}")

    def _connect(self, packet: Connect) -> list[Packet]:
        self.connects.append(packet)
        self.version = packet.version
        if packet.version not in self.versions:
            self.version = 4
            self.closed = True
            return [ConnAck(0x01)]
        if packet.clean_start or not self.persistent:
            self.forget()
        present, self.has_session = self.has_session, True
        self.stays = self.persistent and (packet.version == 5 or not packet.clean_start)
        return [ConnAck(0, present, self.properties if packet.version == 5 else ())]

    def _publish_kills(self, packet: Publish) -> bool:
        self.arrived.append(packet)
        if self.deadly(packet):
            self.deaths += 1
            self.close()
        return self.closed

    def _publish(self, packet: Publish) -> list[Packet]:
        if packet.qos == 0:
            self.taken.append(packet)
            return []
        assert packet.packet_id not in self._unanswered, "a packet identifier is used twice"
        self._unanswered.add(packet.packet_id)
        assert len(self._unanswered) <= self.window, "more in flight than the window"
        if self.silent or self.mute(packet):
            return []
        if packet.qos == 1:
            self._unanswered.discard(packet.packet_id)
            if self.refused(packet):
                return [PubAck(packet.packet_id, 0x87)]
            self.taken.append(packet)
            return [PubAck(packet.packet_id)]
        if self.refused(packet):
            self._unanswered.discard(packet.packet_id)
            return [PubRec(packet.packet_id, 0x87)]
        if packet.packet_id not in self.unreleased:
            self.unreleased.add(packet.packet_id)
            self.taken.append(packet)
        else:
            assert packet.dup, "a new message under an identifier that the broker still knows"
        return [PubRec(packet.packet_id)]

    def payloads(self) -> list[bytes]:
        return [p.payload for p in self.taken]


class World:
    """An injector, a broker, the wire between them and a clock."""

    def __init__(
        self,
        broker: ModelBroker | None = None,
        abilities: BrokerAbilities | None = None,
        outbox: Outbox | None = None,
    ) -> None:
        self.broker = broker or ModelBroker()
        self.dead = DeadLetters()
        self.outbox = outbox or Outbox(1)
        self.injector = Injector("injector", abilities or BrokerAbilities(), self.outbox, self.dead)
        self.now = 1000.0
        self.up = False
        self.to_broker = b""
        self.to_injector = b""
        self._first = 1

    def submit(self, *packets: Publish, version: int = 4, cap: int = 2, age: float = 0.0) -> Run:
        run = make_run(packets, version, cap, self.now - age, self._first)
        self._first += len(packets)
        assert self.injector.submit(run)
        return run

    def connect(self) -> None:
        self.broker.open()
        self.up = True
        self.to_broker = self.injector.connected(self.now)
        self.to_injector = b""

    def cut(self) -> None:
        """The connection is gone, with all that is on the wire."""
        self.broker.close()
        self.up = False
        self.injector.disconnected(self.now)

    def write(self) -> None:
        self.to_broker += self.injector.poll(self.now)

    def carry(self, to_broker: int | None = None, to_injector: int | None = None) -> None:
        """Move that many bytes along the wire, by default all."""
        data, self.to_broker = _cut(self.to_broker, to_broker)
        self.to_injector += self.broker.feed(data)
        data, self.to_injector = _cut(self.to_injector, to_injector)
        if data:
            self.injector.receive(data, self.now)

    def turn(self) -> None:
        """One exchange; a connection that either side ended is closed on the other."""
        self.write()
        self.carry()
        if self.broker.closed or self.injector.wants_reconnect:
            self.cut()

    def settle(self, limit: int = 5_000) -> None:
        """Go on, reconnecting, until nothing is owed and the wire is quiet."""
        for _ in range(limit):
            if not self.up:
                self.connect()
            self.turn()
            quiet = not self.to_broker and not self.to_injector and self.up
            if self.injector.idle and quiet and self.injector.state is InjectorState.READY:
                return
            self.now += 0.001
        raise AssertionError(f"still owed: {self.outbox.backlog_runs} runs; {self.injector.reason}")

    def pass_time(self, seconds: int) -> None:
        """Second by second, as a caller would tick; the broker answers unless it is told not to."""
        for _ in range(seconds):
            self.now += 1
            self.injector.tick(self.now)
            if self.injector.wants_reconnect:
                return
            self.write()
            self.carry()


def make_run(
    packets: tuple[Publish, ...], version: int = 4, cap: int = 2, born: float = 1000.0, first: int = 1
) -> Run:
    blob = b"".join(codec.encode(p, version) for p in packets)
    return Run("elsewhere", 1, first, len(packets), version, max(p.qos for p in packets), cap, born, blob)


def message(payload: bytes | str, qos: int = 0, topic: str = "t", properties: Properties = ()) -> Publish:
    body = payload if isinstance(payload, bytes) else payload.encode()
    return Publish(topic, body, qos, packet_id=7 if qos else 0, properties=properties)


def _cut(data: bytes, size: int | None) -> tuple[bytes, bytes]:
    return (data, b"") if size is None else (data[:size], data[size:])
