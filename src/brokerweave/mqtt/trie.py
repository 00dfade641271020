"""Many topic filters in one tree of levels: who wants a topic, and which filter covers which.

Owns who (a str key) wants what at which QoS. Invariants: agrees with `topics.matches` and `topics.covers`;
the cost of a look-up depends on the topic's levels and on what matches, not on how many filters there are;
no node outlives its last filter. Filters are trusted to be valid. Must not know: what a key stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import intern

from brokerweave.tables import fit


class _Node:
    """A level. Where a filter ends, `topic_filter` is that filter and `key` is not None.

    Shaped by what a look-up costs among a million filters, which is the memory it touches: wildcards
    (`plus` and `tail`, for + and #) stand beside the dict of named children, so that asking for them is
    free; and as most filters have one key, it stands in the node, and only others are in a dict.
    """

    __slots__ = ("children", "key", "key_qos", "others", "plus", "tail", "topic_filter")

    def __init__(self) -> None:
        self.children: dict[str, _Node] | None = None
        self.plus: _Node | None = None
        self.tail: _Node | None = None
        self.topic_filter = ""
        self.key: str | None = None
        self.key_qos = -1
        self.others: dict[str, int] | None = None

    def child(self, level: str) -> _Node | None:
        if level == "+":
            return self.plus
        if level == "#":
            return self.tail
        return self.children.get(level) if self.children else None

    def make_child(self, level: str) -> _Node:
        child = _Node()
        if level == "+":
            self.plus = child
        elif level == "#":
            self.tail = child
        else:
            if self.children is None:
                self.children = {}
            # Few names make up a million filters: keep one copy of each.
            self.children[intern(level)] = child
        return child

    def drop_child(self, level: str) -> None:
        if level == "+":
            self.plus = None
        elif level == "#":
            self.tail = None
        elif self.children:
            del self.children[level]
            if not self.children:
                self.children = None
            else:
                fit(self.children)

    def empty(self) -> bool:
        return not (self.key is not None or self.children or self.plus or self.tail)

    def below(self, dollar_topics: bool = True) -> list[_Node]:
        """All children but the one for #; those named $... only if `dollar_topics`."""
        named = (self.children or {}).items()
        nodes = [child for name, child in named if dollar_topics or not name.startswith("$")]
        if self.plus:
            nodes.append(self.plus)
        return nodes

    def qos(self) -> int:
        return max(self.key_qos, *self.others.values()) if self.others else self.key_qos

    def set(self, key: str, qos: int) -> None:
        if self.key is None or self.key == key:
            self.key, self.key_qos = key, qos
        elif self.others is None:
            self.others = {key: qos}
        else:
            self.others[key] = qos

    def unset(self, key: str) -> None:
        if self.key != key:
            if self.others:
                self.others.pop(key, None)
        elif self.others:
            self.key, self.key_qos = self.others.popitem()
        else:
            self.key, self.key_qos, self.topic_filter = None, -1, ""
        if not self.others:
            self.others = None


class FilterTrie:
    """A mapping filter → {key: qos}."""

    __slots__ = ("_length", "_root")

    def __init__(self) -> None:
        self._root = _Node()
        self._length = 0

    def __len__(self) -> int:
        """How many filters there are, each counted once whatever the number of its keys."""
        return self._length

    def add(self, topic_filter: str, key: str, qos: int) -> None:
        """`key` wants `topic_filter` at `qos`; what it wanted before is replaced."""
        node = self._root
        for level in topic_filter.split("/"):
            node = node.child(level) or node.make_child(level)
        if node.key is None:
            node.topic_filter = topic_filter
            self._length += 1
        node.set(key, qos)

    def discard(self, topic_filter: str, key: str) -> None:
        """`key` does not want `topic_filter` any more, if it did."""
        path = [self._root]
        levels = topic_filter.split("/")
        for level in levels:
            child = path[-1].child(level)
            if child is None:
                return
            path.append(child)
        node = path.pop()
        if node.key is None:
            return
        node.unset(key)
        if node.key is not None:
            return
        self._length -= 1
        while path and node.empty():
            node = path.pop()
            node.drop_child(levels[len(path)])

    def match(self, topic: str) -> dict[str, int]:
        """Who wants a message on `topic`, and at which QoS: the highest of any filter that matches."""
        found: dict[str, int] = {}
        nodes = [self._root]
        wildcards = not topic.startswith("$")  # [MQTT-4.7.2-1], for the first level only
        for level in topic.split("/"):
            following: list[_Node] = []
            for node in nodes:
                if node.children is not None:
                    child = node.children.get(level)
                    if child is not None:
                        following.append(child)
                if wildcards:
                    if node.plus is not None:
                        following.append(node.plus)
                    if node.tail is not None:
                        _merge(found, node.tail)
            if not following:
                return found
            nodes = following
            wildcards = True
        for node in nodes:
            _merge(found, node)
            if node.tail is not None:  # a/# matches a
                _merge(found, node.tail)
        return found

    def covered(self, topic_filter: str, qos: int, ignoring: str | None = None) -> bool:
        """Is there a filter other than `ignoring` that covers this one with at least this QoS?"""
        for node in self._covering(topic_filter):
            if node.qos() >= qos and node.topic_filter != ignoring:
                return True
        return False

    def covered_by(self, topic_filter: str) -> list[tuple[str, int]]:
        """The filters that this one covers, itself included, each with its keys' highest QoS."""
        return [(n.topic_filter, n.qos()) for n in self._inside(topic_filter) if n.key is not None]

    def filters(self) -> Iterator[tuple[str, int]]:
        """All filters with their keys' highest QoS. The trie must not change meanwhile."""
        return ((n.topic_filter, n.qos()) for n in _subtree([self._root]) if n.key is not None)

    def qos_of(self, topic_filter: str) -> int | None:
        """The highest QoS any key wants exactly this filter at; None if there is none."""
        node: _Node | None = self._root
        for level in topic_filter.split("/"):
            node = node.child(level) if node else None
        return node.qos() if node and node.key is not None else None

    def _covering(self, topic_filter: str) -> Iterator[_Node]:
        """Every node whose filter, if it ends one, covers `topic_filter` (see `topics.covers`)."""
        nodes = [self._root]
        wildcards = not topic_filter.startswith("$")
        for level in topic_filter.split("/"):
            if wildcards:
                yield from _children(nodes, "#")
            if level == "#":
                # Below the root, + asks for a level that # does not need; +/# is the same as # though.
                nodes = _children(nodes, "+") if topic_filter == "#" else []
                break
            following = _children(nodes, level)
            if wildcards and level != "+":
                following += _children(nodes, "+")
            nodes = following
            wildcards = True
        else:
            yield from nodes
        yield from _children(nodes, "#")

    def _inside(self, topic_filter: str) -> Iterator[_Node]:
        """Every node whose filter, if it ends one, is covered by `topic_filter`."""
        nodes = [self._root]
        dollar_topics = False  # [MQTT-4.7.2-1], for the first level only
        for level in ("#",) if topic_filter == "+/#" else topic_filter.split("/"):
            if level == "#":
                return _subtree(nodes, dollar_topics)
            if level == "+":
                nodes = [child for node in nodes for child in node.below(dollar_topics)]
            else:
                nodes = _children(nodes, level)
            dollar_topics = True
        return iter(nodes)


def _merge(found: dict[str, int], node: _Node) -> None:
    if node.key is not None and found.get(node.key, -1) < node.key_qos:
        found[node.key] = node.key_qos
    if node.others:
        for key, qos in node.others.items():
            if found.get(key, -1) < qos:
                found[key] = qos


def _children(nodes: list[_Node], level: str) -> list[_Node]:
    return [child for node in nodes if (child := node.child(level)) is not None]


def _subtree(nodes: list[_Node], dollar_topics: bool = True) -> Iterator[_Node]:
    """The nodes and all below them; `dollar_topics` says whether children named $... count at the top."""
    waiting = nodes
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node.below(dollar_topics)
        if node.tail:
            waiting.append(node.tail)
        dollar_topics = True
