"""What this node's clients want, and which keepers know it.

Owns the node's wishes, what each keeper was told of them, and what it has not confirmed yet. Invariants: each
wish is registered at every keeper of its key, and where keepers change it is registered again, which is the
one answer to joins, leaves, deaths and restarts; a keeper that may have missed a packet gets all that is for
it; versions only grow. Must not know: what keepers do with it, links.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from brokerweave.cooperation.overlay.wire import (
    ELSEWHERE,
    GONE,
    KeeperClaim,
    Message,
    Register,
    Registered,
    Settled,
    Wish,
    batches,
)


class RegistrarHost(Protocol):
    def tell(self, node: str, message: Message) -> None:
        """Send to a member, or to this node itself; waits for a link."""

    def keepers(self, topic_filter: str) -> tuple[str, ...]:
        """The live keepers of a filter's key, the coordinator first."""

    def on_arc(self, topic_filter: str, start: int, length: int) -> bool:
        """Whether a filter's key is on this arc of the ring."""

    def arc_of(self, node: str) -> tuple[int, int]:
        """Start and length of the arc of keys that a member keeps."""


@dataclass(slots=True)
class _Wanted:
    qos: int
    asked: set[str] = field(default_factory=set)
    """Keepers that were asked for the retained messages; one is enough if it is warm."""
    needs_retained: bool = False
    first: str = ""
    """The coordinator as it was when it was told last."""


@dataclass(slots=True)
class _ToldKeeper:
    """What one keeper was told."""

    filters: set[str] = field(default_factory=set)
    unconfirmed: dict[str, int] = field(default_factory=dict)
    """Filters that it has yet to confirm, and the number of the packet that told of each; 0: not sent yet."""
    unsent: dict[str, None] = field(default_factory=dict)
    packets: dict[int, tuple[Wish, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class _Wait:
    left: set[tuple[str, str]]
    """Keepers and filters."""
    callback: Callable[[], None]


class Registrar:
    def __init__(self, host: RegistrarHost, life: int, later: Callable[[Callable[[], None]], None]) -> None:
        """`later`: calls back when this turn is over."""
        self.life = life
        self._host = host
        self._later = later
        self._wanted: dict[str, _Wanted] = {}
        self._keepers: dict[str, _ToldKeeper] = {}
        self._claims: dict[str, tuple[int, int]] = {}
        """Arcs that live members said they keep; their view of the members may be ahead of this node's."""
        self._former: set[str] = set()
        """Keepers that died, and may come back with what they were told."""
        self._counter = 0
        self._waits: list[_Wait] = []
        self._flushing = False

    @property
    def unconfirmed(self) -> int:
        return sum(len(told.unconfirmed) for told in self._keepers.values())

    def told(self, keeper: str) -> int:
        """How many filters a keeper was told."""
        known = self._keepers.get(keeper)
        return len(known.filters) if known is not None else 0

    def knows(self, topic_filter: str) -> bool:
        return topic_filter in self._wanted

    # Wishes

    def want(self, filters: Mapping[str, int], retained: bool = False) -> None:
        for topic_filter, qos in filters.items():
            known = self._wanted.get(topic_filter)
            if known is not None and known.qos == qos and not retained:
                continue
            self._wanted[topic_filter] = _Wanted(qos, needs_retained=retained)
            for keeper in self._keepers_of(topic_filter):
                self._owe(keeper, topic_filter)

    def unwant(self, filters: Iterable[str]) -> None:
        for topic_filter in filters:
            if self._wanted.pop(topic_filter, None) is not None:
                for keeper, told in self._keepers.items():
                    if topic_filter in told.filters:
                        self._owe(keeper, topic_filter)

    def when_registered(self, filters: Iterable[str], callback: Callable[[], None]) -> bool:
        """Call back when all live keepers have confirmed these filters. True: they have; no call follows."""
        wanted = set(filters)
        left = {
            (keeper, topic_filter)
            for keeper, told in self._keepers.items()
            for topic_filter in wanted & told.unconfirmed.keys()
        }
        if left:
            self._waits.append(_Wait(left, callback))
        return not left

    # What membership and links say

    def members_changed(self, joined: Iterable[str], gone: Iterable[str]) -> None:
        for node in gone:
            self._claims.pop(node, None)
            told = self._keepers.pop(node, None)
            if told is not None:
                self._former.add(node)
                self._confirmed((node, topic_filter) for topic_filter in told.unconfirmed)
        for node in sorted(self._former.intersection(joined)):
            self._former.discard(node)
            self._tell_all(node, *self._host.arc_of(node))
        for topic_filter, wanted in self._wanted.items():
            keepers = self._keepers_of(topic_filter)
            for keeper in keepers:
                told = self._keepers.get(keeper)
                # A shadow that became the coordinator may have to tell what the former one could not.
                became_first = keeper == keepers[0] != wanted.first
                if told is None or topic_filter not in told.filters or became_first:
                    self._owe(keeper, topic_filter)
            for keeper, told in self._keepers.items():
                if topic_filter in told.filters and keeper not in keepers:
                    self._owe(keeper, topic_filter)

    def link_lost(self, keeper: str) -> None:
        """What was on its way is lost: it is told again, which opens the next link."""
        told = self._keepers.get(keeper)
        if told is not None and told.packets:
            told.packets.clear()
            told.unsent.update(dict.fromkeys(told.unconfirmed))
            self._flush_later()

    def restarted(self, keeper: str) -> None:
        """A keeper has begun a new life, and knows nothing."""
        told = self._keepers.get(keeper)
        if told is not None:
            for topic_filter in sorted(told.filters & self._wanted.keys()):
                self._owe(keeper, topic_filter)

    # What keepers say

    def registered(self, keeper: str, answer: Registered) -> None:
        told = self._keepers.get(keeper)
        wishes = told.packets.pop(answer.number, ()) if told is not None else ()
        done = []
        for wish in wishes:
            wanted = self._wanted.get(wish.topic_filter)
            if wish.retained and wanted is not None and wanted.needs_retained:
                wanted.asked.add(keeper)
                wanted.needs_retained = not answer.warm and self._ask_next(wish.topic_filter, wanted)
            assert told is not None
            if told.unconfirmed.get(wish.topic_filter) == answer.number:
                del told.unconfirmed[wish.topic_filter]
                done.append((keeper, wish.topic_filter))
                if wish.qos < 0:
                    told.filters.discard(wish.topic_filter)
        self._confirmed(done)

    def _ask_next(self, topic_filter: str, wanted: _Wanted) -> bool:
        """The keeper that was asked for retained messages did not have all; False: nobody else can be."""
        for keeper in self._keepers_of(topic_filter):
            if keeper not in wanted.asked:
                self._owe(keeper, topic_filter)
                for wait in self._waits:
                    if any(each == topic_filter for _, each in wait.left):
                        wait.left.add((keeper, topic_filter))
                return True
        return False

    def claimed(self, keeper: str, claim: KeeperClaim) -> None:
        self._claims[keeper] = (claim.start, claim.length)
        self._tell_all(keeper, claim.start, claim.length)

    def _tell_all(self, keeper: str, start: int, length: int) -> None:
        """Tell a keeper all that is for it, then that it was all."""
        since = self._counter
        told = self._keepers.setdefault(keeper, _ToldKeeper())
        for topic_filter in self._wanted:
            if self._host.on_arc(topic_filter, start, length):
                self._owe(keeper, topic_filter)
        if told.unsent:
            self._send(keeper, told)
        self._host.tell(keeper, Settled(self.life, start, length, since, self._next()))

    # Packets

    def _keepers_of(self, topic_filter: str) -> tuple[str, ...]:
        keepers = self._host.keepers(topic_filter)
        others = [
            node
            for node, (start, length) in self._claims.items()
            if node not in keepers and self._host.on_arc(topic_filter, start, length)
        ]
        return (*keepers, *others)

    def _next(self) -> int:
        self._counter += 1
        return self._counter

    def _owe(self, keeper: str, topic_filter: str) -> None:
        told = self._keepers.setdefault(keeper, _ToldKeeper())
        told.filters.add(topic_filter)
        told.unconfirmed[topic_filter] = 0
        told.unsent[topic_filter] = None
        self._flush_later()

    def _flush_later(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._later(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        for keeper, told in list(self._keepers.items()):
            if told.unsent:
                self._send(keeper, told)

    def _send(self, keeper: str, told: _ToldKeeper) -> None:
        wishes = [self._wish(keeper, topic_filter) for topic_filter in told.unsent]
        told.unsent = {}
        for part in batches(wishes):
            number = self._next()
            told.packets[number] = tuple(part)
            told.unconfirmed.update((wish.topic_filter, number) for wish in part)
            self._host.tell(keeper, Register(number, self.life, tuple(part)))

    def _wish(self, keeper: str, topic_filter: str) -> Wish:
        wanted = self._wanted.get(topic_filter)
        keepers = self._keepers_of(topic_filter)
        first = keeper == keepers[0]
        if wanted is None:
            return Wish(topic_filter, GONE, first, False)
        if keeper not in keepers:
            return Wish(topic_filter, ELSEWHERE, False, False)
        wanted.first = keepers[0]
        asks = wanted.needs_retained and keeper == next((k for k in keepers if k not in wanted.asked), "")
        return Wish(topic_filter, wanted.qos, first, asks)

    def _confirmed(self, done: Iterable[tuple[str, str]]) -> None:
        gone = set(done)
        if not gone or not self._waits:
            return
        over = []
        for wait in self._waits:
            wait.left -= gone
            if not wait.left:
                over.append(wait)
        self._waits = [wait for wait in self._waits if wait.left]
        for wait in over:
            wait.callback()
