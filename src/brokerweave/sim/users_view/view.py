"""What users of a mesh see, and what was done to it: the checker of mesh runs.

Implements `SimWatcher` for what happens to nodes from outside; what happens inside is not looked at. Must not
know: how a mesh works.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from brokerweave.links.run import Run
from brokerweave.node.router import RouteGroup
from brokerweave.sim.promises import Broken
from brokerweave.sim.users_view import allowances, doubled, lost, order, replays, wills
from brokerweave.sim.users_view.allowances import Problem
from brokerweave.sim.users_view.faults import FaultLog
from brokerweave.sim.users_view.history import History
from brokerweave.sim.users_view.retained import RetainedView
from brokerweave.sim.watching import QUEUE_FULL, Key

if TYPE_CHECKING:
    from brokerweave.sim.node import SimNode


class UsersView:
    def __init__(self, history: History, faults: FaultLog) -> None:
        self.history = history
        self.faults = faults
        self.promised = 0
        self.retained = RetainedView(history, faults)

    def judge(self, allowed: Counter[str]) -> list[str]:
        """What is broken. What is let pass is counted by the allowance."""
        self.promised = sum(1 for _ in self.history.promised())
        broken = [*self.history.unknown, *wills.find(self.history, self.faults), *replays.find(self.history)]
        for problem in self.problems():
            why = allowances.why(problem, self.history, self.faults)
            if why:
                allowed[why] += 1
            else:
                broken.append(str(problem))
        return broken

    def problems(self) -> list[Problem]:
        history = self.history
        return [*lost.find(history), *doubled.find(history), *order.find(history)]

    def counts(self) -> dict[str, int]:
        history = self.history
        wills = sum(publication.is_will for publication in history.publications.values())
        return {
            "publications": len(history.publications) - wills,
            "wills": wills,
            "deletions": len(history.deletions),
            "deliveries": sum(map(len, history.got.values())),
            "promised": self.promised,
        }

    # `SimWatcher`, from outside

    def node_ends(self, node: SimNode, graceful: bool) -> None:
        if not graceful:
            self.history.site_dies(node.name)
        self.faults.node_ends(node.name, graceful)

    def node_starts(self, node: SimNode) -> None:
        self.faults.node_starts(node.name)

    def disk_lost(self, node: SimNode) -> None:
        self.faults.disk_lost(node.name)

    def broker_dies(self, site: str, keeps_state: bool) -> None:
        self.history.site_dies(site)
        self.faults.broker_dies(site, keeps_state)

    def dropped(self, node: str, where: str, payloads: list[bytes], cause: str) -> None:
        """Only that it was counted, as `status` shows it: not what it was."""
        if cause == QUEUE_FULL:
            kind, to, *_ = where.split("/")
            self.faults.queue_full(node, to if kind == "lanes" else "")

    def link_changed(self, node: str, neighbour: str, up: bool) -> None:
        """As `status` shows it."""
        self.faults.link_changed(node, neighbour, up)

    def protocol_error(self, node: SimNode, error: str) -> None:
        raise Broken(f"{node.name}: {error}")

    # From inside: not looked at

    def dispatched(
        self, node: str, came_from: str | None, payload: bytes, key: Key, group: RouteGroup, run: Run
    ) -> None: ...

    def flooded(self, node: str, view: int, payload: bytes, key: Key) -> None: ...

    def bypassed(self, node: str, payload: bytes, key: Key) -> None: ...

    def arrived(self, node: str, came_from: str, payloads: list[bytes]) -> None: ...

    def waits(self, node: str, payloads: list[bytes], version: int) -> None: ...

    def passed_origin(self, node: SimNode, payload: bytes) -> None: ...

    def redelivering(self, node: str, client: str, payloads: list[bytes]) -> None: ...

    def spilled(self, payloads: list[bytes]) -> None: ...

    def link_failed(self, node: str, neighbour: str) -> None: ...

    def injector_lost(self, node: SimNode) -> None: ...

    def relay_ended(self, client_id: str, persistent: bool) -> None: ...
