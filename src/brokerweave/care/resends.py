"""Publications that come again: a publisher that lost its site sends them to another one (decision 0011).

Owns what this node has acted on, and what of it the broker may not have read. Invariants: what comes again is
acted on once here; for clients of a site out of reach it is kept all the same, once; who keeps it under its
new name is told which clients have it. Must not know: connections, how anything is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from brokerweave.care import held
from brokerweave.care.dead_wills import WILL_OF
from brokerweave.care.ids import MessageId
from brokerweave.care.senders import Senders
from brokerweave.links.run import Run
from brokerweave.mqtt import codec
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.frames import publish_head
from brokerweave.mqtt.packets import Publish
from brokerweave.session.pair import Pair

if TYPE_CHECKING:
    from brokerweave.care.client_care import ClientCare
    from brokerweave.care.host import CareHost

READ_SECONDS = 1.0
"""How long the broker may take to read what a client sent before it left."""
MOST_UNREAD = 10_000
_DUP = 0x08


class Resends:
    def __init__(self, host: CareHost, care: ClientCare) -> None:
        self._host = host
        self._care = care
        self.senders = Senders()
        self._turning = False
        self._unread: dict[tuple[str, int], bytes] = {}
        """Senders and content of what the broker may not have got, since its publisher left before an answer:
        sent again, it is the broker's. Its subscribers may get it twice, others do not."""

    def sender(
        self, publish: Publish, pair: Pair, holds: tuple[str, ...], resent: bool
    ) -> tuple[tuple[str, int] | None, tuple[str, ...]]:
        """By what others know a publication that a client here made, should it come again; and for whose
        clients it is to be kept here."""
        client = pair.client.client_id
        if not client or not publish.packet_id:
            return None, holds
        sender, name = (client, publish.packet_id), _hash(publish)
        self.remember(sender, name, self._host.node_id if publish.dup else None)
        new = self._to_keep(sender, name, holds, resent)
        return sender, new if resent else holds

    def _to_keep(
        self, sender: tuple[str, int], hash: bytes, holds: tuple[str, ...], known: bool
    ) -> tuple[str, ...]:
        """For whose clients something is to be kept that this node acts on: if it has done so before, only
        for those of nodes out of reach that others were to keep it for. They may be gone, too."""
        nodes = [node for node in holds if not (known and self._care.roster.has_told(node))]
        return self.senders.keep(*sender, hash, nodes) if nodes else ()

    def to_keep(self, run: Run, nodes: Iterable[str]) -> tuple[str, ...]:
        """Those of these nodes for whose clients it was not kept here before: as it was sent first it may
        have been, and who got it then was said."""
        if run.sender is None or not run.blob[0] & _DUP:
            return tuple(nodes)
        return self.senders.keep(*run.sender, _content(run)[1], nodes)

    def remember(self, sender: tuple[str, int], hash: bytes, resent_to: str | None = None) -> None:
        self.senders.note(*sender, hash, resent_to)
        if not self._turning:
            self._turning = True
            self._host.call_later(self._care.window, self._turn)

    def _turn(self) -> None:
        # Not by the clock, which may be set.
        self._turning = self.senders.turn()
        if self._turning:
            self._host.call_later(self._care.window, self._turn)

    def note(self, run: Run, holds: tuple[str, ...]) -> tuple[bool, tuple[str, ...]]:
        """Remember what a run brings that has a sender. Whether this node had acted on it, and for whose
        clients it is to be kept here."""
        assert run.sender is not None
        topic, name = _content(run)
        again = bool(run.blob[0] & _DUP) or run.sender[0].startswith(WILL_OF)
        if again:
            known = self.senders.seen(*run.sender, name)
        else:
            known = self.senders.overtaken(*run.sender, name, run.origin)
        if not (known or run.stamp or self._acts(topic, holds)):
            return False, ()
        self.remember(run.sender, name, run.origin if again else None)
        return known, self._to_keep(run.sender, name, holds, known)

    def _acts(self, topic: str, holds: tuple[str, ...]) -> bool:
        """Not where this node was just started, nobody here wants it, and it is to keep it for clients that
        it has yet to hear of: it keeps nothing, and may be where they come back when it is sent again."""
        roster = self._care.roster
        return all(map(roster.knows, holds)) or self._host.node_id in roster.table.nodes_wanting(topic)

    def repeated(self, run: Run, lane: int) -> bool:
        """Whether this node has acted on what a run of a resent publication, or of a will, brings."""
        if run.sender is None:
            return False
        known, keep = self.note(run, run.holds)
        if known and keep:
            self._care.hold(replace(run, holds=keep), lane)
        known = known or self._care.wills.is_own(run.sender)
        if known:
            self.known_again(run, lane)
        return known

    def left(self, run: Run, lane: int, holds: tuple[str, ...]) -> None:
        """A client left before the broker acknowledged what it published: nobody will hear when that has
        it."""
        self.note(run, holds)
        lane = lane if self._host.settings.ordered else 0
        identifier = MessageId(run.origin, run.epoch, lane, run.first)
        self._care.log.sent_before(identifier)
        self._host.call_later(READ_SECONDS, lambda: self._care.log.ended(identifier))
        publish = codec.decode(run.blob, run.version)
        if isinstance(publish, Publish) and run.sender is not None:
            self._unread[run.sender] = _hash(publish)
            if self._care.returns.attempts.under_way:
                self._care.returns.attempts.published(
                    held.hold(identifier, publish, run.version, run.born), *run.sender
                )
        while len(self._unread) > MOST_UNREAD:
            del self._unread[next(iter(self._unread))]
            self._host.count("unread_forgotten")  # most of them the broker has

    def resent(self, pair: Pair, publish: Publish) -> bool:
        """Whether this node has acted on a publication that a client sends again, and its broker has it."""
        client, name = pair.client.client_id, _hash(publish)
        if self._unread.pop((client, publish.packet_id), None) == name:
            return False
        return bool(client) and self.senders.seen(client, publish.packet_id, name)

    def known_again(self, run: Run, lane: int) -> None:
        """Who has not acted on it before keeps it from now on for clients here, under its new name: they
        hear who of these has it, or will when it has."""
        topic, name = _content(run)
        lane = lane if self._host.settings.ordered else 0
        ids = [MessageId(run.origin, run.epoch, lane, run.first)]
        receipts = self._care.receipts
        for client in self._care.roster.table.clients_wanting(self._host.node_id, topic):
            if receipts.recent.has(client, name):
                receipts.got(client, ids, {*receipts.holders(), run.origin})
            else:
                self._care.returns.redelivery.known_again(client, name)


def _content(run: Run) -> tuple[str, bytes]:
    """The topic of a run of one publication, and the hash of what it says."""
    head = publish_head(run.blob, run.version)
    return head.topic.decode(), content_hash(head.topic, run.blob[head.payload_start :])


def _hash(publish: Publish) -> bytes:
    return content_hash(publish.topic, publish.payload)
