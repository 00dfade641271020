"""`brokerweave probe`: find out what a broker can do.

Owns its arguments. Must not know: how each ability is tried, or named (`runtime.probe`).
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from brokerweave.cli.output import console, help_text, table
from brokerweave.config.values import BadValue, BrokerAddress, parse_broker
from brokerweave.errors import ConfigError

_HELP = """Find out what a broker can do, by trying it.

Uses topics of its own and leaves nothing behind.

\b
Examples:
  brokerweave probe 127.0.0.1:1883
  brokerweave probe unix:/run/mosquitto/broker.sock
  brokerweave probe broker.local:1883 --username node --password-file secret --json
"""


def register(app: typer.Typer) -> None:
    app.command("probe", help=help_text(_HELP))(probe)


def probe(
    address: Annotated[
        str,
        typer.Argument(metavar="ADDRESS", help="The broker itself, not a node: HOST:PORT, or unix:/PATH."),
    ],
    username: Annotated[
        str | None, typer.Option("--username", metavar="NAME", help="Log in by this name.")
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option("--password-file", metavar="PATH", help="A file whose first line is the password."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    if password_file is not None and username is None:
        raise ConfigError("--password-file needs --username")
    target, password = _address(address), _password(password_file)
    import asyncio

    from brokerweave.runtime import probe as runtime_probe

    probing = runtime_probe.probe(target, username=username, password=password)
    abilities = asyncio.run(probing)
    if as_json:
        print(json.dumps(dataclasses.asdict(abilities), indent=2, ensure_ascii=False))
        return
    shown = table("ability", str(target))
    for name, text in runtime_probe.rows(abilities):
        shown.add_row(name, text)
    console().print(shown)


def _address(text: str) -> BrokerAddress:
    try:
        return parse_broker(text)
    except BadValue as bad:
        raise ConfigError(f"the broker's address should be {bad}; not {text!r}") from None


def _password(file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        return (file.read_bytes().splitlines() or [b""])[0]
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
