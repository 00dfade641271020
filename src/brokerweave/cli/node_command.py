"""`brokerweave node`: run a node, or show what it would run with.

Must not know: the meaning of any key.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated

import typer

from brokerweave.cli.key_flags import flag_of, given_flags, parameter, with_flags
from brokerweave.cli.output import console, help_text, table
from brokerweave.config import NodeConfig, explain, load
from brokerweave.config.keys import KEYS

_HELP = """Run a node in front of one broker, until SIGTERM or Ctrl-C.

Each key of NODE.toml has a flag, and a flag wins over the file. The node starts and listens even when
its broker is not there yet. SIGTERM drains; SIGHUP reads neighbours, limits and the access
list again.

\b
Examples:
  brokerweave node a.toml
  brokerweave node a.toml --check
  brokerweave node --id a --listen 127.0.0.1:1883 --broker 127.0.0.1:1884 \\
      --link-listen 127.0.0.1:7000 --neighbour b=127.0.0.1:7001
"""


def register(app: typer.Typer) -> None:
    app.command("node", help=help_text(_HELP))(with_flags(node, _parameters()))


def node(
    file: str | None,
    check: bool,
    neighbour: list[str] | None,
    tap: list[str] | None,
    set_: list[str] | None,
    **flags: object,
) -> int:
    """Load the configuration, then show it or run it."""
    given = given_flags(KEYS.values(), flags)
    config = load(file, {**given, "neighbour": neighbour or None, "tap": tap or None, "set": set_ or None})
    return _check(config) if check else _run(config)


def node_of_file(file: str) -> int:
    """`brokerweave node FILE`, without flags."""
    return _run(load(file, {}))


def _run(config: NodeConfig) -> int:
    from brokerweave.runtime.node import run

    return run(config)


def _check(config: NodeConfig) -> int:
    from brokerweave.plugin import registry
    from brokerweave.runtime.acl_file import load_acl
    from brokerweave.runtime.settings import implied

    load_acl(config)
    strategy = registry.strategy(config.node.strategy)
    rows = table("key", "value", "from")
    for row in explain(config):
        rows.add_row(*row)
    console().print(rows)
    if implied(strategy):
        console().print(f"{strategy.name} stands for: {', '.join(implied(strategy))}")
    return 0


def _parameters() -> Iterator[inspect.Parameter]:
    file = typer.Argument(metavar="NODE.toml", help="The node's configuration; see docs/configuration.md.")
    yield parameter("file", Annotated[str | None, file], None)
    check = typer.Option("--check", help="Show every value and where it came from, then end.")
    yield parameter("check", Annotated[bool, check], False)
    neighbour = typer.Option(
        "--neighbour", metavar="ID=HOST:PORT", help="Another node to link to; may be repeated."
    )
    yield parameter("neighbour", Annotated[list[str] | None, neighbour], None)
    tap = typer.Option("--tap", metavar="FILTER", help="Topics to keep in the edge log; may be repeated.")
    yield parameter("tap", Annotated[list[str] | None, tap], None)
    options = typer.Option(
        "--set", metavar="NAME.KEY=VALUE", help="An option of the strategy or of a listener; may be repeated."
    )
    yield parameter("set_", Annotated[list[str] | None, options], None)
    for key in KEYS.values():
        yield flag_of(key, "node")
