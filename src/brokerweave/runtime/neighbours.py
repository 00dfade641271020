"""The sockets of links: who dials whom, and when to write.

Owns every connection to other nodes. Invariant: a lane is polled at most once per loop turn and only while
its socket takes more, so a slow neighbour fills its outbox and nothing else. Must not know: what arrives
(`node.carriers` does).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import ssl
from functools import partial
from typing import Protocol, cast

from brokerweave.config import Address, LinksSection
from brokerweave.errors import RemoteProtocolError
from brokerweave.links.connection import LinkConnection
from brokerweave.links.handshake import Acceptor, Dialer, NodeIdentity
from brokerweave.mqtt.packets import Packet
from brokerweave.node.carriers import CarrierHost, Carriers
from brokerweave.node.core import NodeCore
from brokerweave.runtime.tasks import supervise

log = logging.getLogger("brokerweave.links")

WRITE_BUFFER = 256 * 1024
"""Bytes written but not yet taken by the neighbour's socket before a lane waits."""
WRITE_INTERVAL = 0.005
"""Seconds between two writes under load: each costs two system calls on either side. A lone message does
not wait, nor does any in cluster delivery, where the publisher would wait with it."""


class LinkHost(CarrierHost, Protocol):
    @property
    def core(self) -> NodeCore: ...

    def task_failed(self, task: str, error: BaseException) -> None: ...


class LinkSocket(asyncio.Protocol):
    """One connection, dialed or accepted."""

    def __init__(self, links: NodeLinks, connection: LinkConnection, dialed: bool) -> None:
        self.connection = connection
        self.dialed = dialed
        self.peer: tuple[str, int] | None = None
        self.writable = True
        self.failure = ""
        """What ended the connection, in the system's words."""
        self.closed = asyncio.get_running_loop().create_future()
        self._links = links
        self._transport: asyncio.Transport | None = None
        self._lost = False
        self._written = 0
        self._taken = 0
        self._taken_at = links.host.now()

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, base)  # uvloop's has the methods, not the class
        if self._lost:  # whoever dialed has given up
            transport.abort()
            return
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self._links.sockets.add(self)
        self.flush()

    def _who(self) -> str:
        """For the log: the neighbour, or the address of a peer that has not proved who it is."""
        if self.peer is not None:
            return f"link with {self.peer[0]}"
        assert self._transport is not None
        address = self._transport.get_extra_info("peername") or ("an unknown address", 0)
        return "rejected link from {}:{}".format(*address)

    def data_received(self, data: bytes) -> None:
        try:
            for event in self.connection.receive(data, self._links.host.now()):
                self._links.carriers.handle(self, event)
        except RemoteProtocolError as error:
            self._links.host.core.count("link_protocol_errors")
            log.warning("%s: %s", self._who(), error)
            self.close()
        self.flush()
        if self.connection.closed:
            self.close()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if self.peer is not None:
            self._links.lane_ready(*self.peer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._lost:
            return
        self._lost, self._transport = True, None
        self._links.sockets.discard(self)
        self.failure = str(exc or "")
        try:
            self._links.carriers.lost(self)
        finally:
            if not self.closed.done():  # a dialer that was cancelled has cancelled it
                self.closed.set_result(None)

    def flush(self) -> None:
        data = self.connection.data_to_send()
        if data and self._transport is not None:
            self._transport.write(data)
            self._written += len(data)

    def stalled(self, now: float) -> bool:
        """Whether the peer took nothing of what waits for it for as long as a silence may last.

        What it sends shows that it lives, but answers and control packets would pile up here without end.
        """
        waiting = self._transport.get_write_buffer_size() if self._transport is not None else 0
        taken = self._written - waiting
        if taken != self._taken or not waiting:
            self._taken, self._taken_at = taken, now
        return now - self._taken_at >= 3 * self.connection.ping_interval

    def close(self) -> None:
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class NodeLinks:
    def __init__(self, host: LinkHost, config: LinksSection, identity: NodeIdentity) -> None:
        self.host = host
        self.config = config
        self.sockets: set[LinkSocket] = set()
        self.carriers = Carriers(host.core, host)
        self.carriers.refused = lambda name, reason: log.warning("%s: %s", name, reason)
        self._identity = identity
        self._loop = asyncio.get_running_loop()
        self._dialers: dict[str, list[asyncio.Task[None]]] = {}
        self._addresses: dict[str, Address] = {}
        self._ready: set[tuple[str, int]] = set()
        self._controls: set[str] = set()
        self._wrote = 0.0
        self._write_interval = WRITE_INTERVAL if host.core.settings.cluster_timeout is None else 0.0
        self._server: asyncio.Server | None = None
        self._server_tls, self._client_tls = _tls(config)
        self._ticker = self._loop.create_task(supervise("links' tick", self._tick, host.task_failed))

    # Up and down

    async def listen(self, address: Address) -> int:
        self._server = await self._loop.create_server(
            self._accept, address.host, address.port, ssl=self._server_tls, backlog=256
        )
        port = self._server.sockets[0].getsockname()[1]
        return int(port)

    def dial(self, neighbour: str, address: Address) -> None:
        """Keep this neighbour connected, on all lanes, until `hang_up`."""
        self._addresses[neighbour] = address
        self._dialers[neighbour] = [
            self._loop.create_task(
                supervise(
                    f"link with {neighbour}",
                    partial(self._keep_connected, neighbour, lane, address),
                    self.host.task_failed,
                )
            )
            for lane in range(self.config.sessions)
        ]

    def hang_up(self, neighbour: str, removed: bool) -> None:
        """Stop dialing, and leave; `removed` asks the other side to forget us as well."""
        self._addresses.pop(neighbour, None)
        for task in self._dialers.pop(neighbour, ()):
            task.cancel()
        for carrier in self.carriers.of(neighbour):
            carrier.connection.close(removed)
            carrier.close()

    def address(self, neighbour: str) -> Address | None:
        """Where a neighbour is dialed; None for one that only calls us."""
        return self._addresses.get(neighbour)

    async def stop(self) -> None:
        """Say good-bye to everybody."""
        self._ticker.cancel()
        if self._server is not None:
            self._server.close()
        for neighbour in list(self._dialers):
            self.hang_up(neighbour, removed=False)
        waiting = list(self.sockets)
        for socket in waiting:
            socket.connection.close()
            socket.close()
        if waiting:
            await asyncio.wait([socket.closed for socket in waiting], timeout=1.0)
        for socket in list(self.sockets):
            socket.abort()

    # Writing

    def lane_ready(self, neighbour: str, lane: int) -> None:
        """Write at once if the last write was a while ago; under load, together with what comes meanwhile."""
        if not self._ready:
            pause = self._wrote + self._write_interval - self._loop.time()
            if pause > 0:
                self._loop.call_later(pause, self._write_ready)
            else:
                self._loop.call_soon(self._write_ready)
        self._ready.add((neighbour, lane))

    def send_control(self, neighbour: str, packet: Packet) -> None:
        if self.carriers.send_control(neighbour, packet):
            if not self._controls:
                self._loop.call_soon(self._write_controls)
            self._controls.add(neighbour)

    def _write_controls(self) -> None:
        controls, self._controls = self._controls, set()
        for neighbour in controls:
            self.carriers.write(neighbour, 0)

    def _write_ready(self) -> None:
        ready, self._ready = self._ready, set()
        self._wrote = self._loop.time()
        self.host.core.publisher.settle()
        for neighbour, lane in ready:
            self.carriers.write(neighbour, lane)

    # Connecting

    def _accept(self) -> LinkSocket:
        handshake = Acceptor(self._identity, self.carriers.admit, secrets.token_bytes)
        return LinkSocket(self, self._connection(handshake), dialed=False)

    def _connection(self, handshake: Dialer | Acceptor) -> LinkConnection:
        return LinkConnection(handshake, self.host.now(), ping_interval=self.config.ping_interval)

    async def _keep_connected(self, neighbour: str, lane: int, address: Address) -> None:
        pause = self.config.reconnect_min
        while True:
            carrier = self.carriers.get(neighbour, lane)
            if isinstance(carrier, LinkSocket):
                await carrier.closed
                pause = self.config.reconnect_min
                continue
            try:
                await self._dial_once(neighbour, lane, address)
            except (OSError, TimeoutError) as error:
                reason = str(error) or "no answer in time"
                self.carriers.unreachable(neighbour, f"cannot reach {address}: {reason}")
            if self.carriers.get(neighbour, lane) is None:
                await asyncio.sleep(pause * (0.5 + self.host.core.random.random() / 2))
                pause = min(pause * 2, self.config.reconnect_max)

    async def _dial_once(self, neighbour: str, lane: int, address: Address) -> None:
        """One attempt, and as long as it lasts."""
        core = self.host.core
        if neighbour not in core.neighbour_table:
            core.add_neighbour(neighbour)  # forgotten while away, but still configured
        resume = core.neighbour_table[neighbour].lanes[lane].resume()
        handshake = Dialer(self._identity, lane, resume, neighbour, secrets.token_bytes)
        socket = LinkSocket(self, self._connection(handshake), dialed=True)
        socket.peer = (neighbour, lane)
        try:
            async with asyncio.timeout(3 * self.config.ping_interval):
                await self._loop.create_connection(
                    lambda: socket, address.host, address.port, ssl=self._client_tls
                )
        except BaseException:
            # uvloop closes what it has connected by then, and the link may be up, and says so to nobody.
            socket.connection_lost(None)
            raise
        await socket.closed
        if not socket.connection.established and socket.peer is not None:  # nor refused, with a reason given
            hint = socket.failure or "is TLS set at both ends or at neither?"
            self.carriers.unreachable(neighbour, f"{address} hung up before the handshake was over ({hint})")

    async def _tick(self) -> None:
        """Ping and notice the dead, a few times each interval."""
        while True:
            await asyncio.sleep(self.config.ping_interval / 4)
            now = self.host.now()
            for socket in list(self.sockets):
                if not socket.connection.tick(now) or socket.stalled(now):
                    self.host.core.count("links_dead")
                    socket.abort()
                else:
                    socket.flush()
            for neighbour, lane in self.carriers.stalled():
                self.lane_ready(neighbour, lane)


def _tls(config: LinksSection) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    """Contexts for accepting and for dialing; mutual where an authority is given."""
    if config.tls_certificate is None or config.tls_key is None:
        return None, None
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(config.tls_certificate, config.tls_key)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_cert_chain(config.tls_certificate, config.tls_key)
    client.check_hostname = False  # nodes are known by id and key, not by host name
    if config.tls_ca is not None:
        server.load_verify_locations(config.tls_ca)
        server.verify_mode = ssl.CERT_REQUIRED
        client.load_verify_locations(config.tls_ca)
    else:
        client.verify_mode = ssl.CERT_NONE
    return server, client
