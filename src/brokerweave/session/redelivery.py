"""Sends a client what it missed while the stream from its broker is held.

Owns the queues that wait at hold points, the packet ids under which the node itself delivers, and the
exchanges that belong to them. Invariants: a queue goes out when its hold point is the first one, so after
everything before it and before everything behind it; no id is in flight from the broker; no more is in flight
than the client takes (Receive Maximum, Maximum Packet Size, and `limit` bytes); the stream continues when the
client has released every id; what the client did not answer is never reported as received. Must not know:
where a queue comes from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from brokerweave.errors import LocalProtocolError
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    Connect,
    PacketType,
    PingReq,
    PingResp,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    Subscribe,
)
from brokerweave.mqtt.properties import Property, get_int, without
from brokerweave.mqtt.scanner import Frame
from brokerweave.mqtt.stamp import Stamps
from brokerweave.session.deliveries import Deliveries, Delivery, name_of, read_answer
from brokerweave.session.hold_points import HoldPoint, HoldPoints

if TYPE_CHECKING:
    from brokerweave.session.pair import Pair

_OVERTAKES = frozenset(
    {PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP, PacketType.PINGRESP}
)
"""These are not held: a client that waits for them might wait for long, or for ever."""
_PINGREQ = codec.encode(PingReq(), 4)
_PINGRESP = codec.encode(PingResp(), 4)
_AT_ONCE = 20
"""Publications in flight to a 3.1.1 client, which cannot say how many it takes."""
_MOST = 0xFFFF
_REFUSED = 0x80
_QOS_2 = 0x04
_DUP = 0x08


class RedeliveryHost(Protocol):
    @property
    def stamps(self) -> Stamps:
        """Those of the node's deployment."""

    def keeps(self, topic: bytes) -> bool:
        """Whether somebody may keep what was published on a topic."""

    def swallows(self, pair: Pair, name: bytes, must_see: bool) -> bool:
        """Whether the client has what its broker is delivering, or gets it from the node. `must_see`: for
        the sake of MQTT it has to pass all the same."""

    def received(self, pair: Pair, names: list[bytes], more: bool) -> None:
        """The client has these publications, by their names (`deliveries.name_of`). `more`: as soon as
        this is said it gets others in their place."""

    def write_client(self, pair: Pair, data: bytes) -> None:
        """Send the client a packet of our own, between two of the broker's."""

    def write_broker(self, pair: Pair, data: bytes) -> None:
        """Send the broker a packet of our own, between two of the client's."""

    def count(self, counter: str, amount: int = 1) -> None: ...


class Queue:
    """Publications in their order, for one place in the stream."""

    __slots__ = ("done", "left")

    def __init__(
        self, publishes: list[Publish], done: Callable[[], None], stamps: Sequence[bytes] | None = None
    ) -> None:
        """`stamps`: those under which their receipts are told, one for each publication."""
        self.left = deque(zip(publishes, stamps or [b""] * len(publishes), strict=True))
        self.done = done


class Redelivery:
    __slots__ = (
        "_advancing",
        "_answered",
        "_answers",
        "_asked",
        "_asking",
        "_bytes",
        "_deliveries",
        "_hold_points",
        "_host",
        "_in_flight",
        "_largest",
        "_last_id",
        "_limit",
        "_most",
        "_pair",
        "_pings",
        "_stop",
        "_swallowed",
        "_swallowed_ids",
        "_version",
        "behind",
        "busy",
        "for_broker",
    )

    def __init__(self, host: RedeliveryHost, pair: Pair, hold_points: HoldPoints, limit: int) -> None:
        """`limit`: bytes in flight, and of the topics behind the broker's aliases."""
        self._host = host
        self._pair = pair
        self._hold_points = hold_points
        self._deliveries = Deliveries(limit)
        self._limit = limit
        self._version = 4
        self._most = _AT_ONCE
        self._largest = 0
        self._in_flight: dict[int, tuple[bytes | None, int]] = {}
        self._bytes = 0
        self._last_id = 0
        self._answers: list[bytes] = []
        self._advancing = False
        self._stop: HoldPoint | None = None
        """Where the stream ends for the time being."""
        self._swallowed = False
        self.busy = False
        """While the pair acts on a chunk from the broker: its bytes go first."""
        self.behind: HoldPoint | None = None
        """The hold point behind the frame that the pair acts on."""
        self._swallowed_ids: set[int] = set()
        self.for_broker: list[bytes] = []
        """Answers in the client's stead, for whoever writes to the broker."""
        self._pings = 0
        """Answers of the broker that are for the node: the client did not ask, or has its answer."""
        self._asked = self._answered = 0
        """PINGREQs to the broker, whoever asked, and its answers."""
        self._asking: list[tuple[int, Callable[[], object]]] = []

    def begin(self, connect: Connect) -> None:
        """What the client can take."""
        self._deliveries.version = connect.version
        self._version = connect.version
        if connect.version == 5:
            self._most = get_int(connect.properties, Property.RECEIVE_MAXIMUM, _MOST)
            self._largest = get_int(connect.properties, Property.MAXIMUM_PACKET_SIZE, 0)

    def hold_behind(self) -> HoldPoint:
        if not self.busy:
            raise LocalProtocolError("the stream is held behind a CONNACK or SUBACK while that is acted on")
        if self.behind is None:
            self.behind = HoldPoint()
        return self.behind

    def send(self, queue: Queue, hold_point: HoldPoint | None) -> None:
        """At `hold_point`; without it, behind what came so far."""
        if hold_point is None:
            if self.busy:
                hold_point = self.hold_behind()
            else:
                hold_point = HoldPoint()
                self._hold_points.add(hold_point)
        if hold_point.queue is not None or hold_point.over:
            raise LocalProtocolError("a hold point has one queue, and ends when that is through")
        hold_point.queue = queue
        data = self.advance()
        if data:
            self._host.write_client(self._pair, data)

    @property
    def left(self) -> int:
        """Publications that the client was to get and has not answered."""
        unanswered = sum(content is not None for content, _ in self._in_flight.values())
        return unanswered + sum(len(queue.left) for queue in self._hold_points.queues)

    @property
    def in_flight(self) -> int:
        """Publications that were sent to the client, and are not done."""
        return len(self._in_flight) + len(self._deliveries.in_flight)

    @property
    def stopped(self) -> bool:
        return self._stop is not None

    def stop(self) -> None:
        """Nothing new goes to the client until `go_on`; answers do."""
        if self._stop is None:
            self._stop = HoldPoint()
            self._hold_points.add(self._stop)

    def go_on(self) -> bytes:
        """What of the stream goes to the client now."""
        stop, self._stop = self._stop, None
        data = self._hold_points.end_hold(stop) if stop is not None else b""
        return data + self.advance()

    def subscribed(self, packet: Subscribe) -> None:
        self._deliveries.subscribed(packet)

    def advance(self) -> bytes:
        """What goes to the client now: answers, more of the queue that is due, the stream behind it. The
        host is told what the client has."""
        if self.busy or self._advancing:
            return b""
        parts, self._answers = self._answers, []
        answers = len(parts)
        self._advancing = True  # `done` may ask for more
        self._note_written()
        while (
            self._stop is None
            and (hold_point := self._hold_points.first) is not None
            and (queue := hold_point.queue) is not None
        ):
            self._fill(queue, parts)
            if queue.left or self._in_flight:
                break
            hold_point.queue = None
            parts.append(self._hold_points.end_hold(hold_point))
            self._note_written()
            queue.done()
        self._advancing = False
        if self._deliveries.received:
            self._host.received(self._pair, self._deliveries.take(), more=len(parts) > answers)
        return b"".join(parts)

    def _note_written(self) -> None:
        if self._hold_points.delivered:
            self._deliveries.written(self._hold_points.delivered)
            self._hold_points.delivered = []

    def after_client(self) -> bytes:
        """A chunk of the client's may have made room for more. Returns what the broker should hear: that the
        client is alive, where it spoke with the node alone [MQTT-3.1.2-22]."""
        data = self.advance()
        if data:
            self._host.write_client(self._pair, data)
        swallowed, self._swallowed = self._swallowed, False
        if not swallowed or self._pair.leaving or (self._pings and not self._pair.wants_broker_pause):
            return b""
        return self._ping()

    def _ping(self) -> bytes:
        self._pings += 1
        self._asked += 1
        return _PINGREQ

    def ask_broker(self, done: Callable[[], object]) -> None:
        ping = self._ping()
        self._asking.append((self._asked, done))
        self._host.write_broker(self._pair, ping)

    def _broker_answered(self) -> None:
        self._answered += 1
        while self._asking and self._asking[0][0] <= self._answered:
            self._asking.pop(0)[1]()

    def _fill(self, queue: Queue, parts: list[bytes]) -> None:
        while queue.left:
            publish, stamp = queue.left[0]
            if publish.qos and not self._room:
                break
            queue.left.popleft()
            content = name_of(publish.topic, publish.payload, stamp)
            packet_id = self._free_id() if publish.qos else 0
            frame = self._frame(publish, packet_id)
            if self._largest and len(frame) > self._largest:
                self._host.count("redelivery_too_large", 1)
                self._deliveries.received.append(content)  # as if it had been sent [MQTT-3.1.2-25]
                continue
            parts.append(frame)
            if publish.qos:
                self._in_flight[packet_id] = content, len(frame)
                self._bytes += len(frame)
            else:
                self._deliveries.received.append(content)

    @property
    def _room(self) -> bool:
        """Whether one more may be in flight. What the broker has in flight counts, too [MQTT-3.3.4-9]."""
        own, others = len(self._in_flight), len(self._deliveries.in_flight)
        if own + others >= _MOST or (own and self._bytes >= self._limit):
            return False
        return own + (others if self._version == 5 else 0) < self._most

    def _free_id(self) -> int:
        """From the highest down: brokers count up, also those that will go on with an earlier session."""
        while True:
            self._last_id = (self._last_id or _MOST + 1) - 1
            taken = self._last_id in self._in_flight or self._last_id in self._deliveries.in_flight
            if self._last_id and not taken:
                return self._last_id

    def _frame(self, publish: Publish, packet_id: int) -> bytes:
        properties = without(publish.properties, Property.TOPIC_ALIAS) if self._version == 5 else ()
        retain = publish.retain and self._deliveries.as_published
        sent = replace(publish, packet_id=packet_id, dup=False, retain=retain, properties=properties)
        return codec.encode(sent, self._version)

    # What the two sides say

    def unstamped(self, frame: Frame) -> tuple[Frame, bytes | None]:
        """A PUBLISH as clients see it, and what its stamp said."""
        if self._version < 5:
            return frame, None
        data, stamped = self._host.stamps.take_off(frame.data)
        return (frame if stamped is None else Frame(frame.type, data, frame.at)), stamped

    def from_broker(self, frame: Frame, stamped: bytes | None) -> bytes | None:
        """Note what the broker delivers; returns what goes to the client at once. None: it may be held."""
        kind = frame.type
        if kind == PacketType.PUBLISH:
            record = self._pair.record
            filters = record.filters if record is not None else {}
            delivery = self._deliveries.read(frame.data, filters, self._host.keeps, stamped)
            if self._swallows(frame, delivery):
                return b""
            if not self._hold_points.delivers(delivery):
                self._deliveries.written((delivery,))
            return None
        if kind == PacketType.PINGRESP:
            self._broker_answered()
            if self._pings:
                self._pings -= 1
                return b""
        if kind == PacketType.PUBREL:
            packet_id, _ = read_answer(frame.data, self._version)
            if packet_id in self._in_flight:
                return None
            if packet_id in self._swallowed_ids:
                self._swallowed_ids.discard(packet_id)
                self.for_broker.append(codec.encode(PubComp(packet_id), self._version))
                return b""
            self._deliveries.released(packet_id)
        return frame.data if self._hold_points and kind in _OVERTAKES else None

    def refused(self, frame: Frame, stamped: bytes | None) -> None:
        """The client does not get this delivery of the broker's: a listener rejected it. Nobody keeps it."""
        _, content = self._deliveries.read(frame.data, stamped=stamped)
        if content is not None:
            self._deliveries.received.append(content)

    def _swallows(self, frame: Frame, delivery: Delivery) -> bool:
        """Whether the client does not get what the broker delivers: then it is answered here."""
        packet_id, content = delivery
        if content is None:
            return False
        must_see = self._goes_on_with(frame, packet_id) or self._deliveries.names_topic(frame.data)
        if not self._host.swallows(self._pair, content, must_see):
            return False
        self._host.count("deliveries_suppressed")
        self._answer_for_client(frame, packet_id)
        return True

    def _goes_on_with(self, frame: Frame, packet_id: int) -> bool:
        """Whether the broker repeats a QoS 2 delivery that the client may have begun to answer."""
        record = self._pair.record
        again = frame.data[0] & _DUP and frame.data[0] & _QOS_2
        return bool(again) and (record is None or record.shown is None or packet_id in record.shown)

    @property
    def shown(self) -> frozenset[int]:
        """Packet ids of the broker's deliveries that went to the client, and are not done."""
        return frozenset(self._deliveries.in_flight)

    def _answer_for_client(self, frame: Frame, packet_id: int) -> None:
        if packet_id and frame.data[0] & _QOS_2:
            self._swallowed_ids.add(packet_id)
            self.for_broker.append(codec.encode(PubRec(packet_id), self._version))
        elif packet_id:
            self.for_broker.append(codec.encode(PubAck(packet_id), self._version))

    def from_client(self, frame: Frame) -> bool:
        """The client answered a PUBLISH or PUBREL. False: it was the node's, so not for the broker.

        It may also ask whether anybody is there, while the broker's answer would not be read.
        """
        if frame.type == PacketType.PINGREQ:
            self._asked += 1
            if self._pair.wants_broker_pause:
                self._answers.append(_PINGRESP)
                self._pings += 1
            return True
        packet_id, reason_code = read_answer(frame.data, self._version)
        if packet_id not in self._in_flight:
            self._deliveries.answered(frame.type, packet_id, reason_code)
            return True
        self._swallowed = True
        content, size = self._in_flight[packet_id]
        if content is not None:
            self._deliveries.received.append(content)
        if frame.type == PacketType.PUBREC and reason_code < _REFUSED:
            self._in_flight[packet_id] = None, size
            self._answers.append(codec.encode(PubRel(packet_id), self._version))
        else:
            del self._in_flight[packet_id]
            self._bytes -= size
        return False
