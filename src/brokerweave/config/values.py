"""The kinds of value that a configuration key can have: how each is read and what it says when it cannot.

Owns addresses, numbers with bounds, choices, paths and the table `About` that each key carries. Invariants:
a kind takes what TOML or the command line gives and returns the typed value, or raises `BadValue` with the
words that follow "should be"; `true` is never a number, and a number is always finite. Must not know: any key
by name, where a value came from, or the runtime.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_ONE_LINE = r"[^\x00-\x1f\x7f]+"
_NAME = re.compile(r"[^\s,=]+")
LONGEST_SOCKET_PATH = 107
"""The kernel's `sun_path` has 108 bytes, the last of them zero."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error about a name: the known one that was probably meant, or all of them."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else f"; known are {', '.join(names)}"


def literal(value: object) -> str:
    """A value in an error: what the user wrote, at most a line of it."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."


class BadValue(Exception):
    """The value cannot be used; the text completes "should be ..."."""


class Address(NamedTuple):
    """A TCP address. `str()` gives back what `parse` reads."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, *, lowest_port: int = 1) -> Address:
        """Read HOST:PORT or [IPV6]:PORT. Raises `BadValue`."""
        match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+(?:%\w+)?)\]|([^\s:\[\]/]+)):([0-9]{1,5})", text)
        if match is None:
            raise BadValue("HOST:PORT, for example 127.0.0.1:1883 or [::1]:1883")
        port = int(match[3])
        if not lowest_port <= port <= 65535:
            raise BadValue(f"HOST:PORT with a port from {lowest_port} to 65535")
        return cls(match[1] or match[2], port)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class UnixSocket(NamedTuple):
    """A socket in the file system of this machine. `str()` gives back what `parse` reads."""

    path: str

    @classmethod
    def parse(cls, text: str) -> UnixSocket:
        """Read unix:/PATH. Raises `BadValue`."""
        path = text.removeprefix("unix:")
        if re.fullmatch(_ONE_LINE, path) is None or not path.startswith("/"):
            raise BadValue("unix: and an absolute path, for example unix:/run/mosquitto/broker.sock")
        if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
            raise BadValue(
                f"unix: and a path of at most {LONGEST_SOCKET_PATH} bytes: the system takes no more"
            )
        return cls(path)

    def __str__(self) -> str:
        return f"unix:{self.path}"


BrokerAddress = Address | UnixSocket


def parse_broker(text: str) -> BrokerAddress:
    """Read HOST:PORT, or unix:/PATH. Raises `BadValue`."""
    return UnixSocket.parse(text) if text.startswith("unix:") else Address.parse(text)


@dataclass(frozen=True, slots=True)
class ValueKind:
    """How a value is read. `flag` is the Python type that the command line collects."""

    words: str
    flag: type[str] | type[int] | type[float] | type[bool] | type[list[str]]
    read: Callable[[object], object]


@dataclass(frozen=True, slots=True)
class About:
    """What a user should know about a key before touching it."""

    kind: ValueKind
    doc: str
    unit: str = ""
    formula: str = ""
    cost: str = ""


def about(
    kind: ValueKind, doc: str, *, unit: str = "", formula: str = "", cost: str = ""
) -> Mapping[str, About]:
    """The metadata of a dataclass field that is a configuration key."""
    return {"about": About(kind, doc, unit, formula, cost)}


def integer(low: int, high: int) -> ValueKind:
    words = f"a whole number from {low} to {high}"

    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise BadValue(words)
        return value

    return ValueKind(words, int, read)


def seconds(low: float, high: float = 1e9) -> ValueKind:
    return number(low, high, "a number of seconds")


def choice(*names: str) -> ValueKind:
    words = "one of " + ", ".join(f'"{name}"' for name in names)

    def read(value: object) -> str:
        if not isinstance(value, str) or value not in names:
            raise BadValue(words)
        return value

    return ValueKind(words, str, read)


def number(low: float, high: float, what: str = "a number") -> ValueKind:
    words = f"{what} from {low:g} to {high:.15g}"

    def read(value: object) -> float:
        fits = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not fits or not math.isfinite(value) or not low <= value <= high:  # type: ignore[arg-type,operator]
            raise BadValue(words)
        return float(value)  # type: ignore[arg-type]

    return ValueKind(words, float, read)


def pattern(regex: str, words: str) -> ValueKind:
    compiled = re.compile(regex)

    def read(value: object) -> str:
        if not isinstance(value, str) or compiled.fullmatch(value) is None:
            raise BadValue(words)
        return value

    return ValueKind(words, str, read)


def _read_switch(value: object) -> bool:
    if not isinstance(value, bool):
        raise BadValue("true or false")
    return value


def _address(lowest_port: int) -> ValueKind:
    def read(value: object) -> Address:
        if isinstance(value, Address):
            value = str(value)
        if not isinstance(value, str):
            raise BadValue('"HOST:PORT", a text')
        return Address.parse(value, lowest_port=lowest_port)

    return ValueKind("HOST:PORT", str, read)


def _read_broker(value: object) -> BrokerAddress:
    if not isinstance(value, (str, Address, UnixSocket)):
        raise BadValue('"HOST:PORT" or "unix:/PATH", a text')
    return parse_broker(str(value))


def _read_path(value: object) -> Path:
    if isinstance(value, Path):
        return value
    if not isinstance(value, str) or re.fullmatch(_ONE_LINE, value) is None:
        raise BadValue("a path, on one line and not empty")
    return Path(value).expanduser()


def _read_names(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(
        isinstance(n, str) and _NAME.fullmatch(n) for n in value
    ):
        raise BadValue('a list of names, for example ["json"]')
    if len(set(value)) != len(value):
        raise BadValue("a list in which no name is repeated")
    return tuple(value)


def _filter_fault(text: str) -> bool:
    """What `mqtt.topics.validate_filter` would refuse, so far as a typing mistake makes it [MQTT-4.7.1]."""
    levels = text.split("/")
    return any(
        ("#" in level and (level != "#" or number != len(levels))) or ("+" in level and level != "+")
        for number, level in enumerate(levels, 1)
    )


def _read_filters(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(
        isinstance(each, str) and re.fullmatch(_ONE_LINE, each) and not _filter_fault(each) for each in value
    ):
        raise BadValue('a list of topic filters, for example ["sensors/#"]')
    if any(each.startswith("$") for each in value):
        raise BadValue("a list of topic filters without $ at their beginning: such topics are never recorded")
    return tuple(value)


def _read_addresses(value: object) -> tuple[Address, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, (str, Address)) for each in value):
        raise BadValue('a list of addresses, for example ["127.0.0.1:9092"]')
    return tuple(Address.parse(str(each)) for each in value)


def fraction(words: str) -> ValueKind:
    """More than 0, at most 1."""

    def read(value: object) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
            raise BadValue(words)
        return float(value)

    return ValueKind(words, float, read)


REMOTE = _address(lowest_port=1)
BROKER = ValueKind("HOST:PORT or unix:/PATH", str, _read_broker)
LISTENING = _address(lowest_port=0)
PATH = ValueKind("a path", str, _read_path)
SWITCH = ValueKind("true or false", bool, _read_switch)
NAMES = ValueKind("a list of names", list[str], _read_names)
FILTERS = ValueKind("a list of topic filters", list[str], _read_filters)
ADDRESSES = ValueKind("a list of HOST:PORT", list[str], _read_addresses)
TEXT = pattern(_ONE_LINE, "a text on one line, not empty")
PLUGIN = pattern(_NAME.pattern, "a plug-in's name, or package.module:Class")
ID = pattern(
    r"(?!\.{1,2}\Z)[A-Za-z0-9_.-]{1,64}", "1 to 64 of the characters A-Z a-z 0-9 _ . - (ids name folders)"
)
