"""The flag `--strategy` of every command that runs nodes: a registered name, or a class spelled out.

Owns its help, that of `--set`, and that a name nobody knows is refused before anything starts. Must not know:
any strategy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from brokerweave.plugin import OptionValue

METAVAR = "NAME|MODULE:CLASS"
HELP = "The cooperation strategy: a name that is registered, or package.module:Class."

StrategyName = Annotated[
    str | None, typer.Option("--strategy", metavar=METAVAR, help=HELP + " Default: as a node's.")
]


StrategyOptions = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME.KEY=VALUE", help="An option of the strategy; may be repeated."),
]


def given(strategy: str, settings: Iterable[str]) -> dict[str, OptionValue]:
    """The options of a strategy that flags set. Raises `ConfigError`."""
    from brokerweave.config.plugins import PluginOptions

    options = PluginOptions(strategy, (), ())
    for text in settings:
        options.read_flag(text)
    ((name, values),) = options.values.items()
    return {key: value for key, value in values.items() if f"{name}.{key}" in options.sources}


def known(name: str | None) -> str:
    """The strategy of that name can be loaded; without a name, the one that a node runs by default."""
    from brokerweave.plugin import registry

    name = name or registry.DEFAULT
    registry.strategy(name)
    return name
