"""What others registered here: this node as coordinator or shadow of the keys near it on the ring.

Owns the entries, who holds which list, and which members are accounted for. Invariants: of an entry the
highest version counts; a keeper is *warm* for a key if every live member has told it, in its present life,
all that it wants on an arc of the ring with that key, and only then is its word enough that nobody else wants
a topic; a registration is confirmed when all who hold its list have noted it. Entries of nodes that are away
stay for `absent` seconds. Must not know: publications, who is closest to what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from brokerweave.cooperation.overlay.ring import CIRCLE
from brokerweave.cooperation.overlay.wire import (
    ELSEWHERE,
    GONE,
    Absent,
    AskList,
    Entry,
    KeeperClaim,
    ListChanged,
    Listed,
    Message,
    Noted,
    Register,
    Registered,
    Settled,
    batches,
)

CLAIM_AGAIN = 2.0
"""Seconds before a member that has not answered a claim is asked once more."""


class KeeperHost(Protocol):
    @property
    def node_id(self) -> str: ...

    def tell(self, node: str, message: Message) -> None: ...

    def steady(self) -> float: ...

    def key_of(self, topic_filter: str) -> str: ...

    def position(self, key: str) -> int: ...

    def arc(self) -> tuple[int, int]:
        """Of the keys that this node keeps: start and length."""

    def live(self) -> frozenset[str]: ...

    def keep(self, node: str, changes: Mapping[str, int | None]) -> None:
        """Remember what a node registered here over a crash."""

    def keepers(self, topic_filter: str) -> tuple[str, ...]:
        """The live keepers of a filter's key, the coordinator first."""

    def send_retained(self, node: str, topic_filter: str, done: Callable[[], None] | None = None) -> None: ...

    def has_retained(self) -> bool:
        """Whether this node was given the retained messages of the keys that it keeps."""


@dataclass(slots=True)
class _Member:
    life: int = 0
    """As announced, or as it said itself."""
    settled: tuple[int, int, int] | None = None
    """Life, start and length of the arc of which it has told all."""
    claimed: float = float("-inf")
    """When it was asked last."""
    away_since: float | None = None
    was_away: bool = False
    """It may have missed retained messages, until it has registered again."""


_TAKEN = "taken"
_NEWEST = 1 << 63


@dataclass(slots=True, eq=False)
class _Pending:
    """A registration that is confirmed when nothing is left to wait for."""

    node: str
    number: int
    warm: bool = True
    left: set[object] = field(default_factory=lambda: {_TAKEN})


class Keeper:
    def __init__(self, host: KeeperHost, list_lifetime: float, absent: float, trusting: bool = False) -> None:
        """`trusting`: it counts as warm from the start, where all nodes begin at one moment."""
        self._host = host
        self._trusting = trusting
        self._all_settled: bool | None = None
        """Whether all live members have told all that this node keeps; None: to be found out."""
        self._lifetime = list_lifetime
        self._absent = absent
        self._entries: dict[str, dict[tuple[str, str], Entry]] = {}
        """By key, then node and filter."""
        self._gone_at: dict[tuple[str, str, str], float] = {}
        """When an entry, by key, node and filter, became one that is gone."""
        self._filters: dict[str, set[str]] = {}
        """By node, what it has registered."""
        self._holders: dict[str, dict[str, float]] = {}
        """By key, who holds its list, and until when it need be told of changes."""
        self._members: dict[str, _Member] = {}
        self._cold: dict[str, set[str]] = {}
        """By key, who asked and will be told when this keeper is warm for it."""
        self._number = 0
        self._noting: dict[int, tuple[str, ListChanged, list[_Pending]]] = {}
        """Changes that a holder has yet to note, and who waits for that."""
        self._told: set[tuple[str, str]] = set()
        """Nodes and filters of which holders were told as they are now."""

    # For status

    @property
    def keys(self) -> Iterable[str]:
        return self._entries

    @property
    def holders(self) -> int:
        return sum(map(len, self._holders.values()))

    def registered_by(self, node: str) -> int:
        return len(self._filters.get(node, ()))

    # What members say

    def register(self, node: str, message: Register) -> None:
        member = self._members.setdefault(node, _Member())
        if message.life < member.life:
            return  # from before its restart
        self.announced(node, message.life)
        pending = _Pending(node, message.number)
        changed: dict[str, list[Entry]] = {}
        for wish in message.wishes:
            entry = Entry(node, wish.topic_filter, wish.qos, message.life, message.number)
            key = self._host.key_of(wish.topic_filter)
            if self._take(entry):
                self._told.discard((node, wish.topic_filter))
            if wish.first and wish.qos != ELSEWHERE:
                if (node, wish.topic_filter) not in self._told:
                    changed.setdefault(key, []).append(entry)
                else:
                    self._wait_for_notes(pending, key, node, wish.topic_filter)
            if wish.retained:
                pending.warm &= self.is_warm(key) and self._host.has_retained()
                self._send_retained(pending, wish.topic_filter)
        for key, entries in changed.items():
            self._tell_holders(key, entries, pending)
        self._settle(pending, _TAKEN)

    def _take(self, entry: Entry) -> bool:
        """Whether it is news."""
        key = self._host.key_of(entry.topic_filter)
        known = self._entries.get(key, {})
        name = (entry.node, entry.topic_filter)
        before = known.get(name)
        if before is not None and before.age > entry.age:
            return False
        if entry.qos == ELSEWHERE:
            known.pop(name, None)
            self._forget_empty(key)
        else:
            self._entries.setdefault(key, known)[name] = entry
        if entry.qos >= 0:
            self._filters.setdefault(entry.node, set()).add(entry.topic_filter)
            self._gone_at.pop((key, *name), None)
        else:
            self._filters.get(entry.node, set()).discard(entry.topic_filter)
            if entry.qos == ELSEWHERE:
                self._told.discard(name)
            if entry.qos == GONE:
                self._gone_at[key, entry.node, entry.topic_filter] = self._host.steady()
        if entry.node != self._host.node_id:
            self._host.keep(entry.node, {entry.topic_filter: entry.qos if entry.qos >= 0 else None})
        return before is None or before.qos != entry.qos

    def _forget_empty(self, key: str) -> None:
        if not self._entries.get(key, True):
            del self._entries[key]

    def _send_retained(self, pending: _Pending, topic_filter: str) -> None:
        if pending.node != self._host.node_id:  # whose broker has what its node keeps
            what = ("retained", topic_filter)
            pending.left.add(what)
            self._host.send_retained(pending.node, topic_filter, lambda: self._settle(pending, what))

    def _wait_for_notes(self, pending: _Pending, key: str, node: str, topic_filter: str) -> None:
        """Holders were told when this was registered before, and its confirmation was lost; not again."""
        for number, (_, message, waits) in self._noting.items():
            named = any((each.node, each.topic_filter) == (node, topic_filter) for each in message.entries)
            if message.key == key and named:
                pending.left.add(number)
                waits.append(pending)

    def _tell_holders(self, key: str, entries: list[Entry], pending: _Pending | None) -> None:
        now = self._host.steady()
        self._told.update((entry.node, entry.topic_filter) for entry in entries)
        for holder, until in list(self._holders.get(key, {}).items()):
            if until < now:
                self._drop_holder(key, holder)
                continue
            if holder not in self._host.live():
                continue  # it gets the whole list when it is back
            for part in batches(entries):
                self._number += 1
                message = ListChanged(self._number, key, tuple(part))
                self._noting[self._number] = (holder, message, [] if pending is None else [pending])
                if pending is not None:
                    pending.left.add(self._number)
                self._host.tell(holder, message)

    def noted(self, node: str, message: Noted) -> None:
        found = self._noting.get(message.number)
        if found is not None and found[0] == node:
            self._noted(message.number)

    def _noted(self, number: int) -> None:
        for pending in self._noting.pop(number)[2]:
            self._settle(pending, number)

    def link_lost(self, node: str) -> None:
        """What was on its way is lost."""
        for holder, message, _ in list(self._noting.values()):
            if holder == node:
                self._host.tell(node, message)
        member = self._members.get(node)
        if member is not None and self._cold:
            member.claimed = float("-inf")
            self.claim()

    def _settle(self, pending: _Pending, what: object) -> None:
        if what not in pending.left:
            return
        pending.left.discard(what)
        if not pending.left:
            self._host.tell(pending.node, Registered(pending.number, pending.warm))

    def ask(self, node: str, message: AskList) -> None:
        until = self._host.steady() + 2 * self._lifetime
        for key in message.keys:
            self._holders.setdefault(key, {})[node] = until
            warm = self.is_warm(key)
            self._answer(node, key, warm)
            if not warm:
                self._cold.setdefault(key, set()).add(node)
        if self._cold:
            self.claim()

    def _answer(self, node: str, key: str, warm: bool) -> None:
        parts = list(batches(self._entries.get(key, {}).values()))
        for index, part in enumerate(parts):
            self._host.tell(node, Listed(key, warm, index == len(parts) - 1, tuple(part)))

    # Who is accounted for

    def is_warm(self, key: str) -> bool:
        if self._all_settled is None:
            self._all_settled = self._trusting or not any(map(self._is_missing, self._host.live()))
        return self._all_settled or not self._unaccounted(key)

    def _is_missing(self, node: str) -> bool:
        """Whether a member has yet to tell all that this node keeps."""
        return not self._accounts(node, *self._host.arc())

    def _unaccounted(self, key: str) -> list[str]:
        if self._trusting:
            return []
        position = self._host.position(key)
        return [node for node in self._host.live() if not self._accounts(node, position)]

    def _accounts(self, node: str, position: int, length: int = 1) -> bool:
        """Whether a member has told all that it wants on an arc that begins at a position."""
        if node == self._host.node_id:
            return True  # it tells itself at once
        member = self._members.get(node)
        if member is None or member.settled is None or member.settled[0] != member.life:
            return False
        return covers_arc(*member.settled[1:], position, length)

    def claim(self) -> None:
        """AskList all who are not accounted for, as long as somebody waits for that."""
        now, (start, length) = self._host.steady(), self._host.arc()
        missing = {node for key in self._cold for node in self._unaccounted(key)}
        for node in sorted(missing):
            member = self._members.setdefault(node, _Member())
            if now - member.claimed >= CLAIM_AGAIN:
                member.claimed = now
                self._host.tell(node, KeeperClaim(start, length))

    def settled(self, node: str, message: Settled) -> None:
        member = self._members.setdefault(node, _Member())
        if message.life < member.life:
            return
        member.life = message.life
        member.settled = (message.life, message.start, message.length)
        changed: dict[str, list[Entry]] = {}
        for topic_filter in sorted(self._filters.get(node, ())):
            key = self._host.key_of(topic_filter)
            named = self._entries[key][node, topic_filter].age > (message.life, message.since)
            if not named and on_arc(self._host.position(key), message.start, message.length):
                gone = Entry(node, topic_filter, GONE, message.life, message.number)
                self._take(gone)
                changed.setdefault(key, []).append(gone)
        for key, entries in changed.items():
            self._tell_holders(key, entries, None)
        if member.was_away:
            member.was_away = False
            for topic_filter in sorted(self._filters.get(node, ())):
                if self._host.keepers(topic_filter)[0] == self._host.node_id:
                    self._host.send_retained(node, topic_filter)
        self._all_settled = None
        self._warm_up()

    def _warm_up(self) -> None:
        for key in [key for key in self._cold if self.is_warm(key)]:
            for node in sorted(self._cold.pop(key)):
                self._answer(node, key, True)

    def announced(self, node: str, life: int) -> None:
        """A member said which life it is in: what it registered in an earlier one is to be said again."""
        member = self._members.setdefault(node, _Member())
        if life > member.life:
            member.life = life
            member.settled = None
            self._all_settled = None
            if self._filters.get(node):
                member.was_away = True
                start, length = self._host.arc()
                member.claimed = self._host.steady()
                self._host.tell(node, KeeperClaim(start, length))

    def absent(self, message: Absent) -> None:
        """Entries of nodes that cannot say so themselves."""
        changed: dict[str, list[Entry]] = {}
        live = self._host.live()
        for entry in message.entries:
            if entry.node not in live and self._take(entry):
                member = self._members.setdefault(entry.node, _Member())
                if member.away_since is None:
                    member.away_since = self._host.steady()
                changed.setdefault(self._host.key_of(entry.topic_filter), []).append(entry)
        for key, entries in changed.items():
            self._tell_holders(key, entries, None)

    def recalled(self, node: str, kept: Mapping[str, int]) -> None:
        """What a node had registered before this one was restarted."""
        for topic_filter, qos in kept.items():
            self._take(Entry(node, topic_filter, qos, 0, 0))
        self._members.setdefault(node, _Member()).away_since = self._host.steady()

    # Who lives

    def members_changed(self, joined: Iterable[str], gone: Iterable[str]) -> None:
        now = self._host.steady()
        self._all_settled = None
        for node in gone:
            member = self._members.setdefault(node, _Member())
            member.away_since = now
            member.settled = None
            for number, (holder, _, _) in list(self._noting.items()):
                if holder == node:
                    self._noted(number)
            for asked in self._cold.values():
                asked.discard(node)
        for node in joined if self._members or self._holders else ():
            self._answer_again(node)
            known = self._members.get(node)
            if known is None:
                continue
            known.away_since = None
            known.claimed = float("-inf")
            if self._filters.get(node):
                known.was_away = True
                known.claimed = now
                self._host.tell(node, KeeperClaim(*self._host.arc()))  # it may want others by now
        self._cold = {key: asked for key, asked in self._cold.items() if asked}
        if self._cold:
            self._warm_up()
            self.claim()

    def _answer_again(self, node: str) -> None:
        """It was away, and missed changes of the lists that it holds; it may not know that it was away."""
        for key in [key for key, holders in self._holders.items() if node in holders]:
            self._answer(node, key, self.is_warm(key))

    def _drop_holder(self, key: str, holder: str) -> None:
        holders = self._holders.get(key)
        if holders is not None:
            holders.pop(holder, None)
            if not holders:
                del self._holders[key]

    def of_absent(self) -> list[Entry]:
        """Entries of nodes that are away."""
        live = self._host.live()
        return [
            entry
            for entries in self._entries.values()
            for entry in entries.values()
            if entry.node not in live and entry.qos >= 0
        ]

    def _forget_strays(self) -> None:
        """Entries of keys that others keep now. Who registered them need not know; should this node keep
        their keys once more, it has to be told again."""
        start, length = self._host.arc()
        strays = [key for key in self._entries if not on_arc(self._host.position(key), start, length)]
        for key in strays:
            for node, topic_filter in tuple(self._entries.get(key, ())):
                self._take(Entry(node, topic_filter, ELSEWHERE, _NEWEST, 0))
                self._gone_at.pop((key, node, topic_filter), None)
        for member in self._members.values() if strays else ():
            if member.settled is not None:
                covers = covers_arc(*member.settled[1:], start, length)
                member.settled = (member.settled[0], start, length) if covers else None
        self._all_settled = None

    def sweep(self) -> None:
        """Forget what is long over; call it now and then."""
        self._forget_strays()
        now = self._host.steady()
        for (key, node, topic_filter), at in list(self._gone_at.items()):
            if now - at > self._lifetime:
                del self._gone_at[key, node, topic_filter]
                self._entries.get(key, {}).pop((node, topic_filter), None)
                self._told.discard((node, topic_filter))
                self._forget_empty(key)
        for node, member in list(self._members.items()):
            away = member.away_since
            if away is not None and now - away > self._absent:
                self.forget(node)
        for key, holders in list(self._holders.items()):
            for holder in [h for h, until in holders.items() if until < now]:
                self._drop_holder(key, holder)
        if self._cold:
            self.claim()

    def forget(self, node: str) -> None:
        """A node was away too long."""
        self._members.pop(node, None)
        changed: dict[str, list[Entry]] = {}
        for topic_filter in sorted(self._filters.get(node, ())):
            key = self._host.key_of(topic_filter)
            known = self._entries[key][node, topic_filter]
            gone = Entry(node, topic_filter, GONE, known.life, known.version)
            self._take(gone)
            changed.setdefault(key, []).append(gone)
        self._filters.pop(node, None)
        for key, entries in changed.items():
            self._tell_holders(key, entries, None)


def on_arc(position: int, start: int, length: int) -> bool:
    return covers_arc(start, length, position, 1)


def covers_arc(start: int, length: int, inner: int, inner_length: int) -> bool:
    """Whether one arc of the ring holds all of another: its two ends alone do not tell."""
    return length >= CIRCLE or (inner - start) % CIRCLE + inner_length <= length
