"""Latency, from a publisher and a subscriber of their own, through the same relay at the same time.

    python -m benchmarks.relay.latency '{"port": 1883, "seconds": 5}'      prints one line of JSON

A process of its own, so that the load's ticks are not part of what is measured. Its messages are few and
come at random moments, so that they meet the load in all its phases.
"""

from __future__ import annotations

import json
import math
import random
import select
import socket
import statistics
import sys
import time
from dataclasses import asdict, dataclass

from benchmarks.relay import wire
from benchmarks.relay.load import open_client

TOPIC = "bench/latency"


@dataclass(frozen=True, slots=True)
class LatencySpec:
    port: int
    seconds: float
    warm_up: float = 1.0
    rate: float = 100.0


@dataclass(frozen=True, slots=True)
class LatencyResult:
    """Milliseconds from publish to arrival."""

    sent: int
    received: int
    median_ms: float
    p99_ms: float


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least this share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * share) - 1] if ordered else math.nan


def run(spec: LatencySpec) -> LatencyResult:
    subscriber = open_client(spec.port, "latency-s", TOPIC)
    publisher = open_client(spec.port, "latency-p")
    head = wire.publish_head(TOPIC)
    length = len(head) + wire.PAYLOAD.size
    jitter = random.Random(1)
    arrived: list[float] = []
    pending = b""
    sent = 0
    begin = time.monotonic()
    next_send, count_from, end = begin, begin + spec.warm_up, begin + spec.warm_up + spec.seconds
    while (now := time.monotonic()) < end:
        if now >= next_send:
            publisher.sendall(head + wire.PAYLOAD.pack(0, sent, time.monotonic_ns()))
            sent += now >= count_from
            next_send += jitter.uniform(0.5, 1.5) / spec.rate
        pending = _take(subscriber, pending, length, next_send, count_from, arrived)
    subscriber.close()
    publisher.close()
    median = statistics.median(arrived) if arrived else math.nan
    return LatencyResult(sent, len(arrived), median, percentile(arrived, 0.99))


def _take(
    sock: socket.socket, pending: bytes, length: int, until: float, count_from: float, arrived: list[float]
) -> bytes:
    """Wait until the next publication is due; note each arrival at once."""
    while (left := until - time.monotonic()) > 0:
        if not select.select([sock], [], [], left)[0]:
            break
        pending += sock.recv(65536)
        now = time.monotonic_ns()
        while len(pending) >= length:
            stamp = wire.PAYLOAD.unpack(pending[length - wire.PAYLOAD.size : length])[2]
            if stamp >= count_from * 1e9:
                arrived.append((now - stamp) / 1e6)
            pending = pending[length:]
    return pending


if __name__ == "__main__":
    print(json.dumps(asdict(run(LatencySpec(**json.loads(sys.argv[1]))))))
