"""The subscriber lists that this node's publications need.

Owns the lists, by key, and whom they were asked of. Invariants: a list is complete when a keeper said that
everybody registered with it, and all other live keepers have answered, or had time to; entries are merged by
version, so that an old answer revives nothing; what a list said is used while it is asked for again. A list
that is not used any more is dropped. Must not know: where publications go, who is closest to what.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from brokerweave.cooperation.overlay.wire import AskList, Entry, ListChanged, Listed, Message, Noted
from brokerweave.plugin import matches

MOST_LISTS = 100_000
MOST_TOPICS = 1_000
"""Topics of one list that are known by name; with more, a change of it counts as a change of all."""
PATIENCE = 1.0
"""Seconds that a slow keeper is waited for once another has given its list."""


class ListsHost(Protocol):
    def tell(self, node: str, message: Message) -> None: ...

    def steady(self) -> float: ...

    def keepers_of_key(self, key: str) -> tuple[str, ...]: ...

    def lists_changed(self, topics: Iterable[str] | None) -> None:
        """Other nodes than before want these topics (None: any), or it is known now who does."""

    def lists_aged(self, topics: Iterable[str] | None) -> None:
        """Lists for these topics are old: where they are used, they are to be asked for again."""

    def look_later(self, seconds: float) -> None:
        """Call `look` then."""


@dataclass(slots=True)
class _List:
    entries: dict[tuple[str, str], Entry] = field(default_factory=dict)
    asked: dict[str, bool | None] = field(default_factory=dict)
    """Keepers, and whether they said that everybody has registered there; None: no answer yet."""
    complete: bool = False
    given: float | None = None
    """When the first keeper gave all."""
    fresh: float = 0.0
    """When it was asked for last."""
    topics: set[str] | None = field(default_factory=set)


class SubscriberLists:
    def __init__(self, host: ListsHost, lifetime: float) -> None:
        self._host = host
        self._lifetime = lifetime
        self._lists: OrderedDict[str, _List] = OrderedDict()
        self._incomplete: set[str] = set()

    def __len__(self) -> int:
        return len(self._lists)

    @property
    def waiting(self) -> int:
        """Lists that are not complete yet."""
        return len(self._incomplete)

    def nodes(self) -> set[str]:
        """Whoever is on a list."""
        return {entry.node for each in self._lists.values() for entry in each.entries.values()}

    def names(self, node: str) -> bool:
        return any(entry.node == node for each in self._lists.values() for entry in each.entries.values())

    def answered(self, key: str) -> set[str]:
        """Keepers that have given the list of a key."""
        each = self._lists.get(key)
        return {keeper for keeper, warm in each.asked.items() if warm is not None} if each else set()

    def subscribers(self, topic: str, keys: Iterable[str]) -> dict[str, int] | None:
        """The nodes that want a topic with these keys, and the highest QoS of each; None: not known yet."""
        wanted: dict[str, int] | None = {}
        for key in keys:
            each = self._lists.get(key)
            if each is None:
                each = self._lists[key] = _List()
                self._incomplete.add(key)
                self._ask(key, each)
                self._bound()
            else:
                self._lists.move_to_end(key)
                if self._host.steady() - each.fresh > self._lifetime:
                    self._ask(key, each)
            self._remember(each, topic)
            if not each.complete:
                wanted = None
            elif wanted is not None:
                for entry in each.entries.values():
                    if entry.qos > wanted.get(entry.node, -1) and matches(entry.topic_filter, topic):
                        wanted[entry.node] = entry.qos
        return wanted

    def _remember(self, each: _List, topic: str) -> None:
        if each.topics is not None:
            each.topics.add(topic)
            if len(each.topics) > MOST_TOPICS:
                each.topics = None

    def _bound(self) -> None:
        while len(self._lists) > MOST_LISTS:
            key, each = self._lists.popitem(last=False)
            self._incomplete.discard(key)
            self._host.lists_changed(each.topics)

    def _ask(self, key: str, each: _List, only: Iterable[str] | None = None) -> None:
        each.fresh = self._host.steady()
        for keeper in self._host.keepers_of_key(key) if only is None else only:
            each.asked.setdefault(keeper, None)
            self._host.tell(keeper, AskList((key,)))

    # What keepers say

    def listed(self, keeper: str, message: Listed) -> None:
        each = self._lists.get(message.key)
        if each is None:
            return
        changed = self._merge(each, message.entries)
        if message.last:
            each.asked[keeper] = message.warm
        if not self._complete(message.key, each) and changed and each.complete:
            self._host.lists_changed(_touched(each, changed))

    def changed(self, keeper: str, message: ListChanged) -> None:
        each = self._lists.get(message.key)
        if each is not None:
            changed = self._merge(each, message.entries)
            if changed and each.complete:
                self._host.lists_changed(_touched(each, changed))
        self._host.tell(keeper, Noted(message.number))

    def _merge(self, each: _List, entries: Iterable[Entry]) -> list[Entry]:
        """Returns what is news."""
        news = []
        for entry in entries:
            name = (entry.node, entry.topic_filter)
            before = each.entries.get(name)
            if before is None or entry.age >= before.age:
                each.entries[name] = entry
                if entry.qos != (before.qos if before is not None else -1):
                    news.append(entry)
        return news

    def _complete(self, key: str, each: _List) -> bool:
        """Whether it has become so now."""
        if each.complete:
            return False
        keepers = self._host.keepers_of_key(key)
        answers = [each.asked.get(keeper) for keeper in keepers]
        if not any(answers):
            return False
        now = self._host.steady()
        if each.given is None:
            each.given = now
            if None in answers:
                self._host.look_later(PATIENCE)
        if None in answers and now - each.given < PATIENCE:
            return False
        each.complete = True
        self._incomplete.discard(key)
        self._host.lists_changed(each.topics)
        return True

    def look(self) -> None:
        """Whether lists are complete though a keeper has not answered; and which are not used any more."""
        for key in sorted(self._incomplete):
            self._complete(key, self._lists[key])

    # Who lives

    def members_changed(self) -> None:
        """AskList keepers that were not asked, so that they tell of changes; lists are used meanwhile."""
        for key, each in self._lists.items():
            keepers = self._host.keepers_of_key(key)
            each.asked = {keeper: each.asked.get(keeper) for keeper in each.asked if keeper in keepers}
            self._ask(key, each, [keeper for keeper in keepers if keeper not in each.asked])
        self.look()

    def ask_again(self, keeper: str) -> None:
        """Questions to a keeper, or its answers, may have been lost with its link or its life."""
        for key, each in self._lists.items():
            if keeper in each.asked and (each.asked[keeper] is None or not each.complete):
                self._ask(key, each, (keeper,))

    def restarted(self, keeper: str) -> None:
        """A keeper does not know any more who holds its lists."""
        for key, each in self._lists.items():
            if keeper in each.asked:
                self._ask(key, each, (keeper,))

    def sweep(self) -> None:
        """Drop lists that nobody asked about for long; call it now and then."""
        now = self._host.steady()
        stale: list[str] = []
        for key, each in self._lists.items():
            age = now - each.fresh
            if age > 3 * self._lifetime and each.complete:
                stale.append(key)
            elif age > self._lifetime:
                self._host.lists_aged(each.topics)  # if it is used, it is asked for again
            each.entries = {n: e for n, e in each.entries.items() if e.qos >= 0 or age < self._lifetime}
        for key in stale:
            self._host.lists_changed(self._lists.pop(key).topics)
            self._incomplete.discard(key)


def _touched(each: _List, entries: Iterable[Entry]) -> set[str] | None:
    """The topics that these entries are about."""
    if each.topics is None:
        return None
    filters = {entry.topic_filter for entry in entries}
    return {topic for topic in each.topics if any(matches(f, topic) for f in filters)}
