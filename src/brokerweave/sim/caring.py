"""What the simulator asks a node about the clients that it cares for; nobody else here looks inside.

Owns these questions: what is kept for whom, who has yet to hear of it, where a node takes a client to be.
Invariant: a node without such care keeps nothing and knows of nobody. Must not know: what is right.
"""

from __future__ import annotations

from brokerweave.links.journal import Journal
from brokerweave.node.core import NodeCore


def keep_in(core: NodeCore, journal: Journal | None) -> None:
    """What is kept is on disk from now on."""
    if core.failover is not None:
        core.failover.keep_in(journal)


def keeps(core: NodeCore, client: str, content: bytes) -> bool:
    """Whether a node keeps a message for a client of another one."""
    return core.failover is not None and core.failover.queues.keeps(client, content)


def keeps_for_any(core: NodeCore, content: bytes) -> bool:
    return core.failover is not None and any(keeps(core, c, content) for c in core.failover.queues.clients)


def has_to_tell(core: NodeCore, client: str, other: str) -> bool:
    """Whether a node has yet to tell another what its client has, or cannot."""
    care = core.failover
    return care is None or care.receipts.outbox.waits_for(client) or other not in care.mesh.reachable()


def pushing(core: NodeCore) -> bool:
    """Whether a node has yet to say what it keeps for others' clients."""
    return core.failover is not None and core.failover.pushing


def home(core: NodeCore, client: str) -> str | None:
    """The node at which this one takes a client to be."""
    return core.failover.mesh.table.home(client) if core.failover is not None else None


def has_left(core: NodeCore, client: str, site: str) -> bool:
    """Whether a node has heard that a client which a site still has is elsewhere since later."""
    if core.failover is None:
        return False
    return client in core.failover.mesh.table.clients(site) and home(core, client) != site
