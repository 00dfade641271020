"""What a balancer has to know of each node: where clients connect, and where to ask for its health.

Owns the answer to the admin command `servers`. Must not know: the balancer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brokerweave.runtime.node import Node


def server_rows(node: Node) -> list[dict[str, str | None]]:
    """This node; without membership it knows no other node's addresses for clients."""
    own = node.config.node
    return [{"id": own.id, "clients": str(own.listen), "health": str(own.health) if own.health else None}]
