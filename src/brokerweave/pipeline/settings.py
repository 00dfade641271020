"""The pipeline's settings: one TOML file for all of it, each key also a flag.

Owns the names that users write and what each means. Invariants: what `load` returned is complete and checked,
and never changes; every error is one line that names file or flag, key, and what to write instead. Must not
know: Spark, how the values are used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from brokerweave.config import nearest, read_toml, read_value
from brokerweave.config.keys import Key, keys_of
from brokerweave.config.values import (
    FILTERS,
    LISTENING,
    PATH,
    SWITCH,
    TEXT,
    Address,
    BadValue,
    ValueKind,
    about,
    choice,
    integer,
    pattern,
    seconds,
)
from brokerweave.errors import ConfigError

AVAILABLE_NOW = "available-now"
LAYERS = ("bronze", "silver", "gold")
_UNITS = {"millisecond": 0.001, "second": 1.0, "minute": 60.0, "hour": 3600.0}


def interval(trigger: str) -> float | None:
    """Seconds between two batches; None for `available-now`. Raises `BadValue`."""
    if trigger == AVAILABLE_NOW:
        return None
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) *([a-z]+?)s?", trigger)
    if match is None or match[2] not in _UNITS or float(match[1]) <= 0:
        raise BadValue('"available-now" or an interval, for example "5 seconds"')
    return float(match[1]) * _UNITS[match[2]]


def _read_trigger(value: object) -> str:
    text = value.strip() if isinstance(value, str) else ""
    interval(text)
    return text


def _read_nodes(value: object) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, (list, tuple)) or not all(isinstance(each, str) for each in given):
        raise BadValue('a list of addresses, for example ["grpc://127.0.0.1:8815"]')
    texts = [each.strip() for each in given if each.strip()]
    try:
        addresses = [Address.parse(text.removeprefix("grpc://")) for text in texts]
    except BadValue:
        raise BadValue("grpc://HOST:PORT,..., for example grpc://127.0.0.1:8815") from None
    if len(set(addresses)) != len(addresses):
        raise BadValue("a list in which no address is repeated")
    return tuple(f"grpc://{each}" for each in addresses)


def _read_layers(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        value = [each.strip() for each in value.split(",")]
    if isinstance(value, (list, tuple)) and tuple(value) in (LAYERS[:1], LAYERS[:2], LAYERS):
        return tuple(value)
    raise BadValue('["bronze"], ["bronze", "silver"] or all three: each streams from the one before it')


def _read_fields(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict) or not value or not all(isinstance(each, str) for each in value.values()):
        raise BadValue('a table of members and types, for example { celsius = "double" }')
    return MappingProxyType(dict(value))


FIELDS = ValueKind("members and types", str, _read_fields)
TRIGGER = ValueKind("available-now or an interval", str, _read_trigger)
NODES = ValueKind("addresses", str, _read_nodes)
LAYER_NAMES = ValueKind("layers", str, _read_layers)


@dataclass(frozen=True, slots=True)
class PipelineSection:
    """From which nodes to where, and how often."""

    nodes: tuple[str, ...] = field(
        default=(), metadata=about(NODES, "The nodes' Flight services (`[flight] listen` of each).")
    )
    to: Path | None = field(default=None, metadata=about(PATH, "The lake's folder."))
    checkpoint: Path | None = field(
        default=None,
        metadata=about(
            PATH,
            "Where Spark keeps how far each stream is; by default `_checkpoint` in the lake. It belongs to "
            "this lake, and is as precious.",
        ),
    )
    trigger: str = field(
        default="5 seconds",
        metadata=about(
            TRIGGER,
            '`"available-now"`: everything there is, then end. An interval: a batch so often, until stopped.',
            cost="a shorter interval makes more and smaller files",
        ),
    )
    format: str = field(
        default="parquet",
        metadata=about(choice("parquet", "delta"), "How tables are kept. One lake has one format."),
    )
    master: str = field(default="local[*]", metadata=about(TEXT, "The Spark master."))
    layers: tuple[str, ...] = field(
        default=LAYERS, metadata=about(LAYER_NAMES, "What is made: each layer streams from the one before.")
    )
    topics: tuple[str, ...] = field(
        default=(),
        metadata=about(FILTERS, "Only topics that one of these filters matches; by default all."),
    )
    token_file: Path | None = field(
        default=None, metadata=about(PATH, "A file with the token that the nodes' Flight services ask for.")
    )
    reader: str = field(
        default="lake",
        metadata=about(
            pattern(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}", "1 to 64 of the characters A-Z a-z 0-9 _ . -"),
            "The name under which nodes remember how far this pipeline is, so that they may trim.",
        ),
    )
    max_rows_per_batch: int = field(
        default=500_000,
        metadata=about(
            integer(1, 2**40),
            "Rows that one batch of one node has at most.",
            unit="rows",
            cost="a batch is held in memory by Spark's workers, some 300 bytes a row",
        ),
    )
    node_timeout: float = field(
        default=10.0,
        metadata=about(
            seconds(0.1, 3600),
            "How long a node may be silent before it counts as away for this batch.",
            unit="seconds",
        ),
    )
    local: str = field(
        default="auto",
        metadata=about(
            choice("auto", "never"),
            "`auto`: a worker on a node's own machine reads the log's files, if it may. `never`: all rows "
            "come over Flight.",
            cost="over Flight another process reads and sends each row",
        ),
    )
    skip_lost: bool = field(
        default=False,
        metadata=about(
            SWITCH,
            "Go on behind rows that a node has trimmed or that are damaged, and count them. By default they "
            "stop that node's stream.",
        ),
    )
    metrics: Address | None = field(
        default=None,
        metadata=about(LISTENING, "Where Prometheus may read metrics, for example 127.0.0.1:9464."),
    )


@dataclass(frozen=True, slots=True)
class SilverSection:
    """Decoded rows, without those that a client resent."""

    window: float = field(
        default=900.0,
        metadata=about(seconds(1, 86_400), "In which time a resent row is recognised.", unit="seconds"),
    )
    skew: float = field(
        default=5.0,
        metadata=about(seconds(0, 3600), "What the nodes' clocks may differ by.", unit="seconds"),
    )


@dataclass(frozen=True, slots=True)
class GoldSection:
    """Aggregates per window, topic, site and field."""

    window: float = field(
        default=60.0, metadata=about(seconds(0.001, 31 * 86_400), "A window's length.", unit="seconds")
    )
    lateness: float = field(
        default=60.0,
        metadata=about(
            seconds(0, 31 * 86_400),
            "After which time a row of a window that has ended counts as late. It is in gold all the same.",
            unit="seconds",
        ),
    )


@dataclass(frozen=True, slots=True)
class Payload:
    """How the payloads of some topics are read: one `[[payload]]` each, the first that matches holds."""

    topics: tuple[str, ...] = field(metadata=about(FILTERS, "Topic filters."))
    format: str = field(
        default="json",
        metadata=about(
            choice("json", "cbor", "number", "text", "scalar", "sparkplug", "raw"), "What they are."
        ),
    )
    name: str = field(
        default="",
        metadata=about(TEXT, "What the lake remembers the fields under; by default the topics."),
    )
    fields: Mapping[str, str] | None = field(
        default=None,
        metadata=about(
            FIELDS,
            "Members and their types, for JSON and CBOR; by default inferred from the first rows, for ever. "
            "Others go to `_rest`.",
        ),
    )
    event_time: str | None = field(
        default=None,
        metadata=about(TEXT, "The member that says when it was measured; by default when it was received."),
    )


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Everything that a pipeline is told."""

    pipeline: PipelineSection
    silver: SilverSection = SilverSection()
    gold: GoldSection = GoldSection()
    payloads: tuple[Payload, ...] = ()
    """Empty: all payloads are JSON."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """`[spark]`: settings of Spark itself, by their own names."""
    path: Path | None = field(default=None, compare=False)

    @property
    def lake(self) -> Path:
        if self.pipeline.to is None:
            raise ConfigError('no lake: give --to DIR, or to = "DIR" under [pipeline]')
        return self.pipeline.to.absolute()

    @property
    def checkpoint(self) -> Path:
        return (self.pipeline.checkpoint or self.lake / "_checkpoint").absolute()

    @property
    def seconds(self) -> float | None:
        """Between two batches; None: everything there is, then end."""
        return interval(self.pipeline.trigger)

    def nodes(self) -> tuple[str, ...]:
        if not self.pipeline.nodes:
            raise ConfigError("no nodes: give --nodes grpc://HOST:PORT,..., or nodes under [pipeline]")
        return self.pipeline.nodes

    def token(self) -> str | None:
        """The first line of `token_file`. Raises `ConfigError`."""
        file = self.pipeline.token_file
        if file is None:
            return None
        try:
            token = file.read_text().partition("\n")[0].strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise ConfigError(f"cannot read the token from {file}: {why}") from error
        if not token:
            raise ConfigError(f"the token file {file} is empty")
        return token


SECTIONS: Mapping[str, type[Any]] = MappingProxyType(
    {"pipeline": PipelineSection, "silver": SilverSection, "gold": GoldSection}
)
KEYS: Mapping[str, Mapping[str, Key]] = MappingProxyType(
    {section: {key.name: key for key in keys_of(section, shape)} for section, shape in SECTIONS.items()}
)


_PAYLOAD = {key.name: key for key in keys_of("payload", Payload)}


def load(path: str | os.PathLike[str] | None, flags: Mapping[str, object] | None = None) -> PipelineSettings:
    """What a file and flags make together; a flag's name is the key in [pipeline]. Raises `ConfigError`."""
    file = Path(path) if path is not None else None
    tree = read_toml(file) if file is not None else {}
    values: dict[str, dict[str, object]] = {section: {} for section in SECTIONS}
    spark: dict[str, str] = {}
    payloads: tuple[Payload, ...] = ()
    for section, table in tree.items():
        assert file is not None
        if section == "spark":
            spark = _spark(file, table)
        elif section == "payload":
            payloads = tuple(_payloads(file, table))
        else:
            values_of = dict(_section(file, section, table))
            values[section].update(values_of)
    for name, value in (flags or {}).items():
        if value is not None:
            values["pipeline"][name] = read_value(
                KEYS["pipeline"][name], value, "--" + name.replace("_", "-")
            )
    made = {section: shape(**values[section]) for section, shape in SECTIONS.items()}
    return PipelineSettings(**made, payloads=payloads, spark=MappingProxyType(spark), path=file)


def _section(file: Path, section: str, table: object) -> Iterator[tuple[str, object]]:
    known = KEYS.get(section)
    if known is None:
        if not isinstance(table, (dict, list)) and section in KEYS["pipeline"]:
            raise ConfigError(f"'{section}' in {file} is outside any section; write it under [pipeline]")
        raise ConfigError(
            f"unknown section [{section}] in {file}{nearest(section, [*KEYS, 'payload', 'spark'])}"
        )
    if not isinstance(table, dict):
        raise ConfigError(
            f"'{section}' in {file} should be a section; write [{section}] on a line of its own"
        )
    for name, value in table.items():
        if name not in known:
            raise ConfigError(f"unknown key '{name}' in [{section}] of {file}{nearest(name, known)}")
        read = read_value(known[name], value, f"'{name}' in [{section}] of {file}")
        yield name, file.parent / read if isinstance(read, Path) else read


def _payloads(file: Path, tables: object) -> Iterator[Payload]:
    if not isinstance(tables, list):
        raise ConfigError(f"'payload' in {file} should be a list of tables; write [[payload]]")
    names = set()
    for table in tables:
        for name in table:
            if name not in _PAYLOAD:
                raise ConfigError(f"unknown key '{name}' in [[payload]] of {file}{nearest(name, _PAYLOAD)}")
        if not table.get("topics"):
            raise ConfigError(f"a [[payload]] of {file} has no 'topics'")
        where = f"in [[payload]] of {file}"
        read = {name: read_value(_PAYLOAD[name], value, f"'{name}' {where}") for name, value in table.items()}
        made = Payload(**read)  # type: ignore[arg-type]
        made = made if made.name else replace(made, name=",".join(made.topics))
        if made.name in names:
            raise ConfigError(f"two [[payload]] of {file} are called '{made.name}'; give each its own name")
        names.add(made.name)
        yield made


def _spark(file: Path, table: object) -> dict[str, str]:
    if not isinstance(table, dict):
        raise ConfigError(f"'spark' in {file} should be a section; write [spark] on a line of its own")
    for name, value in table.items():
        if not name.startswith("spark.") or isinstance(value, (dict, list)):
            raise ConfigError(
                f"'{name}' in [spark] of {file} should be a quoted setting of Spark, for example "
                '"spark.sql.shuffle.partitions" = 4'
            )
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in table.items()
    }
