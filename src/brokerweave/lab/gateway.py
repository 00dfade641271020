"""A real gateway as a child process on loopback.

Owns its admin socket. Must not know: what the gateway does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from brokerweave.lab.own_process import Keys, OwnProcess
from brokerweave.runtime.admin_client import ask

_PATIENCE = 60.0
_POLL = 0.002


class LabGateway(OwnProcess):
    """`settings` are further keys, by section. `sites` are tables of `[[site]]`."""

    name = "gateway"

    def __init__(
        self,
        gateway_id: str,
        *,
        settings: Mapping[str, Keys] | None = None,
        sites: tuple[Keys, ...] = (),
    ) -> None:
        super().__init__(gateway_id, settings)
        self._sites = sites

    @property
    def socket(self) -> Path:
        return self.directory / "admin.sock"

    def own_keys(self) -> Keys:
        return {"id": self.id, "listen": f"{self.host}:{self.port}", "admin_socket": str(self.socket)}

    def tables(self) -> Mapping[str, Sequence[Keys]]:
        return {"site": self._sites}

    def ask_status(self) -> object:
        return self.status()

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
