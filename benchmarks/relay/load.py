"""The load: one process that publishes on a fixed schedule and counts what arrives.

    python -m benchmarks.relay.load '{"port": 1883, "rate": 5000, ...}'     prints one line of JSON

Invariants: publications are sent by the clock whether or not earlier ones arrived (open loop), so a relay
that falls behind is not spared; what a full socket refuses waits here, in bounds; CPU times are read in the
same moments as the counts. Everything on `topics` topics, each with its own publishers and subscribers. One
more subscriber may sit at another node (`far_port`), on the first topic. Must not know: what it measures.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import time
from dataclasses import asdict, dataclass, field

from benchmarks.relay import wire
from benchmarks.relay.meter import cpu_seconds, cpu_split, machine_busy_seconds

HOST = "127.0.0.1"
_BACKLOG_LIMIT = 1 << 20  # bytes waiting for one publisher's socket; then publications are skipped


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """What to do. Times in seconds; `rate` is publications a second over all publishers."""

    port: int
    rate: float
    seconds: float = 5.0
    warm_up: float = 1.0
    topics: int = 5
    publishers: int = 10
    subscribers: int = 10
    far_port: int | None = None
    watch: dict[str, int] = field(default_factory=dict)
    tick: float = 0.002
    """Seconds between two rounds of sending."""
    eager: bool = True
    """Read at once whatever arrives, as real clients do. Otherwise once a tick: whoever writes to the load
    then never pays for waking it, as if the clients were on another machine."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What happened between warm-up and end; `lost` counts over the whole run, after a last wait."""

    seconds: float
    published: int
    delivered: int
    far_delivered: int
    expected: float
    lost: int
    skipped: int
    late_ms: float
    """The worst delay of the schedule itself: the load's own fault, not the relay's."""
    cpu: dict[str, float]
    cpu_user: dict[str, float]
    load_cpu: float
    others_cpu: float
    """What processes outside this benchmark used: a share of the machine that nobody under test had."""

    @property
    def held(self) -> float:
        """Delivered over expected."""
        return self.delivered / self.expected

    @property
    def others(self) -> float:
        """Cores that others used meanwhile."""
        return self.others_cpu / self.seconds


class Publisher:
    """A publishing client; `backlog` is what its socket would not take yet."""

    __slots__ = ("backlog", "client", "head", "sequence", "sock")

    def __init__(self, sock: socket.socket, client: int, topic: str) -> None:
        self.sock = sock
        self.client = client
        self.head = wire.publish_head(topic)
        self.sequence = 0
        self.backlog = bytearray()

    def publish(self) -> bool:
        """Send one message; False if it was skipped because too much is waiting already."""
        frame = self.head + wire.PAYLOAD.pack(self.client, self.sequence, time.monotonic_ns())
        if self.backlog:
            if len(self.backlog) > _BACKLOG_LIMIT:
                return False
            self.backlog += frame
        else:
            try:
                sent = self.sock.send(frame)
            except BlockingIOError:
                sent = 0
            self.backlog += frame[sent:]
        self.sequence += 1
        return True

    def flush(self) -> None:
        if self.backlog:
            with contextlib.suppress(BlockingIOError):
                del self.backlog[: self.sock.send(self.backlog)]


def open_client(port: int, client_id: str, topic: str | None = None, qos: int = 0) -> socket.socket:
    """A connected (and subscribed) client, not yet non-blocking."""
    sock = socket.create_connection((HOST, port), timeout=10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(wire.connect(client_id))
    answer = _exactly(sock, wire.CONNACK_LENGTH)
    if answer[3] != 0:
        raise RuntimeError(f"the broker refused {client_id}: {answer.hex()}")
    if topic is not None:
        sock.sendall(wire.subscribe(topic, qos))
        answer = _exactly(sock, wire.SUBACK_LENGTH)
        if answer[4] > 2:
            raise RuntimeError(f"the broker refused a filter of {client_id}: {answer.hex()}")
    return sock


def _exactly(sock: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        more = sock.recv(count - len(got))
        if not more:
            raise RuntimeError("the connection was closed during the handshake")
        got += more
    return got


class Load:
    """All clients of one run."""

    def __init__(self, spec: LoadSpec) -> None:
        self.spec = spec
        topics = [f"bench/{number}" for number in range(spec.topics)]
        # Neighbours in the list have different topics, so that each tick's messages are spread evenly.
        self.publishers = [
            Publisher(open_client(spec.port, f"p{number}"), number, topics[number % spec.topics])
            for number in range(spec.topics * spec.publishers)
        ]
        near = [
            open_client(spec.port, f"s{number}", topics[number % spec.topics])
            for number in range(spec.topics * spec.subscribers)
        ]
        far = [open_client(spec.far_port, "far", topics[0])] if spec.far_port else []
        self.socks = {sock.fileno(): sock for sock in near + far}
        self.far_fd = far[0].fileno() if far else -1
        self.frame_length = len(self.publishers[0].head) + wire.PAYLOAD.size
        self.near_bytes = 0
        self.far_bytes = 0
        self.offered = 0
        self.skipped = 0
        self.late = 0.0
        self._poll = select.epoll()
        self._buffer = bytearray(1 << 18)
        for fd, sock in self.socks.items():
            sock.setblocking(False)
            self._poll.register(fd, select.EPOLLIN)
        for publisher in self.publishers:
            publisher.sock.setblocking(False)

    def publish_due(self, due: int) -> None:
        count = len(self.publishers)
        for number in range(self.offered, due):
            if not self.publishers[number % count].publish():
                self.skipped += 1
        self.offered = max(self.offered, due)
        for publisher in self.publishers:
            publisher.flush()

    def read(self, timeout: float) -> None:
        """Take what has arrived; wait for it at most `timeout` seconds."""
        for fd, _ in self._poll.poll(timeout):
            count = self.socks[fd].recv_into(self._buffer)
            if count == 0:
                raise RuntimeError("a subscriber's connection was closed")
            if fd == self.far_fd:
                self.far_bytes += count
            else:
                self.near_bytes += count

    def wait(self, until: float) -> None:
        """Let a tick pass, reading meanwhile (`eager`) or at its end."""
        if not self.spec.eager:
            time.sleep(max(0.0, until - time.monotonic()))
            self.read(0)
            return
        while (left := until - time.monotonic()) > 0:
            self.read(left)

    def run_until(self, begin: float, end: float) -> None:
        """Publish and read until `end`, as if publishing had begun at `begin`."""
        while (now := time.monotonic()) < end:
            self.publish_due(int((now - begin) * self.spec.rate))
            self.wait(min(now + self.spec.tick, end))
            self.late = max(self.late, time.monotonic() - now - self.spec.tick)

    def drain(self, expected: int, seconds: float) -> None:
        """Wait for what is still under way."""
        end = time.monotonic() + seconds
        while self.near_bytes < expected * self.frame_length and time.monotonic() < end:
            for publisher in self.publishers:
                publisher.flush()
            self.wait(time.monotonic() + 0.01)

    def close(self) -> None:
        self._poll.close()
        for sock in self.socks.values():
            sock.close()
        for publisher in self.publishers:
            publisher.sock.close()


def _cpu(watch: dict[str, int]) -> tuple[dict[str, float], dict[str, float]]:
    return ({n: cpu_seconds(p) for n, p in watch.items()}, {n: cpu_split(p)[0] for n, p in watch.items()})


def run(spec: LoadSpec) -> LoadResult:
    load = Load(spec)
    watch = {**spec.watch, "load": os.getpid()}
    try:
        begin = time.monotonic()
        load.run_until(begin, begin + spec.warm_up)
        load.late = 0.0
        start, busy, cpu, user = time.monotonic(), machine_busy_seconds(), *_cpu(watch)
        offered, near, far = load.offered, load.near_bytes, load.far_bytes
        load.run_until(begin, start + spec.seconds)
        seconds = time.monotonic() - start
        busy, (cpu_end, user_end) = machine_busy_seconds() - busy, _cpu(watch)
        published = load.offered - offered
        delivered, far_delivered = load.near_bytes - near, load.far_bytes - far
        load.drain(load.offered * spec.subscribers, 1.0)
    finally:
        load.close()
    spent = {name: cpu_end[name] - cpu[name] for name in watch}
    return LoadResult(
        seconds=seconds,
        published=published,
        delivered=delivered // load.frame_length,
        far_delivered=far_delivered // load.frame_length,
        expected=spec.rate * seconds * spec.subscribers,
        lost=load.offered * spec.subscribers - load.near_bytes // load.frame_length,
        skipped=load.skipped,
        late_ms=load.late * 1e3,
        others_cpu=max(0.0, busy - sum(spent.values())),
        load_cpu=spent.pop("load"),
        cpu=spent,
        cpu_user={name: user_end[name] - user[name] for name in spent},
    )


if __name__ == "__main__":
    print(json.dumps(asdict(run(LoadSpec(**json.loads(sys.argv[1]))))))
