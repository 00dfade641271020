"""`brokerweave haproxy`: write HAProxy's configuration for the nodes, and again when they change.

Owns where the nodes are learned from, and how often. Invariant: what cannot be read now changes nothing, so
that a node's absence never empties the file. Must not know: what is in the file (`runtime.haproxy`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brokerweave.cli.output import help_text
from brokerweave.cli.running_commands import Config, Id, Socket, ask
from brokerweave.errors import BrokerweaveError, ConfigError, Unavailable

if TYPE_CHECKING:
    from brokerweave.runtime.haproxy import HaproxyServer

_HELP = """Write an HAProxy configuration that spreads clients over the nodes.

The nodes are those that a running node knows as members (--socket, --id or --config name it), or those of the
NODE.toml files and --server flags given. Each needs a health port. With --watch the command
writes the file again, and reloads HAProxy, whenever the nodes change. See docs/haproxy.md.

\b
Examples:
  brokerweave haproxy --listen 0.0.0.0:1883 --id a --out haproxy.cfg
  brokerweave haproxy --listen 0.0.0.0:1883 --id a --out haproxy.cfg --watch --reload-pid haproxy.pid
  brokerweave haproxy --listen 127.0.0.1:1883 a.toml b.toml
  brokerweave haproxy --listen 127.0.0.1:1883 --server a=10.0.0.1:1883,10.0.0.1:8080
"""


def register(app: typer.Typer) -> None:
    app.command("haproxy", help=help_text(_HELP))(haproxy)


def haproxy(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where clients connect to HAProxy.")],
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="NODE.toml", help="Nodes, by their own files.")
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID=CLIENTS,HEALTH", help="A node by its two addresses; goes before what a member says."
        ),
    ] = None,
    socket: Socket = None,
    id: Id = None,
    config: Config = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it. Default: standard output.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on, and write it when the nodes change.")
    ] = False,
    every: Annotated[float, typer.Option(min=0.05, metavar="SECONDS", help="How often --watch looks.")] = 1.0,
    reload_pid: Annotated[
        str | None,
        typer.Option(metavar="PID", help="HAProxy's master process (or its pid file), which gets SIGUSR2."),
    ] = None,
    reload_command: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="What to run instead when the file has changed.")
    ] = None,
    slow_start: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="Until a returned node has its full share.")
    ] = 5.0,
    max_connections: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Clients at once. Default: HAProxy's own.")
    ] = None,
) -> None:
    from brokerweave.config import Address
    from brokerweave.config.values import BadValue
    from brokerweave.runtime import haproxy as balancer

    if watch and out is None:
        raise ConfigError("--watch needs --out FILE")
    if (reload_pid or reload_command) and not watch:
        raise ConfigError("--reload-pid and --reload-command need --watch")
    if reload_pid and reload_command:
        raise ConfigError("give only one of --reload-pid and --reload-command")
    try:
        address = Address.parse(listen)
    except BadValue as bad:
        raise ConfigError(f"--listen should be {bad}; not {listen!r}") from None
    options = balancer.HaproxyOptions(address, max_connections, slow_start)
    given = [balancer.HaproxyServer.parse(text) for text in server or ()]

    def text() -> str:
        return balancer.configuration(_servers(files, given, socket, id, config), options)

    if out is None:
        print(text(), end="")
        return
    first = text()
    _write(out, first)
    if watch:
        _watch(out, first, text, every, _reloader(reload_pid, reload_command))


def _servers(
    files: list[Path] | None,
    given: list[HaproxyServer],
    socket: Path | None,
    id: str | None,
    config: Path | None,
) -> list[HaproxyServer]:
    from brokerweave.config import Address, load
    from brokerweave.runtime.haproxy import HaproxyServer

    named = {each.id for each in given}
    asked = socket is not None or id is not None or config is not None
    if files:
        if asked:
            raise ConfigError("give NODE.toml files, or name a running node, not both")
        nodes = [load(file).node for file in files]
        return given + [HaproxyServer.checked(n.id, n.listen, n.health) for n in nodes if n.id not in named]
    if given and not asked:
        return given
    servers = list(given)
    for row in ask(socket, id, config, {"do": "servers"})["servers"]:
        if row["id"] not in named:
            health = Address.parse(row["health"]) if row["health"] else None
            servers.append(HaproxyServer.checked(row["id"], Address.parse(row["clients"]), health))
    return servers


def _write(out: Path, text: str) -> None:
    from brokerweave.runtime import haproxy as balancer

    if not balancer.write(out, text):
        _say(f"wrote {out}; it was not checked, since HAProxy is not installed here")


def _reloader(pid: str | None, command: str | None) -> Callable[[], None]:
    from brokerweave.runtime import haproxy as balancer

    if pid:
        return lambda: balancer.reload_by_signal(pid)
    if command:
        return lambda: balancer.reload_by_command(command)
    return lambda: None


def _watch(
    out: Path, written: str, text: Callable[[], str], every: float, reload: Callable[[], None]
) -> None:
    """Until Ctrl-C. What fails is said once, and tried again."""
    said, stale = "", False
    while True:
        time.sleep(every)
        try:
            fresh = text()
            if fresh != written:
                _write(out, fresh)
                written, stale = fresh, True
                _say(f"wrote {out}")
            if stale:
                reload()
                stale = False
            said = ""
        except (BrokerweaveError, OSError) as error:
            if str(error) != said:
                said = str(error)
                kept = "will try again" if isinstance(error, Unavailable) else "the file stays as it was"
                _say(f"{said}; {kept}")


def _say(message: str) -> None:
    print(f"brokerweave: {message}", file=sys.stderr, flush=True)
