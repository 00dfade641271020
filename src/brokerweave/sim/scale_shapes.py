"""Wirings of many nodes, by their shape: who is linked with whom, and how far it is.

Owns the shapes: trees, and the mesh, where all are linked with all. Invariant: in a tree node 0 is the root
and every node's parent has a smaller number, so one pass up or down the numbers sees children before parents
or after them. Must not know: nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from random import Random

HUB = "hub"
SHAPES = ("row", "binary", "star", "random", HUB)
"""`star` is a star of stars: a root, about as many hubs as leaves at each hub. In `hub` the root is linked
with all."""


class TreeShape:
    def __init__(self, nodes: int, shape: str, random: Random) -> None:
        hubs = isqrt(nodes)
        parent_of: dict[str, Callable[[int], int]] = {
            "row": lambda number: number - 1,
            "binary": lambda number: (number - 1) // 2,
            "star": lambda number: 0 if number <= hubs else (number - 1) % hubs + 1,
            "random": lambda number: random.randrange(number),
            HUB: lambda number: 0,
        }
        self.parents = [-1, *(parent_of[shape](number) for number in range(1, nodes))]
        self._depth = [0] * nodes
        for number in range(1, nodes):
            self._depth[number] = self._depth[self.parents[number]] + 1

    def edges(self) -> list[tuple[int, int]]:
        """(child, parent), the child of number n at n - 1."""
        return list(enumerate(self.parents))[1:]

    def diameter(self) -> int:
        """Links between the two nodes that are farthest apart."""
        height, longest = [0] * len(self.parents), 0
        for number in range(len(self.parents) - 1, 0, -1):
            parent, up = self.parents[number], height[number] + 1
            longest = max(longest, height[parent] + up)
            height[parent] = max(height[parent], up)
        return longest

    def farthest(self) -> int:
        """A node that is farthest from the root."""
        return max(range(len(self.parents)), key=self._depth.__getitem__)

    def middle(self) -> int:
        """The edge whose loss leaves two parts of most equal size, as a place in `edges`."""
        size = [1] * len(self.parents)
        for number in range(len(self.parents) - 1, 0, -1):
            size[self.parents[number]] += size[number]
        half = len(self.parents) / 2
        return min(range(1, len(size)), key=lambda number: abs(size[number] - half)) - 1


class FullMesh:
    """As `TreeShape`, where everybody is linked with everybody."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes

    def edges(self) -> list[tuple[int, int]]:
        return [(one, other) for one in range(1, self._nodes) for other in range(one)]

    def diameter(self) -> int:
        return 1

    def farthest(self) -> int:
        return self._nodes - 1
