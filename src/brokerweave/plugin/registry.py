"""Finds plug-ins by name: an installed entry point, or `package.module:Class` spelled out.

Owns the names of the two entry-point groups. Invariant: what is returned is a class of the kind asked
for, with a name; anything else is a ConfigError that says what to write instead. Must not know: what a
plug-in does.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from brokerweave.errors import ConfigError
from brokerweave.plugin.listener import Listener
from brokerweave.plugin.strategy import Strategy

STRATEGIES = "brokerweave.strategies"
LISTENERS = "brokerweave.listeners"
OWN = "brokerweave"
DEFAULT = "sf"
"""The strategy where none is named, as in the configuration."""

Kind = TypeVar("Kind", Strategy, Listener)


def strategy(name: str) -> type[Strategy]:
    """The cooperation algorithm called `name`."""
    return _find(name, STRATEGIES, Strategy)


def known_strategies() -> list[str]:
    """The names of all strategies that are installed."""
    return sorted(point.name for point in entry_points(group=STRATEGIES))


def listener(name: str) -> type[Listener]:
    """The listener called `name`."""
    return _find(name, LISTENERS, Listener)


def names() -> frozenset[str]:
    """Of every strategy and listener that is installed."""
    return frozenset(point.name for group in (STRATEGIES, LISTENERS) for point in entry_points(group=group))


def plugin(name: str) -> type[Strategy] | type[Listener]:
    """The installed strategy or listener called `name`."""
    installed = any(point.name == name for point in entry_points(group=STRATEGIES))
    return strategy(name) if installed else listener(name)


def shipped() -> list[type[Strategy]]:
    """The strategies that come with this package, by name."""
    points = [point for point in entry_points(group=STRATEGIES) if point.module.startswith(f"{OWN}.")]
    return [strategy(point.name) for point in sorted(points, key=lambda point: point.name)]


def _find(name: str, group: str, kind: type[Kind]) -> type[Kind]:
    known = {point.name: point for point in entry_points(group=group)}
    point = known.get(name)
    if point is None and ":" in name:
        point = EntryPoint(name=name, value=name, group=group)
    if point is None:
        raise ConfigError(_unknown(name, sorted(known), kind.__name__.lower()))
    try:
        found = point.load()
    except Exception as error:
        # A plug-in's module may raise anything at all while it is imported.
        hint = "; is it installed, or on PYTHONPATH?" if isinstance(error, ModuleNotFoundError) else ""
        raise ConfigError(f"{kind.__name__.lower()} {name!r} cannot be loaded: {error!r}{hint}") from error
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise ConfigError(f"{name!r} is {found!r}, not a subclass of brokerweave.plugin.{kind.__name__}")
    if not isinstance(getattr(found, "name", None), str):
        raise ConfigError(f'{found!r} has no name; write name = "..." in the class')
    return found


def _unknown(name: str, known: list[str], what: str) -> str:
    nearest = get_close_matches(name, known, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
    names = ", ".join(known) or "none"
    return f"unknown {what} {name!r}{hint} Known: {names}; or write package.module:Class"
