"""Where a pipeline's batches go. One interface for every sink, and what a sink tells of a batch.

Owns the promise that every sink keeps: a batch that Spark hands over again, after a crash, adds nothing.
Must not know: any particular sink, or who calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Sink", "Written"]


@dataclass(frozen=True, slots=True)
class Written:
    """What one batch came to. `replayed`: it was there already, nothing was added."""

    rows: int
    files: int = 0
    size: int = 0
    """Bytes, as stored."""
    replayed: bool = False


class Sink(Protocol):
    """Takes the batches of streaming queries, on the driver, from `foreachBatch`.

    `query` names one checkpoint for ever: a new checkpoint needs a new name, or its rows meet the batch ids
    of the old one.
    """

    def write(self, batch: DataFrame, query: str, batch_id: int) -> Written:
        """All rows of the batch, once, however often the same (query, batch id) comes."""
        ...
