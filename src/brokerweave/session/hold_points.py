"""Hold points in the stream to a client, and acknowledgements that wait.

Owns the bytes of a broker that are held until the node releases them. Invariants: bytes keep their order;
acknowledgements keep theirs among each other [MQTT-4.6.0-2]; `size` counts everything that is held. Must not
know: why something is held, time.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from brokerweave.mqtt.packets import PacketType

if TYPE_CHECKING:
    from brokerweave.session.deliveries import Delivery
    from brokerweave.session.redelivery import Queue


class HoldPoint:
    """A place at which the stream is held, and what came behind it."""

    __slots__ = ("behind", "deliveries", "over", "parts", "queue")

    def __init__(self) -> None:
        self.over = False
        self.parts: list[bytes] = []
        self.deliveries: list[Delivery] = []
        """What `parts` deliver, where that counts."""
        self.behind: list[Delivery] = []
        """The same of all that came since, behind later hold points, too."""
        self.queue: Queue | None = None
        """What goes to the client in this place before the stream goes on."""


class HoldPoints:
    def __init__(self) -> None:
        self.size = 0
        self.delivered: list[Delivery] = []
        """What was held and is released now, where that counts."""
        self._points: deque[HoldPoint] = deque()

    def __bool__(self) -> bool:
        return bool(self._points)

    @property
    def first(self) -> HoldPoint | None:
        """The first hold point: everything before it was sent."""
        return self._points[0] if self._points else None

    @property
    def queues(self) -> list[Queue]:
        return [hold_point.queue for hold_point in self._points if hold_point.queue is not None]

    def add(self, hold_point: HoldPoint) -> None:
        """Everything passed from now on stays behind this one, unless it is over already."""
        if not hold_point.over:
            self._points.append(hold_point)

    def delivers(self, delivery: Delivery) -> bool:
        """Keep what the next bytes deliver with them; False if they are not held."""
        if self._points:
            self._points[-1].deliveries.append(delivery)
        for hold_point in self._points:
            hold_point.behind.append(delivery)
        return bool(self._points)

    def through(self, data: bytes) -> bytes:
        """What of `data` may go to the client now: all of it, or nothing."""
        if not self._points:
            return data
        self._points[-1].parts.append(data)
        self.size += len(data)
        return b""

    def end_hold(self, hold_point: HoldPoint) -> bytes:
        """This hold point ends; returns what may go to the client now."""
        hold_point.over = True
        parts: list[bytes] = []
        while self._points and self._points[0].over:
            gone = self._points.popleft()
            parts += gone.parts
            self.delivered += gone.deliveries
        data = b"".join(parts)
        self.size -= len(data)
        return data


class HeldAck:
    __slots__ = ("done", "frame", "resent")

    def __init__(self, frame: bytes, resent: bool = False) -> None:
        self.done = False
        self.frame = frame
        self.resent = resent
        """Of a publication that the broker does not get: it was acted on before."""


class HeldAcks:
    """PUBACKs and PUBRECs that wait until the cluster has the publication too."""

    def __init__(self) -> None:
        self._acks: deque[HeldAck] = deque()

    def __bool__(self) -> bool:
        return bool(self._acks)

    @property
    def pubacks(self) -> int:
        return sum(ack.frame[0] >> 4 == PacketType.PUBACK for ack in self._acks)

    def hold(self, frame: bytes, resent: bool = False) -> HeldAck:
        ack = HeldAck(frame, resent)
        self._acks.append(ack)
        return ack

    def release(self, ack: HeldAck) -> bytes:
        """This one is done; returns those that may go to the client now, in order."""
        ack.done = True
        frames = []
        while self._acks and self._acks[0].done:
            frames.append(self._acks.popleft().frame)
        return b"".join(frames)
