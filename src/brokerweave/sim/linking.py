"""The links of a simulated node: who dials whom, and when to write, as `runtime.neighbours` does it.

Owns every connection to other nodes. Invariant: a lane is polled at most once a turn, and only while its
connection takes more. Must not know: what arrives (`node.carriers` does).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.connection import LinkConnection
from brokerweave.links.handshake import Acceptor, Dialer, NodeIdentity
from brokerweave.mqtt.packets import Packet
from brokerweave.node.carriers import Carriers
from brokerweave.sim.pipes import Handler, PipeEnd

if TYPE_CHECKING:
    from brokerweave.sim.node import SimNode

WRITE_INTERVAL = 0.005
"""Seconds between two writes under load."""


class Socket:
    """One connection, dialed or accepted; implements `Carrier`."""

    def __init__(self, links: SimLinks, end: PipeEnd, connection: LinkConnection, dialed: bool) -> None:
        self.end = end
        self.connection = connection
        self.dialed = dialed
        self.peer: tuple[str, int] | None = None
        self.after: list[Dialing] = []
        """Who waits for its end."""
        self._links = links

    @property
    def writable(self) -> bool:
        return self.end.writable

    def received(self, data: bytes) -> None:
        links = self._links
        try:
            for event in self.connection.receive(data, links.node.now()):
                links.carriers.handle(self, event)
        except RemoteProtocolError as error:
            links.node.core.count("link_protocol_errors")
            links.node.watcher.protocol_error(links.node, f"link with {self.peer}: {error}")
            self.close()
        self.flush()
        if self.connection.closed:
            self.close()

    def writable_again(self) -> None:
        if self.peer is not None:
            self._links.lane_ready(*self.peer)

    def lost(self) -> None:
        self._links.sockets.pop(self, None)
        self._links.carriers.lost(self)
        waiting, self.after = self.after, []
        for dialing in waiting:
            dialing.ended()

    def flush(self) -> None:
        data = self.connection.data_to_send()
        if data:
            self.end.write(data)

    def close(self) -> None:
        self.flush()
        self.end.close()


class Dialing:
    """Keeps one lane to one neighbour connected until it is cancelled."""

    def __init__(self, links: SimLinks, neighbour: str, lane: int) -> None:
        self._links = links
        self._neighbour = neighbour
        self._lane = lane
        self._pause = links.node.options.reconnect_min
        self.cancelled = False
        self._again()

    def _again(self) -> None:
        if self.cancelled:
            return
        carrier = self._links.carriers.get(self._neighbour, self._lane)
        if isinstance(carrier, Socket):
            self._pause = self._links.node.options.reconnect_min
            carrier.after.append(self)
            return
        links, node = self._links, self._links.node
        if self._neighbour not in node.core.neighbour_table:
            node.core.add_neighbour(self._neighbour)  # forgotten while away, but still configured
        resume = node.core.neighbour_table[self._neighbour].lanes[self._lane].resume()
        handshake = Dialer(links.identity, self._lane, resume, self._neighbour, node.random.randbytes)
        node.network.connect(
            node.host, f"{self._neighbour}/link", lambda end: self._made(end, handshake), self.ended
        )

    def _made(self, end: PipeEnd, handshake: Dialer) -> Handler:
        links = self._links
        socket = Socket(links, end, links.connection(handshake), dialed=True)
        socket.peer = (self._neighbour, self._lane)
        socket.after.append(self)
        links.sockets[socket] = None
        socket.flush()
        if self.cancelled:
            end.close()
        return socket

    def ended(self) -> None:
        node = self._links.node
        if self.cancelled:
            return
        if self._links.carriers.get(self._neighbour, self._lane) is not None:
            self._again()
            return
        pause = self._pause * (0.5 + node.random.random() / 2)
        self._pause = min(self._pause * 2, node.options.reconnect_max)
        node.host.later(pause, self._again)


class SimLinks:
    def __init__(self, node: SimNode, identity: NodeIdentity) -> None:
        self.node = node
        self.identity = identity
        self.sockets: dict[Socket, None] = {}
        self.carriers = Carriers(node.core, node)
        self._dialing: dict[str, list[Dialing]] = {}
        self._ready: dict[tuple[str, int], None] = {}
        self._controls: dict[str, None] = {}
        self._wrote = 0.0
        self.carriers.refused = lambda name, reason: node.world.note(node.name, f"{name}: {reason}")
        self._tick()

    def dial(self, neighbour: str) -> None:
        if neighbour not in self._dialing:
            lanes = range(self.node.options.lanes)
            self._dialing[neighbour] = [Dialing(self, neighbour, lane) for lane in lanes]

    def hang_up(self, neighbour: str, removed: bool) -> None:
        for dialing in self._dialing.pop(neighbour, ()):
            dialing.cancelled = True
        for carrier in self.carriers.of(neighbour):
            carrier.connection.close(removed)
            carrier.close()

    def stop(self) -> None:
        for neighbour in list(self._dialing):
            self.hang_up(neighbour, removed=False)
        for socket in list(self.sockets):
            socket.connection.close()
            socket.close()

    def accept(self, end: PipeEnd) -> Handler:
        handshake = Acceptor(self.identity, self.carriers.admit, self.node.random.randbytes)
        socket = Socket(self, end, self.connection(handshake), dialed=False)
        self.sockets[socket] = None
        return socket

    def connection(self, handshake: Dialer | Acceptor) -> LinkConnection:
        return LinkConnection(handshake, self.node.now(), ping_interval=self.node.options.ping_interval)

    def lane_ready(self, neighbour: str, lane: int) -> None:
        """Write at once if the last write was a while ago; under load, together with what comes meanwhile."""
        if not self._ready:
            self.node.host.later(self._wrote + WRITE_INTERVAL - self.node.world.now, self._write_ready)
        self._ready[neighbour, lane] = None

    def send_control(self, neighbour: str, packet: Packet) -> None:
        if self.carriers.send_control(neighbour, packet):
            if not self._controls:
                self.node.host.later(0.0, self._write_controls)
            self._controls[neighbour] = None

    def _write_controls(self) -> None:
        controls, self._controls = self._controls, {}
        for neighbour in controls:
            self.carriers.write(neighbour, 0)

    @property
    def has_to_write(self) -> bool:
        return bool(self._ready or self._controls)

    def _write_ready(self) -> None:
        ready, self._ready = self._ready, {}
        self._wrote = self.node.world.now
        self.node.core.publisher.settle()
        for neighbour, lane in ready:
            self.carriers.write(neighbour, lane)

    def _tick(self) -> None:
        """Ping and notice the dead, a few times each interval."""
        now = self.node.now()
        for socket in list(self.sockets):
            if socket.connection.tick(now):
                socket.flush()
            else:
                self.node.core.count("links_dead")
                socket.end.abort()
        for neighbour, lane in self.carriers.stalled():
            self.lane_ready(neighbour, lane)
        self.node.host.later(self.node.options.ping_interval / 4, self._tick)
