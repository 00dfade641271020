"""The Flight service as a child of the node: its command line, and what `status` says of it.

Must not know: Arrow, what readers ask for, how a process is kept (that is `child`).
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from brokerweave.config import FlightSection
from brokerweave.errors import ConfigError
from brokerweave.runtime.child import Child

log = logging.getLogger("brokerweave.flight")


class FlightChild:
    def __init__(self, settings: FlightSection, folder: Path, warn: Callable[[str], None]) -> None:
        """Raises `ConfigError` if it cannot run here."""
        if importlib.util.find_spec("pyarrow") is None:
            raise ConfigError("[flight] needs pyarrow: pip install 'brokerweave[arrow]', or remove [flight]")
        self._listen = str(settings.listen)
        arguments = ["--log", str(folder), "--listen", self._listen]
        if settings.token_file is not None:
            arguments += ["--token-file", str(settings.token_file)]
        else:
            warn("no token_file in [flight]: anyone who reaches its listen may read the edge log")
        self._child = Child("the flight service", "brokerweave.flight", arguments, self._heard, warn)
        self.start, self.stop = self._child.start, self._child.stop

    def _heard(self, line: str) -> None:
        word, _, address = line.partition(" ")
        if word == "ready":
            self._listen = address
            log.info("the edge log is served at grpc://%s", address)

    def status(self) -> dict[str, Any]:
        return {"listen": self._listen, **self._child.status()}
