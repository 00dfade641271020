"""What a controller answers over its API: the shape of each answer, which scripts rely on.

Owns names and units (milliseconds, seconds). Must not know: how decisions are made, HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from brokerweave.config import Address
from brokerweave.config.values import BadValue, number
from brokerweave.errors import ConfigError
from brokerweave.placement.core import ControllerCore
from brokerweave.placement.graph import GraphGateway, Leaving, Loads
from brokerweave.placement.history import MoveDecision
from brokerweave.placement.messages import client_key
from brokerweave.placement.policy import Move
from brokerweave.runtime.json_api import ApiCommand

MOST_MOVES = 20_000
_PACE = number(0.01, 100_000)


class ControllerCommands:
    def __init__(self, core: ControllerCore, drain_pace: float, changed: Callable[[], None]) -> None:
        """`changed` is called after something was told."""
        self._core = core
        self._drain_pace = drain_pace
        self._changed = changed

    def asked(self) -> dict[str, ApiCommand]:
        return {"/sites": self.sites, "/gateways": self.gateways, "/plan": self.plan, "/moves": self.moves}

    def told(self) -> dict[str, ApiCommand]:
        return {
            "/drain": self.drain,
            "/evacuate": self.evacuate,
            "/resume": self.resume,
            "/move": self.move,
            "/pin": self.pin,
            "/unpin": self.unpin,
        }

    # Asked

    def sites(self, request: Mapping[str, object]) -> object:
        core, loads = self._core, Loads(self._core.graph, self._core.policy.settings.load)
        counts = core.graph.count()
        rows = [
            {
                "site": site.name,
                "state": site.leaving.value or ("open" if site.present else "gone"),
                "drained": site.leaving is not Leaving.NO and not counts[site.name],
                "clients": counts[site.name],
                "load": round(loads.amount(site.name), 3),
                "weight": site.weight,
                "cpu": site.cpu,
                "address": str(Address(*site.clients)),
                "monitor": str(Address(*site.monitor)) if site.monitor else None,
            }
            for site in sorted(core.graph.sites.values(), key=lambda each: each.name)
        ]
        return {"sites": rows, "pins": core.pins, "under_way": len(core.orders), "waiting": core.waiting}

    def gateways(self, request: Mapping[str, object]) -> object:
        gateways = sorted(self._core.graph.gateways.values(), key=lambda each: each.id)
        return {"gateways": [_gateway_row(each, time.monotonic()) for each in gateways]}

    def plan(self, request: Mapping[str, object]) -> object:
        wanted = self._core.plan(time.monotonic())
        return {"moves": [{**_move_row(each.move), "cause": each.cause} for each in wanted]}

    def moves(self, request: Mapping[str, object]) -> object:
        text = str(request.get("count", "100"))
        if not text.isdigit() or not 0 < int(text) <= MOST_MOVES:
            raise ConfigError(f"'count' should be a whole number from 1 to {MOST_MOVES}; not {text!r}")
        now = time.monotonic()
        found = self._core.history.last(int(text), now)
        return {"moves": [_decision_row(each, now) for each in found], "counters": self._core.orders.counters}

    # Told

    def drain(self, request: Mapping[str, object]) -> object:
        site = _text(request, "site")
        pace = request.get("per_second", self._drain_pace)
        try:
            per_second = _PACE.read(pace)
        except BadValue as bad:
            raise ConfigError(f"'per_second' should be {bad}; not {pace!r}") from None
        assert isinstance(per_second, float)
        self._core.drain(site, per_second, time.monotonic())
        return self._emptied(site)

    def evacuate(self, request: Mapping[str, object]) -> object:
        site = _text(request, "site")
        self._core.evacuate(site)
        return self._emptied(site)

    def resume(self, request: Mapping[str, object]) -> object:
        site = _text(request, "site")
        self._core.resume(site)
        self._changed()
        return {"site": site}

    def move(self, request: Mapping[str, object]) -> object:
        client, site = client_key(_text(request, "client")), _text(request, "site")
        self._core.move(client, site, time.monotonic())
        self._changed()
        return {"client": client, "site": site}

    def pin(self, request: Mapping[str, object]) -> object:
        client, site = client_key(_text(request, "client")), _text(request, "site")
        self._core.pin(client, site)
        self._changed()
        return {"client": client, "site": site, "connected": bool(self._core.graph.find(client))}

    def unpin(self, request: Mapping[str, object]) -> object:
        client = client_key(_text(request, "client"))
        if client not in self._core.pins:
            raise ConfigError(f"{client} is not pinned")
        self._core.pin(client, None)
        self._changed()
        return {"client": client}

    def _emptied(self, site: str) -> object:
        """How much there is to do, and whose gateways will not do it."""
        self._changed()
        clients = self._core.graph.clients_at(site)
        follows = {self._core.graph.gateways[client.gateway].follows for client in clients}
        return {
            "site": site,
            "clients": len(clients),
            "other_controllers": sorted(follows - {"", self._core.id}),
        }


def _text(request: Mapping[str, object], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"'{name}' should be a text, not empty")
    return value


def _move_row(move: Move) -> dict[str, Any]:
    return {
        "gateway": move.gateway,
        "client": move.client,
        "origin": move.origin,
        "target": move.target,
        "reason": move.reason,
    }


def _decision_row(decision: MoveDecision, now: float) -> dict[str, Any]:
    took = None if decision.finished is None else round(decision.finished - decision.at, 3)
    return {
        **_move_row(decision.move),
        "number": decision.number,
        "cause": decision.cause,
        "seconds_ago": round(now - decision.at, 3),
        "outcome": decision.outcome.value,
        "took": took,
        "note": decision.note,
    }


def _gateway_row(gateway: GraphGateway, now: float) -> dict[str, Any]:
    edges = {}
    for site, edge in sorted(gateway.edges.items()):
        last = edge.latest
        edges[site] = {
            "mean_ms": round(last.mean * 1000, 3) if isfinite(last.mean) else None,
            "jitter_ms": round(last.jitter * 1000, 3),
            "loss": round(last.loss, 3),
            "pings": last.pings,
            "seconds_ago": round(now - last.at, 1),
        }
    return {
        "gateway": gateway.id,
        "follows": gateway.follows or None,
        "heard_seconds_ago": round(now - gateway.heard_at, 1),
        "clients": {client.id: client.site for client in gateway.clients.values()},
        "edges": edges,
    }
