"""Many topic filters in one tree of levels: who wants a topic, and which filter covers which.

Owns who (a str key) wants what at which QoS. Invariants: agrees with `topics.matches` and `topics.covers`;
the cost of a look-up depends on the topic's levels and on what matches, not on how many filters there are;
no node outlives its last filter. Filters are trusted to be valid. Must not know: what a key stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from sys import intern


class _Node:
    """A level. `keys` is not empty where a filter ends, and `topic_filter` is that filter then."""

    __slots__ = ("children", "keys", "topic_filter")

    def __init__(self) -> None:
        self.children: dict[str, _Node] | None = None
        self.keys: dict[str, int] | None = None
        self.topic_filter = ""

    def child(self, level: str) -> _Node | None:
        return self.children.get(level) if self.children else None

    def qos(self) -> int:
        return max(self.keys.values()) if self.keys else -1


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
            if node.children is None:
                node.children = {}
            child = node.children.get(level)
            if child is None:
                # Few names make up a million filters: keep one copy of each.
                child = node.children[intern(level)] = _Node()
            node = child
        if node.keys is None:
            node.keys = {}
            node.topic_filter = topic_filter
            self._length += 1
        node.keys[key] = qos

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
        if node.keys is None or node.keys.pop(key, None) is None or node.keys:
            return
        node.keys = None
        node.topic_filter = ""
        self._length -= 1
        while path and node.keys is None and not node.children:
            node = path.pop()
            if node.children:
                del node.children[levels[len(path)]]
                if not node.children:
                    node.children = None

    def match(self, topic: str) -> dict[str, int]:
        """Who wants a message on `topic`, and at which QoS: the highest of any filter that matches."""
        found: dict[str, int] = {}
        nodes = [self._root]
        wildcards = not topic.startswith("$")  # [MQTT-4.7.2-1], for the first level only
        for level in topic.split("/"):
            following: list[_Node] = []
            for node in nodes:
                children = node.children
                if children is None:
                    continue
                child = children.get(level)
                if child is not None:
                    following.append(child)
                if wildcards:
                    child = children.get("+")
                    if child is not None:
                        following.append(child)
                    child = children.get("#")
                    if child is not None:
                        _merge(found, child)
            if not following:
                return found
            nodes = following
            wildcards = True
        for node in nodes:
            _merge(found, node)
            parent_too = node.child("#")  # a/# matches a
            if parent_too is not None:
                _merge(found, parent_too)
        return found

    def covered(self, topic_filter: str, qos: int, ignoring: str | None = None) -> bool:
        """Is there a filter other than `ignoring` that covers this one with at least this QoS?"""
        return any(
            node.qos() >= qos and node.topic_filter != ignoring for node in self._covering(topic_filter)
        )

    def covered_by(self, topic_filter: str) -> list[tuple[str, int]]:
        """The filters that this one covers, itself included, each with its keys' highest QoS."""
        return [(n.topic_filter, n.qos()) for n in self._inside(topic_filter) if n.keys]

    def filters(self) -> Iterator[tuple[str, int]]:
        """All filters with their keys' highest QoS. The trie must not change meanwhile."""
        return ((n.topic_filter, n.qos()) for n in _subtree([self._root]) if n.keys)

    def qos_of(self, topic_filter: str) -> int | None:
        """The highest QoS any key wants exactly this filter at; None if there is none."""
        node: _Node | None = self._root
        for level in topic_filter.split("/"):
            node = node.child(level) if node else None
        return node.qos() if node and node.keys else None

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
        if topic_filter == "+/#":
            topic_filter = "#"
        for level in topic_filter.split("/"):
            if level == "#":
                return _subtree(nodes, dollar_topics=False) if nodes == [self._root] else _subtree(nodes)
            if level == "+":
                at_root = nodes == [self._root]
                nodes = [
                    child
                    for node in nodes
                    for name, child in (node.children or {}).items()
                    if name != "#" and not (at_root and name.startswith("$"))
                ]
            else:
                nodes = _children(nodes, level)
        return iter(nodes)


def _merge(found: dict[str, int], node: _Node) -> None:
    if node.keys is None:
        return
    for key, qos in node.keys.items():
        if found.get(key, -1) < qos:
            found[key] = qos


def _children(nodes: list[_Node], level: str) -> list[_Node]:
    return [child for node in nodes if (child := node.child(level)) is not None]


def _subtree(nodes: list[_Node], dollar_topics: bool = True) -> Iterator[_Node]:
    """The nodes and all below them; `dollar_topics` says whether children named $... count at the top."""
    yield from nodes
    waiting = [
        child
        for node in nodes
        for name, child in (node.children or {}).items()
        if dollar_topics or not name.startswith("$")
    ]
    while waiting:
        node = waiting.pop()
        yield node
        if node.children:
            waiting.extend(node.children.values())
