"""A gateway's connections to sites: opened, asked whether they answer, sessions ended.

Invariant: whatever is asked here is answered within `broker_timeout`. Must not know: which site is chosen,
what a tunnel does with a connection.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace

from brokerweave.config import Address, LimitsSection
from brokerweave.gateway.tunnel import UNAVAILABLE
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Connect, Disconnect
from brokerweave.placement.followed import KnownSite
from brokerweave.runtime.dialing import dial, open_streams
from brokerweave.runtime.gateway_relay import GatewayClient, SiteConnection

_CONNACK_BYTES = 4
_UNKNOWN = "the site is not known"


class GatewaySites:
    def __init__(self, limits: LimitsSection, run: Callable[[Coroutine[None, None, None]], None]) -> None:
        """`run`: start a task."""
        self._limits = limits
        self._run = run
        self.known: Mapping[str, KnownSite] = {}
        self.unreachable: dict[str, str] = {}
        """Sites to which the last connection failed, and why."""

    def open(
        self, client: GatewayClient, site: str, drains: bool, failed: Callable[[GatewayClient, str], None]
    ) -> None:
        """The client hears of a connection, or `failed` of the reason why there is none."""
        self._run(self._open(client, site, drains, failed))

    async def _open(
        self, client: GatewayClient, site: str, drains: bool, failed: Callable[[GatewayClient, str], None]
    ) -> None:
        known, why = self.known.get(site), _UNKNOWN
        if known is not None:
            try:
                async with asyncio.timeout(self._limits.broker_timeout):
                    address = Address(*known.clients)
                    connection = await dial(
                        address, lambda: SiteConnection(client, site, drains, self._limits)
                    )
            except TimeoutError:
                why = "no answer in time"
            except OSError as error:
                why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            else:
                self.unreachable.pop(site, None)
                client.opened(connection)
                return
        self.unreachable[site] = why
        failed(client, f"{site}: {why}")

    def clear(self, site: str, connect: Connect, done: Callable[[bool], None]) -> None:
        """End the session that a client left at a site."""

        async def clear() -> None:
            done(bool(await self._connect_clean(site, connect)))

        self._run(clear())

    def probe(self, site: str, done: Callable[[bool], None]) -> None:
        """Does the site take clients?"""

        async def probe() -> None:
            answer = await self._connect_clean(site, Connect(f"bw-{secrets.token_hex(8)}"))
            done(len(answer) == _CONNACK_BYTES and answer[3] != UNAVAILABLE)

        self._run(probe())

    async def _connect_clean(self, site: str, connect: Connect) -> bytes:
        """The answer to a CONNECT without a session; empty if there is none."""
        known = self.known.get(site)
        if known is None:
            return b""
        try:
            async with asyncio.timeout(self._limits.broker_timeout):
                reader, writer = await open_streams(Address(*known.clients))
                try:
                    clean = replace(connect, clean_start=True, will=None)
                    writer.write(codec.encode(clean, clean.version))
                    answer = await reader.read(_CONNACK_BYTES)
                    writer.write(codec.encode(Disconnect(), clean.version))
                    await writer.drain()
                    return answer
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return b""
