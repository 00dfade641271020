"""Which datagrams are genuine: made by a holder of the cluster key, for this process, and not seen before.

Owns the mac, the count of what is sent, and a window for each sender. No clock is compared and nothing is
kept over a restart: every process draws a random 64-bit *boot* when it starts, and the mac covers the
sender's boot, the boot of the process it is for, and a count that the sender never uses twice.

- Without the key nobody can make the mac (HMAC-SHA256, the first 16 bytes).
- What was recorded before a receiver's start, or was meant for another member, has another boot in `to`.
- What this process has had already is below its sender's window, or marked in it. The window is wide enough
  for the network's own reordering.

Invariants: a datagram that is refused changes nothing but its cause's count; at most `MOST_SENDERS` windows
are kept, the ones used last (a recorded datagram could be taken once more after so many other processes were
heard in this one's life). Datagrams are authenticated, not secret. Must not know: what datagrams say.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256
from hmac import compare_digest

from brokerweave.membership.presets import MOST_DATAGRAM
from brokerweave.membership.wire import HEADER, VERSION

MAC = 16
WINDOW = 1024
"""Counts behind the highest in which one that is late is still taken."""
MOST_SENDERS = 16_384
CAUSES = ("too_long", "malformed", "version", "unauthentic", "misdirected", "replayed")
_BLOCK = 64
_SMALLEST = HEADER.size + MAC
_MASK = (1 << WINDOW) - 1


class ReplayWindow:
    """Which counts of one sender were taken: the highest, and a bit for each of the last `WINDOW`."""

    __slots__ = ("_bits", "_highest")

    def __init__(self) -> None:
        self._highest = -1
        self._bits = 0

    def take(self, count: int) -> bool:
        """Whether it is new; then it is so no more."""
        ahead = count - self._highest
        if ahead > 0:
            self._bits = ((self._bits << ahead) | 1) & _MASK if ahead < WINDOW else 1
            self._highest = count
            return True
        bit = 1 << -ahead
        if -ahead >= WINDOW or self._bits & bit:
            return False
        self._bits |= bit
        return True


class Seal:
    def __init__(self, key: bytes, boot: int) -> None:
        self._boot = boot
        # HMAC (RFC 2104) with its two keyed beginnings made once: that halves the cost of a datagram.
        block = (key if len(key) <= _BLOCK else sha256(key).digest()).ljust(_BLOCK, b"\0")
        self._inner = sha256(bytes(byte ^ 0x36 for byte in block))
        self._outer = sha256(bytes(byte ^ 0x5C for byte in block))
        self._count = 0
        self._windows: OrderedDict[int, ReplayWindow] = OrderedDict()
        self.refused = dict.fromkeys(CAUSES, 0)

    def close(self, kind: int, to: int, content: bytes) -> bytes:
        """The datagram with this content for the process with the boot `to`."""
        self._count += 1
        data = HEADER.pack(VERSION, kind, self._boot, to, self._count) + content
        return data + self._mac(data)

    def open(self, data: bytes) -> tuple[int, int, bytes] | None:
        """Kind, sender's boot and content; None if it is refused, and counted."""
        size = len(data)
        if size > MOST_DATAGRAM:
            self.refuse("too_long")
            return None
        if size < _SMALLEST:
            self.refuse("malformed")
            return None
        version, kind, sender, to, count = HEADER.unpack_from(data)
        if version != VERSION:
            self.refuse("version")
            return None
        if not compare_digest(self._mac(data[:-MAC]), data[-MAC:]):
            self.refuse("unauthentic")
            return None
        if to != self._boot:
            self.refuse("misdirected")
            return None
        if not self._window(sender).take(count):
            self.refuse("replayed")
            return None
        return kind, sender, data[HEADER.size : -MAC]

    def refuse(self, cause: str) -> None:
        self.refused[cause] += 1

    def _mac(self, data: bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(data)
        outer.update(inner.digest())
        return outer.digest()[:MAC]

    def _window(self, sender: int) -> ReplayWindow:
        window = self._windows.get(sender)
        if window is None:
            window = self._windows[sender] = ReplayWindow()
            if len(self._windows) > MOST_SENDERS:
                self._windows.popitem(last=False)
        else:
            self._windows.move_to_end(sender)
        return window
