"""Flags made from configuration keys: one for each key, from the key's own words.

Must not know: the meaning of any key.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from brokerweave.config import show
from brokerweave.config.keys import Key
from brokerweave.config.values import ADDRESSES, LISTENING, NAMES, PATH, REMOTE


def with_flags(command: Callable[..., int], parameters: Iterable[inspect.Parameter]) -> Callable[..., int]:
    """The command with a signature that Typer reads the flags from."""

    def called(**arguments: Any) -> int:
        return command(**arguments)

    listed = list(parameters)
    called.__signature__ = inspect.Signature(listed, return_annotation=int)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in listed} | {"return": int}
    called.__doc__ = command.__doc__
    return called


def parameter(name: str, annotation: Any, default: object) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def flag_of(key: Key, main: str) -> inspect.Parameter:
    """`main`: the section whose flags are listed first."""
    return parameter(parameter_name(key), Annotated[key.about.kind.flag | None, _option(key, main)], None)


def given_flags(keys: Iterable[Key], flags: dict[str, object]) -> dict[str, object]:
    """What the loader is told: by dotted name, None for what was not given."""
    return {
        key.dotted: flags[parameter_name(key)] or None if _is_list(key) else flags[parameter_name(key)]
        for key in keys
    }


def parameter_name(key: Key) -> str:
    return key.dotted.replace(".", "__")


def _option(key: Key, main: str) -> Any:
    default = "" if key.default in (None, ()) else f" Default: {show(key.default)}."
    repeated = " May be repeated." if _is_list(key) else ""
    return typer.Option(
        key.flag,
        metavar=_metavar(key),
        help=(key.about.doc + repeated + default).replace("[", r"\["),  # else it is taken for markup
        show_default=False,
        rich_help_panel="Options" if key.section == main else key.section.capitalize(),
    )


def _metavar(key: Key) -> str | None:
    if key.about.kind.flag is bool:
        return None
    if key.about.kind.flag is int and not key.about.unit:
        return "N"
    if key.about.unit:
        return key.about.unit.split()[0].upper()
    return {
        LISTENING: "HOST:PORT",
        REMOTE: "HOST:PORT",
        ADDRESSES: "HOST:PORT",
        NAMES: "NAME",
        PATH: "PATH",
    }.get(key.about.kind, "TEXT")


def _is_list(key: Key) -> bool:
    return key.about.kind.flag == list[str]
