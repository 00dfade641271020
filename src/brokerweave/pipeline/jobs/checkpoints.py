"""What Spark writes into a stream's checkpoint, so far as our sinks need it.

Owns reading `metadata` and `offsets/N`, and what has to be gone before Spark starts. Invariants: no batch
that was planned is touched. Must not know: Spark's classes, logs.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from brokerweave.errors import BrokerweaveError
from brokerweave.pipeline.source.offsets import Offsets, decode


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


def clear_unfinished(folder: Path) -> None:
    """Before a stream starts: remove what a driver left that was killed while it planned the first batch.

    Spark writes offsets/0 under a name of its own and renames it. If it finds no batch, but that file, it
    takes the checkpoint for a damaged one, and would refuse it for ever.
    """
    if last_batch(folder) >= 0 or not (folder / "offsets").is_dir():
        return
    for file in (folder / "offsets").iterdir():
        if file.name.startswith("."):
            file.unlink()


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
