"""Wills of clients whose node died, published by the first live holder of that node, once.

Owns who was told of which will. Invariants: a node's holders know the wills of its connected clients; a
holder that is not the first one waits; what one published, the others are told. Must not know: how a will
travels.
"""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING

from brokerweave.care import wire
from brokerweave.care.wills import PendingWill, PendingWills
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.packets import Will
from brokerweave.session.pair import Pair

if TYPE_CHECKING:
    from brokerweave.care.client_care import ClientCare
    from brokerweave.care.host import CareHost

MAX_BYTES = 64 << 20
MOST_LEFT = 10_000
"""Clients that the broker left, whose wills are remembered."""
WILL_OF = "\0"
"""Begins the sender of a will, as no client id does [MQTT-1.5.4-2]."""
_LONGEST = 16_000
"""Characters of a client id that are told with its will: they have to fit into 64 KiB."""
_NEVER = 0xFFFF_FFFF


class DeadWills:
    def __init__(self, host: CareHost, care: ClientCare) -> None:
        self._host = host
        self._care = care
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
            self._care.resends.remember(_sender(client, left.since), content)
        pair.came = self._care.roster.table.since(client)
        if pair.will is not None:
            expiry = _NEVER if math.isinf(pair.expiry) else int(pair.expiry)
            pending = PendingWill(client, self._host.node_id, pair.came, pair.version, pair.will, expiry)
            self._own[client] = pending
            self._tell(wire.encode_will(pending), self._care.receipts.holders())
        elif before is not None:
            self._clear(before)

    def ended(self, pair: Pair) -> None:
        """Whatever becomes of it, its own node sees to that now."""
        record = self._host.sessions.of(pair)
        pending = self._own.get(pair.client.client_id)
        if pending is not None and (record is None or record.owner in (None, pair)):
            del self._own[pending.client]
            if pair.broker_left:
                self._left.pop(pending.client, None)
                self._left[pending.client] = pending, self._host.connects
                if len(self._left) > MOST_LEFT:
                    del self._left[next(iter(self._left))]
                    self._host.count("left_wills_forgotten")  # at worst one is published twice
                self._host.call_later(self._care.window, lambda: self._forget_left(pending))
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
            self._care.resends.remember(sender, content)
        return sender

    def is_own(self, sender: tuple[str, int]) -> bool:
        """Whether it is the sender of a will whose client is connected here: its broker has it."""
        pending = self._own.get(sender[0].removeprefix(WILL_OF))
        return pending is not None and _sender(pending.client, pending.since) == sender

    def _clear(self, pending: PendingWill) -> None:
        cleared = wire.Cleared(pending.client, pending.node, pending.since)
        self._tell(wire.encode_will(cleared), self._care.receipts.holders())

    def _tell(self, payload: bytes, nodes: list[str]) -> None:
        for node in nodes:
            self._host.send_own(node, wire.WILLS, payload)

    def up(self, neighbour: str) -> None:
        """A link is up: what was told before may have been lost."""
        if self._own and neighbour in self._care.receipts.holders():
            for pending in self._own.values():
                self._host.send_own(neighbour, wire.WILLS, wire.encode_will(pending))

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
        self._pending.dead(node, self._host.now())
        self.look()

    def forgot(self, node: str) -> None:
        self._dead.discard(node)

    def look(self) -> None:
        """Publish what is due, and tell new holders of this node of its clients' wills."""
        roster, now = self._care.roster, self._host.now()
        for node in sorted(self._dead & roster.live):
            self._dead.discard(node)
            self._pending.alive(node)
        for node in sorted(self._dead):
            if roster.holders(node)[:1] == (self._host.node_id,):
                for pending in self._pending.due(node, now):
                    self._publish(pending)
        holders = frozenset(roster.holders(self._host.node_id))
        for holder in sorted(holders - self._told):
            self.up(holder)
        self._told = holders
        due = self._pending.next_due()
        if due is not None and due > now:
            self._host.call_later(due - now, self.look)

    def _publish(self, pending: PendingWill) -> None:
        sender = _sender(pending.client, pending.since)
        senders, hash = self._care.resends.senders, content_hash(pending.will.topic, pending.will.payload)
        if not senders.seen(*sender, hash):  # else another holder was first
            self._care.resends.remember(sender, hash)
            self._host.count("wills_of_dead_nodes")
            self._host.publisher.publish_will(pending.will, pending.version, sender)
        cleared = wire.encode_will(wire.Cleared(pending.client, pending.node, pending.since))
        self._tell(cleared, list(self._care.roster.reachable()))


def _sender(client: str, since: int) -> tuple[str, int]:
    return WILL_OF + client[:_LONGEST], zlib.crc32(b"%d" % since) & 0xFFFF or 1
