"""Reads a log's own files where its service is on this machine, so that no row crosses a socket.

Owns whether the folder that a service names is here. Invariants: rows come only from the very folder that the
service reads, never from a copy of it; only rows that the service serves; nothing is written. What is odd
(trimmed, damaged, not permitted) ends the rows early and is no error: the service is asked for the rest, so
errors and counts are always its own. Must not know: Flight's calls, Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pyarrow as pa

from brokerweave.edgelog.layout import Position
from brokerweave.edgelog.reader import LogReader
from brokerweave.errors import BrokerweaveError
from brokerweave.flight import batches
from brokerweave.flight.protocol import LogState, ReadRequest

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def mark(folder: Path) -> str | None:
    """The same for whoever sees this folder on this machine, until it is started again.

    A copy, a clone of the machine and a folder over the network have another one. None: it cannot be known.
    """
    try:
        found, boot = folder.stat(), _boot()
    except (OSError, ValueError):
        return None
    return f"{boot} {found.st_dev} {found.st_ino}"


@cache
def _boot() -> str:
    return _BOOT.read_text().strip()


def read(state: LogState, request: ReadRequest) -> Iterator[tuple[pa.RecordBatch, Position]]:
    """The batches of a read, each with how far it is; less than was asked for, or none, if they are not here.

    `state` is what the service has said since its log was last replaced, if it was: else there are none.
    """
    if state.folder is None or state.mark is None or mark(Path(state.folder)) != state.mark:
        return
    try:
        reader = LogReader(Path(state.folder))
        wanted = request.log_id or state.log_id
        if reader.identity().log_id == wanted == state.log_id and request.up_to <= reader.end():
            yield from batches.read(reader, request, None)
    except (BrokerweaveError, OSError):
        return
