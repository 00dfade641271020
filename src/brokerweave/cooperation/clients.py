"""Who is where and wants what, in the whole deployment: the tables of the mesh.

Owns, for each node, its clients with their filters, a digest of them, and one trie from topics to nodes.
Invariants: of two nodes that name a client the one with the later `since` has it, and only its filters lead
anywhere; a digest depends on what a node said alone, in whatever order; where a client *was* is remembered
until `forget_former`. Must not know: links, time, who holds what for whom.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import blake2b

from brokerweave.mqtt.topics import shared_filter
from brokerweave.mqtt.trie import FilterTrie
from brokerweave.plugin import RosterEvents
from brokerweave.tables import fit

_BITS = 32


class ClientEntry:
    """A client as one node told of it. `active`: no other node has it since later."""

    __slots__ = ("active", "filters", "new", "since")

    def __init__(self, since: int) -> None:
        self.since = since
        self.new = True
        """It has not said yet what it wants."""
        self.filters: dict[str, int] = {}
        self.active = False


class ClientTable:
    def __init__(self) -> None:
        self.changed = False
        """Routes are no longer what they were; whoever acts on it sets it back."""
        self.events = RosterEvents()
        """Hears of clients that moved, or came."""
        self._nodes: dict[str, dict[str, ClientEntry]] = {}
        self._digests: dict[str, int] = {}
        self._homes: dict[str, str] = {}
        self._forward: FilterTrie = FilterTrie()
        self._counts: dict[tuple[str, str], int] = {}
        """Node, filter: the clients that want it, those of each QoS counted in `_BITS` of their own."""
        self._former: dict[str, dict[str, dict[str, int]]] = {}
        self._lingering: dict[str, dict[str, tuple[str, int]]] = {}
        """Client, filter: where the client was, and the QoS that it had there."""
        self._lingering_at: Counter[str] = Counter()
        self._orphaned: dict[str, str] = {}
        """Clients that are nowhere, and may be owed something from where they were."""
        self._orphaned_from: Counter[str] = Counter()
        self._was: dict[str, str] = {}
        """Where clients were before they came to where they are, or last were."""
        self._tries: dict[str, FilterTrie] = {}
        """Of nodes for whose clients this one keeps messages: built when first asked for."""

    # What is asked

    def nodes(self) -> tuple[str, ...]:
        return tuple(self._nodes)

    def clients(self, node: str) -> Mapping[str, ClientEntry]:
        return self._nodes.get(node, {})

    def digest(self, node: str) -> int:
        return self._digests.get(node, 0)

    def home(self, client: str) -> str | None:
        return self._homes.get(client)

    def since(self, client: str) -> int:
        """When the client came to where it is; 0 if it is nowhere."""
        home = self._homes.get(client)
        return self._nodes[home][client].since if home is not None else 0

    def orphaned(self, node: str) -> bool:
        """Whether a client of the node is nowhere, and owed what it misses."""
        return node in self._orphaned_from

    def lingers(self, node: str) -> bool:
        """Whether a client that was at a node is owed what it wanted there until it says what it wants."""
        return node in self._lingering_at

    def went_from(self, node: str) -> Iterator[str]:
        """Clients that a node had a while ago, and another has."""
        for client in self._former.get(node, ()):
            if self._homes.get(client, node) != node and client not in self._nodes.get(node, ()):
                yield client

    def nodes_wanting(self, topic: str) -> dict[str, int]:
        """Nodes with clients that want a topic, and the highest QoS among them."""
        return self._forward.match(topic)

    def clients_wanting(self, node: str, topic: str) -> dict[str, int]:
        """The clients that are or were at a node and want a topic for themselves.

        A shared subscription does not count, since another member of its group may have had the message; nor
        does a client without a name of its own, which nobody would know again.
        """
        trie = self._tries.get(node)
        if trie is None:
            trie = self._tries[node] = FilterTrie()
            for client, filters in self._former.get(node, {}).items():
                _enter(trie, client, filters)
            for client, entry in self._nodes.get(node, {}).items():
                _enter(trie, client, entry.filters)
        return trie.match(topic)

    # What changes

    def put(self, node: str, client: str, since: int, changes: Mapping[str, int | None]) -> None:
        """A node has a client since then; `changes` of its filters (None: no longer)."""
        entries = self._nodes.setdefault(node, {})
        entry = entries.get(client)
        came = entry is None or entry.since != since
        if entry is None:
            entry = entries[client] = ClientEntry(since)
            self._mix(node, client, since)
        elif entry.since != since:
            self._mix(node, client, entry.since)
            self._mix(node, client, since)
            entry.since = since
            self._reset_session(node, client, entry)
        self._settle_home(node, client, entry)
        entry.new = entry.new or came
        if entry.new and changes:
            entry.new = False
            self.events.came(node, client, since)
        for topic_filter, qos in changes.items():
            self._set(node, client, entry, topic_filter, qos)
            if qos is not None and self._homes.get(client) == node:
                self._unlinger(client, topic_filter)
        fit(entry.filters)
        self._look_behind(node, client, entry)

    def _look_behind(self, node: str, client: str, entry: ClientEntry) -> None:
        """A client that has not said what it wants where it is was at this node before, as is heard now."""
        home = self._homes[client]
        known = self._former.get(node, {}).get(client, {})
        if home != node and self._nodes[home][client].new and entry.filters.keys() - known.keys():
            self._linger(node, client, entry.filters)
            self._was[client] = node
            self.events.moved(client, node, home)

    def _reset_session(self, node: str, client: str, entry: ClientEntry) -> None:
        """A session that begins anew has no filters yet."""
        filters = dict(entry.filters)
        for topic_filter in filters:
            self._set(node, client, entry, topic_filter, None)
        if filters and self._homes.get(client) == node:
            self._linger(node, client, filters)
            self.events.moved(client, node, node)

    def _linger(self, node: str, client: str, filters: Mapping[str, int]) -> None:
        """What a client wanted where it was is owed to it until it says what it wants where it is."""
        lingering = self._lingering.setdefault(client, {}) if filters else {}
        for topic_filter, qos in filters.items():
            if topic_filter not in lingering:
                lingering[topic_filter] = node, qos
                self.changed = self.changed or not self.lingers(node)
                self._lingering_at[node] += 1
                self._count(node, topic_filter, None, qos)
        self.recall_former(node, client, filters)

    def recall_former(self, node: str, client: str, filters: Mapping[str, int]) -> None:
        """A client wanted this where it was: what others still send there, for it, is owed to it."""
        self._former.setdefault(node, {}).setdefault(client, {}).update(filters)
        if node in self._tries:
            _enter(self._tries[node], client, filters)

    def _unlinger(self, client: str, topic_filter: str) -> None:
        lingering = self._lingering.get(client, {})
        if topic_filter in lingering:
            node, qos = lingering.pop(topic_filter)
            self._lingering_at[node] -= 1
            if not self._lingering_at[node]:
                del self._lingering_at[node]
                self.changed = True
            self._count(node, topic_filter, qos, None)
            if not lingering:
                del self._lingering[client]
                fit(self._lingering)

    def drop(self, node: str, client: str) -> None:
        """A node no longer has a client, and it is not to be remembered there."""
        entries = self._nodes.get(node, {})
        entry = entries.get(client)
        if entry is None:
            return
        for topic_filter in list(entry.filters):
            self._set(node, client, entry, topic_filter, None)
        self._mix(node, client, entry.since)
        del entries[client]
        fit(entries)
        if self._homes.get(client) == node:
            del self._homes[client]
            fit(self._homes)
            if client in self._was:
                self._set_orphaned(client, self._was[client])

    def lose(self, node: str, client: str) -> None:
        """A node was restarted and does not know a client any more, which is owed what it misses."""
        filters = dict(self._nodes[node][client].filters)
        self._linger(node, client, filters)
        self.drop(node, client)
        self._was[client] = node
        self._set_orphaned(client, node)
        self.changed = True
        # Another node may have named it before, with an earlier time: clocks differ.
        others = [(other[client].since, name) for name, other in self._nodes.items() if client in other]
        if others:
            _, home = max(others)
            self._settle_home(home, client, self._nodes[home][client])

    def remember(self, node: str, client: str, filters: Mapping[str, int]) -> bool:
        """A client was at a node, as others say who saw it there. False: it is known better here."""
        if client in self._homes or self._orphaned.get(client, node) != node:
            return False
        self._linger(node, client, filters)
        self._was[client] = node
        self._set_orphaned(client, node)
        self.changed = True
        return True

    def lost(self) -> Iterator[tuple[str, str, Mapping[str, int]]]:
        """Clients that are nowhere: where they were, their names, what they wanted there."""
        for client, node in self._orphaned.items():
            yield node, client, self._former.get(node, {}).get(client, {})

    def was(self, client: str) -> tuple[str, Mapping[str, int]]:
        """Where a client was before it came to where it is, if that is known, and what it wanted there."""
        node = self._was.get(client, "")
        return node, self._former.get(node, {}).get(client, {})

    def forget(self, node: str) -> None:
        for client in list(self._former.get(node, ())):
            self.forget_former(node, client)
        for client in list(self._nodes.get(node, ())):
            self.drop(node, client)
        self._nodes.pop(node, None)
        self._digests.pop(node, None)
        self._former.pop(node, None)
        self._tries.pop(node, None)

    def forget_former(self, node: str, client: str) -> None:
        """Nothing can be on its way any more that was meant for the client where it was."""
        for topic_filter, (there, _) in list(self._lingering.get(client, {}).items()):
            if there == node:
                self._unlinger(client, topic_filter)
        if self._orphaned.get(client) == node:
            self._set_orphaned(client, None)
        if self._was.get(client) == node:
            del self._was[client]
        former = self._former.get(node, {})
        filters = former.pop(client, None)
        if filters is None:
            return
        if not former:
            del self._former[node]
        entry = self._nodes.get(node, {}).get(client)
        trie = self._tries.get(node)
        if trie is not None:
            for topic_filter in filters:
                if entry is None or topic_filter not in entry.filters:
                    _leave(trie, client, topic_filter)

    def _set_orphaned(self, client: str, node: str | None) -> str | None:
        """A client that was at a node is nowhere; or somewhere (None). Given back: the node until now."""
        before = self._orphaned.pop(client, None)
        if before is not None:
            self._orphaned_from[before] -= 1
            if not self._orphaned_from[before]:
                del self._orphaned_from[before]
        if node is not None:
            self._orphaned[client] = node
            self._orphaned_from[node] += 1
        return before

    def _settle_home(self, node: str, client: str, entry: ClientEntry) -> None:
        before = self._homes.get(client)
        if before == node:
            return
        other = self._nodes[before][client] if before is not None else None
        if other is not None and (other.since, before or "") >= (entry.since, node):
            return
        self._homes[client] = node
        before = before or self._set_orphaned(client, None)
        if other is not None and before is not None:
            self._activate(before, other, False)
            self._linger(before, client, other.filters)
        self._activate(node, entry, True)
        if before is not None:
            self._was[client] = before
            self.events.moved(client, before, node)

    def _activate(self, node: str, entry: ClientEntry, active: bool) -> None:
        if entry.active != active:
            entry.active = active
            for topic_filter, qos in entry.filters.items():
                self._count(node, topic_filter, None if active else qos, qos if active else None)

    def _set(self, node: str, client: str, entry: ClientEntry, topic_filter: str, qos: int | None) -> None:
        before = entry.filters.get(topic_filter)
        if before == qos:
            return
        if before is not None:
            self._mix(node, client, topic_filter, before)
        if qos is None:
            del entry.filters[topic_filter]
        else:
            entry.filters[topic_filter] = qos
            self._mix(node, client, topic_filter, qos)
        if entry.active:
            self._count(node, topic_filter, before, qos)
        trie = self._tries.get(node)
        if trie is None:
            return
        if qos is not None:
            _enter(trie, client, {topic_filter: qos})
        elif topic_filter not in self._former.get(node, {}).get(client, ()):
            _leave(trie, client, topic_filter)

    def _count(self, node: str, topic_filter: str, before: int | None, now: int | None) -> None:
        _, plain = shared_filter(topic_filter)
        key = (node, plain)
        counts = self._counts.get(key, 0)
        was = _highest(counts)
        if before is not None:
            counts -= 1 << before * _BITS
        if now is not None:
            counts += 1 << now * _BITS
        highest = _highest(counts)
        if counts:
            self._counts[key] = counts
        elif was >= 0:
            del self._counts[key]
            fit(self._counts)
        if highest == was:
            return
        self.changed = True
        if highest < 0:
            self._forward.discard(plain, node)
        else:
            self._forward.add(plain, node, highest)

    def _mix(self, node: str, *parts: object) -> None:
        """Digests are sums without carry, so that the order of what is said does not matter."""
        text = "\0".join(map(str, parts)).encode()
        self._digests[node] = self._digests.get(node, 0) ^ int.from_bytes(
            blake2b(text, digest_size=8).digest()
        )


def _enter(trie: FilterTrie, client: str, filters: Mapping[str, int]) -> None:
    if client.startswith("\0"):
        return
    for topic_filter, qos in filters.items():
        group, plain = shared_filter(topic_filter)
        if group is None:
            trie.add(plain, client, qos)


def _leave(trie: FilterTrie, client: str, topic_filter: str) -> None:
    group, plain = shared_filter(topic_filter)
    if group is None and not client.startswith("\0"):
        trie.discard(plain, client)


def _highest(counts: int) -> int:
    """-1 if nobody is left."""
    return (counts.bit_length() - 1) // _BITS
