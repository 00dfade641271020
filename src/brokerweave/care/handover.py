"""Other nodes hold for a node's clients than before: they get what is kept for these already.

Owns who is to give what to whom: without it a publication would have as few copies as there were live nodes
when it was published, whoever came since. Invariants: a node that lives asks for it itself, once its receipts
go to the new holder, too, so that none is missed; for one that is dead those who hold act by themselves. A
node that was started is a holder of clients that it had before, and that are nowhere. What comes for a client
that has asked for its queue meanwhile is not kept: nobody would say that the client has it. What comes for
one that is elsewhere, which its keeper may not have heard, is kept, and passed on to there. Must not know:
how queues are kept, how a client is judged to lack a message.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from brokerweave.care import wire

if TYPE_CHECKING:
    from brokerweave.care.client_care import ClientCare
    from brokerweave.care.host import CareHost

MOST_ASKED = 100_000
"""Clients of which it is remembered when they asked."""
PACE_SECONDS = 0.01
"""Between two pages to one node, so that what is published meanwhile need not wait for all of them."""


class Handover:
    def __init__(self, host: CareHost, care: ClientCare) -> None:
        self._host = host
        self._care = care
        self._known: set[tuple[str, str]] = set()
        """Nodes, and holders of theirs that were seen to: this node's own, and those of dead ones."""
        self._awaited: set[tuple[str, str]] = set()
        """Nodes that were asked, and the holder that each has yet to give this node's part to."""
        self._due: set[tuple[str, str]] = set()
        """Nodes that asked, and the holder that this one is to give their part to; it was not heard yet."""
        self._handing_over: set[tuple[str, str]] = set()
        """The same while it is given."""
        self._asked_at: dict[str, float] = {}
        """When clients' queues were asked for here, as they came where they are."""
        host.controls |= {
            wire.HAND: self._requested,
            wire.HANDED: self._arrived,
            wire.GIVEN: self._was_given,
        }

    @property
    def pending(self) -> int:
        """What is not done yet, or about to begin: until then something may have fewer copies than it
        should."""
        roster = self._care.roster
        untold = sum(not roster.has_told(node) for node in roster.live if node != self._host.node_id)
        return untold + len(self._awaited) + len(self._due) + len(self._handing_over)

    def look(self) -> None:
        """Others live than before, or a neighbour has told its clients: are there new holders?"""
        roster, me = self._care.roster, self._host.node_id
        for holder in self._new(me):
            self._care.receipts.flush()  # what was said before it was a holder goes before this
            self._ask(self._care.receipts.holders(), holder)
        if roster.table.orphaned(me):
            self._ask([node for node in roster.reachable() if (node, me) not in self._known], me)
        for due in [due for due in self._due if roster.has_told(due[1])]:
            self._due.discard(due)
            self._give(*due)
        for node in roster.dead():
            for holder in self._new(node):
                self._give(node, holder)

    def sought(self, node: str) -> None:
        """A node keeps something for a client of before this one was started, and may be out of reach of
        where that is by now."""
        if (node, self._host.node_id) not in self._known:
            self._ask([node], self._host.node_id)

    def asked(self, client: str) -> None:
        """A client has asked for what is kept here: what is older, and comes later, is not owed to it."""
        self._asked_at.pop(client, None)
        self._asked_at[client] = self._host.now()
        if len(self._asked_at) > MOST_ASKED:
            del self._asked_at[next(iter(self._asked_at))]

    def down(self, neighbour: str) -> None:
        """It may have lost all that it had when its link is up again."""
        self._known = {pair for pair in self._known if neighbour not in pair}
        self._awaited = {pair for pair in self._awaited if neighbour not in pair}
        self._due = {pair for pair in self._due if neighbour not in pair}

    def _new(self, node: str) -> list[str]:
        roster, me = self._care.roster, self._host.node_id
        holders = [
            (node, holder) for holder in roster.holders(node) if holder != me and roster.has_told(holder)
        ]
        new = [pair for pair in holders if pair not in self._known]
        self._known.update(new)
        return [holder for _, holder in new]

    def _ask(self, nodes: Iterable[str], holder: str) -> None:
        for node in nodes:
            if node != holder and self._care.roster.has_told(node):
                if holder == self._host.node_id:
                    self._known.add((node, holder))
                self._awaited.add((node, holder))
                self._host.send_own(node, wire.HAND, wire.encode_holder(holder))

    def _requested(self, neighbour: str, payload: bytes) -> None:
        holder = wire.decode_holder(payload)
        if holder in self._host.neighbour_table:
            self._due.add((neighbour, holder))
            self.look()

    def _was_given(self, neighbour: str, payload: bytes) -> None:
        self._awaited.discard((neighbour, wire.decode_holder(payload)))

    def _give(self, node: str, holder: str) -> None:
        if (node, holder) not in self._handing_over:
            self._handing_over.add((node, holder))
            self._give_on(node, holder, self._pages(node))

    def _pages(self, node: str) -> Iterator[bytes]:
        queues, dead = self._care.queues, node not in self._care.roster.live
        for client in queues.clients:
            kept = {node: queues.copy(client, node)}
            if dead:  # else the client gets it from here, and the node says so
                kept |= queues.left_behind(client, node, self._since(client))
            for home, part in kept.items():
                yield from wire.encode_handed(home, client, dead and home == node, part, self._host.now())

    def _since(self, client: str) -> float:
        """What was kept here by then a client has asked for, as far as this node can know."""
        return max(self._asked_at.get(client, 0.0), self._care.started)

    def _give_on(self, node: str, holder: str, pages: Iterator[bytes]) -> None:
        page = next(pages, None) if self._care.roster.has_told(holder) else None
        if page is None:
            self._handing_over.discard((node, holder))
            self._host.send_own(node, wire.GIVEN, wire.encode_holder(holder))
            return
        self._host.count("queues_handed_over")
        self._host.send_own(holder, wire.HANDED, page)
        self._host.call_later(PACE_SECONDS, lambda: self._give_on(node, holder, pages))

    def _arrived(self, neighbour: str, payload: bytes) -> None:
        handed = wire.decode_handed(payload, self._host.now())
        home = self._care.roster.table.home(handed.client)
        if not home == handed.node == self._host.node_id:
            self._care.take_over(handed, self._asked_at.get(handed.client, 0.0))
