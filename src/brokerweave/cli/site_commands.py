"""What `brokerweave gateway` and `brokerweave controller` have alike: their flags, and how answers are shown.

Must not know: how a gateway or a controller is reached.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from brokerweave.cli.key_flags import flag_of, parameter
from brokerweave.cli.output import console, table
from brokerweave.cli.running_commands import print_json
from brokerweave.config.keys import Key

Site = Annotated[str, typer.Argument(metavar="SITE", help="The site's name.")]
Client = Annotated[str, typer.Argument(metavar="CLIENT", help="The client's id.")]


def run_parameters(what: str, keys: Iterable[Key]) -> Iterator[inspect.Parameter]:
    """The configuration's file, sites, and a flag for each key. `what`: "gateway" or "controller"."""
    file = typer.Argument(metavar=f"{what.upper()}.toml", help=f"Its configuration; see docs/{what}.md.")
    yield parameter("file", Annotated[str | None, file], None)
    site = typer.Option(
        "--site",
        metavar="NAME=HOST:PORT,HOST:UDPPORT",
        help="A site: where clients connect, and where it answers pings; may be repeated.",
    )
    yield parameter("site", Annotated[list[str] | None, site], None)
    for key in keys:
        yield flag_of(key, what)


def show_numbers(numbers: Mapping[str, object]) -> None:
    """Two columns; of a table within, what is not zero."""
    rows = table("", "")
    for name, value in numbers.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {each}" for key, each in value.items() if each)
        rows.add_row(name.replace("_", " "), _cell(value))
    console().print(rows)


def show_rows(rows: Sequence[Mapping[str, Any]], columns: tuple[str, ...], nothing: str = "none") -> None:
    if not rows:
        print(nothing)
        return
    shown = table(*(column.replace("_", " ") for column in columns))
    for row in rows:
        shown.add_row(*(_cell(row[column]) for column in columns))
    console().print(shown)


def show(
    found: dict[str, Any],
    rows: Sequence[Mapping[str, Any]],
    columns: tuple[str, ...],
    as_json: bool,
    nothing: str = "none",
) -> None:
    """The answer as it came, or its rows as a table."""
    if as_json:
        print_json(found)
    else:
        show_rows(rows, columns, nothing)


def _cell(value: object) -> str:
    return "-" if value in (None, "", []) else str(value)
