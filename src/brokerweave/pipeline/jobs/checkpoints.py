"""What Spark writes into a stream's checkpoint, so far as our sinks need it.

Owns reading `metadata` and `offsets/N`. Invariants: nothing is written here. Must not know: Spark's classes,
logs.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from brokerweave.errors import BrokerweaveError
from brokerweave.pipeline.offsets import Offsets, decode


def query_id(folder: Path) -> str | None:
    """The id that Spark gave the stream when its checkpoint was made; None before."""
    try:
        return str(json.loads((folder / "metadata").read_text())["id"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError) as error:
        raise BrokerweaveError(f"{folder / 'metadata'} is damaged: restore the checkpoint") from error


def query_name(layer: str, node: str, folder: Path) -> str:
    """The name under which sinks know the stream: another checkpoint makes another name."""
    return f"{layer}-{node}-{(query_id(folder) or 'new')[:8]}"


def last_batch(folder: Path) -> int:
    """The last batch that was planned; -1 before the first."""
    try:
        return max(
            (int(file.name) for file in (folder / "offsets").iterdir() if file.name.isdigit()), default=-1
        )
    except FileNotFoundError:
        return -1


def planned(folder: Path, batch_id: int) -> Offsets:
    """Up to which position of each log a batch reads."""
    file = folder / "offsets" / str(batch_id)
    try:
        _, _, source = file.read_text().splitlines()  # version, Spark's own, the one source's
        return decode(json.loads(source))
    except (OSError, ValueError, LookupError, AttributeError, BrokerweaveError) as error:
        raise BrokerweaveError(f"{file} cannot be read as offsets: restore the checkpoint") from error


def set_aside(folder: Path) -> Path | None:
    """Move a checkpoint that does not fit out of the way, and say where to."""
    if not folder.exists():
        return None
    aside = folder.with_name(f"{folder.name}.{int(time.time() * 1000)}.old")
    folder.rename(aside)
    return aside
