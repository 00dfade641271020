"""A real controller as a child process on loopback.

Owns its configuration file; the process is kept as any broker's is. Invariants: ports and data stay the same
over a restart. Must not know: what the controller does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import brokerweave
from brokerweave.config import Address
from brokerweave.errors import BrokerweaveError
from brokerweave.lab.broker import Broker, free_port
from brokerweave.runtime.api_client import ask


class LabController(Broker):
    """`settings` are further keys, by section. `sites` are tables of `[[site]]`."""

    name = "controller"

    def __init__(
        self,
        controller_id: str,
        *,
        settings: Mapping[str, Mapping[str, object]] | None = None,
        sites: tuple[Mapping[str, object], ...] = (),
    ) -> None:
        super().__init__()
        self.id = controller_id
        self.api = Address(self.host, free_port())
        self._settings = settings or {}
        self._sites = sites

    @classmethod
    def missing(cls) -> str | None:
        return None

    @property
    def version(self) -> str:
        return brokerweave.__version__

    @property
    def config_file(self) -> Path:
        return self.directory / "controller.toml"

    def command(self) -> list[str]:
        own = {
            "id": self.id,
            "listen": f"{self.host}:{self.port}",
            "api": str(self.api),
            "data_dir": str(self.directory / "data"),
            **self._settings.get("controller", {}),
        }
        lines = []
        for section, keys in {**self._settings, "controller": own}.items():
            lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
        for site in self._sites:
            lines += ["[[site]]", *(f"{key} = {json.dumps(value)}" for key, value in site.items())]
        self.config_file.write_text("\n".join(lines) + "\n")
        return [sys.executable, "-m", "brokerweave", "controller", str(self.config_file)]

    def ready(self) -> bool:
        try:
            self.ask("status")
        except BrokerweaveError:
            return False
        return True

    def ask(self, what: str, **told: object) -> dict[str, Any]:
        """With arguments it is told, without it is asked."""
        return ask(self.api, f"/{what}", told or None)
