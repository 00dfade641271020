"""A real controller as a child process on loopback. Must not know: what the controller does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from brokerweave.config import Address
from brokerweave.lab.broker import free_port
from brokerweave.lab.own_process import Keys, OwnProcess
from brokerweave.runtime.api_client import ask


class LabController(OwnProcess):
    """`settings` are further keys, by section. `sites` are tables of `[[site]]`."""

    name = "controller"

    def __init__(
        self,
        controller_id: str,
        *,
        settings: Mapping[str, Keys] | None = None,
        sites: tuple[Keys, ...] = (),
    ) -> None:
        super().__init__(controller_id, settings)
        self.api = Address(self.host, free_port())
        self._sites = sites

    def own_keys(self) -> Keys:
        return {
            "id": self.id,
            "listen": f"{self.host}:{self.port}",
            "api": str(self.api),
            "data_dir": str(self.directory / "data"),
        }

    def tables(self) -> Mapping[str, Sequence[Keys]]:
        return {"site": self._sites}

    def ask_status(self) -> object:
        return self.ask("status")

    def ask(self, what: str, **told: object) -> dict[str, Any]:
        """With arguments it is told, without it is asked."""
        return ask(self.api, f"/{what}", told or None)
