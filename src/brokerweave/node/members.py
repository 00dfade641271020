"""Makes members of the cluster neighbours in the mesh, live as long as membership says so.

Owns which of two members dials: the one whose id comes first, or the one that nobody can reach. Invariants: a
dead member stays a neighbour with its pending messages until it is forgotten as any neighbour is; a member
that left is removed when nothing is pending for it; the strategy knows exactly the members, suspects
included, as live. Must not know: how a death is noticed, sockets.
"""

from __future__ import annotations

import struct
from typing import Protocol

from brokerweave.cooperation.mesh import Mesh
from brokerweave.membership.members import Address, Member
from brokerweave.membership.meta import Meta
from brokerweave.node.core import NodeCore

LEAVING_SECONDS = 1.0
"""Between two checks whether anything is pending for a member that left."""
TELL_SECONDS = 0.5
"""From a change of the table of clients to its digest's way to all members; more changes share it."""
_TABLE = struct.Struct(">QQ")


class MemberHost(Protocol):
    def dial_member(self, node: str, address: Address) -> None:
        """Keep a member connected at this address, from now on."""

    def hang_up_member(self, node: str) -> None:
        """Dial it no more."""

    def announce(self, table: bytes) -> None:
        """Let all members know the version and digest of this node's table."""


class MemberLinks:
    """A `membership.events.Watcher`."""

    def __init__(self, core: NodeCore, mesh: Mesh, host: MemberHost, reachable: bool) -> None:
        """`reachable`: others can dial this node."""
        self._core = core
        self._mesh = mesh
        self._host = host
        self._reachable = reachable
        self._live: set[str] = set()
        self._dialed: dict[str, Address] = {}
        self._telling = False
        mesh.members_are(())
        mesh.told = self._tell_later

    def member_joined(self, member: Member) -> None:
        if member.id == self._core.node_id:
            return
        self._core.add_neighbour(member.id)
        self._live.add(member.id)
        self._mesh.members_are(self._live)
        self._dial(member)
        self._digest(member)

    def member_changed(self, member: Member) -> None:
        if member.id in self._live:
            self._dial(member)
            self._digest(member)

    def member_suspected(self, member: Member) -> None: ...

    def member_refuted(self, member: Member) -> None: ...

    def member_left(self, member: Member) -> None:
        self._gone(member)
        self._remove_later(member.id)

    def member_died(self, member: Member) -> None:
        self._gone(member)

    def _gone(self, member: Member) -> None:
        self._live.discard(member.id)
        self._mesh.members_are(self._live)
        if self._dialed.pop(member.id, None) is not None:
            self._host.hang_up_member(member.id)

    def _dial(self, member: Member) -> None:
        address, me = member.link_address, self._core.node_id
        if address is None or self._dialed.get(member.id) == address:
            return
        if me < member.id or not self._reachable:
            if member.id in self._dialed:
                self._host.hang_up_member(member.id)
            self._dialed[member.id] = address
            self._host.dial_member(member.id, address)

    def _remove_later(self, node: str) -> None:
        self._core.call_later(LEAVING_SECONDS, lambda: self._remove_idle(node))

    def _remove_idle(self, node: str) -> None:
        neighbour = self._core.neighbour_table.get(node)
        if neighbour is None or node in self._live:
            return
        if (
            neighbour.up
            or any(lane.outbox.backlog_runs for lane in neighbour.lanes)
            or self._has_pending(node)
        ):
            self._remove_later(node)
        else:
            self._core.remove_neighbour(node)

    def _has_pending(self, node: str) -> bool:
        """Whether clients of the node are waited for."""
        return bool(self._mesh.table.clients(node))

    # Digests

    def _digest(self, member: Member) -> None:
        table = Meta.decode(member.meta).table
        if len(table) == _TABLE.size:
            self._mesh.digest_seen(member.id, *_TABLE.unpack(table))

    def _tell_later(self) -> None:
        if not self._telling:
            self._telling = True
            self._core.call_later(TELL_SECONDS, self._tell)

    def _tell(self) -> None:
        self._telling = False
        self._mesh.flush()
        version, digest = self._mesh.version, self._mesh.table.digest(self._core.node_id)
        self._host.announce(_TABLE.pack(version, digest))
