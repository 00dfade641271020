"""What news changes: the order among states and incarnations (SWIM 4.2), and how this node defends itself.

Owns every change of a member's state. Invariants: only the member itself raises its incarnation; of two
pieces of news the same one wins at every node, whatever the order they arrive in; what changed something is
passed on, and nothing else is. Must not know: datagrams, when members are probed.

    alive(i)    beats alive, suspect, dead, left (j)   if i > j
    suspect(i)  beats alive(j) if i >= j, suspect(j) if i > j; as suspect(i) of another accuser it confirms
    dead(i)     beats alive, suspect (j)               if i >= j
    left(i)     beats alive, suspect, dead (j)         if i >= j
    meta(v)     beats meta(w) of the same boot         if v > w, whatever the incarnation
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Protocol

from brokerweave.membership import events, wire
from brokerweave.membership.agenda import Agenda
from brokerweave.membership.gossip import Gossip, Subject
from brokerweave.membership.health import LocalHealth
from brokerweave.membership.members import Address, Claim, Member, MemberRecord, Members, MemberState
from brokerweave.membership.presets import Preset
from brokerweave.membership.suspicion import Suspicion

CONFLICTS = 5
"""Times that another process may have had this node's id before it is said: once is a restart's own past."""

CONFLICT_SECONDS = 10.0
"""Between two claims to this id after that: two processes would go on without end, and all others hear it."""


class Me:
    """This node, as it wants to be known."""

    __slots__ = ("claim", "conflicts", "contested_at", "incarnation", "leaving")

    def __init__(self, claim: Claim, incarnation: int) -> None:
        self.claim = claim
        self.incarnation = incarnation
        self.leaving = False
        self.conflicts = 0
        self.contested_at = float("-inf")

    @property
    def state(self) -> MemberState:
        return MemberState.LEFT if self.leaving else MemberState.ALIVE

    def member(self) -> Member:
        claim = self.claim
        return Member(
            claim.id,
            self.state,
            self.incarnation,
            claim.boot,
            claim.address,
            claim.link_address,
            claim.meta,
            None,
        )


class Voice(Protocol):
    """How the rules are heard."""

    def happened(self, event: events.MembershipEvent) -> None: ...

    def news(self, now: float) -> None:
        """Something waits to be passed on."""

    def tell(self, boot: int, address: Address, update: wire.Update) -> None:
        """One process has to hear this from here."""

    def learn(self, address: Address, now: float) -> None:
        """A member there knows more."""


class Rules:
    def __init__(
        self,
        me: Me,
        members: Members,
        gossip: Gossip,
        agenda: Agenda,
        health: LocalHealth,
        preset: Preset,
        voice: Voice,
    ) -> None:
        self._me = me
        self._members = members
        self._gossip = gossip
        self._agenda = agenda
        self._health = health
        self._preset = preset
        self._voice = voice
        self._quiet = False
        """Whether news of others is kept to oneself."""

    def apply(self, update: wire.Update, source: Address | None, now: float) -> None:
        """One piece of news; `source` is the address of who brought it, if that is a member."""
        if isinstance(update, wire.Suspect):
            self.suspect(update, now)
        elif isinstance(update, wire.MetaUpdate):
            self._new_meta(update, now)
        elif isinstance(update, wire.Alive):
            self._alive(update.claim, update.incarnation, now)
        elif isinstance(update, wire.RefutedUpdate):
            self._refuted(update, source, now)
        elif isinstance(update, wire.Dead):
            self._dead(update, now)
        else:
            self._gone(update, now)

    def merge(self, entries: Iterable[wire.TableEntry], peer: str, now: float) -> None:
        """A whole table. Who is dead there is only suspected here, so that it can object: the other may have
        been cut off from it."""
        me = self._me.claim
        # What is new to a newcomer is so to nobody else.
        self._quiet = not self._members.here
        for state, incarnation, claim in entries:
            if state.here or (claim.id == me.id and claim.boot != me.boot):
                self._alive(claim, incarnation, now)
            if state is MemberState.LEFT:
                self._gone(wire.Gone(claim.id, incarnation), now)
            elif state is not MemberState.ALIVE:
                self.suspect(wire.Suspect(claim.id, incarnation, peer), now)
        self._quiet = False

    # Life

    def _alive(self, claim: Claim, incarnation: int, now: float) -> None:
        if claim.id == self._me.claim.id:
            if claim.boot != self._me.claim.boot and incarnation >= self._me.incarnation:
                self._contested(incarnation, now)
            return
        record = self._members.get(claim.id)
        if record is None:
            record = MemberRecord(claim, incarnation)
            self._members.put(record)
            self._pass_on_alive(record, now, full=True)
            self._voice.happened(events.Joined(record.member()))
        elif incarnation > record.incarnation:
            self._renewed(record, claim, incarnation, now, full=True)
        elif claim.boot == record.claim.boot:
            self._new_meta(wire.MetaUpdate(claim.id, claim.boot, claim.meta_version, claim.meta), now)
        else:
            # Another life that does not know how high its number has to be.
            self._voice.tell(claim.boot, claim.address, accusation(record, self._me.claim.id))

    def _refuted(self, update: wire.RefutedUpdate, source: Address | None, now: float) -> None:
        me = self._me
        if update.id == me.claim.id:
            if update.boot != me.claim.boot and update.incarnation >= me.incarnation:
                self._contested(update.incarnation, now)
            return
        record = self._members.get(update.id)
        if record is None or record.claim.boot != update.boot:
            if source is not None and (record is None or update.incarnation > record.incarnation):
                self._voice.learn(source, now)
        elif update.incarnation > record.incarnation:
            self._renewed(record, record.claim, update.incarnation, now, full=False)

    def _renewed(self, record: MemberRecord, claim: Claim, incarnation: int, now: float, full: bool) -> None:
        before, state = record.claim, record.state
        reborn = claim.boot != before.boot
        if state.here and reborn:
            self._voice.happened(events.Died(record.member()))
        if not reborn and claim.meta_version < before.meta_version:
            claim = replace(claim, meta_version=before.meta_version, meta=before.meta)
        self._settle(record)
        self._members.reclaim(record, claim)
        record.incarnation = incarnation
        self._members.move(record, MemberState.ALIVE)
        self._pass_on_alive(record, now, full)
        if reborn or not state.here:
            record.round_trip = None
            self._voice.happened(events.Joined(record.member()))
            return
        if state is MemberState.SUSPECT:
            self._voice.happened(events.Refuted(record.member()))
        if claim != before:
            self._voice.happened(events.Changed(record.member()))

    def _new_meta(self, update: wire.MetaUpdate, now: float) -> None:
        record = self._members.get(update.id)
        if record is None or record.claim.boot != update.boot or update.version <= record.claim.meta_version:
            return
        record.claim = replace(record.claim, meta_version=update.version, meta=update.meta)
        self._pass_on(Subject(update.id, True), update, now)
        if record.state.here:
            self._voice.happened(events.Changed(record.member()))

    # Suspicion and its ends

    def suspect(self, update: wire.Suspect, now: float) -> None:
        if update.id == self._me.claim.id:
            self.accused(update.incarnation, now)
            return
        record = self._members.get(update.id)
        if record is None or not record.state.here or update.incarnation < record.incarnation:
            return
        if record.suspicion is not None and update.incarnation == record.incarnation:
            if not record.suspicion.confirm(update.accuser):
                return
        else:
            fresh = record.suspicion is None
            self._settle(record)
            record.incarnation = update.incarnation
            self._members.move(record, MemberState.SUSPECT)
            record.suspicion = self._suspicion(update.accuser, now)
            if fresh:
                self._voice.happened(events.Suspected(record.member()))
        self._watch(record, record.suspicion)
        self._pass_on(Subject(update.id, False), update, now)

    def _suspicion(self, accuser: str, now: float) -> Suspicion:
        here = self._members.here
        shortest, longest = self._preset.suspicion_times(here + 1)
        # Neither the suspect nor the first accuser can confirm.
        return Suspicion(accuser, now, shortest, longest, min(self._preset.confirmations, here - 1))

    def _watch(self, record: MemberRecord, suspicion: Suspicion) -> None:
        if suspicion.due is not None:
            suspicion.due.cancel()
        suspicion.due = self._agenda.at(suspicion.end, partial(self._expired, record, suspicion))

    def _expired(self, record: MemberRecord, suspicion: Suspicion, now: float) -> None:
        if record.suspicion is suspicion:
            self._dead(wire.Dead(record.claim.id, record.incarnation, self._me.claim.id), now)

    def _dead(self, update: wire.Dead, now: float) -> None:
        if update.id == self._me.claim.id:
            self.accused(update.incarnation, now)
            return
        record = self._members.get(update.id)
        if record is None or not record.state.here or update.incarnation < record.incarnation:
            return
        self._end(record, MemberState.DEAD, update.incarnation, now)
        self._pass_on(Subject(update.id, False), update, now)
        self._voice.happened(events.Died(record.member()))

    def _gone(self, update: wire.Gone, now: float) -> None:
        if update.id == self._me.claim.id:
            self.accused(update.incarnation, now)
            return
        record = self._members.get(update.id)
        if record is None or record.state is MemberState.LEFT or update.incarnation < record.incarnation:
            return
        was_here = record.state.here
        self._end(record, MemberState.LEFT, update.incarnation, now)
        self._pass_on(Subject(update.id, False), update, now)
        if was_here:
            self._voice.happened(events.Left(record.member()))

    def _end(self, record: MemberRecord, state: MemberState, incarnation: int, now: float) -> None:
        self._settle(record)
        record.incarnation = incarnation
        self._members.move(record, state)
        self._gossip.drop(Subject(record.claim.id, True))
        forget = partial(self._forget, record)
        record.forgetting = self._agenda.at(now + self._preset.forget_after, forget)

    def _forget(self, record: MemberRecord, now: float) -> None:
        if not record.state.here and self._members.get(record.claim.id) is record:
            self._members.forget(record.claim.id)

    def _settle(self, record: MemberRecord) -> None:
        """Whatever was to come of the state that ends now does not."""
        if record.suspicion is not None and record.suspicion.due is not None:
            record.suspicion.due.cancel()
        if record.forgetting is not None:
            record.forgetting.cancel()
        record.suspicion = record.forgetting = None

    # This node itself

    def accused(self, incarnation: int, now: float) -> None:
        """Somebody says that this node does not live: object, and take it as a sign of being slow."""
        if not self._me.leaving and incarnation >= self._me.incarnation:
            self._health.change(1)
            # A number that this life never had: the accusation is of another, and others know only that one.
            self._rise(incarnation, now, full=incarnation > self._me.incarnation)

    def _contested(self, incarnation: int, now: float) -> None:
        """This id, under another boot: a life before this one, or another process that should not have it."""
        me = self._me
        if me.leaving:
            return
        if me.conflicts >= CONFLICTS and now < me.contested_at + CONFLICT_SECONDS:
            return
        me.conflicts, me.contested_at = me.conflicts + 1, now
        self._rise(incarnation, now, full=True)
        if me.conflicts == CONFLICTS:
            self._voice.happened(events.Conflict(me.member()))

    def _rise(self, incarnation: int, now: float, full: bool) -> None:
        me = self._me
        me.incarnation = min(incarnation + 1, wire.MOST_NUMBER)
        self.announce(now, full)

    def announce(self, now: float, full: bool = True) -> None:
        """This node lives."""
        me = self._me
        subject = Subject(me.claim.id, False)
        if full or self._gossip.has_full(subject):
            self._pass_on(subject, wire.Alive(me.claim, me.incarnation), now, full=True)
        else:
            self._pass_on(subject, wire.RefutedUpdate(me.claim.id, me.claim.boot, me.incarnation), now)

    def set_meta(self, meta: bytes, now: float) -> None:
        me = self._me
        me.claim = replace(me.claim, meta_version=me.claim.meta_version + 1, meta=meta)
        claim = me.claim
        self._pass_on(
            Subject(claim.id, True), wire.MetaUpdate(claim.id, claim.boot, claim.meta_version, meta), now
        )

    def leave(self, now: float) -> None:
        me = self._me
        me.leaving = True
        self._pass_on(Subject(me.claim.id, False), wire.Gone(me.claim.id, me.incarnation), now)

    # Passing on

    def _pass_on_alive(self, record: MemberRecord, now: float, full: bool) -> None:
        claim, subject = record.claim, Subject(record.claim.id, False)
        if full or self._gossip.has_full(subject):
            self._pass_on(subject, wire.Alive(claim, record.incarnation), now, full=True)
        else:
            self._pass_on(subject, wire.RefutedUpdate(claim.id, claim.boot, record.incarnation), now)

    def _pass_on(self, subject: Subject, update: wire.Update, now: float, full: bool = False) -> None:
        if self._quiet and subject.member != self._me.claim.id:
            return
        self._gossip.put(subject, wire.encode_update(update), full)
        self._voice.news(now)


def accusation(record: MemberRecord, accuser: str) -> wire.Update:
    """What is held of a member, for the member itself to object to."""
    if record.state is MemberState.LEFT:
        return wire.Gone(record.claim.id, record.incarnation)
    if record.state is MemberState.DEAD:
        return wire.Dead(record.claim.id, record.incarnation, accuser)
    if record.state is MemberState.SUSPECT:
        return wire.Suspect(record.claim.id, record.incarnation, accuser)
    return wire.Alive(record.claim, record.incarnation)
