"""Network coordinates (Vivaldi): the round trip of two that never measured each other, guessed from those
that did.

After F. Dabek, R. Cox, F. Kaashoek, R. Morris: Vivaldi (2004), with height for the way through the access
network. Owns the places of gateways and sites, all at the controller, where their measurements meet.
Invariants: a coordinate is always finite; one sample moves a coordinate by at most `MOST_STEP`; what is no
round trip is refused and counted. Must not know: what the guess is used for.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, isfinite
from random import Random

DIMENSIONS = 3
MOST_ROUND_TRIP = 10.0
"""Seconds; what took longer says nothing about distance."""
MOST_STEP = 0.25
"""Seconds of movement by one sample."""
LEAST_HEIGHT = 1e-5
_CC = _CE = 0.25
"""How far one sample moves a coordinate, and its error (Vivaldi 4.3)."""
_MOST_ERROR = 1.5


@dataclass(slots=True)
class Coordinate:
    place: list[float]
    height: float = LEAST_HEIGHT
    error: float = _MOST_ERROR
    """Relative, of its guesses; 1.5 of one that knows nothing."""

    def distance(self, other: Coordinate) -> float:
        apart = [mine - its for mine, its in zip(self.place, other.place, strict=True)]
        return hypot(*apart) + self.height + other.height


class Coordinates:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._known: dict[str, Coordinate] = {}
        self.refused = 0

    def heard(self, one: str, other: str, round_trip: float) -> None:
        """The two measured it between them."""
        if not isfinite(round_trip) or not 0 < round_trip <= MOST_ROUND_TRIP:
            self.refused += 1
            return
        a, b = self._get(one), self._get(other)
        before = Coordinate(list(a.place), a.height, a.error)
        self._pull(a, b, round_trip)
        self._pull(b, before, round_trip)

    def guess(self, one: str, other: str) -> float | None:
        """The round trip between the two; None if either took no part yet."""
        a, b = self._known.get(one), self._known.get(other)
        if a is None or b is None:
            return None
        return a.distance(b)

    def error(self, name: str) -> float:
        found = self._known.get(name)
        return _MOST_ERROR if found is None else found.error

    def forget(self, name: str) -> None:
        self._known.pop(name, None)

    def _get(self, name: str) -> Coordinate:
        if name not in self._known:
            self._known[name] = Coordinate([0.0] * DIMENSIONS)
        return self._known[name]

    def _pull(self, mine: Coordinate, other: Coordinate, round_trip: float) -> None:
        distance = mine.distance(other)
        weight = mine.error / max(mine.error + other.error, 1e-9)
        off = abs(distance - round_trip) / round_trip
        mine.error = min(off * _CE * weight + mine.error * (1 - _CE * weight), _MOST_ERROR)
        force = max(-MOST_STEP, min(_CC * weight * (round_trip - distance), MOST_STEP))
        direction, apart = self._direction(mine, other)
        mine.place = [at + force * step for at, step in zip(mine.place, direction, strict=True)]
        if apart > 0:
            mine.height = max(mine.height + (mine.height + other.height) * force / apart, LEAST_HEIGHT)
            mine.height = min(mine.height, MOST_ROUND_TRIP)

    def _direction(self, mine: Coordinate, other: Coordinate) -> tuple[list[float], float]:
        """Away from the other; at random where both are at the same place."""
        apart = [one - its for one, its in zip(mine.place, other.place, strict=True)]
        length = hypot(*apart)
        if length > 1e-9:
            return [each / length for each in apart], length
        steps = [self._random.random() - 0.5 for _ in apart]
        return [each / max(hypot(*steps), 1e-9) for each in steps], 0.0
