"""What the simulator asks a node about the clients that it cares for; nobody else here looks inside.

Owns these questions: what is kept for whom, and who has yet to hear of it. Invariant: a node without such
care keeps nothing. Must not know: what is right.
"""

from __future__ import annotations

from brokerweave.care.client_care import ClientCare
from brokerweave.node.core import NodeCore


def keeps(core: NodeCore, client: str, content: bytes) -> bool:
    """Whether a node keeps a message for a client of another one."""
    return isinstance(core.care, ClientCare) and core.care.queues.keeps(client, content)


def keeps_for_any(core: NodeCore, content: bytes) -> bool:
    care = core.care
    return isinstance(care, ClientCare) and any(keeps(core, c, content) for c in care.queues.clients)


def has_to_tell(core: NodeCore, client: str, other: str) -> bool:
    """Whether a node has yet to tell another what its client has, or cannot."""
    care = core.care
    if not isinstance(care, ClientCare):
        return True
    return care.receipts.outbox.waits_for(client) or other not in care.roster.reachable()


def pushing(core: NodeCore) -> bool:
    """Whether a node has yet to say what it keeps for others' clients."""
    return isinstance(core.care, ClientCare) and core.care.pushing
