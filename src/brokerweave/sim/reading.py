"""Reads retained messages back from the broker of a simulated node, as `runtime.retained` does.

Owns the check of single topics and the broker's return after it was away; brokers begin empty, so there is no
first contact. The reading itself is not a session of bytes here: the broker is asked directly, after a delay,
and does not answer while it is down. Must not know: which version wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from brokerweave.links.injector import State
from brokerweave.node.retained_check import Found

if TYPE_CHECKING:
    from brokerweave.sim.node import SimNode

PAUSE = 2.0
"""Seconds between two looks whether the broker was away."""
ANSWER = 0.1


class RetainedReader:
    def __init__(self, node: SimNode) -> None:
        self._node = node
        self._losses = -1
        node.core.retained.check.reader = self._read
        self._look()

    def _look(self) -> None:
        node = self._node
        ready = all(injector.state is State.READY for injector in node.core.injectors)
        if ready and node.injection.losses != self._losses:
            self._losses = node.injection.losses
            node.core.retained.broker_returned()
        node.host.later(PAUSE, self._look)

    def _read(self, topics: list[str], done: Callable[[Found], None]) -> None:
        def answer() -> None:
            held = self._node.read_broker()
            done(None if held is None else {t: held[t] for t in topics if t in held})

        self._node.host.later(ANSWER, answer)
