"""What clients have: their site says it, and who keeps it for them hears it (docs/decisions/0011-mesh.md).

Owns the receipts, those that go out and how far those of others were taken; who is to hear them; and what
clients here had a moment ago. Invariants: receipts go out before this node reads, or passes on, anything more
than the turn in which clients answered; none is acknowledged before the disk has what follows from it; who
held for this node hears them for a window longer. Must not know: what is kept and for whom (`queues` does),
what a client lacks, sockets, clocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerweave.care import wire
from brokerweave.care.ids import MessageId
from brokerweave.care.kept_topics import KeptTopics
from brokerweave.care.receipt_outbox import EVERYBODY, ReceiptOutbox, ReceiptsTaken
from brokerweave.care.recent import Recent
from brokerweave.session.pair import Pair

if TYPE_CHECKING:
    from brokerweave.care.client_care import ClientCare
    from brokerweave.care.host import CareHost

TAKEN_SECONDS = 0.1
"""Between two acknowledgements of receipts to one node."""
BEHIND_SECONDS = 1.0
"""Until it is looked again whether the disk has what it did not take."""


class ReceiptExchange:
    def __init__(self, host: CareHost, care: ClientCare) -> None:
        self._host = host
        self._care = care
        self.outbox = ReceiptOutbox(host.settings.epoch)
        self.recent = Recent()
        self._taken = ReceiptsTaken()
        self._to_acknowledge: set[str] = set()
        self._flushing = False
        self._holders: dict[str, float] = {}
        """Nodes that hold for this one, or did lately, and until when they are told what clients have."""
        self._topics = KeptTopics()
        self._turning = False
        host.controls |= {
            wire.RECEIPTS: self._receipts_arrived,
            wire.RECENT: self._recent_arrived,
            wire.GOT: self._got_arrived,
            wire.ROUTED: self._routed_arrived,
            wire.KEPT: self._kept_there,
            wire.TAKEN: self._taken_there,
        }

    # Of what is anybody to hear who has it?

    def kept(self, topic: bytes) -> None:
        """Something at QoS 1 or 2 is on its way to the broker here."""
        self._topics.note(topic)
        self.turn_later(self._care.window)

    def keeps(self, topic: bytes) -> bool:
        """Whether somebody may keep what was published on a topic for those who asked for QoS 0."""
        return topic in self._topics

    def turn_later(self, seconds: float) -> None:
        """Topics on which nothing came by then, nor in the window after it, do not count any more."""
        if not self._turning:
            self._turning = True
            self._host.call_later(seconds, self._turn)

    def _turn(self) -> None:
        self._turning = False
        if self._topics.turn():
            self.turn_later(self._care.window)

    # What clients here have

    def received(self, pair: Pair, hashes: list[bytes]) -> None:
        """A client has these."""
        record, queues = self._host.sessions.of(pair), self._care.queues
        if record is None or record.client_id.startswith("\0"):
            return
        if any(record.filters.values()):  # else most of it was published at QoS 0, and nobody keeps that
            self.recent.note(record.client_id, hashes, self._host.now())
        rest = self._care.returns.redelivery.received(record.client_id, hashes)
        if rest and (self._care.roster.alone or queues.has_pending(record.client_id)):
            queues.received(record.client_id, rest, self._host.now(), home=self._host.node_id)
        if rest:
            self.outbox.received(record.client_id, rest)
        self._flush_later()

    def got(self, client: str, ids: list[MessageId], nodes: set[str]) -> None:
        """A client has these; these nodes kept them for it."""
        self._host.sessions.had(client, ids)
        self._care.queues.got(client, ids, self._host.now())
        others = nodes | {EVERYBODY} if self._care.warming_up else nodes
        self.outbox.got(client, ids, others - {self._host.node_id})
        self._flush_later()

    def routed(self, client: str, ids: list[MessageId], nodes: set[str]) -> None:
        """A client that came back gets these from its broker here, as this node's own holders know."""
        own, roster, queues = self._host.node_id, self._care.roster, self._care.queues
        if roster.alone or client in roster.cut_off:
            queues.routed(client, ids, own)
        else:
            queues.routed_there(client, ids, own)
        self.outbox.got(client, ids, nodes - {own}, wire.ROUTED)
        self._flush_later()

    def _flush_later(self) -> None:
        """At the end of this turn, those who keep what a client here has hear of it, and so does the disk."""
        if not self._flushing and (self.outbox.waiting or self._care.queues.shelf.behind):
            self._flushing = True
            self._host.call_later(0, self.flush)

    def flush(self) -> None:
        """At once."""
        self._flushing = False
        self._care.queues.flush()
        if self.outbox.waiting:
            reachable = set(self._care.roster.reachable())
            for node, topic, payload in self.outbox.flush(self.holders(), reachable, self._care.warming_up):
                self._host.send_own(node, topic, payload)
            # Before this node reads, or passes on, anything more: at its death only what was in flight to a
            # client is not known to be the client's.
            self._host.write_controls()

    def _taken_there(self, neighbour: str, payload: bytes) -> None:
        life, number, _ = wire.decode_number(payload)
        self.outbox.acknowledged(neighbour, life, number)

    # Who is to hear it

    def holders(self) -> list[str]:
        """Who is to hear what this node's clients have: also those that held for it a moment ago, and may
        be out of reach, or who did before it was started. They still hold if they are not dead."""
        host, now = self._host, self._host.now()
        # Of one that is young anybody may have kept something before it was started.
        warming_up, roster = self._care.warming_up, self._care.roster
        for node in host.neighbours() if warming_up else roster.holders(host.node_id):
            self._holders[node] = now + self._care.window
        for node in [node for node, until in self._holders.items() if until < now]:
            del self._holders[node]
            self.outbox.gone(node)
        return list(self._holders)

    def up(self, neighbour: str) -> None:
        """A link is new. The neighbour may have been restarted, and have thought until now that this node is
        dead."""
        for node in (neighbour, *self._care.roster.stand_ins()):
            self._holders[node] = self._host.now() + self._care.window
        for node, topic, payload in self.outbox.back(neighbour):
            self._host.send_own(node, topic, payload)
        # Others may have known it for a holder before, and given it what clients here have by now.
        self._tell_recent(neighbour)

    def _kept_there(self, neighbour: str, payload: bytes) -> None:
        """A neighbour keeps something for clients here, since one who was to does not know them yet."""
        if neighbour not in self.holders():
            self._tell_recent(neighbour)
        self._holders[neighbour] = self._host.now() + self._care.window

    def _tell_recent(self, neighbour: str) -> None:
        for payload in wire.encode_receipts(self.recent.latest()):
            self._host.send_own(neighbour, wire.RECENT, payload)

    # What clients elsewhere have

    def _receipts_arrived(self, neighbour: str, payload: bytes) -> None:
        queues, now = self._care.queues, self._host.now()
        for client, hashes in wire.decode_receipts(self._numbered(neighbour, payload)):
            queues.received(client, hashes, now, home=neighbour)
        queues.flush()

    def _recent_arrived(self, neighbour: str, payload: bytes) -> None:
        """What its clients got before it knew that this node may hold for it."""
        queues = self._care.queues
        for client, hashes in wire.decode_receipts(payload):
            queues.received_before(client, hashes, self._host.now(), neighbour)
        queues.flush()
        self._care.tick_later()

    def _got_arrived(self, neighbour: str, payload: bytes) -> None:
        queues = self._care.queues
        for client, ids in wire.decode_got(self._numbered(neighbour, payload)):
            queues.got(client, ids, self._host.now())
        self._care.tick_later()
        queues.flush()

    def _routed_arrived(self, neighbour: str, payload: bytes) -> None:
        queues = self._care.queues
        for client, ids in wire.decode_got(self._numbered(neighbour, payload)):
            if self._host.node_id in self._care.roster.holders(neighbour):
                queues.routed(client, ids, neighbour)
            else:
                queues.routed_there(client, ids, neighbour)
        queues.flush()

    def _numbered(self, neighbour: str, payload: bytes) -> bytes:
        """What follows the number; nothing if it was taken before."""
        life, number, rest = wire.decode_number(payload)
        if neighbour not in self._to_acknowledge:
            self._to_acknowledge.add(neighbour)
            self._host.call_later(TAKEN_SECONDS, lambda: self._acknowledge(neighbour))
        return rest if self._taken.accept(neighbour, life, number) else b""

    def _acknowledge(self, neighbour: str) -> None:
        if self._care.queues.shelf.behind:  # should this node end before the disk has it, it goes again
            self._host.call_later(BEHIND_SECONDS, lambda: self._acknowledge(neighbour))
            return
        self._to_acknowledge.discard(neighbour)
        self._host.send_own(neighbour, wire.TAKEN, wire.encode_number(*self._taken.of(neighbour)))
