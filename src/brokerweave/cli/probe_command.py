"""`brokerweave probe`: find out what a broker can do.

Owns the table's wording. Must not know: how each ability is tried (`runtime.probe`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brokerweave.cli.output import console, help_text, table
from brokerweave.config_values import Address, BadValue
from brokerweave.errors import ConfigError

if TYPE_CHECKING:
    from brokerweave.runtime.probe import Abilities

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
    import asyncio

    from brokerweave.runtime.probe import probe as probe_broker

    abilities = asyncio.run(probe_broker(target.host, target.port, username=username, password=password))
    if as_json:
        print(json.dumps(dataclasses.asdict(abilities), indent=2, ensure_ascii=False))
        return
    rows = table("ability", str(target))
    for name, text in ability_rows(abilities):
        rows.add_row(name, text)
    console().print(rows)


def ability_rows(abilities: Abilities) -> Iterator[tuple[str, str]]:
    """What the broker can do, in words, the most asked-for first."""
    from brokerweave.runtime.probe import VERSION_NAMES

    size, essentials = abilities.maximum_packet, abilities.essentials
    at_least = "" if abilities.maximum_packet_declared else "at least "
    yield "MQTT versions", ", ".join(VERSION_NAMES[version] for version in abilities.versions) or "none"
    yield "publish at most at QoS", str(essentials.max_qos)
    yield "subscribe at most at QoS", _word(abilities.max_qos_subscribe)
    yield "a publication at QoS 2", abilities.qos2
    yield "retained, exact filter", _word(abilities.retained_exact)
    yield "retained, wildcard filter", _word(abilities.retained_wildcard)
    yield "wills", _word(abilities.wills)
    yield "shared subscriptions", _word(abilities.shared_subscriptions)
    yield "persistent sessions", _word(abilities.persistent_sessions)
    yield "no-local", _word(abilities.no_local)
    yield "retain as published", _word(abilities.retain_as_published)
    yield "topic aliases", str(essentials.topic_alias_maximum or "no")
    yield "unacknowledged at once", str(essentials.receive_maximum)
    yield "largest packet", "unknown" if size is None else f"{at_least}{size:,} bytes"
    for kind, fate in abilities.odd_topics:
        yield f"topic with {kind}", fate


def _word(value: int | bool | None) -> str:
    if value is None:
        return "unknown"
    return str(value) if type(value) is int else ("yes" if value else "no")


def _address(text: str) -> Address:
    try:
        return Address.parse(text)
    except BadValue as bad:
        raise ConfigError(f"the broker's address should be {bad}; not {text!r}") from None


def _password(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text("utf-8").split("\n")[0].rstrip("\r")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} holds no text") from error
