"""Publication flooding (ILDM 3.1): every publication goes to every neighbour but the one it came from.

Owns nothing: the answer follows from the neighbours alone. Invariant: each node of a tree gets each
publication once. Must not know: who subscribed to what.
"""

from __future__ import annotations

from typing import ClassVar

from brokerweave.plugin import Hop, Route, Strategy


class PublicationFlooding(Strategy):
    name: ClassVar[str] = "pf"

    def route(self, topic: str, came_from: str | None) -> Route:
        return Route(tuple(Hop(n) for n in self.context.neighbours() if n != came_from), local=True)
