"""What a node of a mesh does for clients that lost their site (decision 0011)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerweave.cooperation.mesh import Mesh
from brokerweave.links.run import Run
from brokerweave.session.pair import Pair
from brokerweave.session.standing import Stand

if TYPE_CHECKING:
    from brokerweave.node.core import NodeCore


class Failover:
    def __init__(self, core: NodeCore, mesh: Mesh) -> None:
        self._core = core
        self._mesh = mesh

    def hold(self, run: Run, lane: int) -> None:
        """Keep a publication for the clients of the nodes that its run names."""
        self._core.counters.add("publications_held", run.count)

    def granted(self, pair: Pair, filters: list[tuple[str, int]], stand: Stand, timeout: float) -> bool:
        """Filters were granted to a client: True if the stream to it need not stand."""
        return self._core.await_others(
            self._mesh.when_heard,
            lambda: pair.go_on(stand),
            timeout,
            "barrier_timeouts",
            self._mesh.forget_wait,
        )
