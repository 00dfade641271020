"""The options of `format("brokerweave")`, read from the text that Spark hands over.

Owns their names, defaults and what is wrong with a value, in one line. Invariants: an option that is not
known is refused, never ignored; the token is in no message. Must not know: Spark, nodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from brokerweave.edgelog.arrow import SCHEMA
from brokerweave.edgelog.readers import Readers
from brokerweave.errors import ConfigError
from brokerweave.pipeline.source.offsets import Offsets, decode

EARLIEST, LATEST = "earliest", "latest"
ROWS_PER_PARTITION = 500_000
_NAMES = {
    name.lower(): name
    for name in (
        "nodes",
        "topics",
        "columns",
        "startingOffsets",
        "endingOffsets",
        "startingTime",
        "endingTime",
        "maxRowsPerBatch",
        "rowsPerPartition",
        "reader",
        "nodeTimeout",
        "token",
        "tokenFile",
        "onTrimmed",
        "local",
    )
}


@dataclass(frozen=True, slots=True)
class LogBoundary:
    """Where in every log to begin or to end: one of `word`, `time` and `offsets`."""

    word: str = ""
    time: int = 0
    """Microseconds since 1970: before the first row that was received then or later."""
    offsets: Offsets | None = None
    """By log id; a log that is not among them begins at its earliest row, and ends at its latest."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    nodes: tuple[str, ...]
    """`HOST:PORT` of each node's `[flight]`, separated by commas."""
    topics: tuple[str, ...] = ()
    """MQTT filters, separated by commas or as a JSON list. None: all. The node filters, so less is sent."""
    columns: tuple[str, ...] = tuple(SCHEMA.names)
    """Less columns are less work for node and network."""
    starting: LogBoundary = LogBoundary(EARLIEST)
    """`earliest`, `latest`, a time in ISO 8601, or `{"LOG ID": [EPOCH, SEQUENCE]}`, the last row read."""
    ending: LogBoundary = LogBoundary(LATEST)
    """The same, for batch reading only."""
    max_rows: int | None = None
    """Rows of a batch, shared fairly among nodes. None: all that there is."""
    rows_per_partition: int = ROWS_PER_PARTITION
    """Rows of a task. Less spreads a backlog over more cores; each task costs some ten milliseconds."""
    reader: str | None = None
    """The name under which the nodes keep how far this query is, which permits them to trim."""
    node_timeout: float = 5.0
    """Seconds that a node may be silent."""
    token: str | None = None
    token_file: str | None = None
    """Read where it is used: the file must be at the same path on driver and workers."""
    skip_trimmed: bool = False
    """`onTrimmed`: `stop` (default) the query, or `skip` and count."""
    local: bool = True
    """`auto` (default) reads a log's own files where a worker is on its machine and may; `never` does not."""

    def secret(self) -> str | None:
        """The token. Raises `ConfigError`."""
        if self.token_file is None:
            return self.token
        try:
            first = Path(self.token_file).read_text().partition("\n")[0].strip()
        except (OSError, ValueError) as error:
            raise ConfigError(f"tokenFile {self.token_file} cannot be read: {error}") from None
        if not first:
            raise ConfigError(f"tokenFile {self.token_file} holds no token in its first line")
        return first


def parse(given: Mapping[str, str]) -> SourceOptions:
    """Raises `ConfigError` that names the option."""
    plain = {name.lower(): value for name, value in given.items()}
    for name in plain:
        if name not in _NAMES:
            raise ConfigError(f"there is no option {name}; known are {', '.join(sorted(_NAMES.values()))}")
    nodes = _texts(plain.get("nodes", ""))
    if not nodes:
        raise ConfigError('the option nodes is needed: "HOST:PORT" of each node, separated by commas')
    if "token" in plain and "tokenfile" in plain:
        raise ConfigError("give one of the options token and tokenFile")
    reader = plain.get("reader") or None
    if reader is not None:
        Readers.check(reader)
    on_trimmed = plain.get("ontrimmed", "stop")
    if on_trimmed not in {"stop", "skip"}:
        raise ConfigError(f"the option onTrimmed is stop or skip, not {on_trimmed!r}")
    local = plain.get("local", "auto")
    if local not in {"auto", "never"}:
        raise ConfigError(f"the option local is auto or never, not {local!r}")
    return SourceOptions(
        nodes=tuple(dict.fromkeys(nodes)),
        topics=_texts(plain.get("topics", "")),
        columns=check_columns(_texts(plain.get("columns", ""))),
        starting=_place(plain, "starting", EARLIEST),
        ending=_place(plain, "ending", LATEST),
        max_rows=_whole(plain, "maxRowsPerBatch", None),
        rows_per_partition=_whole(plain, "rowsPerPartition", None) or ROWS_PER_PARTITION,
        reader=reader,
        node_timeout=_seconds(plain, "nodeTimeout", 5.0),
        token=plain.get("token"),
        token_file=plain.get("tokenfile"),
        skip_trimmed=on_trimmed == "skip",
        local=local == "auto",
    )


def _texts(text: str) -> tuple[str, ...]:
    """Separated by commas, or a JSON list for those that have commas themselves."""
    if text.lstrip().startswith("["):
        found = _json(text)
        if not all(isinstance(each, str) for each in found):
            raise ConfigError(f"a JSON list of texts was expected, not {text[:80]}")
        return tuple(found)
    return tuple(each.strip() for each in text.split(",") if each.strip())


def check_columns(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in SCHEMA.names:
            raise ConfigError(f"there is no column {name[:80]!r}; known are {', '.join(SCHEMA.names)}")
    if len(set(names)) != len(names):
        raise ConfigError("the option columns names one twice")
    return names or tuple(SCHEMA.names)


def _place(plain: Mapping[str, str], side: str, default: str) -> LogBoundary:
    offsets, moment = plain.get(f"{side}offsets"), plain.get(f"{side}time")
    if offsets is not None and moment is not None:
        raise ConfigError(f"give one of the options {side}Offsets and {side}Time")
    if moment is not None:
        return LogBoundary(time=_time(f"{side}Time", moment))
    if offsets is None:
        return LogBoundary(default)
    if offsets.lower() in {EARLIEST, LATEST}:
        return LogBoundary(offsets.lower())
    if offsets.lstrip().startswith("{"):
        return LogBoundary(offsets=decode(_json(offsets)))
    return LogBoundary(time=_time(f"{side}Offsets", offsets))


def _time(name: str, text: str) -> int:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        known = "earliest, latest, JSON or " if name.endswith("Offsets") else ""
        raise ConfigError(
            f"the option {name} is {known}a time such as 2026-01-31T12:00:00Z, not {text[:80]!r}"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"this option is no JSON ({error}): {text[:80]}") from None


def _whole(plain: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = plain.get(name.lower())
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigError(f"the option {name} is a whole number from 1, not {text[:80]!r}")
    return number


def _seconds(plain: Mapping[str, str], name: str, default: float) -> float:
    try:
        number = float(plain.get(name.lower(), default))
    except ValueError:
        number = 0.0
    if not 0 < number < 3600:
        raise ConfigError(f"the option {name} is a number of seconds, more than 0 and less than 3600")
    return number
