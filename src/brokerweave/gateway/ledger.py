# cython: annotation_typing=False, nonecheck=True
"""What is in flight between a client and one site: publications without an answer, either way.

Compiled by Cython (types in `ledger.pxd`), and the same file runs uncompiled. Owns the handshakes of QoS 1
and 2 on one connection, read from frames that pass. Invariants: a publication of the client is here until the
site took responsibility for it; at most `most` bytes of them are kept, and `complete` says whether that was
enough; frames are never changed. Must not know: sockets, moves.
"""

from __future__ import annotations

from collections.abc import Callable

PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 3, 4, 5, 6, 7
_REFUSED = 0x80

TO_ACKNOWLEDGE, TO_RECEIVE, TO_RELEASE, TO_COMPLETE = 1, 2, 3, 4
"""What comes next for a delivery: PUBACK; PUBREC; then the site's PUBREL; then PUBCOMP."""


class Ledger:
    """`sent`: the client's publications by packet id, in their order. `received`: its QoS 2 publications that
    have their PUBREC, and whether the client released them. `open`: deliveries, and what comes next."""

    __slots__ = ("_most", "_size", "_write", "complete", "open", "received", "sent")

    def __init__(self, most: int, write: Callable[[int, bytes], int]) -> None:
        self._most = most
        self._size = 0
        self._write = write
        self.complete = True
        self.sent: dict[int, bytes] = {}
        self.received: dict[int, bool] = {}
        self.open: dict[int, int] = {}

    def pass_up(self, file: int, data: bytes) -> int:
        """Write to the site; for a passage."""
        self.up(data)
        return self._write(file, data)

    def pass_down(self, file: int, data: bytes) -> int:
        """Write to the client; for a passage."""
        self.down(data)
        return self._write(file, data)

    def up(self, data: bytes) -> None:
        """Whole frames go to the site."""
        self._walk(data, True)

    def down(self, data: bytes) -> None:
        """Whole frames come from the site."""
        self._walk(data, False)

    def _walk(self, data: bytes, up: bool) -> None:
        at = 0
        size = len(data)
        while at < size:
            first = data[at]
            start = at
            length = shift = 0
            at += 1
            while at < size and shift < 28:
                byte = data[at]
                at += 1
                length |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
            end = at + length
            if end > size:
                return  # not a whole frame
            kind = first >> 4
            if kind == PUBLISH:
                if first & 6:
                    self._publish(data, start, at, end, up)
            elif PUBACK <= kind <= PUBCOMP and at + 2 <= end:
                code = data[at + 2] if at + 2 < end else 0
                self._answer(kind, data[at] << 8 | data[at + 1], code, up)
            at = end

    def _publish(self, data: bytes, start: int, at: int, end: int, up: bool) -> None:
        if at + 2 > end:
            return
        at += 2 + (data[at] << 8 | data[at + 1])
        if at + 2 > end:
            return
        number = data[at] << 8 | data[at + 1]
        if not up:
            self.open[number] = TO_RECEIVE if data[start] & 4 else TO_ACKNOWLEDGE
            return
        self._size += end - start
        if self._size > self._most:
            self.complete = False
            self.sent[number] = b""
        else:
            self.sent[number] = data[start:end]

    def _answer(self, kind: int, number: int, code: int, up: bool) -> None:
        if up:
            if kind == PUBREL:
                if number in self.received:
                    self.received[number] = True
            elif kind == PUBREC and code < _REFUSED:
                if number in self.open:
                    self.open[number] = TO_RELEASE
            else:
                self.open.pop(number, None)
        elif kind == PUBREL:
            if number in self.open:
                self.open[number] = TO_COMPLETE
        elif kind == PUBCOMP:
            self.received.pop(number, None)
        else:
            frame = self.sent.pop(number, None)
            if frame is not None:
                self._size -= len(frame)
                if kind == PUBREC and code < _REFUSED:
                    self.received[number] = False
            if not self.sent:
                self._size = 0
                self.complete = True
