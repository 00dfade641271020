"""What is known of members: what each says of itself, what state it is held in, and who is next to be probed.

Owns the table and the round of probes. Invariants: a member is in the round while it is alive or
suspect; between two probes of one member lie at most two rounds (SWIM 4.3). Must not know: why a
state changes (`rules`), time, bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from random import Random

from brokerweave.membership.agenda import Due
from brokerweave.membership.suspicion import Suspicion
from brokerweave.tables import fit

Address = tuple[str, int]


class MemberState(IntEnum):
    """The numbers are on the wire."""

    ALIVE = 1
    SUSPECT = 2
    DEAD = 3
    LEFT = 4

    @property
    def here(self) -> bool:
        """A suspect still counts as a member until it is dead."""
        return self <= MemberState.SUSPECT


@dataclass(frozen=True, slots=True)
class Claim:
    """What a member says of itself: nobody else changes any of it."""

    id: str
    boot: int
    """A random number of the process: the same id with another one is another life."""
    address: Address
    """Of its datagrams and exchanges."""
    link_address: Address | None = None
    meta_version: int = 0
    """Counts the changes of `meta` in this life; no accusation and no answer to one."""
    meta: bytes = b""


@dataclass(frozen=True, slots=True)
class Member:
    """A member as others are told of it: a picture of one moment."""

    id: str
    state: MemberState
    incarnation: int
    boot: int
    address: Address
    link_address: Address | None
    meta: bytes
    round_trip: float | None
    """Seconds, smoothed; None before the first probe was answered, and of this node itself."""


class MemberRecord:
    """One member in the table."""

    __slots__ = ("claim", "forgetting", "incarnation", "round_trip", "state", "suspicion")

    def __init__(self, claim: Claim, incarnation: int, state: MemberState = MemberState.ALIVE) -> None:
        self.claim = claim
        self.incarnation = incarnation
        self.state = state
        self.round_trip: float | None = None
        self.suspicion: Suspicion | None = None
        self.forgetting: Due | None = None

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
            self.round_trip,
        )

    def heard_after(self, seconds: float) -> None:
        old = self.round_trip
        self.round_trip = seconds if old is None else old + (seconds - old) / 8


class Members:
    """All others, dead and departed ones included until they are forgotten."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._records: dict[str, MemberRecord] = {}
        self._boots: dict[int, MemberRecord] = {}
        self._here: list[str] = []
        """Who is held to be a member, in no order; `_place` says where each is, so that removing is quick."""
        self._place: dict[str, int] = {}
        self._round: list[str] = []
        self._next = 0

    def get(self, member: str) -> MemberRecord | None:
        return self._records.get(member)

    def of_boot(self, boot: int) -> MemberRecord | None:
        return self._boots.get(boot)

    def all(self) -> Iterator[MemberRecord]:
        return iter(list(self._records.values()))

    @property
    def here(self) -> int:
        """How many there are that live, or may; without this node."""
        return len(self._here)

    @property
    def dead(self) -> list[MemberRecord]:
        """Those that may come back: not who left."""
        if len(self._records) == len(self._here):
            return []
        return [record for record in self._records.values() if record.state is MemberState.DEAD]

    def put(self, record: MemberRecord) -> None:
        self._records[record.claim.id] = record
        self._boots[record.claim.boot] = record
        if record.state.here:
            self._enter(record.claim.id)

    def reclaim(self, record: MemberRecord, claim: Claim) -> None:
        """The member says something else of itself."""
        if claim.boot != record.claim.boot:
            self._boots.pop(record.claim.boot, None)
            self._boots[claim.boot] = record
        record.claim = claim

    def move(self, record: MemberRecord, state: MemberState) -> None:
        was, record.state = record.state.here, state
        if state.here and not was:
            self._enter(record.claim.id)
        elif was and not state.here:
            self._exit(record.claim.id)

    def forget(self, member: str) -> None:
        record = self._records.pop(member)
        self._boots.pop(record.claim.boot, None)
        if record.state.here:
            self._exit(member)
        for table in (self._records, self._boots):
            fit(table)

    def next_target(self) -> MemberRecord | None:
        """Round after round, each in a new random order (SWIM 4.3)."""
        for _ in range(2):
            while self._next < len(self._round):
                record = self._records.get(self._round[self._next])
                self._next += 1
                if record is not None and record.state.here:
                    return record
            self._round = list(self._here)
            self._random.shuffle(self._round)
            self._next = 0
        return None

    def choose(self, count: int, without: tuple[str, ...] = ()) -> list[MemberRecord]:
        """Some members at random."""
        here = self._here
        if len(here) <= count + len(without):
            names = [name for name in here if name not in without]
            self._random.shuffle(names)
            return [self._records[name] for name in names[:count]]
        chosen: dict[str, MemberRecord] = {}
        pick = self._random.random
        while len(chosen) < count:
            name = here[int(pick() * len(here))]
            if name not in chosen and name not in without:
                chosen[name] = self._records[name]
        return list(chosen.values())

    def _enter(self, member: str) -> None:
        self._place[member] = len(self._here)
        self._here.append(member)
        # Somewhere in what is left of this round: always at its end, and newcomers would be probed together.
        self._round.insert(self._random.randint(self._next, len(self._round)), member)

    def _exit(self, member: str) -> None:
        place, last = self._place.pop(member), self._here.pop()
        if last != member:
            self._here[place] = last
            self._place[last] = place
