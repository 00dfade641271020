"""The scene of one benchmark: a broker, and the ways of reaching it that are compared.

Invariant: all ways lead to the same broker process, so that its state and its share of the machine are the
same for all; only one way is used at a time. The node's neighbour has a broker of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from benchmarks.relay.relays import Gateway, Node
from brokerweave import lab
from brokerweave.config import Address
from brokerweave.lab.broker import Broker

ALONE = "mosquitto alone"
HAPROXY = "haproxy"
NODE = "node"
NODE_WITHOUT_LINK = "node, no neighbour"
NODE_BY_SOCKET = "node, unix socket"
"""As the one without a neighbour, but it reaches the broker by a Unix socket."""
GATEWAY = "gateway"
"""With the broker itself as its only site, and nothing that moves."""
NODE_RECORDING = "node, recording"
"""As the one without a neighbour, but every publication goes to its edge log."""

# Nagle's algorithm in the broker would hide any relay behind the 40 ms of a delayed acknowledgement.
MOSQUITTO_CONFIG = ("set_tcp_nodelay true",)


@dataclass(frozen=True, slots=True)
class Way:
    """One way to the broker: where clients connect, which process relays, where the far subscriber is."""

    name: str
    port: int
    relay_pid: int | None = None
    far_port: int | None = None
    far_pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Scene:
    broker_pid: int
    ways: tuple[Way, ...]
    missing: str | None
    """Why the node is not among the ways; None if it is."""

    def only(self, names: Collection[str]) -> Scene:
        return replace(self, ways=tuple(way for way in self.ways if way.name in names))


@contextlib.contextmanager
def scene(recording: bool = False) -> Iterator[Scene]:
    """Everything started; ended when the block ends. `recording`: with a node that records."""
    with contextlib.ExitStack() as stack:
        start = stack.enter_context
        broker = start(lab.Mosquitto(config=MOSQUITTO_CONFIG, unix=True))
        haproxy = start(lab.HAProxy(backend=_address(broker)))
        ways = [Way(ALONE, broker.port), Way(HAPROXY, haproxy.port, haproxy.pid)]
        missing = Node.missing()
        if missing is None:
            far_broker = stack.enter_context(lab.start("mosquitto", config=MOSQUITTO_CONFIG))
            near, far = Node("near", _address(broker)), Node("far", _address(far_broker))
            near.neighbours[far.node_id] = far.link_port
            far.neighbours[near.node_id] = near.link_port
            start(far)
            start(near)
            ways.append(Way(NODE, near.port, near.pid, far.port, (far.pid, far_broker.pid)))
            lonely = start(Node("lonely", _address(broker)))
            ways.append(Way(NODE_WITHOUT_LINK, lonely.port, lonely.pid))
            by_socket = start(Node("by-socket", broker.socket))
            ways.append(Way(NODE_BY_SOCKET, by_socket.port, by_socket.pid))
            gateway = start(Gateway(_address(broker)))
            ways.append(Way(GATEWAY, gateway.port, gateway.pid))
            if recording:
                tapped = Node("recording", _address(broker))
                tapped.taps = ("#",)
                start(tapped)
                ways.append(Way(NODE_RECORDING, tapped.port, tapped.pid))
        yield Scene(broker.pid, tuple(ways), missing)


def _address(broker: Broker) -> Address:
    return Address(broker.host, broker.port)
