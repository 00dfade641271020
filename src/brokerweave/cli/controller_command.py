"""`brokerweave controller`: run a controller of gateways, or ask one that runs.

Owns which first word is a command: anything else is the configuration's file. Must not know: how a controller
decides, the shape of HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from brokerweave.cli.command_group import RUN, CommandGroup
from brokerweave.cli.key_flags import given_flags, with_flags
from brokerweave.cli.output import help_text
from brokerweave.cli.running_commands import Json, print_json
from brokerweave.cli.site_commands import Client, Site, run_parameters, show, show_numbers
from brokerweave.config.controller import KEYS, load

_HELP = """Run a controller, which tells gateways at which site their clients should be; or ask one that runs.

It learns of sites from membership (--join) or from --site. Of several controllers gateways follow the one
with the lowest id. If it ends, clients stay where they are.

\b
Examples:
  brokerweave controller controller.toml
  brokerweave controller --join 10.0.0.1:7946 --key-file cluster.key
  brokerweave controller --key-file KEY \\
      --site a=10.0.0.1:1883,10.0.0.1:7910 --site b=10.0.0.2:1883,10.0.0.2:7910
  brokerweave controller plan
  brokerweave controller drain a
"""
_POLL = 0.25
DEFAULT_API = "127.0.0.1:7901"

Api = Annotated[str, typer.Option("--api", metavar="HOST:PORT", help="The controller's api.")]
Token = Annotated[
    Path | None, typer.Option("--api-token-file", metavar="PATH", help="The token that it wants to see.")
]


class ControllerGroup(CommandGroup):
    """`--api` may come before a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if len(args) > 2 and args[0] == "--api" and args[2] in self.commands:
            args = [args[2], *args[:2], *args[3:]]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    controller = typer.Typer(cls=ControllerGroup, help=help_text(_HELP))
    controller.command(RUN, help="Run a controller, until SIGTERM or Ctrl-C; `run` may be left out.")(
        with_flags(run, run_parameters("controller", KEYS.values()))
    )
    for command in (status, sites, gateways, plan, moves, drain, evacuate, resume, move, pin, unpin):
        controller.command(command.__name__)(command)
    app.add_typer(controller, name="controller")


def run(file: str | None, site: list[str] | None, **flags: object) -> int:
    """Run a controller."""
    config = load(file, {**given_flags(KEYS.values(), flags), "site": site or None})
    from brokerweave.runtime.controller import run as run_controller

    return run_controller(config)


def status(api: Api = DEFAULT_API, token: Token = None, as_json: Json = False) -> None:
    """What it knows and does, in numbers."""
    found = _ask(api, token, "/status")
    if as_json:
        print_json(found)
    else:
        show_numbers({**found.pop("controller"), **found})


def sites(api: Api = DEFAULT_API, token: Token = None, as_json: Json = False) -> None:
    """The sites, with their clients and load."""
    found = _ask(api, token, "/sites")
    show(found, found["sites"], ("site", "state", "clients", "load", "weight", "cpu", "address"), as_json)


def gateways(api: Api = DEFAULT_API, token: Token = None, as_json: Json = False) -> None:
    """The gateways, and how far each site is from them."""
    found = _ask(api, token, "/gateways")
    rows = [
        {
            **row,
            "clients": len(row["clients"]),
            "round trips (ms)": "  ".join(
                f"{site} {edge['mean_ms'] if edge['mean_ms'] is not None else 'no answer'}"
                for site, edge in row["edges"].items()
            ),
        }
        for row in found["gateways"]
    ]
    show(found, rows, ("gateway", "follows", "clients", "round trips (ms)"), as_json)


def plan(api: Api = DEFAULT_API, token: Token = None, as_json: Json = False) -> None:
    """What it would do now, and why, without doing it."""
    found = _ask(api, token, "/plan")
    show(
        found,
        found["moves"],
        ("client", "gateway", "origin", "target", "cause", "reason"),
        as_json,
        "no moves",
    )


def moves(
    api: Api = DEFAULT_API,
    token: Token = None,
    count: Annotated[int, typer.Option("--count", help="How many, the newest first.")] = 100,
    as_json: Json = False,
) -> None:
    """What it decided in the last hours, why, and what became of it."""
    found = _ask(api, token, f"/moves?count={count}")
    columns = ("seconds_ago", "client", "origin", "target", "cause", "outcome", "took", "reason", "note")
    show(found, found["moves"], columns, as_json, "no moves yet")


def drain(
    site: Site,
    api: Api = DEFAULT_API,
    token: Token = None,
    pace: Annotated[float | None, typer.Option("--pace", help="Moves a second.")] = None,
    wait: Annotated[bool, typer.Option(help="Wait until nobody is there.")] = True,
) -> None:
    """Move everybody away from a site at a pace, then say that it may be stopped."""
    told: dict[str, object] = {"site": site}
    if pace is not None:
        told["per_second"] = pace
    _empty("/drain", told, api, token, wait)


def evacuate(
    site: Site,
    api: Api = DEFAULT_API,
    token: Token = None,
    wait: Annotated[bool, typer.Option(help="Wait until nobody is there.")] = True,
) -> None:
    """Move everybody away from a site at once."""
    _empty("/evacuate", {"site": site}, api, token, wait)


def resume(site: Site, api: Api = DEFAULT_API, token: Token = None) -> None:
    """Let a site that was drained or evacuated take clients again."""
    _ask(api, token, "/resume", {"site": site})
    print(f"{site} takes clients")


def move(client: Client, site: Site, api: Api = DEFAULT_API, token: Token = None) -> None:
    """Move one client to a site, once."""
    _ask(api, token, "/move", {"client": client, "site": site})
    print(f"{client} is told to go to {site}; `brokerweave controller moves` shows what became of it")


def pin(client: Client, site: Site, api: Api = DEFAULT_API, token: Token = None) -> None:
    """Keep a client at a site, whatever the policy says."""
    found = _ask(api, token, "/pin", {"client": client, "site": site})
    print(f"{client} is pinned to {site}{'' if found['connected'] else '; it is not connected now'}")


def unpin(client: Client, api: Api = DEFAULT_API, token: Token = None) -> None:
    """Let the policy decide again where a client is."""
    _ask(api, token, "/unpin", {"client": client})
    print(f"{client} is not pinned any more")


def _empty(path: str, told: Mapping[str, object], api: str, token: Path | None, wait: bool) -> None:
    found = _ask(api, token, path, told)
    site = str(told["site"])
    if found["other_controllers"]:
        others = ", ".join(found["other_controllers"])
        print(f"some of its clients are moved by controller {others}: ask there as well")
    print(f"{found['clients']} clients leave {site}")
    while wait:
        row = next((each for each in _ask(api, token, "/sites")["sites"] if each["site"] == site), None)
        if row is None or row["drained"]:
            print(f"{site} has no clients: it may be stopped")
            return
        if row["state"] == "open":
            print(f"{site} was resumed")
            raise typer.Exit(1)
        time.sleep(_POLL)


def _ask(api: str, token: Path | None, path: str, told: Mapping[str, object] | None = None) -> dict[str, Any]:
    from brokerweave.config import Address
    from brokerweave.config.values import BadValue
    from brokerweave.errors import ConfigError
    from brokerweave.runtime.api_client import ask
    from brokerweave.runtime.secret_files import read_token

    try:
        address = Address.parse(api)
    except BadValue as bad:
        raise ConfigError(f"--api should be {bad}; not {api!r}") from None
    return ask(address, path, told, read_token(token))
