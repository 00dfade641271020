"""The node's side of feeding Kafka: the child's command line, and what `status` says of it.

Must not know: Kafka, the log's rows.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from brokerweave.config import KafkaSection
from brokerweave.edgelog.layout import START
from brokerweave.edgelog.reader import LogReader
from brokerweave.edgelog.readers import Readers
from brokerweave.errors import BrokerweaveError, ConfigError
from brokerweave.runtime.child import Child


class KafkaChild:
    def __init__(self, settings: KafkaSection, folder: Path, warn: Callable[[str], None]) -> None:
        """Raises `ConfigError` if it cannot run here."""
        if importlib.util.find_spec("confluent_kafka") is None:
            raise ConfigError(
                "[kafka] needs Kafka's client: pip install 'brokerweave[kafka]', or remove [kafka]"
            )
        arguments = ["--log", str(folder), "--servers", ",".join(map(str, settings.servers))]
        arguments += ["--topic", settings.topic, "--reader", settings.reader]
        arguments += ["--compression", settings.compression]
        if settings.client_file is not None:
            arguments += ["--client-file", str(settings.client_file)]
        self._folder, self._reader = folder, settings.reader
        self._fed: dict[str, Any] = {}
        self._child = Child("feeding Kafka", "brokerweave.kafka", arguments, self._heard, warn)
        self.start, self.stop = self._child.start, self._child.stop

    def _heard(self, line: str) -> None:
        with contextlib.suppress(ValueError):
            self._fed = json.loads(line)

    def status(self) -> dict[str, Any]:
        """The child's state, and what it said last; `lag`: rows that Kafka has not got yet."""
        said = {**self._fed, **self._child.status()}
        if not said["reason"]:
            said["reason"] = self._fed.get("reason", "")
        if said["state"] != "running":
            said["feeding"] = False
        with contextlib.suppress(BrokerweaveError, OSError):
            position = Readers(self._folder).position(self._reader) or START
            said.update(position=str(position), lag=LogReader(self._folder).lag(position))
        return said

    def counters(self) -> dict[str, int]:
        """Since the child's last start."""
        names = ("sent", "failures", "trimmed", "damaged", "too_large")
        return {f"kafka_{name}": self._fed.get(name, 0) for name in names}
