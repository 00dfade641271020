"""The page for policies: what one is asked, what it answers, and how it is found by name.

A policy is pure: it reads the graph and yields moves; whoever asks updates the loads after each move that it
takes, before the policy goes on, so that not everybody goes to the same site. It need not care for sites that
left or drain, for pins or for pace: the controller does, and refuses moves that break them. Must not know:
any policy by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points

from brokerweave.errors import ConfigError
from brokerweave.placement.graph import Graph, GraphGateway, Load, Loads

GROUP = "brokerweave.policies"


@dataclass(frozen=True, slots=True)
class PolicySettings:
    theta: float = 0.1
    """Among equally near sites a client moves only if the difference of their loads is more than this share
    of all their loads (EMMA Algorithm 1)."""
    hold: float = 30.0
    """Seconds for which another site has to be better, in every measurement."""
    rest: float = 300.0
    """Seconds in which a client is not moved again."""
    margin: float = 0.5
    """A site is better if its cost is so much lower that the other's is more than 1 + margin times as
    high."""
    load: Load = Load.CONNECTIONS


@dataclass(frozen=True, slots=True)
class Move:
    """`client` is None for all clients of the gateway."""

    gateway: str
    client: str | None
    origin: str
    target: str
    reason: str


class PlacementPolicy:
    """Derive from it, and name the class in an entry point of the group `brokerweave.policies`."""

    def __init__(self, settings: PolicySettings) -> None:
        self.settings = settings

    def place(self, graph: Graph, gateway: GraphGateway, loads: Loads) -> list[str]:
        """The sites for a new client, or one that has to leave its site, best first. All are open."""
        raise NotImplementedError

    def moves(self, graph: Graph, loads: Loads) -> Iterator[Move]:
        """What would be better than it is. Called once a round."""
        raise NotImplementedError


def policy(name: str) -> type[PlacementPolicy]:
    """The policy called `name`: an installed entry point, or `package.module:Class`. Raises `ConfigError`."""
    known = {point.name: point for point in entry_points(group=GROUP)}
    point = known.get(name)
    if point is None and ":" in name:
        point = EntryPoint(name=name, value=name, group=GROUP)
    if point is None:
        close = get_close_matches(name, sorted(known), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else "."
        names = ", ".join(sorted(known)) or "none"
        raise ConfigError(f"unknown policy {name!r}{hint} Known: {names}; or write package.module:Class")
    try:
        found = point.load()
    except Exception as error:
        # A plug-in's module may raise anything at all while it is imported.
        raise ConfigError(f"policy {name!r} cannot be loaded: {error!r}") from error
    if not (isinstance(found, type) and issubclass(found, PlacementPolicy)):
        raise ConfigError(
            f"{name!r} is {found!r}, not a subclass of brokerweave.placement.policy.PlacementPolicy"
        )
    return found
