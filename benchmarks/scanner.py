"""What the frame scanner does in a second, compiled and not: `python -m benchmarks.scanner`.

Owns the measurement: 64 KiB chunks of QoS 0 publications with 32-byte payloads over five topics, the best
of several rounds. Every publication towards the broker is one look-up in a warm route cache. Ends with 1
when the compiled scanner stays under a million look-ups a second. Must not know: sockets, nodes.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import brokerweave.mqtt
from brokerweave.mqtt import scanner as installed

CHUNK_BYTES = 64 * 1024
MAX_PACKET = 1 << 20
ROUNDS = 7
ROUND_SECONDS = 0.15
GOAL = 1_000_000
COMPILED = installed.__file__.endswith((".so", ".pyd"))
TOPICS = [b"sensors/%d" % n for n in range(5)]

Resolve = Callable[[bytes, bool], object | None]
CASES: dict[str, Resolve | None] = {
    "look-ups, all routed to one group": lambda topic, retain: TOPICS,
    "look-ups, all routed, a group each": lambda topic, retain: TOPICS[TOPICS.index(topic)],
    "look-ups, one in five routed": lambda topic, retain: TOPICS if topic == TOPICS[0] else None,
    "look-ups, none routed": lambda topic, retain: None,
    "frames stepped over, broker to client": None,
}


def uncompiled() -> ModuleType:
    path = Path(brokerweave.mqtt.__path__[0]) / "scanner.py"
    spec = importlib.util.spec_from_file_location("uncompiled_scanner", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_chunk() -> tuple[bytes, int]:
    """A chunk of whole frames, topics in turn, and their number."""
    frames = [bytes((0x30, 2 + len(t) + 32)) + len(t).to_bytes(2, "big") + t + bytes(32) for t in TOPICS]
    count = CHUNK_BYTES // len(frames[0])
    return b"".join(frames[n % len(frames)] for n in range(count)), count


def frames_per_second(variant: ModuleType, resolve: Resolve | None) -> float:
    chunk, count = make_chunk()
    routes = variant.RouteCache(resolve) if resolve else None
    scanner = variant.Scanner(1 << 2, MAX_PACKET, routes)
    scanner.version = 4
    scanner.feed(chunk)
    best = 0.0
    for _ in range(ROUNDS):
        fed = 0
        start = now = time.perf_counter()
        while now - start < ROUND_SECONDS:
            scanner.feed(chunk)
            fed += count
            now = time.perf_counter()
        best = max(best, fed / (now - start))
    if scanner.error is not None or (routes is not None and routes.misses > len(TOPICS)):
        raise RuntimeError(f"not what was to be measured: {scanner.error}, {routes}")
    return best


def main() -> int:
    plain = uncompiled()
    print(f"{'per second':40} {'compiled':>14} {'uncompiled':>14} {'ratio':>7}")
    slowest = float("inf")
    for name, resolve in CASES.items():
        slow = frames_per_second(plain, resolve)
        if not COMPILED:
            print(f"{name:40} {'not built':>14} {slow:14,.0f}")
            continue
        fast = frames_per_second(installed, resolve)
        slowest = min(slowest, fast)
        print(f"{name:40} {fast:14,.0f} {slow:14,.0f} {fast / slow:6.1f}x")
    if COMPILED:
        print(f"goal: {GOAL:,} cached look-ups a second compiled; the slowest case: {slowest:,.0f}")
    return 1 if slowest < GOAL else 0


if __name__ == "__main__":
    sys.exit(main())
