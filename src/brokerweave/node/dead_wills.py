"""Wills of clients whose node died: the first live holder of that node publishes them, once.

Owns which holder was told of which will. Invariants: a node's holders know the wills of its connected
clients; a holder that is not the first one waits; the others hear which wills were published. Must not know:
how a will travels.
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING

from brokerweave.failover import wire
from brokerweave.failover.wills import PendingWill, PendingWills
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.packets import Will
from brokerweave.session.pair import Pair

if TYPE_CHECKING:
    from brokerweave.node.core import NodeCore
    from brokerweave.node.failover import Failover

MAX_BYTES = 64 << 20
MOST_LEFT = 10_000
"""Clients that the broker left, whose wills are remembered."""
WILL_OF = "\0"
"""Begins the sender of a will, as no client id does [MQTT-1.5.4-2]."""
_LONGEST = 16_000
"""Characters of a client id that are told with its will: they have to fit into 64 KiB."""
_NEVER = 0xFFFF_FFFF


class DeadWills:
    def __init__(self, core: NodeCore, failover: Failover) -> None:
        self._core = core
        self._failover = failover
        self._pending = PendingWills(MAX_BYTES)
        self._own: dict[str, PendingWill] = {}
        self._left: dict[str, tuple[PendingWill, int]] = {}
        """By client, of pairs that the broker left: the will, and the number of the last CONNECT before."""
        self._told: frozenset[str] = frozenset()
        self._dead: set[str] = set()

    # Of this node's clients

    def accepted(self, pair: Pair) -> None:
        client = pair.client.client_id
        before = self._own.pop(client, None)
        left, last = self._left.pop(client, (None, 0))
        if left is not None and pair.connect_number <= last:
            # The broker did not die: it took the client's connection over, and published the will.
            content = content_hash(left.will.topic, left.will.payload)
            self._failover.resends.remember(_sender(client, left.since), content)
        pair.came = self._failover.mesh.table.since(client)
        if pair.will is not None:
            expiry = _NEVER if math.isinf(pair.expiry) else int(pair.expiry)
            pending = PendingWill(client, self._core.node_id, pair.came, pair.version, pair.will, expiry)
            self._own[client] = pending
            self._tell(wire.encode_will(pending), self._failover.receipts.holders())
        elif before is not None:
            self._clear(before)

    def ended(self, pair: Pair) -> None:
        """Whatever becomes of it, its own node sees to that now."""
        record = self._core.sessions.of(pair)
        pending = self._own.get(pair.client.client_id)
        if pending is not None and (record is None or record.owner in (None, pair)):
            del self._own[pending.client]
            if pair.broker_left:
                self._left.pop(pending.client, None)
                self._left[pending.client] = pending, self._core.connects
                if len(self._left) > MOST_LEFT:
                    del self._left[next(iter(self._left))]
                    self._core.counters.add("left_wills_forgotten")  # at worst one is published twice
                self._core.call_later(self._failover.window, lambda: self._forget_left(pending))
            self._clear(pending)

    def _forget_left(self, pending: PendingWill) -> None:
        left, _ = self._left.get(pending.client, (None, 0))
        if left is pending:
            del self._left[pending.client]

    def mark(self, pair: Pair, will: Will) -> tuple[str, int]:
        """The sender of a will that is due here. Others may think that this node is dead, and publish it,
        too: what they send is not for the broker here, unless that died with its client: `accepted` may show
        that it did not."""
        sender = _sender(pair.client.client_id, pair.came)
        if not pair.broker_left:
            content = content_hash(will.topic, will.payload)
            self._failover.resends.remember(sender, content)
        return sender

    def is_own(self, sender: tuple[str, int]) -> bool:
        """Whether it is the sender of a will whose client is connected here: its broker has it."""
        pending = self._own.get(sender[0].removeprefix(WILL_OF))
        return pending is not None and _sender(pending.client, pending.since) == sender

    def _clear(self, pending: PendingWill) -> None:
        cleared = wire.Cleared(pending.client, pending.node, pending.since)
        self._tell(wire.encode_will(cleared), self._failover.receipts.holders())

    def _tell(self, payload: bytes, nodes: list[str]) -> None:
        for node in nodes:
            self._core.send_own(node, wire.WILLS, payload)

    def up(self, neighbour: str) -> None:
        """A link is up: what was told before may have been lost."""
        if self._own and neighbour in self._failover.receipts.holders():
            for pending in self._own.values():
                self._core.send_own(neighbour, wire.WILLS, wire.encode_will(pending))

    # Of others

    def arrived(self, neighbour: str, payload: bytes) -> None:
        change = wire.decode_will(payload)
        if isinstance(change, PendingWill):
            self._pending.told(change)
        else:
            self._pending.cleared(change.client, change.since)

    def moved(self, client: str, since: int) -> None:
        """It is somewhere else since then, with a will of its own or none."""
        self._pending.cleared(client, since - 1)

    def died(self, node: str) -> None:
        self._dead.add(node)
        self._pending.dead(node, self._core.now())
        self.look()

    def forgot(self, node: str) -> None:
        self._dead.discard(node)

    def look(self) -> None:
        """Publish what is due, and tell new holders of this node of its clients' wills."""
        mesh, now = self._failover.mesh, self._core.now()
        for node in sorted(self._dead & mesh.live):
            self._dead.discard(node)
            self._pending.alive(node)
        for node in sorted(self._dead):
            if mesh.holders(node)[:1] == (self._core.node_id,):
                for pending in self._pending.due(node, now):
                    self._publish(pending)
        holders = frozenset(mesh.holders(self._core.node_id))
        for holder in sorted(holders - self._told):
            self.up(holder)
        self._told = holders
        due = self._pending.next_due()
        if due is not None and due > now:
            self._core.call_later(due - now, self.look)

    def _publish(self, pending: PendingWill) -> None:
        sender = _sender(pending.client, pending.since)
        senders, hash = self._failover.resends.senders, content_hash(pending.will.topic, pending.will.payload)
        if not senders.seen(*sender, hash):  # else another holder was first
            self._failover.resends.remember(sender, hash)
            self._core.counters.add("wills_of_dead_nodes")
            self._core.publisher.publish_will(pending.will, pending.version, sender)
        cleared = wire.encode_will(wire.Cleared(pending.client, pending.node, pending.since))
        self._tell(cleared, list(self._failover.mesh.reachable()))


def _sender(client: str, since: int) -> tuple[str, int]:
    return WILL_OF + client[:_LONGEST], zlib.crc32(b"%d" % since) & 0xFFFF or 1
