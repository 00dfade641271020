"""How long a suspect has to refute a suspicion: the fewer suspect it, the longer (Lifeguard,
"LHA-Suspicion").

Owns one suspicion's accusers and its end. Invariant: each accuser counts once, and the time only shrinks.
Must not know: who the suspect is, what time it is now.
"""

from __future__ import annotations

from math import log

from brokerweave.membership.agenda import Due


class Suspicion:
    __slots__ = ("_accusers", "_longest", "_needed", "_shortest", "_since", "due")

    def __init__(self, accuser: str, since: float, shortest: float, longest: float, needed: int) -> None:
        """`needed` accusers besides the first make the time the shortest."""
        self._accusers = {accuser}
        self._since = since
        self._shortest = shortest
        self._longest = longest if needed > 0 else shortest
        self._needed = needed
        self.due: Due | None = None
        """The timer at its end; whoever owns the suspicion sets it."""

    def confirm(self, accuser: str) -> bool:
        """Whether this changes anything: one more accuser, while more are needed."""
        if accuser in self._accusers or len(self._accusers) > self._needed:
            return False
        self._accusers.add(accuser)
        return True

    @property
    def end(self) -> float:
        confirmed = len(self._accusers) - 1
        if not self._needed:
            return self._since + self._shortest
        part = log(confirmed + 1) / log(self._needed + 1)
        return self._since + max(self._shortest, self._longest - (self._longest - self._shortest) * part)

    def postpone(self, seconds: float) -> None:
        """Time passed in which this node did not listen."""
        self._since += seconds
