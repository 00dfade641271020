"""The sockets of one client of a gateway: its connection, and those to sites.

Owns the transports, and back-pressure between them. Invariants: a chunk that concerns nobody costs one scan
and one write, as in a node's relay; a side that does not read stops the other's reading, and nobody else's;
the end of the tunnel ends all connections. Must not know: what frames mean, which site is chosen.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Protocol, cast

from brokerweave.config import LimitsSection
from brokerweave.gateway.link import SiteLink
from brokerweave.gateway.transitions import MoveStep
from brokerweave.gateway.tunnel import Tunnel
from brokerweave.mqtt.packets import Connect
from brokerweave.runtime.passage import Passage
from brokerweave.runtime.sockets import lead_noting, write_now


class GatewayHost(Protocol):
    """What a client's sockets need of the gateway."""

    @property
    def limits(self) -> LimitsSection: ...

    def accepts(self, client: GatewayClient) -> bool:
        """It connected; False: there are too many."""

    def arrived(self, client: GatewayClient) -> None: ...

    def seek(self, client: GatewayClient) -> None: ...

    def dial_target(self, client: GatewayClient) -> None: ...

    def announcement(self, client: GatewayClient, link: SiteLink, old: str) -> bytes: ...

    def settled(self, client: GatewayClient, step: MoveStep, why: str) -> None: ...

    def clear_session(self, site: str, connect: Connect) -> None: ...

    def draw_id(self) -> str: ...

    def opened(self, client: GatewayClient, link: SiteLink) -> bool: ...

    def site_lost(self, client: GatewayClient, link: SiteLink) -> None: ...

    def gone(self, client: GatewayClient) -> None: ...


class SocketEnd(asyncio.Protocol):
    """One transport. Its data goes to `passage`."""

    data_received: Passage

    __slots__ = ("_file", "_transport", "data_received", "passage", "write_paused")

    def __init__(self, passage: Passage) -> None:
        self.passage = passage
        self.data_received = passage
        self.write_paused = False
        self._file = -1
        self._transport: asyncio.Transport | None = None

    def connected(self, base: asyncio.BaseTransport, queue: int) -> None:
        self._transport = cast(asyncio.Transport, base)  # uvloop's has the methods, not the class
        self._file = self._transport.get_extra_info("socket").fileno()
        self._transport.set_write_buffer_limits(high=queue)

    def eof_received(self) -> bool:
        return False

    def write(self, data: bytes) -> None:
        if self._transport is not None and data:
            write_now(self._transport, self._file, data)

    def lead(self, passage: Passage, write: Callable[[int, bytes], int]) -> None:
        """Let a passage write here."""
        if self._transport is not None:
            lead_noting(passage, self._transport, self._file, write)

    def set_reading(self, reads: bool) -> None:
        if self._transport is not None and not self._transport.is_closing():
            if reads:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def info(self, name: str) -> object:
        return self._transport.get_extra_info(name) if self._transport is not None else None

    def close(self, seconds: float) -> None:
        """Let what is written go out, but do not keep it for ever for somebody who does not read."""
        transport = self._transport
        if transport is not None:
            transport.close()
            if transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(seconds, transport.abort)


class GatewayClient(SocketEnd):
    """The client's connection, and the owner of all others. Implements `TunnelHost`."""

    __slots__ = ("_deadline", "_host", "sites", "tunnel")

    def __init__(self, host: GatewayHost) -> None:
        limits = host.limits
        self._host = host
        self._deadline: asyncio.TimerHandle | None = None
        self.sites: dict[SiteLink, SiteConnection] = {}
        self.tunnel = Tunnel(self, limits.max_packet, limits.client_queue)
        super().__init__(Passage(self.tunnel.scanner, self._attend))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.connected(transport, self._host.limits.client_queue)
        if self._host.accepts(self):
            self.set_deadline(self._host.limits.connect_timeout, self.tunnel.end)
        else:
            self.tunnel.end()

    def _attend(self, data: bytes) -> None:
        self.tunnel.from_client(data)
        self.look()

    def look(self) -> None:
        """Something was said: who may pass, and who is read?"""
        tunnel = self.tunnel
        link = tunnel.link
        site = self.sites.get(link) if link is not None else None
        self.passage.open = tunnel.client_passes and site is not None
        stopped = tunnel.full or (site is not None and site.write_paused)
        self.set_reading(not stopped)
        for each, connection in self.sites.items():
            connection.passage.open = each is link and tunnel.site_passes
            connection.set_reading(
                not self.write_paused and each.early_bytes <= self._host.limits.client_queue
            )

    @property
    def messages(self) -> int:
        """That passed either way, at the present site."""
        link = self.tunnel.link
        return self.tunnel.scanner.publishes + (link.scanner.publishes if link is not None else 0)

    def lead_site(self) -> None:
        """The tunnel has a new site: passages lead there."""
        link = self.tunnel.link
        site = self.sites.get(link) if link is not None else None
        if link is not None and site is not None:
            site.lead(self.passage, link.ledger.pass_up)
            self.lead(site.passage, link.ledger.pass_down)

    def pause_writing(self) -> None:
        self.write_paused = True
        self.look()

    def resume_writing(self) -> None:
        self.write_paused = False
        self.look()

    def connection_lost(self, exc: Exception | None) -> None:
        self.tunnel.client_gone()

    def set_deadline(self, seconds: float, overdue: Callable[[], None]) -> None:
        self.drop_deadline()
        self._deadline = asyncio.get_running_loop().call_later(seconds, overdue)

    def drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def opened(self, connection: SiteConnection) -> None:
        """A connection to a site is there; it may be too late."""
        self.sites[connection.link] = connection
        if not self._host.opened(self, connection.link):
            self.close_site(connection.link)

    def site_lost(self, link: SiteLink) -> None:
        if self.sites.pop(link, None) is not None:
            self.passage.open = False
            self._host.site_lost(self, link)

    # What the tunnel asks

    def to_client(self, data: bytes) -> None:
        self.write(data)

    def to_site(self, link: SiteLink, data: bytes) -> None:
        site = self.sites.get(link)
        if site is not None:
            site.write(data)

    def close_site(self, link: SiteLink) -> None:
        site = self.sites.pop(link, None)
        if site is not None:
            site.close(self._host.limits.drain)

    def close_client(self) -> None:
        self.drop_deadline()
        self.passage.open = False
        self._host.gone(self)
        self.close(self._host.limits.drain)

    def arrived(self) -> None:
        self.drop_deadline()
        self._host.arrived(self)

    def seek(self) -> None:
        self._host.seek(self)

    def dial(self) -> None:
        self._host.dial_target(self)

    def announcement(self, link: SiteLink, old: str) -> bytes:
        return self._host.announcement(self, link, old)

    def clear_session(self, site: str, connect: Connect) -> None:
        self._host.clear_session(site, connect)

    def draw_id(self) -> str:
        return self._host.draw_id()

    def settled(self, step: MoveStep, why: str) -> None:
        self.lead_site()
        self._host.settled(self, step, why)


class SiteConnection(SocketEnd):
    """A connection to a site."""

    __slots__ = ("_client", "link")

    def __init__(self, client: GatewayClient, site: str, drains: bool, limits: LimitsSection) -> None:
        self._client = client
        self.link = SiteLink(site, drains, limits.max_packet, limits.client_queue, os.write)
        super().__init__(Passage(self.link.scanner, self._attend))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.connected(transport, self._client.tunnel.queue)

    def _attend(self, data: bytes) -> None:
        if self.link in self._client.sites:
            self._client.tunnel.from_site(self.link, data)
            self._client.look()

    def pause_writing(self) -> None:
        self.write_paused = True
        self._client.look()

    def resume_writing(self) -> None:
        self.write_paused = False
        self._client.look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.site_lost(self.link)
