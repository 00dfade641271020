"""A fuzz target for codec and frame scanner, run by hand; pytest does not collect it.

    pip install atheris
    python -m tests.fuzz.fuzz_codec -runs=1000000 -max_len=256 [DIRECTORY FOR FOUND INPUTS]

The first byte chooses the version and how the rest is cut into chunks. It stops with a traceback and keeps
the input when anything but RemoteProtocolError is raised, when a decoded packet does not survive its own
bytes, or when the scanner's answer depends on how the stream was cut. `benchmarks/fuzz.py` calls the same
check without atheris.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

from brokerweave.errors import RemoteProtocolError
from brokerweave.mqtt.codec import decode, encode
from brokerweave.mqtt.publish import convert, publish_head, route_run, with_qos
from brokerweave.mqtt.scanner import Frame, RouteCache, Scanner, split

ALL_BUT_PUBLISH = 0xFFF6
MAX_PACKET = 4096


def check_codec(frame: bytes, version: int) -> bool:
    """Was it a packet? Raises only if the codec broke a promise."""
    try:
        packet = decode(frame, version)
    except RemoteProtocolError:
        return False
    assert decode(encode(packet, version), version) == packet, "a packet does not survive its bytes"
    return True


def check_scanner(stream: bytes, version: int, cut: int, routes: RouteCache | None) -> bool:
    """Was it a clean stream? Raises only if the scanner broke a promise."""
    whole, whole_items, whole_error = _scan([stream], version, routes)
    assert stream.startswith(whole), "the scanner changed a stream"
    parts, part_items, part_error = _scan(_chunks(stream, cut), version, routes)
    assert (parts, part_error) == (whole, whole_error), "the scanner's answer depends on the chunks"
    assert part_items == whole_items, "what the scanner hands out depends on the chunks"
    return not whole_error


def check_blob(blob: bytes, version: int, routes: RouteCache) -> int:
    """How many of the scanner's functions took it as publications? Raises only if one broke a promise."""
    taken = 0
    calls: list[Callable[[], object]] = [
        lambda: split(blob),
        lambda: route_run(blob, version, routes),
        lambda: convert(blob, version, 9 - version),
        lambda: publish_head(blob, version),
        lambda: with_qos(blob, version, 4, 1, 7, False),
    ]
    for call in calls:
        try:
            call()
            taken += 1
        except RemoteProtocolError:
            pass
    return taken


def _scan(chunks: list[bytes], version: int, routes: RouteCache | None) -> tuple[bytes, list[bytes], bool]:
    """All bytes given as whole; all frames handed out, in order, those of one group too; was it refused?"""
    scanner = Scanner(ALL_BUT_PUBLISH, MAX_PACKET, routes)
    scanner.version = version
    whole = b""
    items: list[bytes] = []
    for chunk in chunks:
        given, found = scanner.feed(chunk)
        whole += given
        for item in found:
            items += [item.data] if isinstance(item, Frame) else split(item.blob)
    assert scanner.pending <= MAX_PACKET + 5, "the scanner waits for more than a packet"
    return whole, sorted(items), scanner.error is not None


def _chunks(stream: bytes, cut: int) -> list[bytes]:
    size = 1 + cut % 7
    return [stream[at : at + size] for at in range(0, len(stream), size)]


def one_input(data: bytes) -> None:
    if not data:
        return
    version, stream = 3 + data[0] % 3, data[1:]
    check_codec(stream, version)
    routes = RouteCache(lambda topic, retain: topic[:1] or None, 100)
    check_scanner(stream, version, data[0] >> 2, routes)
    check_blob(stream, 5 if version == 5 else 4, routes)


def main() -> None:
    atheris = importlib.import_module("atheris")
    atheris.instrument_all()
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
