"""What client and service say to each other over Arrow Flight, as plain data.

Owns the actions' names, the JSON of requests and answers, and how errors cross the wire. Invariants: what one
side encodes the other decodes to an equal value; what does not decode is the sender's fault (`ConfigError`).
Must not know: pyarrow, sockets, files.

An action is a name and a JSON object; its answer is one JSON object. A read's ticket is the JSON of
`ReadRequest`; each record batch comes with the JSON of `BatchProgress`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from brokerweave.edgelog.layout import Damage, DamagedLog, Position
from brokerweave.edgelog.reader import Skipped, TrimmedRows
from brokerweave.errors import BrokerweaveError, ConfigError, Unavailable
from brokerweave.mqtt.topics import validate_filter

STATE, POSITION_AT, LAG, WAIT, COMMIT, READERS = "state", "position_at", "lag", "wait", "commit", "readers"
ACTIONS: Mapping[str, str] = {
    STATE: "whose log it is, and its first and last position",
    POSITION_AT: "the last row received before a time (microseconds since 1970)",
    LAG: "rows and seconds that a position is behind",
    WAIT: "the state, as soon as there are rows after a position",
    COMMIT: "a named reader needs nothing up to a position",
    READERS: "the named readers' positions",
}
AUTHORIZATION = "authorization"
"""The header that every call shows the token in."""
MOST_WAIT_SECONDS = 20.0
"""Of one call; a client that waits longer calls again."""
MOST_FILTERS = 1000


@dataclass(frozen=True, slots=True)
class LogState:
    """A log as it can be read now."""

    log_id: str
    node: str
    first: Position
    """The oldest row that is kept, or the next one where none is."""
    end: Position
    """The last row that may be read."""
    received: int
    """When that row came, in microseconds since 1970; 0 if there is none."""
    starts: tuple[Position, ...] = ()
    """The first row of each epoch of which something is kept: they tell how many rows a range has."""
    folder: str | None = None
    """Where the service has the log."""
    mark: str | None = None
    """Who finds the same mark at that folder is on the same machine, and may read the files instead."""

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Self:
        return cls(
            str(plain["log_id"]),
            str(plain["node"]),
            read_position(plain["first"]),
            read_position(plain["end"]),
            int(plain["received"]),
            tuple(read_position(start) for start in plain["starts"]),
            _text(plain.get("folder")),
            _text(plain.get("mark")),
        )


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The rows after `after` up to `up_to`. No `topics`: all. `columns` None: all, in the schema's order."""

    after: Position
    up_to: Position
    topics: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    skip: bool = False
    """Go over trimmed and damaged rows, and count them."""
    log_id: str | None = None
    """Refuse to read any other log."""

    def encode(self) -> bytes:
        return encode(asdict(self))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Raises `ConfigError`."""
        plain = decode(data)
        try:
            columns, log_id = plain.get("columns"), plain.get("log_id")
            request = cls(
                read_position(plain["after"]),
                read_position(plain["up_to"]),
                _texts(plain.get("topics", ())),
                None if columns is None else _texts(columns),
                bool(plain.get("skip", False)),
                None if log_id is None else str(log_id),
            )
        except (LookupError, TypeError, ValueError) as error:
            raise ConfigError(f"this is no request to read: {error!r}") from error
        check_filters(request.topics)
        return request


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """How far a stream of batches is: all rows that were asked for, up to `at`, were sent."""

    at: Position
    skipped: Skipped

    def encode(self) -> bytes:
        return encode({"at": self.at, "skipped": asdict(self.skipped)})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        plain = decode(data)
        counts = plain["skipped"]
        up_to = read_position(counts["up_to"])
        return cls(read_position(plain["at"]), Skipped(int(counts["trimmed"]), int(counts["damaged"]), up_to))


def authorization(token: str) -> bytes:
    """What stands in the header. Raises `ConfigError`."""
    if not token or not all("!" <= each <= "~" for each in token):
        raise ConfigError("a token should be of printable ASCII characters without spaces, at least one")
    return b"Bearer " + token.encode()


def encode(plain: Mapping[str, Any]) -> bytes:
    return json.dumps(plain, separators=(",", ":")).encode()


def decode(data: bytes) -> dict[str, Any]:
    """One JSON object; nothing is an empty one. Raises `ConfigError`."""
    try:
        plain = json.loads(data) if data else {}
    except ValueError as error:
        raise ConfigError(f"a request should be JSON: {error}") from error
    if not isinstance(plain, dict):
        raise ConfigError("a request should be a JSON object")
    return plain


def read_position(plain: object) -> Position:
    """From [epoch, sequence]. Raises ValueError."""
    if not isinstance(plain, (list, tuple)) or len(plain) != 2 or not all(type(n) is int for n in plain):
        raise ValueError(f"a position should be [epoch, sequence], not {str(plain)[:60]}")
    return Position(*plain)


def check_filters(topics: Sequence[str]) -> None:
    """Raises `ConfigError`."""
    if len(topics) > MOST_FILTERS:
        raise ConfigError(f"{len(topics)} topic filters are too many for one request; at most {MOST_FILTERS}")
    for each in topics:
        try:
            validate_filter(each)
        except ValueError as error:
            raise ConfigError(f"topic filter {each[:80]!r}: {error}") from error


def _texts(plain: object) -> tuple[str, ...]:
    if not isinstance(plain, (list, tuple)) or not all(isinstance(each, str) for each in plain):
        raise ValueError(f"a list of texts was expected, not {str(plain)[:60]}")
    return tuple(plain)


def _text(plain: object) -> str | None:
    return plain if isinstance(plain, str) else None


# Errors

_PLAIN = {kind.__name__: kind for kind in (ConfigError, Unavailable, BrokerweaveError)}


def encode_error(error: BrokerweaveError) -> bytes:
    plain: dict[str, Any] = {"error": type(error).__name__, "text": str(error)}
    if isinstance(error, TrimmedRows):
        plain |= {"after": error.after, "first": error.first}
    elif isinstance(error, DamagedLog):
        plain |= {"damage": asdict(error.damage)}
    return encode(plain)


def decode_error(data: bytes) -> BrokerweaveError | None:
    """What the service raised; None if these are no bytes of `encode_error`."""
    try:
        plain = decode(data)
        if plain["error"] == TrimmedRows.__name__:
            return TrimmedRows(read_position(plain["after"]), read_position(plain["first"]))
        if plain["error"] == DamagedLog.__name__:
            return DamagedLog(Damage(**plain["damage"]))
        kind = _PLAIN.get(plain["error"], BrokerweaveError)
        return kind(str(plain["text"]))
    except (ConfigError, LookupError, TypeError, ValueError):
        return None
