"""How real nodes are linked on one machine, as their strategy needs it.

Invariant: nodes are started one after another, and each calls some of those before it. Must not know: nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from brokerweave.plugin import NetworkShape

_Node = TypeVar("_Node")


def called(wiring: NetworkShape, before: Sequence[_Node]) -> tuple[_Node, ...]:
    """Those that a node calls of all before it: the last in a row, the first in a star, or every one."""
    return tuple(
        {NetworkShape.TREE: before[-1:], NetworkShape.STAR: before[:1], NetworkShape.FULL: before}[wiring]
    )


def links(wiring: NetworkShape, number: int, nodes: int) -> int:
    """How many neighbours the node of that number has."""
    if wiring is NetworkShape.TREE:
        return (number > 0) + (number < nodes - 1)
    return nodes - 1 if wiring is NetworkShape.FULL or number == 0 else 1
