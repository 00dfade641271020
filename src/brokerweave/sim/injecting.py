"""The injectors of a simulated node and their connections to its broker, as `runtime.injection` drives them.

Owns connecting, with back-off. Invariant: an injector is polled once a turn and only while its connection
takes more. Must not know: what is injected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.injector import Injector, InjectorState
from brokerweave.sim.pipes import Handler, PipeEnd

if TYPE_CHECKING:
    from brokerweave.sim.node import SimNode

TICK_SECONDS = 0.5


class _Socket:
    """Keeps one injector connected."""

    def __init__(self, node: SimNode, injector: Injector) -> None:
        self._node = node
        self._injector = injector
        self._end: PipeEnd | None = None
        self._pause = node.options.reconnect_min
        self._stopped = False
        self._connect()

    def _connect(self) -> None:
        node = self._node
        node.network.connect(node.host, f"{node.name}/broker", self._made, self._failed)

    def _made(self, end: PipeEnd) -> Handler:
        self._end = end
        end.write(self._injector.connected(self._node.now()))
        return self

    def _failed(self) -> None:
        if self._stopped:
            return
        pause = self._pause * (0.5 + self._node.random.random() / 2)
        self._pause = min(self._pause * 2, self._node.options.reconnect_max)
        self._node.host.later(pause, self._connect)

    def received(self, data: bytes) -> None:
        try:
            self._injector.receive(data, self._node.now())
        except RemoteProtocolError as error:
            self._node.watcher.protocol_error(self._node, f"injector: {error}")
            self._close()
            return
        self.write()

    def writable_again(self) -> None:
        self.write()

    def lost(self) -> None:
        self._end = None
        self._injector.disconnected(self._node.now())
        self._node.watcher.injector_lost(self._node)
        self._node.injection.losses += 1
        if self._injector.state is not InjectorState.REFUSED:
            self._pause = self._node.options.reconnect_min
        self._failed()

    def write(self) -> None:
        end, now = self._end, self._node.now()
        while end is not None and end.writable and not end.closed:
            data = self._injector.poll(now)
            if not data:
                break
            end.write(data)
        if self._injector.wants_reconnect:
            self._close()

    def tick(self) -> None:
        if self._end is not None:
            self._injector.tick(self._node.now())
            self.write()

    def leave(self) -> None:
        self._stopped = True
        if self._end is not None and not self._end.closed:
            self._end.write(self._injector.close())
        self._close()

    def _close(self) -> None:
        if self._end is not None:
            self._end.close()


class SimInjection:
    def __init__(self, node: SimNode) -> None:
        self._node = node
        self._sockets = [_Socket(node, injector) for injector in node.core.injectors]
        self._ready: dict[int, None] = {}
        self.losses = 0
        """Connections to the broker that ended."""
        self._tick()

    def injector_ready(self, lane: int) -> None:
        if not self._ready:
            self._node.host.later(0.0, self._write_ready)
        self._ready[lane] = None

    def stop(self) -> None:
        for socket in self._sockets:
            socket.leave()

    def _write_ready(self) -> None:
        ready, self._ready = self._ready, {}
        for lane in ready:
            self._sockets[lane].write()

    def _tick(self) -> None:
        for socket in self._sockets:
            socket.tick()
        self._node.host.later(TICK_SECONDS, self._tick)
