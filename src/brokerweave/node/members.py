"""What membership says, for the strategy and for links.

Owns who of two members dials where all are linked: the one whose id comes first, or the one that nobody can
reach. Invariants: a dead member stays a neighbour, with what is pending for it, until it is forgotten as any
neighbour is; its link is closed, since what it told is dropped; one that left is removed when nothing is
pending; the strategy knows as live exactly the members, suspects included. Must not know: how a death is
noticed, sockets, any strategy.
"""

from __future__ import annotations

from typing import Protocol

from brokerweave.membership.members import Address, Member
from brokerweave.membership.meta import Meta
from brokerweave.node.cluster import ClusterHost
from brokerweave.node.core import NodeCore
from brokerweave.node.links_on_demand import DemandHost
from brokerweave.plugin import Linking

LEAVING_SECONDS = 1.0
"""Between two looks at what is pending for a member that left."""


class MemberHost(ClusterHost, DemandHost, Protocol): ...


class MemberWatcher:
    """A `membership.events.Watcher`."""

    def __init__(self, core: NodeCore, host: MemberHost, reachable: bool) -> None:
        """`reachable`: others can dial this node."""
        self._core = core
        self._host = host
        self._reachable = reachable
        self._links_all = core.strategy.linking is Linking.MEMBERS
        self._dialed: dict[str, Address] = {}
        core.cluster.attach(host)
        if core.demand is not None:
            core.demand.attach(host)
        core.guarded.members_changed(core.cluster.live)

    def member_joined(self, member: Member) -> None:
        if member.id == self._core.node_id:
            return
        if self._links_all:
            self._core.add_neighbour(member.id)
        self._reached(member)  # before the strategy hears of it: it may have something to tell
        self._live(self._core.cluster.live | {member.id})
        self._link(member)
        self._announced(member)

    def member_changed(self, member: Member) -> None:
        if member.id in self._core.cluster.live and member.id != self._core.node_id:
            self._reached(member)
            self._link(member)
            self._announced(member)

    def member_suspected(self, member: Member) -> None: ...

    def member_refuted(self, member: Member) -> None: ...

    def member_left(self, member: Member) -> None:
        self._gone(member)
        self._remove_later(member.id)

    def member_died(self, member: Member) -> None:
        accepted = self._links_all and member.id not in self._dialed
        self._gone(member)
        if accepted and not self._host.is_configured(member.id):
            self._host.hang_up_member(member.id)  # if it lives, it dials, and tells all anew

    def _live(self, live: frozenset[str]) -> None:
        self._core.cluster.live = live | {self._core.node_id}
        self._core.guarded.members_changed(self._core.cluster.live)

    def _gone(self, member: Member) -> None:
        self._live(self._core.cluster.live - {member.id})
        self._core.relayed.gone(member.id)
        if self._core.demand is not None and member.id != self._core.node_id:
            self._core.demand.gone(member.id)
        if self._dialed.pop(member.id, None) is not None:
            self._host.hang_up_member(member.id)

    def _announced(self, member: Member) -> None:
        if data := Meta.decode(member.meta).table:
            self._core.guarded.member_announced(member.id, data)

    def _reached(self, member: Member) -> None:
        if self._core.demand is not None:
            self._core.demand.joined(member.id, member.link_address)

    def _link(self, member: Member) -> None:
        address, me = member.link_address, self._core.node_id
        if not self._links_all or address is None or self._dialed.get(member.id) == address:
            return
        if me < member.id or not self._reachable:
            if member.id in self._dialed:
                self._host.hang_up_member(member.id)
            self._dialed[member.id] = address
            self._host.dial_member(member.id, address)

    def _remove_later(self, node: str) -> None:
        if self._core.strategy.linking is not Linking.CONFIGURED:
            self._core.call_later(LEAVING_SECONDS, lambda: self._remove_idle(node))

    def _remove_idle(self, node: str) -> None:
        neighbour = self._core.neighbour_table.get(node)
        if neighbour is None or node in self._core.cluster.live:
            return
        if neighbour.up or self._core.has_pending(node) or self._core.guarded.needs(node):
            self._remove_later(node)
        else:
            self._core.remove_neighbour(node)
