"""HAProxy's configuration for a cluster's nodes: its text, its check, its file and its reload.

Owns what every line of that file is there for. Invariants: HAProxy itself has checked a file before it takes
the old one's place, in one step; a set of servers always gives the same text, so that equal means unchanged.
Must not know: where the servers were learned from.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from brokerweave.config import Address
from brokerweave.config.values import ID, BadValue
from brokerweave.errors import ConfigError, Unavailable

PROGRAM_SECONDS = 30.0
"""How long a check or a reload command may take."""
_ANYWHERE = ("0.0.0.0", "::", "*")


@dataclass(frozen=True, slots=True, order=True)
class HaproxyServer:
    """A node as the balancer sees it: where clients go, and where to ask whether they should."""

    id: str
    clients: Address
    health: Address

    @classmethod
    def parse(cls, text: str) -> HaproxyServer:
        """Read ID=HOST:PORT,HOST:PORT. Raises `ConfigError`."""
        name, equals, rest = text.partition("=")
        clients, comma, health = rest.partition(",")
        if not equals or not comma:
            raise ConfigError(f"--server should be ID=CLIENT_HOST:PORT,HEALTH_HOST:PORT; not {text!r}")
        try:
            return cls.checked(str(ID.read(name)), Address.parse(clients), Address.parse(health))
        except BadValue as bad:
            raise ConfigError(f"--server {text!r}: each part should be {bad}") from None

    @classmethod
    def checked(cls, name: str, clients: Address, health: Address | None) -> HaproxyServer:
        """Raises `ConfigError` if a balancer could not use it."""
        if health is None:
            raise ConfigError(f'node {name} has no health port; write health = "HOST:PORT" under its [node]')
        for address in (clients, health):
            if address.host in _ANYWHERE or not address.port:
                raise ConfigError(
                    f"node {name} listens on {address}, which is not where a balancer finds it; "
                    f"give --server {name}=HOST:PORT,HOST:PORT"
                )
        return cls(name, clients, health)


@dataclass(frozen=True, slots=True)
class HaproxyOptions:
    listen: Address
    max_connections: int | None = None
    """None leaves it to HAProxy, which takes what its limit of open files allows."""
    slow_start: float = 5.0
    """Seconds in which a node that came back gets its full share."""
    interval: float = 0.25
    """Seconds between two checks of a node that is up; a failing one is asked again after a fifth."""


def configuration(servers: Iterable[HaproxyServer], options: HaproxyOptions) -> str:
    """The whole file. Raises `ConfigError` without servers, or when two have one id."""
    chosen = sorted(servers)
    if not chosen:
        raise ConfigError("no node to balance to")
    names = [server.id for server in chosen]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"node {min(twice)} is given twice")
    most = f"global\n    maxconn {options.max_connections}\n\n" if options.max_connections else ""
    return _TEXT.format(
        most=most,
        listen=options.listen,
        interval=_milliseconds(options.interval),
        again=_milliseconds(options.interval / 5),
        slow_start=_milliseconds(options.slow_start),
        servers="\n".join(_line(server) for server in chosen),
    )


def _milliseconds(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))}ms"


def _line(server: HaproxyServer) -> str:
    elsewhere = f" addr {server.health.host}" if server.health.host != server.clients.host else ""
    return f"    server {server.id} {server.clients}{elsewhere} port {server.health.port}"


_TEXT = """# Written by `brokerweave haproxy`. Changes made by hand are lost when the members change.
{most}defaults
    mode tcp
    # A client's keep-alive says when it is gone, and its node ends it; these only end what both forgot.
    timeout client 24h
    timeout server 24h
    timeout connect 1s
    # A check has to connect within one interval, which a machine that vanished fails soon; then a node
    # that lives but is busy has this long to answer, so that load alone does not cost it its clients.
    timeout check 2s
    option clitcpka
    option srvtcpka

frontend clients
    bind {listen}
    default_backend nodes

backend nodes
    balance leastconn
    retries 3
    # A connection that a node refused goes to another one at once.
    option redispatch 1
    option httpchk
    http-check send meth GET uri /
    http-check expect status 200
    default-server check inter {interval} fastinter {again} downinter {interval} fall 3 rise 2
    # Refused connections count as failed checks do. The one that reaches the limit is cut as well, and its
    # client has to come again; so not after the first, which may go to another node unnoticed.
    default-server observe layer4 error-limit 10 on-error mark-down
    # Who is down is left at once by those it still has: a machine that vanished closes nothing by itself, and
    # its clients would wait for their keep-alive.
    default-server on-marked-down shutdown-sessions slowstart {slow_start}
{servers}
"""


def program() -> str | None:
    """Where HAProxy is, also where an ordinary user's PATH does not look."""
    return shutil.which("haproxy") or shutil.which("haproxy", path="/usr/local/sbin:/usr/sbin:/sbin")


def write(path: Path, text: str) -> bool:
    """Put the text in the file's place, after HAProxy's own check of it if there is one on this machine.

    Gives whether it was checked. Raises `ConfigError` if HAProxy refuses it: then nothing has changed.
    """
    path = path.resolve()  # a link stays one, to a new file
    found = program()
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    new = Path(name)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if found is not None:
            _run([found, "-c", "-f", name], f"HAProxy refuses the configuration for {path}", ConfigError)
        new.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    return found is not None


def reload_by_signal(pid: str) -> None:
    """Tell HAProxy's master process (`haproxy -W`) to take the file anew: SIGUSR2. `pid` is its number, or
    the file where it wrote it (`-p`). Connections that stand stay with the old worker until they end."""
    try:
        number = int(pid if pid.isdigit() else Path(pid).read_text().split()[0])
        os.kill(number, signal.SIGUSR2)
    except (OSError, ValueError, IndexError) as error:
        reason = getattr(error, "strerror", None) or "no process id is there"
        raise Unavailable(f"cannot reload HAProxy by --reload-pid {pid}: {reason}") from error


def reload_by_command(command: str) -> None:
    _run(shlex.split(command), f"--reload-command {command!r} failed", Unavailable)


def _run(command: list[str], failed: str, kind: type[ConfigError] | type[Unavailable]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{failed}: {error}") from error
    if done.returncode:
        said = [line.strip() for line in (done.stderr + done.stdout).splitlines() if "ALERT" in line]
        last = said or (done.stderr + done.stdout).strip().splitlines()[-1:]
        raise kind(f"{failed}: {' | '.join(last) or f'it ended with {done.returncode}'}")
