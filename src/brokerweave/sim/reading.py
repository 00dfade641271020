"""Reads retained messages back from the broker of a simulated node, as `runtime.retained` does.

Owns three occasions: the first contact with a broker, the check of single topics, and the broker's return
after it was away. The reading itself is not a session of bytes here: the broker is asked directly, after a
delay, and does not answer while it is down. Must not know: which version wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from brokerweave.links.injector import InjectorState
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish
from brokerweave.node.retained_check import Found

if TYPE_CHECKING:
    from brokerweave.sim.node import SimNode

PAUSE = 2.0
"""Seconds between two looks whether the broker was away."""
HOLD = 10.0
"""Seconds that neighbours wait for the first contact before they compare indexes all the same."""
ANSWER = 0.1


class SimRetainedReader:
    def __init__(self, node: SimNode) -> None:
        self._node = node
        self._losses = -1
        node.core.retained.check.reader = self._read
        if not node.disk.broker_was_read:
            node.core.retained.hold()
            node.host.later(HOLD, node.core.retained.go_on)
        self._look()

    def _look(self) -> None:
        node = self._node
        ready = all(injector.state is InjectorState.READY for injector in node.core.injectors)
        if ready and node.injection.losses != self._losses:
            self._losses = node.injection.losses
            self._first_contact()
            node.core.retained.broker_returned()
        node.host.later(PAUSE, self._look)

    def _first_contact(self) -> None:
        node, held = self._node, self._node.read_broker()
        if node.disk.broker_was_read or held is None:
            return
        messages = [Publish(topic, payload, 1, True, packet_id=1) for topic, payload in held.items()]
        node.core.retained.adopt([(codec.encode(message, 4), 4) for message in messages])
        node.disk.broker_was_read = True
        node.core.retained.go_on()

    def _read(self, topics: list[str], done: Callable[[Found], None]) -> None:
        def answer() -> None:
            held = self._node.read_broker()
            done(None if held is None else {t: held[t] for t in topics if t in held})

        self._node.host.later(ANSWER, answer)
