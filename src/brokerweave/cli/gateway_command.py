"""`brokerweave gateway`: run a gateway, or ask one that runs.

Owns which first word is a command: anything else is the configuration's file. Must not know: how a client is
moved, how a running gateway is reached.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from brokerweave.cli.command_group import CommandGroup
from brokerweave.cli.key_flags import given_flags, with_flags
from brokerweave.cli.output import help_text
from brokerweave.cli.running_commands import Json, print_json
from brokerweave.cli.site_commands import Client, Site, run_parameters, show, show_numbers, show_rows
from brokerweave.config.gateway import KEYS, default_socket, load
from brokerweave.errors import BrokerweaveError

_HELP = """Run a gateway: clients connect to it, and it connects each to the best site; or ask one that runs.

A controller says where clients should be. Without one (--site) the gateway goes to the nearest site that
answers. It moves a client while that is connected, and nothing is lost on the way; see docs/gateways.md.

\b
Examples:
  brokerweave gateway gateway.toml
  brokerweave gateway --id g1 --listen 127.0.0.1:1883 --controller 10.0.0.5:7900 --key-file KEY
  brokerweave gateway --site a=10.0.0.1:1883 --site b=10.0.0.2:1883
  brokerweave gateway move CLIENT b --id g1
"""
_POLL = 0.05

Socket = Annotated[Path | None, typer.Option("--socket", metavar="PATH", help="The gateway's admin socket.")]
Id = Annotated[str, typer.Option("--id", metavar="ID", help="The gateway's id, if it runs as this user.")]


def register(app: typer.Typer) -> None:
    gateway = typer.Typer(cls=CommandGroup, help=help_text(_HELP))
    gateway.command("run", help="Run a gateway, until SIGTERM or Ctrl-C; `run` may be left out.")(
        with_flags(run, run_parameters("gateway", KEYS.values()))
    )
    for command in (status, clients, move):
        gateway.command(command.__name__)(command)
    app.add_typer(gateway, name="gateway")


def run(file: str | None, site: list[str] | None, **flags: object) -> int:
    """Run a gateway."""
    config = load(file, {**given_flags(KEYS.values(), flags), "site": site or None})
    from brokerweave.runtime.gateway import run as run_gateway

    return run_gateway(config)


def status(id: Id = "gateway", socket: Socket = None, as_json: Json = False) -> None:
    """What it knows and does, in numbers."""
    found = _ask(socket, id, {"do": "status"})
    if as_json:
        print_json(found)
        return
    sites = found.pop("sites")
    show_numbers({**found.pop("gateway"), **found})
    show_rows(sites, ("site", "address", "clients", "round_trip_ms", "problem"))


def clients(id: Id = "gateway", socket: Socket = None, as_json: Json = False) -> None:
    """Its clients, with their sites."""
    found = _ask(socket, id, {"do": "clients"})
    show(found, found["clients"], ("client", "site", "moving", "result"), as_json)


def move(client: Client, site: Site, id: Id = "gateway", socket: Socket = None) -> None:
    """Move one client to a site, and wait for the result. A controller may move it again."""
    found = _ask(socket, id, {"do": "move", "client": client, "site": site})
    while found["moving"]:
        time.sleep(_POLL)
        found = _ask(socket, id, {"do": "where", "client": client})
    if found["site"] != site:
        raise BrokerweaveError(f"{client} stays at {found['site']}: {found['result']}")
    print(f"{client} is at {site}")


def _ask(socket: Path | None, gateway: str, request: dict[str, object]) -> dict[str, Any]:
    from brokerweave.runtime.admin_client import ask

    return ask(socket or default_socket(gateway), request)
