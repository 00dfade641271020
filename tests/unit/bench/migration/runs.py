"""Logs of runs that never were, for tests of what is made of them."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from brokerweave.bench.folder import RECEIVES, SENDS, Measurement, RunEvent, Times
from brokerweave.bench.migration.figures import RunLogs
from brokerweave.bench.migration.records import CLIENTS, MOVES, SITES

MS = 1_000_000
SECOND = 1000 * MS
Sent = tuple[int, int, int, bool]
"""Publisher, message, milliseconds, acknowledged."""
Got = tuple[int, int, int, int]
"""Subscriber, publisher, message, milliseconds."""


def sends(rows: Iterable[Sent]) -> pa.Table:
    names = SENDS.names
    made = [
        (client, message, 0, 0, at * MS, at * MS, at * MS + 1 if acked else 0, 1)
        for client, message, at, acked in rows
    ]
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in made], schema=SENDS)


def receives(rows: Iterable[Got]) -> pa.Table:
    made = [(client, publisher, message, 0, 0, at * MS) for client, publisher, message, at in rows]
    return pa.Table.from_pylist(
        [dict(zip(RECEIVES.names, row, strict=True)) for row in made], schema=RECEIVES
    )


def subscribers(*rows: tuple[int, int, int]) -> pa.Table:
    """Client, and from when to when it is there, in milliseconds."""
    made = [(client, "group", "g-1", 0, False, begin * MS, end * MS) for client, begin, end in rows]
    return pa.Table.from_pylist([dict(zip(CLIENTS.names, row, strict=True)) for row in made], schema=CLIENTS)


def moves(*rows: tuple[int, str, int, int]) -> pa.Table:
    """Client, outcome, begin and end in milliseconds."""
    made = [
        (client, "a", "b", "policy", outcome, begin * MS, end * MS) for client, outcome, begin, end in rows
    ]
    return pa.Table.from_pylist([dict(zip(MOVES.names, row, strict=True)) for row in made], schema=MOVES)


def sites(*rows: tuple[int, str, int, int, int]) -> pa.Table:
    """Milliseconds, site, messages in and out, clients."""
    made = [(at * MS, *row) for at, *row in rows]
    return pa.Table.from_pylist([dict(zip(SITES.names, row, strict=True)) for row in made], schema=SITES)


def measurement(seconds: int, *events: int) -> Measurement:
    """Events at these seconds."""
    return Measurement(
        1,
        "planned",
        10.0,
        0.1,
        Times(0, seconds, 0),
        (0, seconds * SECOND),
        events=tuple(RunEvent(at * SECOND, f"{number}: it") for number, at in enumerate(events, 1)),
    )


def logs(sent: pa.Table, got: pa.Table, who: pa.Table, moved: pa.Table, seen: pa.Table) -> RunLogs:
    return RunLogs(sent, got, moved, seen, who)
