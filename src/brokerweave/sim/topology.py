"""The wiring of a run: which nodes are neighbours, and who dials whom.

Owns the links as their operators mean them to be. Invariant: in a tree there is one way between two nodes, or
none. Must not know: whether a link is up.
"""

from __future__ import annotations

from itertools import combinations
from random import Random

STAR = "star"
SHAPES = ("row", STAR, "random")
FULL = "mesh"
CYCLIC = ("ring", FULL, "chords")
WIRINGS = ("any", "tree", *CYCLIC)
"""How links may be laid. `mesh`: every node with every other; `chords`: a tree and some more links; `any`: as
the seed decides."""


class Topology:
    def __init__(self, names: list[str]) -> None:
        self.names = names
        self._next: dict[str, set[str]] = {name: set() for name in names}
        self._paths: dict[tuple[str, str], tuple[str, ...] | None] = {}

    def edges(self) -> list[tuple[str, str]]:
        return sorted((a, b) for a, others in self._next.items() for b in others if a < b)

    def neighbours(self, name: str) -> list[str]:
        return sorted(self._next[name])

    def add(self, one: str, other: str) -> None:
        self._next[one].add(other)
        self._next[other].add(one)
        self._paths.clear()

    def remove(self, one: str, other: str) -> None:
        self._next[one].discard(other)
        self._next[other].discard(one)
        self._paths.clear()

    def path(self, start: str, end: str) -> tuple[str, ...] | None:
        """The nodes from `start` to `end`, both included; None if there is no way."""
        key = (start, end)
        if key not in self._paths:
            self._paths[key] = self._find(start, end)
        return self._paths[key]

    def component(self, name: str) -> list[str]:
        return [other for other in self.names if self.path(name, other) is not None]

    def _find(self, start: str, end: str) -> tuple[str, ...] | None:
        waiting: list[tuple[str, ...]] = [(start,)]
        seen = {start}
        while waiting:
            path = waiting.pop(0)
            if path[-1] == end:
                return path
            for following in sorted(self._next[path[-1]] - seen):
                seen.add(following)
                waiting.append((*path, following))
        return None


def decide(wiring: str, random: Random) -> str:
    """What a seed makes of `any`."""
    return random.choice(("tree", "tree", *CYCLIC)) if wiring == "any" else wiring


def lay(names: list[str], wiring: str, random: Random) -> list[tuple[str, str]]:
    """The links of a wiring, each as (dialing node, dialed node)."""
    if wiring in ("tree", STAR):
        return tree(names, STAR if wiring == STAR else random.choice(SHAPES), random)
    pairs = list(combinations(names, 2))
    if wiring == "ring":
        pairs = sorted({tuple(sorted((a, b))) for a, b in zip(names, [*names[1:], names[0]], strict=True)})  # type: ignore[misc]
    elif wiring == "chords":
        chosen = {tuple(sorted(pair)) for pair in tree(names, random.choice(SHAPES), random)}
        others = [pair for pair in pairs if pair not in chosen]
        more = random.sample(others, min(len(others), random.randint(1, len(names) - 1)))
        pairs = [pair for pair in pairs if pair in chosen or pair in more]
    return [pair if random.random() < 0.5 else pair[::-1] for pair in pairs]


def tree(names: list[str], shape: str, random: Random) -> list[tuple[str, str]]:
    """Edges of a tree, each as (dialing node, dialed node)."""
    edges = []
    for number in range(1, len(names)):
        if shape == "row":
            parent = number - 1
        elif shape == STAR:
            parent = 0
        else:
            parent = random.randrange(number)
        pair = (names[number], names[parent])
        edges.append(pair if random.random() < 0.5 else pair[::-1])
    return edges
