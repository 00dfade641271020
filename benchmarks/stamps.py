"""What stamps cost each publication, beside what it costs without: `python -m benchmarks.stamps`.

Owns the measurement: publications of QoS 1 with 32-byte payloads over five topics through one watched MQTT 5
pair, each with its acknowledgement, in CPU time, the best of several rounds that take turns. The pairs of
strategies without a site book are there to compare with: their chunks pass without a look at stamps. Then the
parts by themselves, compiled and not; with them an estimate of what it would cost to speak MQTT 5 to the
broker for a 3.1.1 client. Must not know: sockets, nodes.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias
from unittest import mock

import brokerweave.mqtt
from benchmarks.scanner import MAX_PACKET, ROUND_SECONDS, ROUNDS, TOPICS
from brokerweave.config import LimitsSection
from brokerweave.mqtt import codec, publish, scanner
from brokerweave.mqtt import stamp as installed
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.packets import ConnAck, Connect, PubAck, Publish
from brokerweave.mqtt.scanner import RouteCache
from brokerweave.mqtt.stamp import Stamps
from brokerweave.plugin import Side
from brokerweave.runtime import compiled
from brokerweave.session.pair import Pair
from brokerweave.session.phase import Phase
from brokerweave.session.record import SessionRecord

CHUNK = 20
"""Publications in flight: what Mosquitto takes."""
ID = b"12345678"
COLUMNS = "{:44} {:>11} {:>11} {:>7}"

Round: TypeAlias = Callable[[], object]


class Host:
    """Gives every publication a name, or none; nothing else happens."""

    def __init__(self, name: bytes) -> None:
        self.stamps = Stamps(b"the key of a deployment")
        self.receipts = 0
        self.forwarded = 0
        self._name = name
        self._nothing = mock.Mock(return_value=0)

    @property
    def publisher(self) -> Host:
        return self

    def publication_name(self, pair: Pair, publish: Publish) -> bytes:
        return self._name

    def has_room(self, topic: str, retain: bool) -> bool:
        return True

    def forward_confirmed(self, *_: object) -> bool:
        self.forwarded += 1
        return True

    def received(self, pair: Pair, hashes: list[bytes], more: bool) -> None:
        self.receipts += len(hashes)

    def keeps(self, topic: bytes) -> bool:
        return True

    def superseded(self, pair: Pair) -> bool:
        return False

    def publishing(self, topic: str) -> None: ...

    def latest_version(self) -> int:
        return 0

    def accepted(self, pair: Pair, session_present: bool) -> SessionRecord:
        return SessionRecord("c", 0)

    def __getattr__(self, name: str) -> Any:
        return self._nothing


def publications(payload: int = 32) -> list[Publish]:
    return [Publish(TOPICS[n % 5].decode(), bytes(payload), 1, packet_id=n) for n in range(1, CHUNK + 1)]


def open_pair(host: Host, *, watched: bool) -> Pair:
    routes = RouteCache(lambda topic, retain: host if watched else None)
    pair = Pair(1, host, routes, LimitsSection(max_packet=MAX_PACKET), 0, watched=watched)
    pair.from_client(codec.encode(Connect("c", 5), 5))
    pair.from_broker(codec.encode(ConnAck(), 5))
    if pair.phase is not Phase.ACCEPTED:
        raise RuntimeError(f"not what was to be measured: {pair.phase}")
    return pair


def upstream(name: bytes) -> Round:
    """A client publishes, and the broker acknowledges."""
    host = Host(name)
    pair = open_pair(host, watched=True)
    up = b"".join(codec.encode(packet, 5) for packet in publications())
    acks = b"".join(codec.encode(PubAck(packet.packet_id), 5) for packet in publications())
    longer = len(pair.from_client(up)) - len(up)
    pair.from_broker(acks)
    if longer != (23 * CHUNK if name else 0) or host.forwarded != CHUNK:
        raise RuntimeError(f"not what was to be measured: {longer} bytes more, {host.forwarded} forwarded")

    def once() -> None:
        pair.from_client(up)
        pair.from_broker(acks)

    return once


def downstream(name: bytes) -> Round:
    """The broker delivers, and the client acknowledges."""
    host = Host(name)
    pair = open_pair(host, watched=True)
    plain = [codec.encode(packet, 5) for packet in publications()]
    down = b"".join(host.stamps.stamp(frame, name) if name else frame for frame in plain)
    acks = b"".join(codec.encode(PubAck(packet.packet_id), 5) for packet in publications())
    if pair.from_broker(down) != b"".join(plain):
        raise RuntimeError("not what was to be measured: the client sees stamps")
    pair.from_client(acks)

    def once() -> None:
        pair.from_broker(down)
        pair.from_client(acks)

    return once


def unwatched(name: bytes) -> Round:
    """The way of a chunk that concerns nobody, both directions."""
    pair = open_pair(Host(name), watched=False)
    up = b"".join(codec.encode(packet, 5) for packet in publications())
    acks = b"".join(codec.encode(PubAck(packet.packet_id), 5) for packet in publications())

    def once() -> bool:
        return pair.scanner(Side.CLIENT).passes(up) and pair.scanner(Side.BROKER).passes(acks)

    if not once():
        raise RuntimeError("not what was to be measured: the chunks do not pass")
    return once


def microseconds(*rounds: Round) -> list[float]:
    """For each publication."""
    best = [float("inf")] * len(rounds)
    for _ in range(ROUNDS):
        for index, once in enumerate(rounds):
            count = 0
            start = now = time.process_time()
            while now - start < ROUND_SECONDS:
                once()
                count += CHUNK
                now = time.process_time()
            best[index] = min(best[index], (now - start) / count * 1e6)
    return best


def uncompiled() -> tuple[ModuleType, ModuleType]:
    """`publish` and `stamp` as they run where nothing is built."""
    loaded: dict[str, ModuleType] = {}
    for module in (scanner, publish, installed):
        path = Path(brokerweave.mqtt.__path__[0]) / f"{module.__name__.rpartition('.')[2]}.py"
        spec = importlib.util.spec_from_file_location(f"uncompiled_{module.__name__}", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"cannot load {path}")
        loaded[module.__name__] = importlib.util.module_from_spec(spec)
        with mock.patch.dict(sys.modules, loaded):
            spec.loader.exec_module(loaded[module.__name__])
    return loaded[publish.__name__], loaded[installed.__name__]


def parts(rewriting: ModuleType, stamping: ModuleType) -> dict[str, Round]:
    stamps = stamping.Stamps(b"the key of a deployment")
    packets = publications()
    plain, older = ([codec.encode(packet, version) for packet in packets] for version in (5, 4))
    stamped = [stamps.stamp(frame, ID) for frame in plain]
    large = [codec.encode(packet, 5) for packet in publications(4096)]
    large_stamped = [stamps.stamp(frame, ID) for frame in large]
    convert = rewriting.convert
    return {
        "stamp": lambda: [stamps.stamp(frame, ID) for frame in plain],
        "take_off, there is one": lambda: [stamps.take_off(frame) for frame in stamped],
        "take_off, there is none": lambda: [stamps.take_off(frame) for frame in plain],
        "stamp, 4 KiB": lambda: [stamps.stamp(frame, ID) for frame in large],
        "take_off, 4 KiB": lambda: [stamps.take_off(frame) for frame in large_stamped],
        "content hash": lambda: [content_hash(packet.topic, packet.payload) for packet in packets],
        "3.1.1 to 5 and stamp": lambda: [stamps.stamp(convert(frame, 4, 5), ID) for frame in older],
        "take_off and 5 to 3.1.1": lambda: [convert(stamps.take_off(frame)[0], 5, 4) for frame in stamped],
    }


def main() -> int:
    print(f"compiled modules: {compiled.state()}; µs of CPU for each publication")
    print(COLUMNS.format("", "without", "stamped", "ratio"))
    for words, make in (
        ("a client publishes, QoS 1", upstream),
        ("the broker delivers, QoS 1", downstream),
        ("pairs that are not watched (pf, sf)", unwatched),
    ):
        without, stamped = microseconds(make(b""), make(ID))
        print(COLUMNS.format(words, f"{without:.3f}", f"{stamped:.3f}", f"{stamped / without:.2f}x"))
    print(COLUMNS.format("", "compiled", "uncompiled", "ratio"))
    slow = parts(*uncompiled())
    for words, fast in parts(publish, installed).items():
        quick, plain = microseconds(fast, slow[words])
        print(COLUMNS.format(words, f"{quick:.3f}", f"{plain:.3f}", f"{plain / quick:.1f}x"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
