"""Cores in memory that are members of one cluster, and open links on demand.

What a core wants dialed or hung up happens when the network has come to rest, as sockets would do it later.
"""

from __future__ import annotations

from typing import Any

from brokerweave.membership.members import Address, Member, MemberState
from brokerweave.node.members import MemberWatcher
from tests.unit.node.network import Network


def member(name: str) -> Member:
    return Member(name, MemberState.ALIVE, 1, 1, ("x", 1), (name, 1), b"", None)


class Shell:
    """Dials and hangs up for one core; two nodes have one link at most, whoever dialed."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.name = name
        self.dialing: set[str] = set()
        self.configured: set[str] = set()
        self.announced: list[bytes] = []
        self._cluster = cluster

    def dial_member(self, node: str, address: Address) -> None:
        assert address == (node, 1)
        self.dialing.add(node)

    def hang_up_member(self, node: str) -> None:
        self.dialing.discard(node)
        self._cluster.hung_up.append((self.name, node))

    def is_configured(self, node: str) -> bool:
        return node in self.configured

    def announce(self, data: bytes) -> None:
        self.announced.append(data)

    def searching(self) -> bool:
        return False

    def round_trips(self) -> dict[str, float]:
        return {}


class Cluster(Network):
    """`away` cannot be dialed."""

    def __init__(self, names: str, **settings: Any) -> None:
        super().__init__()
        self.hung_up: list[tuple[str, str]] = []
        self.away: set[str] = set()
        self.opened: list[frozenset[str]] = []
        """Links, as they were opened."""
        self.add(*names, **settings)
        self.shells = {name: Shell(self, name) for name in names}
        self.members = {name: MemberWatcher(self.nodes[name].core, self.shells[name], True) for name in names}
        for name, members in self.members.items():
            for other in names:
                if other != name:
                    members.member_joined(member(other))

    @property
    def links(self) -> set[frozenset[str]]:
        return {frozenset(ends) for ends in self.wires}

    def settle(self, limit: int = 10_000) -> None:
        for _ in range(100):
            super().settle(limit)
            if not (self._end_links() or self._open_links()):
                return
        raise AssertionError("links come and go")

    def _end_links(self) -> bool:
        hung_up, self.hung_up = self.hung_up, []
        ended = [ends for ends in hung_up if ends in self.wires]
        for ends in ended:
            if ends in self.wires:
                self.cut(*ends)
        return bool(ended)

    def _open_links(self) -> bool:
        wanted = [
            (name, other)
            for name, shell in self.shells.items()
            for other in sorted(shell.dialing)
            if (name, other) not in self.wires and not {name, other} & self.away
        ]
        opened = False
        for name, other in wanted:
            demand = self.nodes[other].core.demand
            if (name, other) not in self.wires and (demand is None or not demand.refuses(name)):
                self.opened.append(frozenset((name, other)))
                self.link(name, other)
                opened = True
        return opened
