"""Scribe (Castro et al. 2002): a tree for each topic, made of the ways by which subscribers find its root.

The baseline that the thesis compares with. A publisher's node sends to the root, the member closest to the
topic's key; from there a message goes down the tree, also through nodes that do not want it. Owns the trees
as this node sees them: its parent and children in each. Invariants: a node is in a topic's tree as long as
its clients want the topic or it has children there; where the next hop to the root is another than before, it
joins there; trees are soft state: who is in one says so again and again, and who does not say so is
forgotten, whatever happened to it. A topic has one tree, so a node whose filter with wildcards matches is
invited by the root. Weaker than `guided`: a relay's parent does not know whom it serves, so what is on its
way while a tree changes may be lost. Must not know: how lists are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from brokerweave.cooperation.overlay.pastry import next_hop
from brokerweave.cooperation.overlay.strategy import Overlay
from brokerweave.cooperation.overlay.wire import Invite, Join, Leave, Message, TreeJoined
from brokerweave.plugin import NOT_YET, Context, Hop, Route, Traits, matches

UP, DOWN = b"u", b"d"
"""Plans: to the root; down the tree."""
REFRESH_SECONDS = 10.0
"""After how long a node says again that it is in a tree, and a root invites again."""
CHILD_SECONDS = 3 * REFRESH_SECONDS
"""How long a child that did not say so is remembered."""
JOINED = 0.0
INVITE_SECONDS = 2.0
"""How long the root waits for a node that it has invited."""


@dataclass(slots=True)
class _Group:
    children: dict[str, int] = field(default_factory=dict)
    """With the highest QoS behind each."""
    seen: dict[str, float] = field(default_factory=dict)
    """When each child last said that it is one."""
    parent: str | None = None
    told: int = -1
    """The QoS that the parent knows."""
    refreshed: float = 0.0
    """When the parent, and whoever was invited, were last told."""
    joined: bool = False
    waiting: set[str] = field(default_factory=set)
    """Nodes that are told when this one is in the tree."""
    waits: list[Callable[[], None]] = field(default_factory=list)
    invited: dict[str, float] = field(default_factory=dict)
    """At the root: nodes that were invited, and until when they are waited for; 0: they joined."""


class Scribe(Overlay):
    name: ClassVar[str] = "scribe"
    traits: ClassVar[Traits] = replace(Overlay.traits, best_effort=True)
    returns: ClassVar[bool] = True

    def __init__(self, context: Context) -> None:
        self._groups: dict[str, _Group] = {}
        self._invitations: set[str] = set()
        super().__init__(context)

    def route(self, topic: str, came_from: str | None) -> Route:
        return self._to_root(topic, UP) if came_from is None else Route(local=self.wants(topic))

    def route_retained(self, topic: str, came_from: str | None) -> Route:
        if came_from is not None:
            return Route(local=True)
        route = self._to_root(topic, UP)
        served = {hop.neighbour for hop in route.hops} | {self.node_id}
        keepers = dict.fromkeys(k for key in self.keys(topic) for k in self.keepers_of_key(key))
        return Route((*route.hops, *(Hop(k) for k in keepers if k not in served)), known=route.known)

    def _to_root(self, topic: str, plan: bytes) -> Route:
        root = self._root(topic)
        if self.is_searching():
            return NOT_YET
        return self._from_root(topic) if root == self.node_id else Route((Hop(root, plan=plan),))

    def follow(self, topic: str, came_from: str, plan: bytes) -> Route:
        if plan == DOWN:
            return Route(tuple(self._down(topic)), local=self.wants(topic))
        if self._root(topic) != self.node_id:  # it was when this was sent, or will be
            return Route((Hop(self._root(topic), plan=plan),), local=self.wants(topic))
        return replace(self._from_root(topic), local=self.wants(topic))

    def bypass(self, topic: str, relay: str, plan: bytes) -> Route:
        if plan != DOWN:
            return self._to_root(topic, plan)
        if self._root(topic) != self.node_id:
            return Route()
        subscribers = self.lists.subscribers(topic, self.keys(topic)) or {}
        return Route(tuple(Hop(n, q) for n, q in subscribers.items() if n not in (relay, self.node_id)))

    def _root(self, topic: str) -> str:
        return self.keepers_of_key(self.keys(topic)[0])[0]

    def _down(self, topic: str) -> list[Hop]:
        group = self._groups.get(topic)
        children = group.children if group is not None else {}
        return [Hop(child, qos, plan=DOWN) for child, qos in children.items() if self.is_live(child)]

    def _from_root(self, topic: str) -> Route:
        """Down the tree, once all are in it whose filters match; to those that are away, directly."""
        subscribers = self._subscribers(topic)
        wild = self.lists.subscribers(topic, self.keys(topic)[1:])
        if subscribers is None or wild is None or self._invites(topic, wild):
            return NOT_YET
        down = self._down(topic)
        reached = {hop.neighbour for hop in down}
        away = [Hop(n, q) for n, q in subscribers.items() if not self.is_live(n) and n not in reached]
        return Route((*down, *away))

    # Trees

    def _invites(self, topic: str, wild: Mapping[str, int]) -> bool:
        """Whether somebody is waited for."""
        group = self._groups.setdefault(topic, _Group(joined=True))
        now, waits = self.context.steady(), False
        for node in wild:
            if node == self.node_id or not self.is_live(node):
                continue
            if node not in group.invited:
                group.invited[node] = now + INVITE_SECONDS
                self.tell(node, Invite(topic))
                self.context.call_later(INVITE_SECONDS, lambda: self.context.routes_changed((topic,)))
            waits |= group.invited[node] > now
        for node in group.invited.keys() - wild.keys():
            del group.invited[node]
        self._update(topic)
        return waits

    def _own_qos(self, topic: str) -> int:
        invited = 2 if topic in self._invitations and self._matches(topic) else -1
        return max(self._filters.get(topic, self._asked(topic)), invited)

    def _matches(self, topic: str) -> bool:
        """Whether this node wants a topic, or is about to."""
        return self.wants(topic) or any(matches(each, topic) for each in self._tentative)

    def _asked(self, topic: str) -> int:
        return 2 if topic in self._tentative else -1

    def _update(self, topic: str) -> None:
        """See that this node is in a topic's tree if it needs to be, and where."""
        group = self._groups.get(topic)
        own = self._own_qos(topic)
        if group is None:
            if own < 0:
                return
            group = self._groups[topic] = _Group()
        qos = max(own, *group.children.values(), -1)
        parent = next_hop(self.ring, self.node_id, self.position(self.keys(topic)[0]))
        if group.parent is not None and (parent != group.parent or qos < 0):
            self.tell(group.parent, Leave(topic))
            group.parent, group.told, group.joined = None, -1, False
        if qos < 0:
            if not group.invited:
                del self._groups[topic]
                self._end(group)
        elif parent is None:
            self._in_tree(group, topic)
        elif qos != group.told:
            group.parent, group.told, group.refreshed = parent, qos, self.context.steady()
            self.tell(parent, Join(topic, qos))

    def _in_tree(self, group: _Group, topic: str) -> None:
        group.joined = True
        waiting, group.waiting = group.waiting, set()
        for node in sorted(waiting):
            self.tell(node, TreeJoined(topic))
        self._end(group)

    def _end(self, group: _Group) -> None:
        waits, group.waits = group.waits, []
        for callback in waits:
            callback()

    def _heard(self, node: str, message: Message) -> None:
        match message:
            case Join(topic, qos):
                group = self._groups.setdefault(topic, _Group())
                group.seen[node] = self.context.steady()
                group.waiting.add(node)
                if group.children.get(node) != qos:
                    group.children[node] = qos
                    self.context.routes_changed((topic,))
                self._update(topic)
                if group.joined:
                    self._in_tree(group, topic)
            case TreeJoined(topic):
                self._heard_joined(node, topic)
            case Leave(topic):
                self._lost_child(topic, node)
            case Invite(topic):
                self._invitations.add(topic)
                self._update(topic)
                known = self._groups.get(topic)
                if known is None or known.joined:
                    self.tell(node, TreeJoined(topic))
                else:
                    known.waiting.add(node)
            case _:
                super()._heard(node, message)

    def _heard_joined(self, node: str, topic: str) -> None:
        group = self._groups.get(topic)
        if group is None:
            return
        if node in group.invited:
            group.invited[node] = JOINED
            self.context.routes_changed((topic,))
        if node == group.parent:
            self._in_tree(group, topic)

    def _lost_child(self, topic: str, node: str) -> None:
        group = self._groups.get(topic)
        if group is not None and group.children.pop(node, None) is not None:
            group.waiting.discard(node)
            del group.seen[node]
            self.context.routes_changed((topic,))
            self._update(topic)

    def lists_changed(self, topics: Iterable[str] | None) -> None:
        """Who wants a topic may have wanted it before, and have forgotten an invitation since."""
        topics = None if topics is None else tuple(topics)
        for topic in self._groups if topics is None else topics:
            if topic in self._groups:
                self._groups[topic].invited.clear()
        super().lists_changed(topics)

    # What clients want, and who lives

    def subscribed(self, filters: Mapping[str, int]) -> None:
        super().subscribed(filters)
        for topic in (*filters, *sorted(self._invitations)):
            if is_topic(topic):
                self._update(topic)

    def unsubscribed(self, filters: Iterable[str]) -> None:
        gone = tuple(filters)
        super().unsubscribed(gone)
        self._invitations = {topic for topic in self._invitations if self._matches(topic)}
        for topic in list(self._groups):
            self._update(topic)

    def subscribing(self, client: str, filters: Mapping[str, int], proceed: Callable[[], None]) -> bool:
        waits = not super().subscribing(client, filters, proceed)
        for topic in filters:
            if is_topic(topic):
                self._update(topic)
        return not waits

    def granted(self, client: str, filters: Mapping[str, int], proceed: Callable[[], None]) -> bool:
        """When keepers know, and this node is in the trees."""
        groups = [self._groups[topic] for topic in filters if topic in self._groups]
        left = 1 + len(outside := [group for group in groups if not group.joined])

        def one_more() -> None:
            nonlocal left
            left -= 1
            if not left:
                proceed()

        for group in outside:
            group.waits.append(one_more)
        if super().granted(client, filters, one_more):
            left -= 1
        return not left

    def members_changed(self, live: frozenset[str]) -> None:
        """Children that died keep their place for a while: they may not know that they were away."""
        super().members_changed(live)
        for topic, group in list(self._groups.items()):
            if group.parent is not None and group.parent not in live:
                group.parent, group.told, group.joined = None, -1, False
            self._update(topic)

    def _sweep(self) -> None:
        super()._sweep()
        now = self.context.steady()
        for topic, group in list(self._groups.items()):
            for child in [each for each, seen in group.seen.items() if seen < now - CHILD_SECONDS]:
                self._lost_child(topic, child)
            if group.refreshed < now - REFRESH_SECONDS:
                self._refresh(topic, group)

    def _refresh(self, topic: str, group: _Group) -> None:
        group.refreshed = self.context.steady()
        if group.parent is not None:
            self.tell(group.parent, Join(topic, group.told))
        for node in group.invited:
            self.tell(node, Invite(topic))

    def member_announced(self, member: str, data: bytes) -> None:
        known = self._lives.get(member, 0)
        super().member_announced(member, data)
        if known and self._lives[member] > known:
            self._join_again(member)

    def neighbour_down(self, neighbour: str) -> None:
        super().neighbour_down(neighbour)
        self._join_again(neighbour, lost_only=True)

    def _join_again(self, parent: str, lost_only: bool = False) -> None:
        for topic, group in list(self._groups.items()):
            if group.parent == parent and not (lost_only and group.joined):
                group.told, group.joined = -1, False
                self._update(topic)
            if parent in group.invited and not (lost_only and group.invited[parent] == JOINED):
                del group.invited[parent]
                self.context.routes_changed((topic,))  # it is invited again


def is_topic(topic_filter: str) -> bool:
    return "+" not in topic_filter and "#" not in topic_filter
