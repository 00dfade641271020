"""What silver and gold remember outside Spark's checkpoint: which checkpoint made them, and notes for each
batch.

Owns LAKE/_brokerweave/<layer>. Invariants: notes of batch N are read by later batches only, so a replay
finds what the first try found; a layer is made by one checkpoint, and another one is refused before it adds
a row. Must not know: what the notes say, what a layer is.

    silver/made-by.json     the query that writes the layer
           schema.json      what was inferred from samples
           notes/N.json     what batches after N need to know; kept for the last few batches that changed it
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from brokerweave.errors import ConfigError
from brokerweave.pipeline.jobs import checkpoints
from brokerweave.pipeline.lake import durable

FOLDER = "_brokerweave"
KEPT_NOTES = 4


class Layer:
    """The notes of one layer of a lake, and the checkpoint of its query."""

    def __init__(self, lake: Path, name: str, checkpoint: Path) -> None:
        self.name = name
        self.checkpoint = checkpoint
        self.folder = lake / FOLDER / name
        self._notes = self.folder / "notes"

    def check(self) -> None:
        """Raises `ConfigError` if another checkpoint made what the lake has, or a new one would miss rows."""
        made_by = durable.read_note(self.folder / "made-by.json")
        above = "bronze" if self.name == "silver" else "silver"
        if made_by is not None and made_by["query"] != self.query():
            raise ConfigError(
                f"the lake's {self.name} was made with another checkpoint than {self.checkpoint}: give "
                f"that one, or remove {self.folder.parent.parent / self.name} and {self.folder} to make it "
                f"anew from {above}"
            )
        if checkpoints.last_batch(self.checkpoint) < 0:
            self._check_compacted(self.folder.parent.parent / above)

    def _check_compacted(self, above: Path) -> None:
        """A stream reads `batch-*` only, and would begin without the rows that compaction took from there."""
        compacted = [path for path in above.glob("date=*/*.parquet") if not path.name.startswith("batch-")]
        if compacted:
            raise ConfigError(
                f"{self.name} begins anew with {self.checkpoint}, and would lack the rows of "
                f"{len(compacted)} compacted files in {above}: give the checkpoint that it was made with, "
                "or, if these are Parquet tables and nothing else streams from there, rename compact-* to "
                "batch-compact-*"
            )

    def claim(self) -> str:
        """The name of this layer's query, noted as its maker. To be called before a batch is written."""
        query = self.query()
        path = self.folder / "made-by.json"
        if durable.read_note(path) is None:
            durable.make_folder(self.folder)
            durable.write_note(path, {"query": query})
        else:
            self.check()
        return query

    def query(self) -> str:
        """As sinks know it: another checkpoint, another name."""
        return f"{self.name}-{(checkpoints.query_id(self.checkpoint) or 'new')[:8]}"

    def before(self, batch_id: int) -> dict[str, Any]:
        """What the newest notes before a batch say."""
        newest = max((number for number in self._numbers() if number < batch_id), default=None)
        return {} if newest is None else durable.read_note(self._notes / f"{newest}.json") or {}

    def note(self, batch_id: int, content: Mapping[str, Any]) -> None:
        """For the batches after this one. Only worth while if it differs from `before`."""
        durable.make_folder(self._notes)
        durable.write_note(self._notes / f"{batch_id}.json", dict(content))
        for number in sorted(number for number in self._numbers() if number < batch_id)[:-KEPT_NOTES]:
            (self._notes / f"{number}.json").unlink(missing_ok=True)

    def _numbers(self) -> list[int]:
        if not self._notes.is_dir():
            return []
        return [int(path.stem) for path in self._notes.glob("*.json") if path.stem.isdigit()]


def read_schema(lake: Path) -> dict[str, Any]:
    """Silver's note of what it inferred: fields by rule, and its columns."""
    return durable.read_note(lake / FOLDER / "silver" / "schema.json") or {"fields": {}, "columns": {}}


def write_schema(lake: Path, fields: Mapping[str, Mapping[str, str]], columns: Mapping[str, str]) -> None:
    folder = lake / FOLDER / "silver"
    durable.make_folder(folder)
    durable.write_note(folder / "schema.json", {"fields": dict(fields), "columns": dict(columns)})
