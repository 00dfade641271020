# cython: annotation_typing=False, nonecheck=True
"""The way of chunks that concern nobody: from one socket of a pair straight to the other.

Compiled by Cython (types in `passage.pxd`), and the same file runs uncompiled. Owns which chunk is written
without a line of Python. Invariants: bytes leave in the order in which they came; a file is only written to
while its transport is open and holds nothing back. Must not know: what a frame means (the scanner says whom
it concerns).
"""

from __future__ import annotations

from collections.abc import Callable

from brokerweave.mqtt.scanner import Scanner


class Passage:
    """What is called with each chunk of one direction: on to the other side if it concerns nobody, else to
    `attend`.

    Straight on only while `open`, and while what was written before is all gone and the way is not closing:
    a file's number may have a new owner then. `write` takes a file's number and bytes, and says how many it
    took; `rest` takes what is left.
    """

    __slots__ = ("_attend", "_closing", "_file", "_rest", "_scanner", "_waiting", "_write", "open")

    def __init__(self, scanner: Scanner, attend: Callable[[bytes], None]) -> None:
        self.open = False
        self._scanner = scanner
        self._attend = attend
        self._file: int
        self._write: Callable[[int, bytes], int]
        self._rest: Callable[[bytes], None]
        self._waiting: Callable[[], int]
        self._closing: Callable[[], bool]

    def lead_to(
        self,
        file: int,
        write: Callable[[int, bytes], int],
        rest: Callable[[bytes], None],
        waiting: Callable[[], int],
        closing: Callable[[], bool],
    ) -> None:
        """The other side, before this is opened."""
        self._file, self._write, self._rest = file, write, rest
        self._waiting, self._closing = waiting, closing

    def __call__(self, data: bytes) -> None:
        if not self.open or not self._scanner.passes(data) or self._waiting() or self._closing():
            self._attend(data)
            return
        self._scanner.count_passage(len(data))
        try:
            written = self._write(self._file, data)
        except OSError:
            written = 0  # full, or gone: who takes the rest finds out which
        if written < len(data):
            self._rest(data[written:])
