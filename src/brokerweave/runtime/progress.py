"""An injector's progress on disk: 16 bytes for each packet identifier, overwritten in place.

Owns one file. Invariants: one write for neighbouring identifiers, which is what a burst of messages has; a
write of a few bytes in one page is whole after a kill. The place of identifier 0, which MQTT never uses, says
whose the broker's session is. Must not know: handshakes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

from brokerweave.links.progress import HandshakeMark, Step

_PLACE = struct.Struct(">QIBB2x")
_SESSION = _PLACE.pack(0, 0, 1, 0)
_STEPS = frozenset(Step)


class FileProgress:
    """Implements `links.progress.Progress`. Raises `OSError` when it cannot be opened, and never later."""

    def __init__(self, path: Path, warn: Callable[[str], None]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.failures = 0
        self._path = path
        self._warn = warn
        self._waiting: dict[int, bytes] = {}
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.session = os.pread(self._descriptor, _PLACE.size, 0) == _SESSION

    def session_established(self) -> None:
        if not self.session:
            self.session = True
            self._waiting[0] = _SESSION
            self.flush()

    def marks(self) -> list[HandshakeMark]:
        stored = os.pread(self._descriptor, _PLACE.size << 16, 0)
        found = []
        for packet_id in range(1, len(stored) // _PLACE.size):
            record, offset, step, qos = _PLACE.unpack_from(stored, packet_id * _PLACE.size)
            if step and step in _STEPS:
                found.append(HandshakeMark(packet_id, record, offset, Step(step), qos))
        return found

    def put(self, packet_id: int, record: int, offset: int, step: Step, qos: int = 0) -> None:
        self._waiting[packet_id] = _PLACE.pack(record, offset, step, qos)

    def flush(self) -> None:
        waiting = self._waiting
        if not waiting:
            return
        try:
            start = -1
            parts: list[bytes] = []
            for packet_id in sorted(waiting):
                if packet_id != start + len(parts):
                    self._write(start, parts)
                    start, parts = packet_id, []
                parts.append(waiting[packet_id])
            self._write(start, parts)
        except OSError as error:
            if not self.failures:
                self._warn(
                    f"{self._path} cannot be written, a crash now may double messages: {error.strerror}"
                )
            self.failures += 1
        waiting.clear()

    def close(self) -> None:
        os.close(self._descriptor)

    def _write(self, start: int, parts: list[bytes]) -> None:
        if parts:
            os.pwrite(self._descriptor, b"".join(parts), start * _PLACE.size)
