"""What went wrong in a stream, as one line.

Spark wraps what our code raised in a worker or in a callback: the class and its text are somewhere in a
traceback inside a Java exception's message. Owns getting them out. Must not know: streams.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from brokerweave.errors import BrokerweaveError

_OURS = re.compile(r"^(?:\[[^\]]*\] *)?brokerweave\.[\w.]*?(\w+): (.+)$", re.MULTILINE)
_ANY = re.compile(r"^(?:[\w.]*\.)?(\w*(?:Error|Exception)): (.+)$", re.MULTILINE)
_PASSING = frozenset({"Unavailable"})
_LASTING = frozenset({"ConfigError", "TrimmedRows", "DamagedLog", "RowsGone", "LocalProtocolError"})
_BUSY = "Python worker failed to connect back"
LONGEST = 400


@dataclass(frozen=True, slots=True)
class Failure:
    line: str
    lasting: bool
    """Trying again cannot help."""
    busy: bool = False
    """Only the machine was too slow: Spark gives a new interpreter ten seconds, and has no setting for it."""


def failure(error: BaseException) -> Failure:
    """What a user is told of an exception."""
    if isinstance(error, BrokerweaveError):
        return Failure(str(error), not error.transient)
    text = str(getattr(error, "desc", None) or error)
    found = _OURS.findall(text)
    if found:
        name, line = found[-1]
        return Failure(_short(line), name in _LASTING)
    if isinstance(error, OSError):
        return Failure(_short(f"{error.filename or ''}: {error.strerror or error}".lstrip(": ")), False)
    if _BUSY in text:
        return Failure("this machine is too busy: Spark's Python worker did not start in time", False, True)
    other = _ANY.findall(text)
    if other:
        name, line = other[-1]
        return Failure(_short(f"{name}: {line}"), False)
    return Failure(_short(f"{type(error).__name__}: {text.strip().partition(chr(10))[0]}"), False)


def _short(line: str) -> str:
    line = " ".join(line.split())
    return line if len(line) <= LONGEST else line[: LONGEST - 3] + "..."
