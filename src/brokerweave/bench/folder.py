"""A run's folder: what the load tool leaves behind, and all that indexes and reports know of a run.

    RUN/run.json                               what was run, where, with which versions
    RUN/measurements/NNNN/measurement.json     one measurement; written last: without it the folder counts not
    RUN/measurements/NNNN/sends-K.arrow        worker K's log of what its clients sent (`SENDS`)
    RUN/measurements/NNNN/receives-K.arrow     and of what they received (`RECEIVES`)
    RUN/measurements/NNNN/resources.arrow      CPU and memory of every process involved (`RESOURCES`)
    RUN/indexes/, RUN/indexes.json             what `bench.spark_job` makes of it
    RUN/spark.log                              what Spark said meanwhile

Owns names, schemas, and what each figure means (`WindowCounts`), so that whoever counts while a measurement
runs and whoever computes from the logs afterwards mean the same. Invariants: every time is CLOCK_MONOTONIC of
one machine in nanoseconds; a file is visible whole or not at all. Must not know: how load is made, what a
report shows.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from brokerweave.errors import ConfigError

T_CLIENT, L_CLIENT = 0, 1
"""Kinds of clients (ILDM 5.1): those that make the load, and those that only measure latency."""

HEADER = struct.Struct("<IQQ")
"""How every payload begins: publisher, message, sent_ns. Padding follows up to the payload's size."""

MACHINE = "machine"
"""The role under which `RESOURCES` has the whole machine: `cpu_s` is the busy time of all its cores together
(user, system, interrupts, stolen; not idle, not waiting), `rss` its memory in use. What no other role
accounts for is noise."""
LOAD = "load/"
"""How the roles of the load tool's own processes begin; all others are servers."""

_I8, _I32, _I64 = pa.int8(), pa.int32(), pa.int64()
SENDS = pa.schema(
    [
        ("client", _I32),  # the publisher; unique in the measurement, subscribers included
        ("message", _I64),  # counts up from 0 for each publisher
        ("topic", _I32),
        ("kind", _I8),
        ("due_ns", _I64),  # when the schedule wanted it sent
        ("sent_ns", _I64),  # when it was handed to the connection, whether or not that could write it at once
        ("acked_ns", _I64),  # PUBACK or PUBCOMP; 0 if none came, or none was asked for
        ("copies", _I32),  # how many subscribers must get it
    ]
)
RECEIVES = pa.schema(
    [
        ("client", _I32),  # the subscriber; all its rows are in one file, in the order of arrival
        ("publisher", _I32),
        ("message", _I64),
        ("topic", _I32),
        ("kind", _I8),
        ("received_ns", _I64),
    ]
)
RESOURCES = pa.schema(
    [
        ("at_ns", _I64),
        ("role", pa.string()),  # "site1/broker", "site1/node", "load/0", or `MACHINE`
        ("cpu_s", pa.float64()),  # used since the process began
        ("rss", _I64),  # bytes
    ]
)
KINDS = ("load", "limit", "patterns", "pairs", "failover", "compare", "overlay", "migration")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of a measurement; only the middle part counts (ILDM 6.1)."""

    warm_up: float
    measured: float
    cool_down: float

    @property
    def total(self) -> float:
        return self.warm_up + self.measured + self.cool_down


@dataclass(frozen=True, slots=True)
class EdgeServer:
    """An edge server. `quota` is the share of one core that each of its processes gets; None: not held."""

    name: str
    quota: float | None = None
    pids: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """What was counted while the measurement ran; `bench.indexes` computes the same from the logs.

    A message belongs to the window if its `sent_ns` does; begin is inside, end is not.
    """

    sent: int = 0
    """Messages of t-clients, sent in the window."""
    acknowledged: int = 0
    """Of those, the acknowledged, whenever that was."""
    received: int = 0
    """Deliveries to t-clients in the window, whenever they were sent, doubled ones included."""
    expected: int = 0
    """Deliveries expected for the messages of all clients that were sent in the window."""
    lost: int = 0
    """Of `expected`, those that never came, not even after the window."""
    doubled: int = 0
    """Deliveries of the window's messages beyond the first one to the same subscriber."""
    disordered: int = 0
    """First deliveries of the window's messages after a higher one of the same publisher and topic."""
    late_sends: int = 0
    """Messages of the window that were sent more than `LATE_NS` after they were due."""
    ingress_per_s: float = 0.0
    """`sent` by the window's seconds."""
    egress_per_s: float = 0.0
    """`received` by the window's seconds."""
    kept_up: float = 1.0
    """`kept_up` of l-clients in the window; 1 without any."""
    latency_mean_ms: float = 0.0
    """Latency is `received_ns - sent_ns` of first deliveries of the window's messages, in whole microseconds
    that passed: of l-clients if there are any, else of all. Percentiles are interpolated linearly."""
    latency_p50_ms: float = 0.0
    latency_p99_ms: float = 0.0
    latency_worst_ms: float = 0.0


def kept_up(expected: int, received: int, subscribers: int) -> float:
    """The part of the deliveries expected by l-clients for the window's messages that came in the window,
    whenever it was sent. One message more may be on its way to each of them at the window's end than at its
    begin."""
    return 1.0 if expected - received <= subscribers else received / expected


LATE_NS = 5_000_000
"""A send this much behind its schedule was late: the load was not what was asked for."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """What else than the broker may have limited the measurement (ILDM 5.3)."""

    tool: bool = False
    reason: str = ""
    retransmissions: int = 0
    """TCP segments sent again, by the load tool and by what is on its machine (or in its network)."""
    zero_windows: int = 0
    """How often a receiver's window was seen closed."""
    drops: int = 0
    """Packets that the machine dropped by itself, in place of Ethernet's PAUSE frames."""


@dataclass(frozen=True, slots=True)
class RunEvent:
    """Something done to the servers on purpose while they were measured, such as a kill."""

    at_ns: int
    what: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """One stretch of load at one rate."""

    id: int
    name: str
    """What was measured: a pattern and a strategy, "C sf"; a maker and a server, "mosquitto S1". The first
    word groups bars, the rest tells them apart."""
    rate: float
    """Messages a second that all t-clients together were asked to send."""
    interval_s: float
    """Seconds between two messages of one t-client."""
    times: Times
    window_ns: tuple[int, int]
    servers: tuple[EdgeServer, ...] = ()
    counters: WindowCounts = WindowCounts()
    bottleneck: Bottleneck = Bottleneck()
    events: tuple[RunEvent, ...] = ()
    repeat: int = 0
    """Which run of the same name this belongs to, where one folder holds several."""
    control_bytes: int = 0
    """What nodes sent each other beside publications, from before the first client came to the end."""

    @property
    def seconds(self) -> float:
        begin, end = self.window_ns
        return (end - begin) / 1e9


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What all measurements of a folder have in common."""

    kind: str
    scenario: Mapping[str, Any]
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    commit: str
    started: str
    """ISO 8601."""


class RunFolder:
    """Reads and writes one run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def indexes(self) -> Path:
        return self.path / "indexes"

    @property
    def indexes_json(self) -> Path:
        return self.path / "indexes.json"

    @property
    def spark_log(self) -> Path:
        return self.path / "spark.log"

    def write_run(self, run: RunInfo) -> None:
        if run.kind not in KINDS:
            raise ConfigError(f"a run is of kind {', '.join(KINDS)}, not {run.kind!r}")
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.path / "run.json", asdict(run))

    def run(self) -> RunInfo:
        """Raises `ConfigError` if this is no run's folder."""
        if not (self.path / "run.json").is_file():
            raise ConfigError(f"{self.path}: no run.json, so this is no run's folder")
        return _parsed(RunInfo, self.path / "run.json")

    @property
    def kind(self) -> str:
        """Empty where only measurements were made, without a run."""
        return self.run().kind if (self.path / "run.json").is_file() else ""

    def folder_of(self, number: int) -> Path:
        return self.path / "measurements" / f"{number:04}"

    def begin_measurement(self) -> tuple[int, Path]:
        """The next number and its new folder. What an interrupted measurement left there is removed first."""
        number = max((m.id for m in self.measurements()), default=0) + 1
        folder = self.folder_of(number)
        if folder.is_dir():
            for left in folder.iterdir():
                left.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        return number, folder

    def end_measurement(self, measurement: Measurement) -> None:
        """Call after all its logs are written: from now on it counts."""
        write_json(self.folder_of(measurement.id) / "measurement.json", asdict(measurement))

    def measurements(self) -> list[Measurement]:
        """All that ended, in order."""
        found = sorted((self.path / "measurements").glob("*/measurement.json"))
        return [_parsed(Measurement, path) for path in found]

    def of(self, name: str, repeat: int = 0) -> list[Measurement]:
        """Those of one search, in order."""
        return [each for each in self.measurements() if (each.name, each.repeat) == (name, repeat)]

    def logs(self, number: int, schema: pa.Schema) -> list[Path]:
        """The files of one measurement that have this schema."""
        pattern = {
            id(SENDS): "sends-*.arrow",
            id(RECEIVES): "receives-*.arrow",
            id(RESOURCES): "resources.arrow",
        }
        return sorted(self.folder_of(number).glob(pattern[id(schema)]))


@contextmanager
def log_writer(path: Path, schema: pa.Schema) -> Iterator[pa.ipc.RecordBatchFileWriter]:
    """Writes one log, in big blocks: `writer.write_batch(...)`. The file appears when that ended well."""
    unfinished = path.with_name(path.name + ".part")
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.OSFile(str(unfinished), "wb") as file, pa.ipc.new_file(file, schema, options=options) as writer:
        yield writer
    unfinished.replace(path)


def read_log(paths: Iterable[Path], schema: pa.Schema) -> pa.Table:
    """All rows of some logs of one schema. Raises `ConfigError` if one is damaged."""
    tables = [schema.empty_table()]
    for path in paths:
        try:
            with pa.memory_map(str(path)) as file:
                tables.append(pa.ipc.open_file(file).read_all())
        except (pa.ArrowException, OSError) as error:
            damage = f"damaged: {' '.join(str(error).split())}"
            raise ConfigError(f"{path}: {damage}; remove {path.parent}") from None
    return pa.concat_tables(tables).combine_chunks()


def write_json(path: Path, value: Any) -> None:
    unfinished = path.with_name(path.name + ".part")
    with unfinished.open("w") as file:
        json.dump(value, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def _parsed(kind: type[_T], path: Path) -> _T:
    try:
        value = json.loads(path.read_text())
        return _made(kind, value)
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        damage = f"cannot be read as a {kind.__name__.lower()}: {error}"
        raise ConfigError(f"{path}: {damage}; remove {path.parent}") from None


def _made(kind: type[_T], value: Mapping[str, Any]) -> _T:
    """A dataclass from JSON. What only a later version writes is left out."""
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    given = {name: each for name, each in value.items() if name in known}
    return kind(**{name: _PARTS[name](each) if name in _PARTS else each for name, each in given.items()})


_PARTS: Mapping[str, Any] = {
    "times": lambda value: _made(Times, value),
    "window_ns": lambda value: (int(value[0]), int(value[1])),
    "servers": lambda value: tuple(_made(EdgeServer, each) for each in value),
    "counters": lambda value: _made(WindowCounts, value),
    "bottleneck": lambda value: _made(Bottleneck, value),
    "events": lambda value: tuple(_made(RunEvent, each) for each in value),
}
