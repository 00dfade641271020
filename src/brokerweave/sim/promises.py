"""The promises that differ between builds, and the exception for a broken one.

Owns the switches by which invariants get stricter as nodes keep more over a kill. Must not know: how anything
is checked.
"""

from __future__ import annotations

from dataclasses import dataclass


class Broken(BaseException):
    """An invariant does not hold. Not an `Exception`: nothing on the way may take it for its own."""


@dataclass(frozen=True, slots=True)
class Promises:
    """Each False is a loss or repetition that is let pass, and counted, where its cause happened."""

    interest_survives_restart: bool = True
    """A node restarted with its disk knows at once who wants what, here and behind each neighbour."""
    ids_survive_kill: bool = True
    """After kill -9 a node still knows which QoS 2 publications it has forwarded."""
    window_survives_kill: bool = True
    """After kill -9 a node still knows which messages of other origins it has taken."""
    retained: bool = True
    """After the last fault every broker retains the same messages."""
