"""Shows rows of each batch on the terminal: for trying things out. Nothing is kept, so nothing can double."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brokerweave.pipeline.sinks import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ConsoleSink:
    def __init__(self, rows: int = 20, width: int = 40) -> None:
        """How many rows of a batch are shown, and how many characters of a value."""
        self._rows = rows
        self._width = width

    def write(self, batch: DataFrame, query: str, batch_id: int) -> Written:
        shown = batch.limit(self._rows + 1).toArrow()
        more = ", and more" if shown.num_rows > self._rows else ""
        shown = shown.slice(0, self._rows)
        print(f"{query} batch {batch_id}: {shown.num_rows} rows{more}")
        for row in shown.to_pylist():
            # `repr`: a payload must not steer the terminal.
            print("  " + "  ".join(f"{name}={repr(value)[: self._width]}" for name, value in row.items()))
        return Written(shown.num_rows)
