"""The Delta sink: the Parquet sink's files, listed in a Delta table, without any jar.

Owns the step from published files to a commit of the table, which carries the query and the batch id as an
application transaction. Invariants: each batch is listed once; the sink looks for its transaction itself,
since delta-rs commits a stale one without a word. The files appear as the Parquet sink's do, so a Spark
stream may read `batch-*` of this folder too. Must not know: how files are laid out or become visible.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from brokerweave.errors import ConfigError, Unavailable
from brokerweave.pipeline.lake import durable
from brokerweave.pipeline.sinks import Written
from brokerweave.pipeline.sinks.publishing import BatchPublisher, Commit, Staging
from brokerweave.pipeline.sinks.staging import NO_VALUE, Layout, stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class DeltaSink:
    """A Delta table in a folder that driver and executors see. The executors write, the driver commits."""

    def __init__(
        self, folder: Path | str, partition_by: tuple[str, ...] = ("date",), date_from: str = "received"
    ) -> None:
        self._folder = Path(folder).absolute()
        self._layout = Layout(partition_by, date_from)
        self._tables: dict[str, DeltaTable] = {}
        """By query. Opening a table reads its whole log; one that is open only reads what is new."""

    def write(self, batch: DataFrame, query: str, batch_id: int) -> Written:
        schema = table_schema(batch.schema.json(), self._layout)
        return self.publish(query, batch_id, schema, lambda place: stage(batch, place, self._layout))

    def publish(self, query: str, batch_id: int, schema: Schema, staging: Staging) -> Written:
        """`write`, whoever stages the files."""
        try:
            return self._publish(self._open(query, schema), query, batch_id, staging)
        except DeltaError as error:
            self._tables.pop(query, None)
            raise Unavailable(f"the Delta table {self._folder} did not take a commit: {error}") from error

    def _publish(self, table: DeltaTable, query: str, batch_id: int, staging: Staging) -> Written:
        known = table.transaction_version(query)
        publisher = BatchPublisher(self._folder, lambda commit: self._list(table, commit))
        if known is not None and not publisher.knows(query) and batch_id <= known:
            if batch_id < known:
                raise ConfigError(
                    f"query {query} has written batch {known} into {self._folder} already, "
                    f"and now comes with batch {batch_id}: its checkpoint is another or older one; "
                    f"give the query a new name"
                )
            return Written(0, replayed=True)
        return publisher.publish(query, batch_id, staging)

    def _open(self, query: str, schema: Schema) -> DeltaTable:
        if query not in self._tables:
            self._tables[query] = self._open_or_create(schema)
        table = self._tables[query]
        table.update_incremental()
        known, wanted = _types(table.schema()), _types(schema)
        if differing := [name for name in wanted if known.get(name, wanted[name]) != wanted[name]]:
            raise ConfigError(f"the batch and {self._folder} differ in column {min(differing)}")
        # Silver gets further columns when it meets payloads of another kind; old rows have none of them.
        if new := [field for field in schema.fields if field.name not in known]:
            table.alter.add_columns(new)
            table.update_incremental()
        return table

    def _open_or_create(self, schema: Schema) -> DeltaTable:
        if not DeltaTable.is_deltatable(str(self._folder)):
            if any(self._folder.rglob("*.parquet")):
                raise ConfigError(f"{self._folder} holds plain Parquet files: give Delta its own folder")
            durable.make_folder(self._folder)
            # "ignore": the query of another node may have made it just now.
            DeltaTable.create(
                str(self._folder), schema, mode="ignore", partition_by=list(self._layout.partition_by)
            )
        return DeltaTable(str(self._folder))

    def _list(self, table: DeltaTable, commit: Commit) -> None:
        """Adds a batch's files to the table, unless its transaction is there."""
        table.update_incremental()
        known = table.transaction_version(commit.query)
        if known is not None and known >= commit.batch_id:
            return
        now = int(time.time() * 1000)
        actions: list[AddAction | RemoveAction] = [
            add_action(commit.target(file), file.size, file.rows, now, changes=True) for file in commit.files
        ]
        durable.step("before the Delta commit")
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            table.metadata().partition_columns,
            commit_properties=CommitProperties(app_transactions=[Transaction(commit.query, commit.batch_id)]),
        )
        durable.step("after the Delta commit")


def add_action(path: str, size: int, rows: int, time: int, *, changes: bool) -> AddAction:
    """A file for the table's log; its place tells its partition. `changes`: its rows are new ones."""
    levels = (level.partition("=") for level in path.split("/")[:-1])
    values = {name: None if value == NO_VALUE else unquote(value) for name, _, value in levels}
    return AddAction(path, size, values, time, changes, json.dumps({"numRecords": rows}))


def table_schema(rows: str, layout: Layout) -> Schema:
    """The table's schema for rows of Spark's, given as JSON: Delta writes its own in the same words."""
    schema = _nullable(json.loads(rows))
    if "date" in layout.partition_by and all(field["name"] != "date" for field in schema["fields"]):
        schema["fields"].append({"name": "date", "type": "date", "nullable": True, "metadata": {}})
    return Schema.from_json(json.dumps(schema))


def _nullable(part: Any) -> Any:
    """Whether a value may be missing is Spark's guess about a batch, and no property of the table."""
    if isinstance(part, list):
        return [_nullable(each) for each in part]
    if not isinstance(part, dict):
        return part
    always = {"nullable": True, "containsNull": True, "valueContainsNull": True, "metadata": {}}
    return {key: always[key] if key in always else _nullable(value) for key, value in part.items()}


def _types(schema: Schema) -> dict[str, str]:
    # As text: types may be nested, and are compared whole.
    return {field["name"]: json.dumps(field["type"]) for field in json.loads(schema.to_json())["fields"]}
