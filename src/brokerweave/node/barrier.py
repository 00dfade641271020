"""Tells when all nodes behind the neighbours have what this node told them.

Owns, per neighbour, how many control packets were sent, and how many are known to have arrived everywhere. A
*mark* follows them on the same ordered channel. A neighbour answers it when everything that it passed on
itself has been answered. Invariants: one mark per neighbour is under way, and later packets share the next
one; nobody waits for a neighbour that is down. Must not know: what the packets mean, time.

On the wire: `?` or `!` (question, answer) and the mark's number, u64.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from brokerweave.errors import RemoteProtocolError

TOPIC = "$brokerweave/mark"
_MARK = struct.Struct(">cQ")


class _Told:
    """`told` packets went out, `heard` arrived everywhere, `asked` are covered by the mark under way."""

    __slots__ = ("asked", "heard", "told")

    def __init__(self) -> None:
        self.told = self.heard = self.asked = 0


class _BarrierWait:
    __slots__ = ("callback", "needed")

    def __init__(self, needed: dict[str, int], callback: Callable[[], None]) -> None:
        self.needed = needed
        self.callback = callback


class Barrier:
    def __init__(self, send: Callable[[str, bytes], None], behind: bool = True) -> None:
        """`behind`: neighbours pass on what they are told, and there are no cycles in which each would wait
        for the next. Else only the neighbours themselves are waited for."""
        self._send = send
        self._behind = behind
        self._neighbours: dict[str, _Told] = {}
        self._waits: list[_BarrierWait] = []

    @property
    def waiting(self) -> int:
        """How many wait for an answer."""
        return len(self._waits)

    def awaits(self, neighbour: str) -> bool:
        """Whether a neighbour has yet to answer."""
        told = self._neighbours.get(neighbour)
        return told is not None and told.asked > 0

    def told(self, neighbour: str) -> None:
        """A control packet went out."""
        self._neighbours.setdefault(neighbour, _Told()).told += 1

    def when_heard(
        self, callback: Callable[[], None], asked_by: str | None = None, only: str | None = None
    ) -> bool:
        """Call back when everything told so far is known everywhere. True: it is already; no call follows.

        `asked_by` is the neighbour who wants to know: it waits for us, so we must not wait for it. `only`:
        what was told to this neighbour.
        """
        needed = {
            n: t.told
            for n, t in self._neighbours.items()
            if t.heard < t.told and n != asked_by and only in (None, n)
        }
        if not needed:
            return True
        self._waits.append(_BarrierWait(needed, callback))
        for neighbour in needed:
            self._ask(neighbour)
        return False

    def forget(self, callback: Callable[[], None]) -> None:
        """Whoever gave this callback waits no longer."""
        self._waits = [wait for wait in self._waits if wait.callback is not callback]

    def gone(self, neighbour: str) -> None:
        """The link is down, or the neighbour removed: nobody waits for it."""
        self._neighbours.pop(neighbour, None)
        self._settle()

    def arrived(self, neighbour: str, payload: bytes) -> None:
        if len(payload) != _MARK.size:
            raise RemoteProtocolError("a mark of the wrong size")
        kind, number = _MARK.unpack(payload)
        if kind == b"?":

            def answer() -> None:
                self._send(neighbour, _MARK.pack(b"!", number))

            if not self._behind or self.when_heard(answer, asked_by=neighbour):
                answer()
            return
        told = self._neighbours.get(neighbour)
        if told is None or number != told.asked:
            return  # of an earlier connection
        told.heard, told.asked = told.asked, 0
        self._settle()
        if any(wait.needed.get(neighbour, 0) > told.heard for wait in self._waits):
            self._ask(neighbour)

    def _ask(self, neighbour: str) -> None:
        told = self._neighbours[neighbour]
        if not told.asked:
            told.asked = told.told
            self._send(neighbour, _MARK.pack(b"?", told.asked))

    def _settle(self) -> None:
        waiting, self._waits = self._waits, []
        due = []
        for wait in waiting:
            known = self._neighbours
            wait.needed = {n: t for n, t in wait.needed.items() if n in known and known[n].heard < t}
            if wait.needed:
                self._waits.append(wait)
            else:
                due.append(wait.callback)
        for callback in due:
            callback()
