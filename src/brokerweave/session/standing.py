"""The stream to a client, made to stand at a frame, and acknowledgements kept back from it.

Owns what is held of a broker's bytes until the node lets it go on. Invariants: bytes keep their order;
acknowledgements keep theirs among each other [MQTT-4.6.0-2]; nothing is held that is not counted in `size`.
Must not know: why something is held, time.
"""

from __future__ import annotations

from collections import deque


class Stand:
    """A place in the stream where it stands, and what came behind it."""

    __slots__ = ("over", "parts")

    def __init__(self) -> None:
        self.over = False
        self.parts: list[bytes] = []


class Standing:
    def __init__(self) -> None:
        self.size = 0
        self._stands: deque[Stand] = deque()

    def __bool__(self) -> bool:
        return bool(self._stands)

    def add(self, stand: Stand) -> None:
        """Everything passed from now on stays behind this one."""
        self._stands.append(stand)

    def through(self, data: bytes) -> bytes:
        """What of `data` may go to the client now: all of it, or nothing."""
        if not self._stands:
            return data
        self._stands[-1].parts.append(data)
        self.size += len(data)
        return b""

    def go_on(self, stand: Stand) -> bytes:
        """This stand is over; returns what may go to the client now."""
        stand.over = True
        parts: list[bytes] = []
        while self._stands and self._stands[0].over:
            parts += self._stands.popleft().parts
        data = b"".join(parts)
        self.size -= len(data)
        return data


class HeldAck:
    __slots__ = ("done", "frame")

    def __init__(self, frame: bytes) -> None:
        self.done = False
        self.frame = frame


class HeldAcks:
    """PUBACKs and PUBRECs that wait until the cluster has the publication too."""

    def __init__(self) -> None:
        self._acks: deque[HeldAck] = deque()

    def __bool__(self) -> bool:
        return bool(self._acks)

    def hold(self, frame: bytes) -> HeldAck:
        ack = HeldAck(frame)
        self._acks.append(ack)
        return ack

    def release(self, ack: HeldAck) -> bytes:
        """This one is done; returns those that may go to the client now, in order."""
        ack.done = True
        frames = []
        while self._acks and self._acks[0].done:
            frames.append(self._acks.popleft().frame)
        return b"".join(frames)
