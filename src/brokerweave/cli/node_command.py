"""`brokerweave node`: run a node, or show what it would run with.

Owns how configuration keys become flags. Invariant: there is one flag for each key, made from the key's own
words. Must not know: the meaning of any key.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from brokerweave.cli.output import console, help_text, table
from brokerweave.config import NodeConfig, explain, load, show
from brokerweave.config.keys import KEYS, Key
from brokerweave.config.values import ADDRESSES, LISTENING, NAMES, PATH, REMOTE

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
    app.command("node", help=help_text(_HELP))(_with_flags(node))


def node(
    file: str | None,
    check: bool,
    neighbour: list[str] | None,
    tap: list[str] | None,
    set_: list[str] | None,
    **flags: object,
) -> int:
    """Load the configuration, then show it or run it."""
    given = {dotted: flags[_parameter_name(key)] or None for dotted, key in KEYS.items() if _is_list(key)}
    given |= {dotted: flags[_parameter_name(key)] for dotted, key in KEYS.items() if not _is_list(key)}
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


def _with_flags(command: Callable[..., int]) -> Callable[..., int]:
    """The command with a signature that Typer reads the flags from."""

    def with_flags(**arguments: Any) -> int:
        return command(**arguments)

    parameters = list(_parameters())
    with_flags.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    with_flags.__annotations__ = {each.name: each.annotation for each in parameters} | {"return": int}
    return with_flags


def _parameters() -> Iterator[inspect.Parameter]:
    file = typer.Argument(metavar="NODE.toml", help="The node's configuration; see docs/configuration.md.")
    yield _parameter("file", Annotated[str | None, file], None)
    check = typer.Option("--check", help="Show every value and where it came from, then end.")
    yield _parameter("check", Annotated[bool, check], False)
    neighbour = typer.Option(
        "--neighbour", metavar="ID=HOST:PORT", help="Another node to link to; may be repeated."
    )
    yield _parameter("neighbour", Annotated[list[str] | None, neighbour], None)
    tap = typer.Option("--tap", metavar="FILTER", help="Topics to keep in the edge log; may be repeated.")
    yield _parameter("tap", Annotated[list[str] | None, tap], None)
    options = typer.Option(
        "--set", metavar="NAME.KEY=VALUE", help="An option of the strategy or of a listener; may be repeated."
    )
    yield _parameter("set_", Annotated[list[str] | None, options], None)
    for key in KEYS.values():
        yield _parameter(_parameter_name(key), Annotated[key.about.kind.flag | None, _option(key)], None)


def _parameter(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _option(key: Key) -> Any:
    default = "" if key.default in (None, ()) else f" Default: {show(key.default)}."
    repeated = " May be repeated." if _is_list(key) else ""
    return typer.Option(
        key.flag,
        metavar=_metavar(key),
        help=(key.about.doc + repeated + default).replace("[", r"\["),  # else it is taken for markup
        show_default=False,
        rich_help_panel="Options" if key.section == "node" else key.section.capitalize(),
    )


def _metavar(key: Key) -> str | None:
    if key.about.kind.flag is bool:
        return None
    if key.about.kind.flag is int and not key.about.unit:
        return "N"
    if key.about.unit:
        return key.about.unit.split()[0].upper()
    return {
        LISTENING: "HOST:PORT",
        REMOTE: "HOST:PORT",
        ADDRESSES: "HOST:PORT",
        NAMES: "NAME",
        PATH: "PATH",
    }.get(key.about.kind, "TEXT")


def _parameter_name(key: Key) -> str:
    return key.dotted.replace(".", "__")


def _is_list(key: Key) -> bool:
    return key.about.kind.flag == list[str]
