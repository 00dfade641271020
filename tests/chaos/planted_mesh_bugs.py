"""Bugs to plant in the mesh and in membership, each by name: the simulator must find every one of them.

`IN_MESH` break what nodes of a mesh do, and are looked for in runs of a mesh; `IN_MOVES` break planned moves,
and are looked for in runs with nothing else; `IN_MEMBERSHIP` break who knows
of whom, and are looked for in runs of members alone. `UNSEEN` are what someone thought of who knew the
documents and had not read the simulator, planted where today's mesh does the thing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from brokerweave.care.adoption import Adoption
from brokerweave.care.claims import Claims
from brokerweave.care.client_care import ClientCare
from brokerweave.care.disk import Life
from brokerweave.care.holders import HolderStreams
from brokerweave.care.home import Draining, Home
from brokerweave.care.ids import MessageId
from brokerweave.care.moves import Moves
from brokerweave.care.publishers import Publishers, Sent
from brokerweave.care.record import Merged, Record, RecordTable, Snapshot
from brokerweave.care.wills import WILL_OF, AdoptedWills, PendingWill
from brokerweave.care.wire import ClientClaim
from brokerweave.cooperation.mesh import Mesh
from brokerweave.membership import wire
from brokerweave.membership.members import Claim, MemberState
from brokerweave.membership.rules import Rules
from brokerweave.session.pair import Pair
from tests.chaos.planted_bugs import Plant

# Thought of without having read the simulator


def whoever_adopted_a_client_publishes_its_will(patch: pytest.MonkeyPatch) -> None:
    """Also where the client came back, or another node published it; and nobody knows it again."""
    real = Publishers.find

    def find(self: Publishers, client: str, packet_id: int, content: bytes) -> Sent | None:
        return None if client.startswith(WILL_OF) else real(self, client, packet_id, content)

    def publish(self: AdoptedWills, home: Home, pending: PendingWill) -> None:
        sender = WILL_OF + home.client, pending.since & 0xFFFF or 1
        self._host.publisher.publish_will(pending.will, pending.version, sender)

    patch.setattr(Publishers, "find", find)
    patch.setattr(AdoptedWills, "_publish", publish)


def a_publication_that_is_resent_is_not_known_again(patch: pytest.MonkeyPatch) -> None:
    real = Publishers.find

    def find(self: Publishers, client: str, packet_id: int, content: bytes) -> Sent | None:
        return real(self, client, packet_id, content) if client.startswith(WILL_OF) else None

    patch.setattr(Publishers, "find", find)


def clients_of_a_dead_node_are_forgotten_at_once(patch: pytest.MonkeyPatch) -> None:
    """Whoever adopted them does not wait for them."""
    real = Adoption._take

    def take(self: Adoption, life: Life, record: Record) -> None:
        real(self, life, record)
        home = self._homes.get(record.client)
        if home is not None:
            self._homes.give_up(home)

    patch.setattr(Adoption, "_take", take)


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
    """A session that waits at a broker is older than a connection elsewhere."""

    def stays(self: Claims, home: Home, claim: ClientClaim, neighbour: str) -> bool:
        return home.hold < claim.hold

    patch.setattr(Claims, "_stays", stays)


# Written by someone who knows the code


def a_claim_asks_nobody(patch: pytest.MonkeyPatch) -> None:
    """It goes on as if all had answered that they know nothing."""

    def ask(self: Claims, home: Home, node: str) -> None:
        home.answered[node] = self._sites.life_of(node)

    patch.setattr(Claims, "_ask", ask)


def what_comes_later_is_not_passed_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Claims, "_forward", lambda self, to, told: None)


def nobody_holds_anything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HolderStreams, "choose", lambda self: None)


def holders_are_not_told_what_clients_have(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HolderStreams, "has", lambda self, record, ids: None)


def a_merge_forgets_what_the_other_copy_had(patch: pytest.MonkeyPatch) -> None:
    real = RecordTable.merge

    def merge(self: RecordTable, record: Record, told: Snapshot) -> Merged:
        return real(self, record, replace(told, covers=[], ids=set()))

    patch.setattr(RecordTable, "merge", merge)


def a_record_forgets_what_its_client_had(patch: pytest.MonkeyPatch) -> None:
    def received(self: RecordTable, record: Record, identifier: MessageId) -> None:
        self._take(record, identifier)

    patch.setattr(RecordTable, "received", received)


def a_copy_does_not_hear_of_filters(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HolderStreams, "filters", lambda self, record: None)


def a_node_that_was_just_started_takes_publications(patch: pytest.MonkeyPatch) -> None:
    """It does not know yet who wants them."""
    patch.setattr(Mesh, "takes_publications", lambda self: True)


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


# Looked for where clients move as planned


def an_old_site_gives_before_what_is_in_flight_is_answered(patch: pytest.MonkeyPatch) -> None:
    def drain(self: Moves, home: Home, draining: Draining) -> None:
        self._host.call_later(0, lambda: self.end(home))

    patch.setattr(Moves, "_drain", drain)


def a_client_that_moves_subscribes_before_its_old_site_has_given(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClientCare, "may_subscribe", lambda self, pair: True)


def a_client_that_moved_left_its_will(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Pair, "close_moved", lambda self: self.close_taken_over(session_ends=True))


def _named(*plants: Plant) -> dict[str, Plant]:
    return {plant.__name__: plant for plant in plants}


IN_MESH = _named(
    whoever_adopted_a_client_publishes_its_will,
    a_publication_that_is_resent_is_not_known_again,
    clients_of_a_dead_node_are_forgotten_at_once,
    of_two_sites_with_one_client_the_older_one_counts,
    a_claim_asks_nobody,
    what_comes_later_is_not_passed_on,
    nobody_holds_anything,
    holders_are_not_told_what_clients_have,
    a_merge_forgets_what_the_other_copy_had,
    a_record_forgets_what_its_client_had,
    a_copy_does_not_hear_of_filters,
    a_node_that_was_just_started_takes_publications,
)
IN_MOVES = _named(
    an_old_site_gives_before_what_is_in_flight_is_answered,
    a_client_that_moves_subscribes_before_its_old_site_has_given,
    a_client_that_moved_left_its_will,
)
IN_MEMBERSHIP = _named(
    who_was_dead_is_dead_for_ever,
    nobody_objects_to_being_held_for_dead,
    a_suspicion_never_ends,
    old_accusations_count,
)
UNSEEN = (
    whoever_adopted_a_client_publishes_its_will,
    a_publication_that_is_resent_is_not_known_again,
    clients_of_a_dead_node_are_forgotten_at_once,
    who_was_dead_is_dead_for_ever,
    of_two_sites_with_one_client_the_older_one_counts,
)
