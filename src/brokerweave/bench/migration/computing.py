"""The figures of a migration run from its folder, and where they are kept.

    RUN/indexes/migration/N.json      the figures of measurement N, beside the tables of `figures`

Owns which files are read. Must not know: how a figure is computed, Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from brokerweave.bench.folder import RECEIVES, SENDS, Measurement, RunFolder, read_log, write_json
from brokerweave.bench.migration import figures, records
from brokerweave.bench.migration.figures import MigrationFigures, Places, RunLogs


def compute(folder: RunFolder, measurement: Measurement) -> tuple[MigrationFigures, dict[str, pa.Table]]:
    """The figures, and the tables by their names."""
    number, scenario = measurement.id, folder.run().scenario
    path = folder.folder_of(number)
    logs = RunLogs(
        *(read_log(folder.logs(number, schema), schema) for schema in (SENDS, RECEIVES)),
        *(records.read(path, name) for name in ("moves", "sites", "clients")),
    )
    sites = {each["name"]: each["region"] for each in scenario.get("sites", ())}
    groups = [each["region"] for each in scenario.get("groups", ())]
    places = Places(sites, groups)
    return figures.compute(measurement, logs, scenario["topics"], scenario["qos"], places)


def write(indexes: Path, found: MigrationFigures, number: int) -> None:
    path = indexes / "migration" / f"{number}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, found.to_dict())


def read(folder: RunFolder, number: int) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads((folder.indexes / "migration" / f"{number}.json").read_text())
    return found
