"""What operators ask of a running gateway: its state in numbers, its clients, a move.

Owns the results of moves, of each client's last one. Must not know: sockets, how a client is moved.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import brokerweave
from brokerweave.config import Address
from brokerweave.config.gateway import GatewayConfig
from brokerweave.errors import BrokerweaveError, ConfigError
from brokerweave.gateway.core import GatewayCore
from brokerweave.gateway.transitions import ClientWay
from brokerweave.placement.gateway_agent import GatewayAgent
from brokerweave.placement.messages import client_key
from brokerweave.placement.whole_gateway import WholeGatewayAgent
from brokerweave.runtime.admin import Command
from brokerweave.runtime.gateway_relay import GatewayClient
from brokerweave.runtime.gateway_sites import GatewaySites
from brokerweave.runtime.health import NodeHealth
from brokerweave.runtime.problems import Problems


class GatewayCommands:
    agent: GatewayAgent | WholeGatewayAgent
    """Set before anything is asked."""

    def __init__(
        self,
        config: GatewayConfig,
        core: GatewayCore[GatewayClient],
        sites: GatewaySites,
        health: NodeHealth,
        problems: Problems,
    ) -> None:
        self.results: dict[GatewayClient, str] = {}
        self._config = config
        self._core = core
        self._sites = sites
        self._health = health
        self._problems = problems
        self._started = time.monotonic()

    def all(self) -> dict[str, Command]:
        return {"status": self.status, "clients": self.rows, "move": self.move, "where": self.where}

    def _client(self, request: Mapping[str, object]) -> GatewayClient:
        name = str(request.get("client", ""))
        client = self._core.named.get(client_key(name))
        if client is None:
            raise BrokerweaveError(f"client {name!r} is not connected here")
        return client

    def move(self, request: dict[str, object]) -> object:
        client, site = self._client(request), str(request.get("site", ""))
        if site not in self._sites.known:
            raise ConfigError(f"no site {site!r}; known are {', '.join(sorted(self._sites.known))}")
        if client.tunnel.link is not None and client.tunnel.link.site == site:
            return self.where(request)
        self.results.pop(client, None)
        if why := self._core.move(client, site, None):
            raise BrokerweaveError(f"the client cannot be moved: {why}")
        return self.where(request)

    def where(self, request: dict[str, object]) -> dict[str, object]:
        client = self._client(request)
        link = client.tunnel.link
        waits = self._core.tasks.waits(client)
        return {
            "client": self._core.clients[client],
            "site": link.site if link is not None else None,
            "moving": waits or client.tunnel.way is not ClientWay.AT_REST,
            "result": self.results.get(client, ""),
        }

    def rows(self, request: dict[str, object]) -> object:
        return {"clients": [self.where({"client": name}) for name in sorted(self._core.named)]}

    def status(self, request: dict[str, object]) -> dict[str, Any]:
        own, agent = self._config.gateway, self.agent
        at = Counter(
            client.tunnel.link.site for client in self._core.clients if client.tunnel.link is not None
        )
        trips = agent.round_trips()
        return {
            "gateway": {
                "id": own.id,
                "version": brokerweave.__version__,
                "uptime": round(time.monotonic() - self._started, 3),
                "listen": str(own.listen),
                "health": str(own.health) if own.health else None,
                "not_ready": self._health.reason or None,
                "follows": agent.follows or None,
                "procedure": "planned" if self._core.rules.planned else "emma",
            },
            "clients": len(self._core.clients),
            "moving": self._core.tasks.under_way,
            "waiting_moves": self._core.tasks.waiting,
            "sites": [
                {
                    "site": name,
                    "address": str(Address(*site.clients)),
                    "clients": at[name],
                    "round_trip_ms": round(1000 * trips[name], 3) if name in trips else None,
                    "problem": self._sites.unreachable.get(name),
                }
                for name, site in sorted(self._sites.known.items())
            ],
            "counters": {**self._core.counters, "internal_errors": self._problems.internal_errors},
            "refused": agent.refused,
            "warnings": self._problems.warnings,
        }
