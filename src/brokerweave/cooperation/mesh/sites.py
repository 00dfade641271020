"""What every site wants, and where a topic goes.

Owns what other sites told, and `Sites`, which routes by it. Invariants: a topic goes to each site that wants
it, and to its holders; what a life of a site wanted that ended goes to its holders, until another site has
adopted its clients or it is forgotten. Must not know: links, who lives.
"""

from __future__ import annotations

from collections.abc import Iterable

from brokerweave.cooperation.mesh.interest import Filters, Life, OwnInterest, SiteInterest, Told
from brokerweave.mqtt.trie import FilterTrie
from brokerweave.plugin import Hop, Route

_RECORDS = "+"
"""Behind the id of this node in the trie: only records here want it, not sessions at the broker."""
_LIFE = "\0"
"""Between the id of a node and a life of it that ended."""


class Sites:
    def __init__(self, me: str, own: OwnInterest) -> None:
        self._me = me
        self._own = own
        self._trie = FilterTrie()
        self._live: dict[str, SiteInterest] = {}
        self._ended: dict[Life, SiteInterest] = {}

    def get(self, node: str) -> SiteInterest | None:
        return self._own.told if node == self._me else self._live.get(node)

    def life_of(self, node: str) -> int:
        site = self._live.get(node)
        return site.life if site is not None else 0

    def holders_of(self, node: str) -> tuple[str, ...]:
        site = self.get(node)
        return site.holders if site is not None else ()

    # Routes

    def wanted_here(self, topic: str) -> bool:
        """By a session at the broker here."""
        return self._me in self._trie.match(topic)

    def route(self, topic: str, linked: set[str], all_of_them: bool) -> Route:
        """Of what is published here. `all_of_them`: all sites are to have it."""
        wanted = self._trie.match(topic)
        there: dict[str, int] = dict.fromkeys(linked, 2) if all_of_them else {}
        holds: dict[str, list[str]] = {}
        for key, qos in sorted(wanted.items()):
            node, _, life = key.partition(_LIFE)
            node = node.removesuffix(_RECORDS)
            if not life and node != self._me:
                there[node] = max(qos, there.get(node, -1))
            holders = self._ended[node, int(life)].holders if life else self.holders_of(node)
            for holder in {*holders, *((self._me,) if node == self._me else ())} & (linked | {self._me}):
                if node not in holds.setdefault(holder, []):
                    holds[holder].append(node)
        own = tuple(holds.pop(self._me, ()))
        hops = [
            Hop(node, there.get(node, -1), tuple(holds.get(node, ())))
            for node in sorted((there.keys() | holds.keys()) & linked)
        ]
        return Route(tuple(hops), self._me in wanted, own)

    # What sites want

    def own_changed(self, filters: Iterable[str]) -> None:
        for each in filters:
            _set(self._trie, self._me, each, self._own.sessions.get(each))
            _set(self._trie, self._me + _RECORDS, each, self._own.records.get(each))

    def told(self, node: str, told: Told) -> SiteInterest | None:
        """The life of the site that ended, if it told of another one."""
        known, ended = self._live.get(node), None
        if known is None or known.life != told.life:
            ended = known
            self.end(node)
            known = self._live[node] = SiteInterest(told.life)
        changes: Filters = {**dict.fromkeys(known.filters), **told.filters} if told.whole else told.filters
        for each, qos in changes.items():
            _set(self._trie, node, each, qos)
            if qos is None:
                known.filters.pop(each, None)
            else:
                known.filters[each] = qos
        known.holders, known.adopted = told.holders, told.adopted
        known.version = told.version or known.version
        return ended

    def end(self, node: str) -> None:
        """Nothing goes there any more."""
        site = self._live.pop(node, None)
        for each in site.filters if site is not None else ():
            self._trie.discard(each, node)

    # Lives that ended

    def ended(self, node: str, site: SiteInterest) -> None:
        """A site was started again: the clients of before are whose holders adopt them."""
        self._ended[node, site.life] = site
        for each, qos in site.filters.items():
            self._trie.add(each, f"{node}{_LIFE}{site.life}", qos)

    def adopted(self, live: Iterable[str]) -> frozenset[Life]:
        """By this site and these."""
        told = [self._live[node].adopted for node in live if node in self._live]
        return self._own.told.adopted.union(*told)

    def forget(self, lives: Iterable[Life]) -> bool:
        """Somebody has adopted their clients, or nobody will. Whether routes have changed."""
        forgotten = [(life, self._ended.pop(life)) for life in lives if life in self._ended]
        for (node, life), site in forgotten:
            for each in site.filters:
                self._trie.discard(each, f"{node}{_LIFE}{life}")
        return bool(forgotten)


def _set(trie: FilterTrie, key: str, topic_filter: str, qos: int | None) -> None:
    if qos is None:
        trie.discard(topic_filter, key)
    else:
        trie.add(topic_filter, key, qos)
