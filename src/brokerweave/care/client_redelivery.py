"""What a client that came here gets from its node, and what its broker does not give it once more.

Owns what was given and the broker has yet to get. Invariants: what the broker is handed after a client had it
is taken off the stream to that client, once; what a client has, those who kept it are told. Must not know:
who may come, how all nodes are asked, how it is judged what a client lacks (`care.cutover` does).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from brokerweave.care.cutover import Cutover
from brokerweave.care.held import Held
from brokerweave.care.ids import MessageId
from brokerweave.care.newcomer import Newcomer
from brokerweave.mqtt.topics import matches
from brokerweave.session.hold_points import HoldPoint
from brokerweave.session.pair import Pair

if TYPE_CHECKING:
    from brokerweave.care.client_care import ClientCare
    from brokerweave.care.host import CareHost

MOST_GIVEN = 100_000
"""Publications that clients got from here and the broker may yet be given; beyond, the oldest go."""
MOST_EARLY = 10_000
"""Publications that a client got before it subscribed; what is beyond, it may get twice."""
SUSPECT_SECONDS = 2.0
"""How long a delivery that may come, and may not, is taken off the stream: an equal one would be, too."""


class ClientRedelivery:
    def __init__(self, host: CareHost, care: ClientCare, clients: Mapping[str, Newcomer]) -> None:
        self._host = host
        self._care = care
        self._clients = clients
        self._given: dict[MessageId, set[str]] = {}
        """Clients that got something from here which the broker was not given yet."""

    def redeliver(
        self,
        pair: Pair,
        client: str,
        cutover: Cutover,
        given: list[Held],
        hold_point: HoldPoint | None = None,
    ) -> None:
        """What it was judged to lack goes to it, before what the broker delivers behind `hold_point`."""
        self._host.redelivering(client, [held.publish for held in given])
        self._note_given(client, given)

        def done() -> None:
            entry = self._clients.get(client)
            ids = cutover.finished(given)
            if ids:
                self._care.receipts.got(client, ids, entry.keepers if entry is not None else set())

        pair.redeliver([held.publish for held in given], done, hold_point)

    def _note_given(self, client: str, given: list[Held]) -> None:
        entry, log = self._clients.get(client), self._care.log
        for held in given if entry is not None else ():
            known = log.find(held.id)
            if entry is not None and (known is None or known.sent is None):
                entry.given[held.id] = (held.publish.topic, held.hash)
                self._given.setdefault(held.id, set()).add(client)
        while len(self._given) > MOST_GIVEN:
            oldest = next(iter(self._given))
            for each in self._given.pop(oldest) & self._clients.keys():
                self._clients[each].given.pop(oldest, None)
            self._host.count("given_forgotten")  # it may come again, from the broker

    def late(self, client: str, held: list[Held], node: str, own: bool, hold_point: HoldPoint | None) -> None:
        """Publications for a client that was judged, from one who was to keep them elsewhere; `own`: here, in
        an earlier session."""
        entry, record = self._clients.get(client), self._host.sessions.records.get(client)
        if entry is None or entry.last is None:
            return
        keepers = entry.keepers if hold_point is not None else {node}
        later = [one.id for one in held if entry.last.routed_here(one)]
        if later:
            self._care.receipts.routed(client, later, keepers)
            # Who began to hold for this node after the client had it was not told.
            had = [one.id for one in held if own and one.id in later and entry.last.came_here(one)]
            self._care.receipts.got(client, had, {node})
            held = [one for one in held if one.id not in later]
        had_there = self._care.queues.had  # where it was before, as this node heard, too
        known = [one.id for one in held if entry.last.knows(one) or had_there(client, one.id)]
        self._care.receipts.got(client, known, keepers)
        if record is None or not isinstance(record.owner, Pair):
            # It is away: who keeps it is asked again when it goes on.
            entry.interrupted = entry.interrupted or len(known) < len(held)
            return
        held = [one for one in held if one.id not in known]
        given = [each for one in held for each in entry.last.late(one, self._host.now())]
        had = [one.id for one in held if entry.last.has(one)]
        if had:
            self._care.receipts.got(client, had, keepers)
        if given:
            self.redeliver(record.owner, client, entry.last, given, hold_point)

    def had_before(self, held: Held) -> None:
        """The broker acknowledged what a client sends again. It may have had it before this node was started,
        and does not deliver it to who subscribed since: what it delivers now is here when it has given a sign
        of life."""
        for client in self._care.roster.table.clients_wanting(self._host.node_id, held.publish.topic):
            entry, record = self._clients.get(client), self._host.sessions.records.get(client)
            if entry is None or entry.last is None or entry.own_before < inf:
                continue  # where it goes on the broker has it in its session
            if record is None or not isinstance(record.owner, Pair):
                continue
            if entry.last.is_judged(held.publish.topic):
                look = partial(self._look_if_lacking, client, record.owner, held)
                record.owner.ask_broker(partial(self._host.call_later, 0, look))
            else:
                entry.last.had_before(held)

    def _look_if_lacking(self, client: str, pair: Pair, held: Held) -> None:
        entry, record = self._clients.get(client), self._host.sessions.records.get(client)
        if entry is None or entry.last is None or record is None or record.owner is not pair:
            return
        if held.hash in pair.undelivered | pair.held_contents:
            return
        entry.last.had_before(held)
        given = entry.last.late(held, self._host.now())
        if given:
            self.suspect(client, entry, (held.hash,))
            self.redeliver(pair, client, entry.last, given)

    # The broker would give it again

    def suspect(self, client: str, entry: Newcomer, contents: tuple[bytes, ...]) -> None:
        """The client gets these from here, and the broker may be about to deliver them, too."""
        for one in contents:
            entry.unwanted[one] = entry.unwanted.get(one, 0) + 1
        self.suppress(client)

        def believe() -> None:
            for one in contents:
                left = entry.unwanted.pop(one, 0)
                if left > 1:
                    entry.unwanted[one] = left - 1

        self._host.call_later(SUSPECT_SECONDS, believe)

    def not_again(self, client: str, topic: str, content: bytes) -> None:
        """The broker is about to deliver this to a client that has it, if it was granted the topic by now."""
        entry, record = self._clients.get(client), self._host.sessions.records.get(client)
        if entry is None or record is None:
            return
        if any(matches(each, topic) for each in record.filters):
            entry.unwanted[content] = entry.unwanted.get(content, 0) + 1
            self.suppress(client)

    def suppress(self, client: str) -> None:
        """Its pair is to take off the stream what the broker is about to deliver once more."""
        entry, record = self._clients.get(client), self._host.sessions.records.get(client)
        if entry is not None and record is not None and isinstance(record.owner, Pair):
            record.owner.suppress(entry.unwanted)

    def writing(self, identifier: MessageId) -> set[str]:
        """The broker is about to get a publication: those who have it from here do not want it again. Who
        they are."""
        told = set()
        for client in self._given.pop(identifier, ()):
            entry = self._clients.get(client)
            known = entry.given.pop(identifier, None) if entry is not None else None
            if known is not None:
                self.not_again(client, *known)
                told.add(client)
        return told

    def forget(self, client: str, entry: Newcomer) -> None:
        """Nobody keeps anything for it any more."""
        for identifier in entry.given:
            self._given.get(identifier, set()).discard(client)
            if not self._given.get(identifier, True):
                del self._given[identifier]

    # What clients have

    def received(self, client: str, hashes: list[bytes]) -> list[bytes]:
        """A client here has these: those of them that this node's own holders keep, and not only others that
        kept them for it when it came."""
        entry = self._clients.get(client)
        if entry is None or entry.last is None:
            if entry is not None and len(entry.early) < MOST_EARLY:
                entry.early += hashes
            elif entry is not None:
                self._host.count("early_forgotten", len(hashes))  # it may get them twice
            return hashes
        rest, ids = [], []
        for one in hashes:
            found = entry.last.received((one,))
            ids += found
            if not found or entry.last.held_for_here(found[0]):
                rest.append(one)
        if ids:
            self._care.receipts.got(client, ids, entry.keepers)
        return rest

    def known_again(self, client: str, hash: bytes) -> None:
        """What this client is about to receive its publisher sent again: this node's own holders have it."""
        entry = self._clients.get(client)
        if entry is not None and entry.last is not None:
            entry.last.known_again(hash)
