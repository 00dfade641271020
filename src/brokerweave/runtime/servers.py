"""What a balancer has to know of each node: where clients connect, and where to ask for its health.

Owns the answer to the admin command `servers`, and what a node tells other members to that end. Must not
know: the balancer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerweave.config import Address
from brokerweave.membership.members import MemberState
from brokerweave.membership.meta import Meta
from brokerweave.membership.presets import MOST_META

if TYPE_CHECKING:
    from brokerweave.runtime.node import Node

_ANYWHERE = ("0.0.0.0", "::")
_TABLE_ROOM = 48
"""Bytes of a member's metadata that addresses leave to the strategy."""


def own_meta(node: Node, client_port: int) -> Meta:
    """What this member tells of itself. Who listens on all addresses is reached where it is a member."""
    assert node.membership is not None
    own, host = node.config.node, node.membership.swim.me.address[0]

    def reached(address: Address, port: int) -> tuple[str, int]:
        return (host if address.host in _ANYWHERE else address.host), port

    health = reached(own.health, own.health.port) if own.health is not None and own.health.port else None
    monitor = None
    if node.monitoring is not None and node.config.monitoring.listen is not None:
        monitor = reached(node.config.monitoring.listen, node.monitoring.address[1])
    meta = Meta(reached(own.listen, client_port), health, monitor=monitor)
    if len(meta.encode()) <= MOST_META - _TABLE_ROOM:
        return meta
    node.warn(
        "the names in 'listen' and 'health' are too long for membership metadata: `haproxy` needs --server, "
        "and controllers --site"
    )
    return Meta()


def server_rows(node: Node) -> list[dict[str, str | None]]:
    """All members but those that left: who is dead stays, since it may come back. Without membership, only
    this node."""
    own = node.config.node
    if node.membership is None:
        return [_row(own.id, own.listen, own.health)]
    rows = []
    for member in node.membership.swim.members():
        meta = Meta.decode(member.meta)
        if member.state is not MemberState.LEFT and meta.clients is not None:
            rows.append(
                _row(member.id, Address(*meta.clients), Address(*meta.health) if meta.health else None)
            )
    return rows


def _row(name: str, clients: Address, health: Address | None) -> dict[str, str | None]:
    return {"id": name, "clients": str(clients), "health": str(health) if health else None}
