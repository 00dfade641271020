"""A real gateway as a child process on loopback.

Owns its configuration file and admin socket; the process is kept as any broker's is. Invariant: its port
stays the same over a restart. Must not know: what the gateway does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import brokerweave
from brokerweave.errors import Unavailable
from brokerweave.lab.broker import Broker
from brokerweave.runtime.admin_client import ask

_PATIENCE = 60.0
_POLL = 0.002


class LabGateway(Broker):
    """`settings` are further keys, by section. `sites` are tables of `[[site]]`."""

    name = "gateway"

    def __init__(
        self,
        gateway_id: str,
        *,
        settings: Mapping[str, Mapping[str, object]] | None = None,
        sites: tuple[Mapping[str, object], ...] = (),
    ) -> None:
        super().__init__()
        self.id = gateway_id
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
        return self.directory / "gateway.toml"

    @property
    def socket(self) -> Path:
        return self.directory / "admin.sock"

    def command(self) -> list[str]:
        own = {
            "id": self.id,
            "listen": f"{self.host}:{self.port}",
            "admin_socket": str(self.socket),
            **self._settings.get("gateway", {}),
        }
        lines = []
        for section, keys in {**self._settings, "gateway": own}.items():
            lines += [f"[{section}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items())]
        for site in self._sites:
            lines += ["[[site]]", *(f"{key} = {json.dumps(value)}" for key, value in site.items())]
        self.config_file.write_text("\n".join(lines) + "\n")
        return [sys.executable, "-m", "brokerweave", "gateway", str(self.config_file)]

    def ready(self) -> bool:
        try:
            self.status()
        except Unavailable:
            return False
        return True

    def ask(self, do: str, **arguments: object) -> dict[str, Any]:
        """One command on the admin socket."""
        return ask(self.socket, {"do": do, **arguments}, _PATIENCE)

    def status(self) -> dict[str, Any]:
        return self.ask("status")

    def move(self, client: str, site: str) -> str:
        """Returns the result when there is one."""
        found = self.ask("move", client=client, site=site)
        while found["moving"]:
            time.sleep(_POLL)
            found = self.ask("where", client=client)
        return str(found["result"])
