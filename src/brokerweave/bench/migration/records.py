"""What a migration run writes beside the load tool's logs, and which deliveries are owed.

    RUN/measurements/NNNN/moves.arrow     each move that was decided (`MOVES`)
    RUN/measurements/NNNN/sites.arrow     counters of each site, once a second (`SITES`)
    RUN/measurements/NNNN/clients.arrow   each client of the load, and how long it is there (`CLIENTS`)

Owns the schemas, and `settle`, which says of each message how many subscribers it is owed to. Invariant: what
is owed follows from what was sent and from who was there, never from what arrived. Must not know: processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from brokerweave.bench.folder import RECEIVES, SENDS, log_writer, read_log

_I32, _I64 = pa.int32(), pa.int64()
MOVES = pa.schema(
    [
        ("client", _I32),  # of the load; -1: none of it
        ("origin", pa.string()),
        ("target", pa.string()),
        ("cause", pa.string()),
        ("outcome", pa.string()),
        ("begin_ns", _I64),
        ("end_ns", _I64),  # 0: it has no end
    ]
)
SITES = pa.schema(
    [
        ("at_ns", _I64),
        ("site", pa.string()),
        ("in", _I64),  # messages that came from its clients and from other sites, so far
        ("out", _I64),  # that its clients got
        ("clients", _I32),  # as the controller knows
    ]
)
CLIENTS = pa.schema(
    [
        ("client", _I32),
        ("group", pa.string()),
        ("gateway", pa.string()),
        ("topic", _I32),
        ("publishes", pa.bool_()),
        ("begin_ns", _I64),  # its subscription is granted, and nothing sent before counts
        ("end_ns", _I64),  # nothing sent from then on counts
    ]
)
SCHEMAS = {"moves": MOVES, "sites": SITES, "clients": CLIENTS}


@dataclass(frozen=True, slots=True)
class RunClient:
    """A row of `CLIENTS`."""

    client: int
    group: str
    gateway: str
    topic: int
    publishes: bool
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class RunMove:
    """A row of `MOVES`."""

    client: int
    origin: str
    target: str
    cause: str
    outcome: str
    begin_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class SiteSample:
    """A row of `SITES`."""

    at_ns: int
    site: str
    taken: int
    given: int
    clients: int


Row = RunClient | RunMove | SiteSample


def write(folder: Path, name: str, rows: Sequence[Row]) -> None:
    schema = SCHEMAS[name]
    columns = zip(*map(astuple, rows), strict=True) if rows else ([] for _ in schema)
    arrays = [pa.array(list(column), type=each.type) for column, each in zip(columns, schema, strict=True)]
    with log_writer(folder / f"{name}.arrow", schema) as writer:
        writer.write_batch(pa.record_batch(arrays, schema=schema))


def read(folder: Path, name: str) -> pa.Table:
    path = folder / f"{name}.arrow"
    return read_log([path] if path.exists() else [], SCHEMAS[name])


def settle(folder: Path, clients: Sequence[RunClient]) -> None:
    """Let each log say how many subscribers were there for each message, and leave out deliveries of messages
    that were sent when the subscriber was already leaving."""
    for path in sorted(folder.glob("sends-*.arrow")):
        sends = read_log([path], SENDS)
        topics, sent = sends["topic"].to_numpy(), sends["sent_ns"].to_numpy()
        copies = np.zeros(len(sends), np.int32)
        for each in clients:
            if not each.publishes:
                copies += (topics == each.topic) & (sent >= each.begin_ns) & (sent < each.end_ns)
        place = SENDS.get_field_index("copies")
        _replace(path, sends.set_column(place, SENDS.field(place), pa.array(copies)), SENDS)
    last = max(each.end_ns for each in clients)
    left = {each.client: each.end_ns for each in clients if each.end_ns < last and not each.publishes}
    for path in sorted(folder.glob("receives-*.arrow")) if left else ():
        receives = read_log([path], RECEIVES)
        if set(receives["client"].unique().to_pylist()) & left.keys():
            _replace(path, receives.filter(_before(receives, left, _sent_at(folder))), RECEIVES)


def _before(receives: pa.Table, left: Mapping[int, int], sent: Mapping[tuple[int, int], int]) -> pa.Array:
    """Which were sent before their subscriber was leaving."""
    names = ("client", "publisher", "message")
    rows = zip(*(receives[name].to_pylist() for name in names), strict=True)
    return pa.array(
        [
            client not in left or sent.get((publisher, message), 0) < left[client]
            for client, publisher, message in rows
        ]
    )


def _sent_at(folder: Path) -> dict[tuple[int, int], int]:
    sends = read_log(sorted(folder.glob("sends-*.arrow")), SENDS)
    columns = (sends[name].to_numpy().tolist() for name in ("client", "message", "sent_ns"))
    return {(client, message): sent for client, message, sent in zip(*columns, strict=True)}


def _replace(path: Path, table: pa.Table, schema: pa.Schema) -> None:
    with log_writer(path, schema) as writer:
        writer.write_table(table)
