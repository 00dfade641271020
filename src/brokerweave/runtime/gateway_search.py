"""Looking for a site for one client, and connecting it there.

Owns who is asked next, and for how long. Invariants: a client that nobody told anything yet is refused when
each site was asked once; one that lost its site is looked after until `search` seconds are over. Must not
know: what a tunnel does with a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace

from brokerweave.config import Address
from brokerweave.config.gateway import GatewayConfig
from brokerweave.gateway.transitions import ClientWay
from brokerweave.gateway.tunnel import UNAVAILABLE
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Connect, Disconnect
from brokerweave.placement.followed import KnownSite
from brokerweave.runtime.dialing import dial, open_streams
from brokerweave.runtime.gateway_relay import GatewayClient, SiteConnection

AGAIN_SECONDS = 0.5
_CONNACK_BYTES = 4
Place = Callable[[GatewayClient, Callable[[tuple[str, ...]], None]], None]


@dataclass(slots=True)
class _Search:
    until: float
    left: deque[str] = field(default_factory=deque)


class SiteSearch:
    def __init__(
        self, config: GatewayConfig, place: Place, run: Callable[[Coroutine[None, None, None]], None]
    ) -> None:
        """`place`: ask which sites are good for a client. `run`: start a task."""
        self._config = config
        self._place = place
        self._run = run
        self._searches: dict[GatewayClient, _Search] = {}
        self._clearing: dict[tuple[str, str], asyncio.Event] = {}
        """By site and client: a client that returns meanwhile would lose its connection to it."""
        self._bare = {site.name for site in config.sites if site.bare}
        self.sites: Mapping[str, KnownSite] = {}
        self.planned = config.moves.procedure == "planned" and config.gateway.key_file is not None

    # One site after another

    def seek(self, client: GatewayClient) -> None:
        """Try the next site."""
        search = self._searches.get(client)
        if search is None:
            search = self._searches[client] = _Search(time.monotonic() + self._config.moves.search)
            self._ask(client, search)
        elif search.left:
            self.dial(client, search.left.popleft())
        elif client.tunnel.connack is None or time.monotonic() > search.until:
            asyncio.get_running_loop().call_soon(self._give_up, client)
        else:
            asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._ask, client, search)

    def over(self, client: GatewayClient) -> None:
        self._searches.pop(client, None)

    def _ask(self, client: GatewayClient, search: _Search) -> None:
        def placed(sites: tuple[str, ...]) -> None:
            if self._searches.get(client) is search:
                search.left.extend(sites)
                asyncio.get_running_loop().call_soon(self._first, client, search)

        if self._searches.get(client) is search:
            self._place(client, placed)

    def _first(self, client: GatewayClient, search: _Search) -> None:
        if self._searches.get(client) is search:
            if search.left:
                self.dial(client, search.left.popleft())
            else:
                self._give_up(client)

    def _give_up(self, client: GatewayClient) -> None:
        if client.tunnel.way in (ClientWay.SEEKING, ClientWay.ASKING):
            client.tunnel.hopeless()

    # Connections

    def dial(self, client: GatewayClient, site: str) -> None:
        self._run(self._dial(client, site))

    async def _dial(self, client: GatewayClient, site: str) -> None:
        limits, tunnel = self._config.limits, client.tunnel
        known = self.sites.get(site)
        old = tunnel.link.site if tunnel.link is not None else site
        drains = self.planned and not {site, old} & self._bare
        why = "the site is not known"
        if known is not None:
            try:
                async with asyncio.timeout(limits.broker_timeout):
                    await self._clear_before(client, known, drains)
                    address = Address(*known.clients)
                    connection = await dial(address, lambda: SiteConnection(client, site, drains, limits))
            except TimeoutError:
                why = "no answer in time"
            except OSError as error:
                why = error.strerror or str(error)
            else:
                client.opened(connection)
                return
        if tunnel.way in (ClientWay.DIALING, ClientWay.SEEKING):
            tunnel.unreachable(f"{site}: {why}")
            client.look()

    async def _clear_before(self, client: GatewayClient, site: KnownSite, drains: bool) -> None:
        """MQTT 5 says in CONNECT that what is left there goes; before it takes a connection of its own."""
        connect, told = client.tunnel.connect, client.tunnel.connack
        cleared = self._clearing.get((site.name, connect.client_id)) if connect is not None else None
        if cleared is not None:
            await cleared.wait()
        if (
            told is not None
            and connect is not None
            and not drains
            and connect.version < 5
            and not connect.clean_start
        ):
            await self._connect_clean(Address(*site.clients), connect)

    async def clear(self, site: str, connect: Connect) -> bool:
        """End the session that a client left at a site; whether that worked."""
        known, key = self.sites.get(site), (site, connect.client_id)
        if known is None:
            return False
        done = self._clearing[key] = asyncio.Event()
        try:
            async with asyncio.timeout(self._config.limits.broker_timeout):
                await self._connect_clean(Address(*known.clients), connect)
                return True
        except (OSError, TimeoutError):
            return False
        finally:
            done.set()
            if self._clearing.get(key) is done:
                del self._clearing[key]

    async def _connect_clean(self, address: Address, connect: Connect) -> bytes:
        """The answer to a CONNECT without a session."""
        clean = replace(connect, clean_start=True, will=None)
        reader, writer = await open_streams(address)
        try:
            writer.write(codec.encode(clean, clean.version))
            answer = await reader.read(_CONNACK_BYTES)
            writer.write(codec.encode(Disconnect(), clean.version))
            await writer.drain()
            return answer
        finally:
            writer.close()

    async def answers(self, site: str) -> bool:
        """Whether the site takes clients: then it ended one client's connection for a reason of its own."""
        known = self.sites.get(site)
        if known is None:
            return False
        probe = Connect(f"bw-{secrets.token_hex(8)}")
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(self._config.limits.broker_timeout):
                answer = await self._connect_clean(Address(*known.clients), probe)
                return len(answer) == _CONNACK_BYTES and answer[3] != UNAVAILABLE
        return False
