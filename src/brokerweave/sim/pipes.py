"""Connections as TCP gives them: ordered bytes, delays, back-pressure, and ends that come unannounced.

Owns the wires between hosts and the connections on them. Invariants: bytes of a connection arrive in order
and once, or not at all; what was written and not yet read is bounded by what writers respect (`writable`). So
loss, repetition and reordering of messages do not happen inside a connection: they come from cuts (bytes in
flight are gone, the two ends notice at different times or, half-open, one never does), from what is sent
again on the next connection, and from several connections side by side. Must not know: what the bytes mean.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from brokerweave.sim.world import START, Mortal, VirtualHost, World

BUFFER = 64 << 10
"""Bytes on the way in one direction before its writer should stop."""
CONNECT_TIMEOUT = 3.0
_SPLIT = 0.05
"""How often a chunk arrives in two pieces."""


class Handler(Protocol):
    """What an end tells its owner, as asyncio's protocols do."""

    def received(self, data: bytes) -> None: ...

    def lost(self) -> None:
        """The connection is over; called once, whoever ended it."""

    def writable_again(self) -> None: ...


@dataclass(slots=True)
class Wire:
    """The way between two hosts; faults change it, and all connections on it feel that."""

    random: Random
    usual: float
    """Seconds that a byte takes when nothing is wrong."""
    delay: float = field(init=False)
    jitter: float = 0.0
    rate: float = 0.0
    """Bytes per second; 0: as fast as you like."""
    blocked: bool = False
    ends: list[PipeEnd] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.delay = self.usual

    def calm(self) -> None:
        self.delay, self.jitter, self.rate = self.usual, 0.0, 0.0

    def latency(self, size: int) -> float:
        wait = self.delay + self.random.random() * self.jitter
        return wait + size / self.rate if self.rate else wait

    def block(self) -> None:
        self.blocked = True

    def heal(self) -> None:
        self.blocked = False
        for end in list(self.ends):
            end.pump()

    def cut(self, half_open: bool = False) -> None:
        """Every connection on it breaks; bytes on the way are gone."""
        for end in list(self.ends):
            if end.first:
                end.cut(half_open)


class PipeEnd(Mortal):
    """One end of a connection. `first` marks the dialing one."""

    def __init__(self, owner: VirtualHost, wire: Wire, first: bool) -> None:
        self.owner = owner
        self.wire = wire
        self.first = first
        self.peer: PipeEnd
        self.handler: Handler | None = None
        self.closed = False
        """Nothing can be written or will be read any more."""
        self.severed = False
        """Whatever is written is gone, but the owner does not know that yet."""
        self.in_flight = 0
        """Bytes written here that the peer has not read."""
        self.written = self.read = 0
        """Bytes so far, each way."""
        self.marks: deque[tuple[int, bytes]] = deque()
        """What the writer wants to be noticed when the peer has read so far: (bytes written, what)."""
        self._coming: deque[tuple[float, bytes | None]] = deque()
        self._last_arrival = START
        self._paused = False
        self._told = False
        owner.ends.append(self)
        wire.ends.append(self)

    @property
    def writable(self) -> bool:
        return self.in_flight < BUFFER

    @property
    def broken(self) -> bool:
        return self.closed or self.severed

    def was_read(self, written: int) -> bool:
        """Whether the peer has read so many bytes."""
        return self.peer.read >= written

    def attach(self, handler: Handler) -> None:
        """From here on somebody reads; the end may have come before that."""
        if self._told:
            handler.lost()
            return
        self.handler = handler
        self.pump()

    def write(self, data: bytes) -> None:
        if self.closed or not data:
            return
        self.written += len(data)
        if len(data) > 2 and self.wire.random.random() < _SPLIT:
            at = self.wire.random.randrange(1, len(data))
            self._send(data[:at])
            data = data[at:]
        self._send(data)

    def reached(self) -> list[bytes]:
        """What the peer marked among the bytes read by now; each once."""
        marks, found = self.peer.marks, []
        while marks and marks[0][0] <= self.read:
            found.append(marks.popleft()[1])
        return found

    def close(self) -> None:
        """What was written still arrives, then the peer hears of the end."""
        if self.closed:
            return
        self.closed = True
        if not self.severed:
            self._send(None)
        self._tell(0.0)

    def abort(self) -> None:
        """What was written and is still on the way is gone."""
        if not self.closed:
            self.peer._drop()
        self.close()

    def vanish(self) -> None:
        """The owner is gone from here, and the peer does not hear of it."""
        self.peer._drop()
        self.severed = self.peer.severed = True
        self.close()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self.owner.world.later(0.0, self.pump)

    def cut(self, half_open: bool) -> None:
        random = self.wire.random
        silent = random.randrange(2) if half_open else -1
        for number, end in enumerate((self, self.peer)):
            end._drop()
            end.severed = True
            if not end.closed and number != silent:
                end.owner.later(random.random() * 0.5, end.close)

    def owner_died(self) -> None:
        self.handler = None
        if not self.closed and not self.severed:
            self.peer._drop()
            self._send(None)
        self.closed = True
        self._leave()

    def _send(self, data: bytes | None) -> None:
        size = len(data) if data is not None else 0
        self.in_flight += size
        if self.severed:
            return
        peer, world = self.peer, self.owner.world
        now = world.now
        arrival = max(peer._last_arrival, now + self.wire.latency(size))
        peer._last_arrival = arrival
        peer._coming.append((arrival, data))
        world.later(arrival - now, peer.pump)

    def pump(self) -> None:
        """Hand out what has arrived, as far as the owner reads."""
        coming = self._coming
        if not coming:
            return
        due = self.owner.world.now + 1e-9
        while coming and coming[0][0] <= due and not self.closed:
            if self.wire.blocked or self._paused or self.owner.frozen:
                return
            _, data = coming.popleft()
            if data is None:
                self.closed = True
                self._tell(0.0)
                return
            self._read(data)

    def _read(self, data: bytes) -> None:
        peer, size = self.peer, len(data)
        full = peer.in_flight >= BUFFER
        peer.in_flight -= size
        self.read += size
        if self.handler is not None:
            self.handler.received(data)
        if full and peer.writable and peer.handler is not None and not peer.closed:
            peer.owner.run(peer.handler.writable_again)

    def _drop(self) -> None:
        """What is on the way here never arrives."""
        self.peer.in_flight = 0
        self._coming.clear()

    def _tell(self, after: float) -> None:
        """The owner hears of the end, once."""

        def tell() -> None:
            if not self._told:
                self._told = True
                handler, self.handler = self.handler, None
                self._leave()
                if handler is not None:
                    handler.lost()

        self.owner.later(after, tell)

    def _leave(self) -> None:
        if self in self.owner.ends:
            self.owner.ends.remove(self)
        if self in self.wire.ends:
            self.wire.ends.remove(self)


Accept = Callable[[PipeEnd], Handler]


class StreamNetwork:
    def __init__(self, world: World, delay: Callable[[str, str], float]) -> None:
        """`delay` gives a wire's one-way delay in seconds, by the names of its two hosts."""
        self.world = world
        self._delay = delay
        self._wires: dict[tuple[str, str], Wire] = {}
        self._listening: dict[str, tuple[VirtualHost, Accept]] = {}

    def wire(self, one: str, other: str) -> Wire:
        key = (one, other) if one < other else (other, one)
        wire = self._wires.get(key)
        if wire is None:
            random = self.world.random(f"wire/{key[0]}/{key[1]}")
            wire = self._wires[key] = Wire(random, self._delay(*key))
        return wire

    def wires(self) -> list[Wire]:
        return list(self._wires.values())

    def listen(self, port: str, host: VirtualHost, accept: Accept) -> None:
        self._listening[port] = (host, accept)

    def connect(
        self, host: VirtualHost, port: str, made: Callable[[PipeEnd], Handler], failed: Callable[[], None]
    ) -> None:
        """Open a connection; exactly one of the two is called, unless the host dies meanwhile."""
        target, accept = self._listening[port]
        wire = self.wire(host.name, target.name)

        def arrive() -> None:
            if wire.blocked:
                host.later(CONNECT_TIMEOUT, failed)
                return
            if not target.up:
                host.later(wire.latency(0), failed)
                return
            near, far = PipeEnd(host, wire, first=True), PipeEnd(target, wire, first=False)
            near.peer, far.peer = far, near
            target.run(lambda: far.attach(accept(far)))
            host.later(wire.latency(0), lambda: near.attach(made(near)))

        host.later(wire.latency(0), arrive)
