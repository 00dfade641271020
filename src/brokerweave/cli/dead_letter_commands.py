"""`brokerweave dead-letters`: look at what a broker refused, give it again, or throw it away.

Owns how letters are shown. Must not know: how a node is reached, or what a retry does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from brokerweave.cli.output import console, help_text, table
from brokerweave.cli.running_commands import Config, Id, Json, Socket, ask, print_json
from brokerweave.errors import ConfigError

_HELP = """Messages from other sites that the broker of a running node refused, or that made it disconnect.

The node tried each twice, then put it aside, so that it blocks nothing. The list keeps the newest 1,000
letters, up to 16 MiB in total.

\b
Examples:
  brokerweave dead-letters ls --id a
  brokerweave dead-letters show 3 --id a
  brokerweave dead-letters retry all --id a
  brokerweave dead-letters drop 3 --id a
"""
Letter = Annotated[int, typer.Argument(metavar="ID", help="The letter's id, as ls shows it.")]
LetterOrAll = Annotated[str, typer.Argument(metavar="ID|all", help="The letter's id, or all of them.")]


def register(app: typer.Typer) -> None:
    letters = typer.Typer(help=help_text(_HELP))
    letters.command("ls")(list_letters)
    letters.command("show")(show_letter)
    letters.command("retry")(retry_letters)
    letters.command("drop")(drop_letters)
    app.add_typer(letters, name="dead-letters")


def list_letters(socket: Socket = None, id: Id = None, config: Config = None, as_json: Json = False) -> None:
    """List the letters, the oldest first."""
    result = ask(socket, id, config, {"do": "dead_letters"})
    if as_json:
        print_json(result)
        return
    rows = table("id", "when", "topic", "QoS", "bytes", "reason")
    for letter in result.get("letters") or ():
        cells = (letter.get(name) for name in ("id", "when", "topic", "qos", "size", "reason"))
        rows.add_row(*map(_shown, cells))
    console().print(rows)


def show_letter(
    letter: Letter, socket: Socket = None, id: Id = None, config: Config = None, as_json: Json = False
) -> None:
    """Show one letter, with the beginning of its payload."""
    result = ask(socket, id, config, {"do": "show_dead_letter", "id": letter})
    if as_json:
        print_json(result)
        return
    for line in letter_lines(result):
        console().print(line, soft_wrap=True)


def retry_letters(letter: LetterOrAll, socket: Socket = None, id: Id = None, config: Config = None) -> None:
    """Give the broker a letter again; if it is refused again, it comes back with a new id."""
    result = ask(socket, id, config, {"do": "retry_dead_letters", "id": _which(letter)})
    print(f"retried {result.get('retried')}")
    kept = result.get("kept")
    if kept:
        print(f"kept, since they were too large to be stored: {', '.join(map(str, kept))}")


def drop_letters(letter: LetterOrAll, socket: Socket = None, id: Id = None, config: Config = None) -> None:
    """Throw a letter away."""
    result = ask(socket, id, config, {"do": "drop_dead_letters", "id": _which(letter)})
    print(f"dropped {result.get('dropped')}")


def letter_lines(letter: Mapping[str, Any]) -> list[str]:
    """A letter as people read it."""
    lines = [f"{name:<8} {_shown(letter.get(key))}" for name, key in _LINES.items()]
    size, payload = letter.get("payload_size"), letter.get("payload")
    if not isinstance(payload, Mapping):
        return [*lines, "payload  not kept: it was too large"]
    text = payload.get("text")
    beginning = text if text is not None else str(payload.get("hex"))
    kind = "text" if text is not None else "hex"
    shown = len(text.encode()) if text is not None else len(beginning) // 2
    cut = "" if shown == size else f", the first {shown}"
    return [*lines, f"payload  {size} bytes{cut}, as {kind}:", beginning]


_LINES = {
    "letter": "id",
    "when": "when",
    "topic": "topic",
    "QoS": "qos",
    "retain": "retain",
    "reason": "reason",
}


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    # A topic is untrusted text: control characters are escaped.
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value))


def _which(text: str) -> int | str:
    if text == "all":
        return text
    if not text.isdecimal():
        raise ConfigError(f"a letter is named by its id, a number, or all; not {text[:40]!r}")
    return int(text)
