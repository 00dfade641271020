"""The end of the demo: what its sensors sent goes through the pipeline into a lake, and gold is shown.

Owns the pipeline's process and where the lake lies. Invariants: without Spark or Java the demo is whole
without it, and says what is missing; the process ends with the demo. Must not know: sites' brokers, MQTT.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brokerweave.errors import BrokerweaveError, ConfigError, Unavailable
from brokerweave.pipeline.spark.java import java_environment
from brokerweave.pipeline.spark.needs import SPARK, need

MOST_SECONDS = 300.0
FIELD = "temperature"


@dataclass(frozen=True, slots=True)
class Reading:
    """What gold knows of one sensor."""

    site: str
    topic: str
    count: int
    mean: float
    lowest: float
    highest: float
    last: float


def default_folder() -> Path:
    """Where the lake of the last demo lies."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "brokerweave" / "demo-lake"


def missing() -> str | None:
    """Why there can be no pipeline here, in one line."""
    try:
        need(*SPARK)
        java_environment(os.environ)
    except BrokerweaveError as error:
        return str(error)
    return None


class DemoPipeline:
    """`brokerweave pipeline run`, once, over some nodes' Flight services. `close` ends it in any case."""

    def __init__(self, lake: Path) -> None:
        self.lake = lake
        self._process: subprocess.Popen[str] | None = None

    def check(self) -> None:
        """Raises `ConfigError` if the folder holds anything but a lake, which would be removed."""
        if self.lake.exists() and any(self.lake.iterdir()) and not (self.lake / "_brokerweave").is_dir():
            raise ConfigError(f"{self.lake} is not empty and no lake: give --lake another folder")

    def run(self, addresses: Sequence[str], waiting: Callable[[], None]) -> None:
        """Bring everything; `waiting` is called now and then. Raises `Unavailable` with what it said."""
        self.check()
        shutil.rmtree(self.lake, ignore_errors=True)
        self.lake.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "brokerweave", "pipeline", "run", "--nodes", ",".join(addresses)]
        command += ["--to", str(self.lake), "--trigger", "available-now"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        deadline = time.monotonic() + MOST_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            waiting()
        if self._process.poll() is None:
            raise Unavailable(f"the pipeline did not end in {MOST_SECONDS:g} s")
        said, _ = self._process.communicate()
        if self._process.returncode:
            raise Unavailable(f"the pipeline failed: {' | '.join(said.splitlines()[-3:])}")

    def close(self) -> None:
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.kill()  # its Java ends when it sees that
        with process:
            pass

    def readings(self) -> list[Reading]:
        """Gold, merged over all windows: a row for each sensor."""
        from brokerweave.pipeline.jobs.partials import read

        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in read(self.lake / "gold").to_pylist():
            if row["field"] == FIELD:
                found.setdefault((row["site"], row["topic"]), []).append(row)
        return [_merged(site, topic, rows) for (site, topic), rows in sorted(found.items())]


def _merged(site: str, topic: str, rows: Sequence[dict[str, Any]]) -> Reading:
    count = sum(row["count"] for row in rows)
    newest = max(rows, key=lambda row: (row["last_time"], row["last_received"]))
    mean = sum(row["sum"] for row in rows) / count
    lowest, highest = min(row["min"] for row in rows), max(row["max"] for row in rows)
    return Reading(site, topic, count, mean, lowest, highest, newest["last"])
