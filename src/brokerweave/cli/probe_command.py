"""`brokerweave probe`: find out what a broker can do.

Owns the table's wording. Must not know: how each ability is tried (`runtime.probe`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from brokerweave.cli.output import console, help_text, table
from brokerweave.config_values import Address, BadValue
from brokerweave.errors import ConfigError

_HELP = """Find out what a broker can do, by trying it.

Uses topics of its own and leaves nothing behind.

\b
Examples:
  brokerweave probe 127.0.0.1:1883
  brokerweave probe broker.local:1883 --username node --password-file secret --json
"""


def register(app: typer.Typer) -> None:
    app.command("probe", help=help_text(_HELP))(probe)


def probe(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The broker itself, not a node.")],
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
    from brokerweave.runtime.probe import run

    abilities = run(target, username=username, password=password)
    if as_json:
        print(json.dumps(abilities, indent=2))
        return
    rows = table("ability", str(target))
    for name, value in abilities.items():
        rows.add_row(name.replace("_", " "), ability_text(value))
    console().print(rows)


def ability_text(value: object) -> str:
    """An ability as a word: yes, no, unknown, a number or a list."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return str(value)


def _address(text: str) -> Address:
    try:
        return Address.parse(text)
    except BadValue as bad:
        raise ConfigError(f"the broker's address should be {bad}; not {text!r}") from None


def _password(file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        return file.read_bytes().split(b"\n")[0].rstrip(b"\r")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
