"""Which members are linked where a strategy wants links on demand (`Linking.ON_DEMAND`).

Owns when a link is opened and when it may close. A node opens a link when something is pending for a live
member. It closes one only with the other side's consent: the idle side asks and from then on gives the link
nothing that a closed one would lose; the other side, if nothing is pending there either, agrees and hangs up,
or else answers that it is busy. Then nothing was lost, and the link did not fail. Invariants: at most
`max_links` members are linked or dialed at once, and what is for others waits in their outboxes; nothing is
closed while anything is pending; no live member is forgotten. Must not know: sockets, how members are found,
messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from brokerweave.errors import RemoteProtocolError
from brokerweave.membership.members import Address

if TYPE_CHECKING:
    from brokerweave.node.core import NodeCore

TOPIC = "$brokerweave/links/idle"
MAY_CLOSE, BUSY, AGREED = b"?", b"!", b"."
CROSSING_SECONDS = 5.0
"""How long a handshake may take. Where two nodes dial each other at once, one link would take the place of
the other, and what is on its way there would be lost: the smaller id refuses to be called while it dials, and
nobody dials a node whose call it has just answered."""
LOOKS = 4
"""Looks at what is idle, in each `idle_close`."""
SEARCH_SECONDS = 0.01
"""Between two searches for idle links, where there is no room: each goes over all links."""


class DemandHost(Protocol):
    def dial_member(self, node: str, address: Address) -> None:
        """Keep a member connected at this address, from now on."""

    def hang_up_member(self, node: str) -> None:
        """Dial it no more, and close what is open."""

    def is_configured(self, node: str) -> bool:
        """Whether somebody named it as a neighbour: its link is not this part's."""


class LinksOnDemand:
    def __init__(self, core: NodeCore, idle_close: float, max_links: int) -> None:
        self._core = core
        self._idle_close = idle_close
        self._max_links = max_links
        self._host: DemandHost | None = None
        self._members: dict[str, Address | None] = {}
        self._dialed: dict[str, float] = {}
        """Since when this node dials it."""
        self._waiting: dict[str, None] = {}
        """Members for whose link there was no room, the longest waiting first."""
        self._called: dict[str, float] = {}
        """When a node's call was answered whose link is not up yet."""
        self._closing: set[str] = set()
        self._agreed: set[str] = set()
        """Of these, those whose other side has read all and agreed, or was agreed with."""
        self._used: dict[str, tuple[float, int]] = {}
        """When a link was last found used, and its traffic then."""
        self._controls: dict[str, int] = {}
        self._looking = False
        self._searched = -SEARCH_SECONDS
        self._searching = False
        core.controls[TOPIC] = self._told

    def attach(self, host: DemandHost) -> None:
        self._host = host

    @property
    def waiting(self) -> int:
        """Members for whose link there is no room."""
        return len(self._waiting)

    # What membership says

    def joined(self, node: str, address: Address | None) -> None:
        """A member is live at this address (None: nobody can dial it)."""
        before = self._members.get(node)
        if address is None and node not in self._members:
            self._core.host.warn(f"member {node} has no link_listen: a link with it opens only from there")
        self._members[node] = address
        if node in self._dialed and before != address:
            self._hang_up(node)
        if self._core.has_pending(node):
            self.want(node)

    def gone(self, node: str) -> None:
        """It is not live: what is pending stays until the neighbour is forgotten, counted from now."""
        self._members.pop(node, None)
        self._waiting.pop(node, None)
        if node in self._dialed:
            self._hang_up(node)
        self._core.neighbour_table.restart_forgetting(node)
        self._core.wait_no_longer(node)
        self._dial_waiting()

    def share(self, members: dict[str, Address | None]) -> None:
        """Read the live members from a table that many nodes of one process have in common."""
        self._members = members

    def is_live(self, node: str) -> bool:
        return node in self._members

    def in_reach(self, node: str) -> bool:
        """Whether a link can be opened."""
        return self._members.get(node) is not None

    # What the node needs

    def becomes_neighbour(self, node: str) -> bool:
        """Something is for a node that is no neighbour: a live member becomes one, and one that is away, if
        the strategy needs it."""
        becomes = node in self._members or self._core.guarded.needs(node)
        if becomes:
            self._core.add_neighbour(node)
        return becomes

    def want(self, node: str) -> None:
        """Something is pending for a node: open its link, as soon as there is room."""
        if node in self._waiting or node in self._dialed or node in self._closing or self._core.is_up(node):
            return
        if self._members.get(node) is not None:
            self._waiting[node] = None
            if not self._dial_waiting():
                self._core.count("links_waited")

    def used(self, node: str) -> None:
        """A control packet of the strategy came or went."""
        self._controls[node] = self._controls.get(node, 0) + 1

    def talks(self, node: str) -> bool:
        """Whether a packet that must not be lost may go on the link."""
        return node not in self._closing

    def ends_well(self, node: str) -> bool:
        """Whether both sides agreed that the link closes, and nothing on it was lost."""
        return node in self._agreed

    def refuses(self, node: str) -> str:
        """A node calls: why it is not to be linked now, or nothing."""
        if self._core.node_id < node and self._is_recent(self._dialed.get(node)):
            return f"node {self._core.node_id} is dialing {node} itself"
        if len(self._open() | {node}) > self._max_links and not self._is_configured(node):
            # Of nodes that all dial one another in a circle, and have no room, some give way by this rule.
            dialing = [n for n in self._dialed if node < n and not self._core.is_up(n)]
            if not dialing:
                if self.in_reach(node):
                    self._waiting.setdefault(node)  # it is dialed in its turn
                self._make_room()
                return f"node {self._core.node_id} has {self._max_links} links"
            self._give_way(dialing[0])
        self._called[node] = self._core.now()
        return ""

    def dials(self, node: str) -> bool:
        """Whether a connection that this node opened is still wanted."""
        return node in self._dialed or self._is_configured(node)

    def _is_recent(self, since: float | None) -> bool:
        return since is not None and self._core.now() - since < CROSSING_SECONDS

    # Links

    def link_up(self, node: str) -> None:
        self._waiting.pop(node, None)
        self._called.pop(node, None)
        self._closing.discard(node)
        self._agreed.discard(node)
        self._used[node] = self._core.now(), self._traffic(node)
        self._look_later()

    def link_down(self, node: str) -> None:
        if node in self._closing:
            self._closing.discard(node)
            self._agreed.discard(node)
            self._core.count("idle_links_closed")
        self._used.pop(node, None)
        if self._is_configured(node):
            return
        if node not in self._members or not self._core.has_pending(node):
            self._hang_up(node)
        elif node in self._dialed:
            self._dialed[node] = self._core.now()
        else:
            self.want(node)
        self._dial_waiting()

    def forgotten(self, node: str) -> None:
        self._controls.pop(node, None)
        self._waiting.pop(node, None)
        self._called.pop(node, None)
        self._closing.discard(node)
        self._agreed.discard(node)

    def _open(self) -> set[str]:
        linked = {node for node in self._used if not self._is_configured(node)}
        return self._dialed.keys() | linked | {n for n, at in self._called.items() if self._is_recent(at)}

    def _is_configured(self, node: str) -> bool:
        return self._host is not None and self._host.is_configured(node)

    def _hang_up(self, node: str) -> None:
        self._dialed.pop(node, None)
        if self._host is not None:
            self._host.hang_up_member(node)

    def _dial_waiting(self) -> bool:
        """Dial as many as there is room for. False: some wait on."""
        for node in list(self._waiting):
            address = self._members.get(node)
            if self._is_recent(self._called.get(node)):
                self._core.call_later(CROSSING_SECONDS, self._dial_again)
                continue
            if len(self._open()) >= self._max_links:
                self._make_room()
                return False
            del self._waiting[node]
            if address is not None and self._host is not None and not self._is_configured(node):
                self._dialed[node] = self._core.now()
                self._host.dial_member(node, address)
                self._look_later()
        return True

    def _dial_again(self) -> None:
        self._dial_waiting()

    # Closing

    def _make_room(self) -> None:
        """Ask for the end of as many links as are waited for, those that are idle longest first; a look
        follows if there is none."""
        self._look_later()
        needed = max(len(self._waiting), 1) - len(self._closing)
        if needed <= 0 or self._searching:
            return
        pause = self._searched + SEARCH_SECONDS - self._core.now()
        if pause > 0:
            self._searching = True
            self._core.call_later(pause, self._search_again)
            return
        self._searched = self._core.now()
        self._look_at_traffic()
        idle = [node for node in self._used if node not in self._closing and self._may_close(node)]
        if idle:
            for node in sorted(idle, key=lambda node: self._used[node][0])[:needed]:
                self._ask(node)
            return
        late = [n for n, since in self._dialed.items() if not self._core.is_up(n) and self._has_waited(since)]
        if late and self._waiting:
            self._give_way(late[0])  # it cannot be reached now: others get their turn
            self._dial_waiting()

    def _search_again(self) -> None:
        self._searching = False
        self._dial_waiting()

    def _give_way(self, node: str) -> None:
        """Dial a node later."""
        self._hang_up(node)
        self._waiting[node] = None

    def _has_waited(self, since: float) -> bool:
        return self._core.now() - since >= self._idle_close

    def _may_close(self, node: str) -> bool:
        busy = self._core.has_pending(node) or self._is_configured(node)
        return self._core.is_up(node) and not busy

    def _ask(self, node: str) -> None:
        self._closing.add(node)
        self._core.send_own(node, TOPIC, MAY_CLOSE)

    def _told(self, neighbour: str, payload: bytes) -> None:
        if payload == BUSY:
            self._closing.discard(neighbour)
            self._used[neighbour] = self._core.now(), self._traffic(neighbour)
            self._core.release_controls(neighbour)
        elif payload == AGREED:
            self._agreed |= self._closing & {neighbour}  # only if it was asked
        elif payload != MAY_CLOSE:
            raise RemoteProtocolError("a question about an idle link that cannot be read")
        elif self._may_close(neighbour):
            self._closing.add(neighbour)
            self._agreed.add(neighbour)
            self._core.send_own(neighbour, TOPIC, AGREED)
            self._hang_up(neighbour)
        else:
            self._core.send_own(neighbour, TOPIC, BUSY)

    def _traffic(self, node: str) -> int:
        neighbour = self._core.neighbour_table.get(node)
        lanes = neighbour.lanes if neighbour is not None else ()
        return sum(lane.sent + lane.received for lane in lanes) + self._controls.get(node, 0)

    def _look_at_traffic(self) -> None:
        now = self._core.now()
        for node, (_, before) in self._used.items():
            traffic = self._traffic(node)
            if traffic != before:
                self._used[node] = now, traffic

    def _look_later(self) -> None:
        if not self._looking:
            self._looking = True
            self._core.call_later(self._idle_close / LOOKS, self._look)

    def _look(self) -> None:
        self._looking = False
        self._look_at_traffic()
        for node, (since, _) in list(self._used.items()):
            if self._has_waited(since) and node not in self._closing and self._may_close(node):
                self._ask(node)
        if self._waiting:
            self._dial_waiting()
        if self._used or self._dialed or self._waiting:
            self._look_later()
