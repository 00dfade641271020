"""`brokerweave status`, `neighbours` and `members`: what is done to a node that runs.

Owns the options that name a running node. Must not know: how it is reached (`admin_client`), or how its
answer is shown (`status_view`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from brokerweave.cli.output import console, help_text

Socket = Annotated[Path | None, typer.Option("--socket", metavar="PATH", help="The node's admin socket.")]
Id = Annotated[str | None, typer.Option("--id", metavar="ID", help="The node's id, if it runs as this user.")]
Config = Annotated[Path | None, typer.Option("--config", metavar="NODE.toml", help="The node's own file.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]

_STATUS_HELP = """Show a running node: broker, sessions, links with their pending messages, filters, drops.

Without --socket, --id or --config: the only node that runs here as this user.

\b
Examples:
  brokerweave status
  brokerweave status --id a --json
"""
_NEIGHBOURS_HELP = """Show or change the neighbours of a running node.

A change lasts until the node ends, or until SIGHUP makes it read its file again: put it there as well.

\b
Examples:
  brokerweave neighbours list --id a
  brokerweave neighbours add b=127.0.0.1:7001 --id a
  brokerweave neighbours remove b --id a
"""
_MEMBERS_HELP = """List the members of the cluster, as a running node sees them.

Each with its state (alive, suspect, dead, left), its incarnation (how often it had to say that it lives) and
the round trip of probes to it. Needs \\[membership] in the node's configuration; see docs/membership.md.

\b
Examples:
  brokerweave members
  brokerweave members --id a --json
"""


def register(app: typer.Typer) -> None:
    app.command("status", help=help_text(_STATUS_HELP))(status)
    neighbours = typer.Typer(help=help_text(_NEIGHBOURS_HELP))
    neighbours.command("list")(list_neighbours)
    neighbours.command("add")(add_neighbour)
    neighbours.command("remove")(remove_neighbour)
    app.add_typer(neighbours, name="neighbours")
    app.command("members", help=help_text(_MEMBERS_HELP))(list_members)


def status(socket: Socket = None, id: Id = None, config: Config = None, as_json: Json = False) -> None:
    result = ask(socket, id, config, {"do": "status"})
    if as_json:
        print_json(result)
        return
    from brokerweave.cli.status_view import status_view

    for part in status_view(result):
        console().print(part)


def list_neighbours(
    socket: Socket = None, id: Id = None, config: Config = None, as_json: Json = False
) -> None:
    """List the neighbours and the state of their links."""
    result = ask(socket, id, config, {"do": "neighbours"})
    if as_json:
        print_json(result)
        return
    from brokerweave.cli.status_view import neighbours_view

    console().print(neighbours_view(result))


def add_neighbour(
    neighbour: Annotated[
        str, typer.Argument(metavar="ID=HOST:PORT", help="The other node's id and link address.")
    ],
    socket: Socket = None,
    id: Id = None,
    config: Config = None,
) -> None:
    """Link the node to one more neighbour."""
    from brokerweave.config import parse_neighbour

    new = parse_neighbour(neighbour, "the neighbour")
    ask(socket, id, config, {"do": "add_neighbour", "id": new.id, "address": str(new.address)})
    print(f"added {new}")


def remove_neighbour(
    neighbour: Annotated[str, typer.Argument(metavar="ID", help="The neighbour's id.")],
    socket: Socket = None,
    id: Id = None,
    config: Config = None,
) -> None:
    """Take a neighbour away; what is still owed to it is dropped and counted."""
    ask(socket, id, config, {"do": "remove_neighbour", "id": neighbour})
    print(f"removed {neighbour}")


def list_members(socket: Socket = None, id: Id = None, config: Config = None, as_json: Json = False) -> None:
    result = ask(socket, id, config, {"do": "members"})
    if as_json:
        print_json(result)
        return
    if not result.get("members"):  # a member at least knows itself
        print("this node is no member: it has no [membership]; `brokerweave neighbours list` shows its links")
        return
    from brokerweave.cli.status_view import members_view

    console().print(members_view(result))


def ask(
    socket: Path | None, node_id: str | None, config: Path | None, request: dict[str, object]
) -> dict[str, Any]:
    """The answer of the node that the options name."""
    from brokerweave.runtime import admin_client

    return admin_client.ask(admin_client.find(socket, node_id, config), request)


def print_json(result: dict[str, Any]) -> None:
    print(json.dumps(result, indent=2, ensure_ascii=False))
