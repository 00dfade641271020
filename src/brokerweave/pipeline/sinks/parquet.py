"""The default sink: plain Parquet files that any reader counts right, at any moment, whatever was killed.

Must not know: how files are laid out (staging), how they become visible (publishing).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from brokerweave.errors import ConfigError
from brokerweave.pipeline.sinks import Written
from brokerweave.pipeline.sinks.publishing import BatchPublisher
from brokerweave.pipeline.sinks.staging import Layout, stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ParquetSink:
    """A folder on a file system that driver and executors see; not an object store (it cannot rename)."""

    def __init__(
        self, folder: Path | str, partition_by: tuple[str, ...] = ("date",), date_from: str = "received"
    ) -> None:
        self._layout = Layout(partition_by, date_from)
        self._folder = Path(folder).absolute()
        self._publisher = BatchPublisher(self._folder)

    def write(self, batch: DataFrame, query: str, batch_id: int) -> Written:
        if (self._folder / "_delta_log").exists():
            raise ConfigError(f"{self._folder} is a Delta table: give Parquet its own folder")
        return self._publisher.publish(query, batch_id, lambda place: stage(batch, place, self._layout))
