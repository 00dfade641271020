"""Bugs to plant in the mesh and in membership, each by name: the simulator must find every one of them.

`IN_MESH` break what nodes of a mesh do, and are looked for in runs of a mesh; `IN_MEMBERSHIP` break who knows
of whom, and are looked for in runs of members alone. `UNSEEN` were written down from the documents by someone
who had not read the simulator.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any

import pytest
from brokerweave.care.dead_wills import WILL_OF, DeadWills
from brokerweave.care.queues import Queues
from brokerweave.care.receipts import ReceiptExchange
from brokerweave.care.senders import Senders
from brokerweave.cooperation.clients import ClientEntry, ClientTable

from brokerweave.cooperation.mesh import Mesh
from brokerweave.membership import wire
from brokerweave.membership.members import Claim, MemberState
from brokerweave.membership.rules import Rules
from tests.chaos.planted_bugs import Plant

# Written without having read the simulator


def every_holder_publishes_a_dead_nodes_wills(patch: pytest.MonkeyPatch) -> None:
    """Not only the first; and nobody knows again a will that another published."""
    real, seen = DeadWills.look, Senders.seen

    def look(self: DeadWills) -> None:
        roster, me = self._care.roster, self._host.node_id
        for node in sorted(self._dead - roster.live):
            if me in roster.holders(node):
                for pending in self._pending.due(node, self._host.now()):
                    self._publish(pending)
        real(self)

    def seen_before(self: Senders, client: str, packet_id: int, hash: bytes) -> bool:
        return not client.startswith(WILL_OF) and seen(self, client, packet_id, hash)

    patch.setattr(DeadWills, "look", look)
    patch.setattr(Senders, "seen", seen_before)


def a_publication_that_is_resent_is_not_known_again(patch: pytest.MonkeyPatch) -> None:
    real = Senders.seen

    def seen(self: Senders, client: str, packet_id: int, hash: bytes) -> bool:
        return client.startswith(WILL_OF) and real(self, client, packet_id, hash)

    patch.setattr(Senders, "seen", seen)


def clients_of_a_dead_node_are_forgotten_at_once(patch: pytest.MonkeyPatch) -> None:
    def forget_now(self: Mesh, node: str, limit: float = inf) -> None:
        self._deaths[node] = 1
        self._forget_dead(node, 1)

    patch.setattr(Mesh, "_forget_later", forget_now)


def who_was_dead_is_dead_for_ever(patch: pytest.MonkeyPatch) -> None:
    """Though it comes back with a higher incarnation."""
    alive, refuted = Rules._alive, Rules._refuted

    def is_dead(rules: Rules, member: str) -> bool:
        record = rules._members.get(member)
        return record is not None and record.state is MemberState.DEAD

    def _alive(self: Rules, claim: Claim, incarnation: int, now: float) -> None:
        if not is_dead(self, claim.id):
            alive(self, claim, incarnation, now)

    def _refuted(self: Rules, update: wire.RefutedUpdate, source: Any, now: float) -> None:
        if not is_dead(self, update.id):
            refuted(self, update, source, now)

    patch.setattr(Rules, "_alive", _alive)
    patch.setattr(Rules, "_refuted", _refuted)


def of_two_sites_with_one_client_the_older_one_counts(patch: pytest.MonkeyPatch) -> None:
    real = ClientTable._settle_home

    def settle_home(self: ClientTable, node: str, client: str, entry: ClientEntry) -> None:
        before = self._homes.get(client)
        if before is None or before == node or self._nodes[before][client].since > entry.since:
            real(self, node, client, entry)

    patch.setattr(ClientTable, "_settle_home", settle_home)


# Written by someone who knows the code


def a_receipt_of_one_client_counts_for_all(patch: pytest.MonkeyPatch) -> None:
    real = Queues.received

    def received(self: Queues, client: str, hashes: Iterable[bytes], now: float, home: str = "") -> None:
        hashes = list(hashes)
        real(self, client, hashes, now, home)
        for other in self.clients:
            if any(self.keeps(other, one) for one in hashes):
                self.forget(other)

    patch.setattr(Queues, "received", received)


def nobody_holds_anything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Mesh, "holders", lambda self, node: ())


def receipts_are_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReceiptExchange, "received", lambda self, pair, hashes: None)


def nobody_objects_to_being_held_for_dead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rules, "accused", lambda self, incarnation, now: None)


def a_suspicion_never_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rules, "_expired", lambda self, record, suspicion, now: None)


def old_accusations_count(patch: pytest.MonkeyPatch) -> None:
    """Of an incarnation that the member has risen above, too."""
    real = Rules._dead

    def dead(self: Rules, update: wire.Dead, now: float) -> None:
        record = self._members.get(update.id)
        if record is not None:
            update = update._replace(incarnation=max(update.incarnation, record.incarnation))
        real(self, update, now)

    patch.setattr(Rules, "_dead", dead)


def _named(*plants: Plant) -> dict[str, Plant]:
    return {plant.__name__: plant for plant in plants}


IN_MESH = _named(
    every_holder_publishes_a_dead_nodes_wills,
    a_publication_that_is_resent_is_not_known_again,
    clients_of_a_dead_node_are_forgotten_at_once,
    of_two_sites_with_one_client_the_older_one_counts,
    a_receipt_of_one_client_counts_for_all,
    nobody_holds_anything,
    receipts_are_not_told,
)
IN_MEMBERSHIP = _named(
    who_was_dead_is_dead_for_ever,
    nobody_objects_to_being_held_for_dead,
    a_suspicion_never_ends,
    old_accusations_count,
)
UNSEEN = (
    every_holder_publishes_a_dead_nodes_wills,
    a_publication_that_is_resent_is_not_known_again,
    clients_of_a_dead_node_are_forgotten_at_once,
    who_was_dead_is_dead_for_ever,
    of_two_sites_with_one_client_the_older_one_counts,
)
