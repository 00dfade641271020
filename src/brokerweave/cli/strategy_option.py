"""The flag `--strategy` of every command that runs nodes: a registered name, or a class spelled out.

Owns its help, and that a name nobody knows is refused before anything starts. Must not know: any strategy.
"""

from __future__ import annotations

from typing import Annotated

import typer

METAVAR = "NAME|MODULE:CLASS"
HELP = "The cooperation strategy: a name that is registered, or package.module:Class."

StrategyName = Annotated[
    str | None, typer.Option("--strategy", metavar=METAVAR, help=HELP + " Default: as a node's.")
]


def known(name: str | None) -> str:
    """The strategy of that name can be loaded; without a name, the one that a node runs by default."""
    from brokerweave.plugin import registry

    name = name or registry.DEFAULT
    registry.strategy(name)
    return name
