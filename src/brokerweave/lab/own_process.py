"""A real process of brokerweave's own on loopback: configured by a file in its folder, kept as a broker is.

Owns that file. Invariants: ports and data stay the same over a restart, so `restart(kill=True)` is a crash
and a return. Must not know: what the process does.
"""

from __future__ import annotations

import json
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

import brokerweave
from brokerweave.errors import BrokerweaveError
from brokerweave.lab.broker import Broker

Keys = Mapping[str, object]


class OwnProcess(Broker):
    """`name` is its command, its own section, and its file's name. `settings` are further keys, by section,
    and win over `own_keys`."""

    def __init__(self, identifier: str, settings: Mapping[str, Keys] | None) -> None:
        super().__init__()
        self.id = identifier
        self._settings = {section: dict(keys) for section, keys in (settings or {}).items()}

    @classmethod
    def missing(cls) -> str | None:
        return None

    @property
    def version(self) -> str:
        return brokerweave.__version__

    @property
    def config_file(self) -> Path:
        return self.directory / f"{self.name}.toml"

    @abstractmethod
    def own_keys(self) -> Keys:
        """Of its own section."""

    def tables(self) -> Mapping[str, Sequence[Keys]]:
        """Lists of tables."""
        return {}

    @abstractmethod
    def ask_status(self) -> object:
        """Raises `BrokerweaveError` if it does not answer."""

    def command(self) -> list[str]:
        own = {**self.own_keys(), **self._settings.get(self.name, {})}
        lines = []
        sections: dict[str, Keys] = {**self._settings, self.name: own}
        for section, keys in sections.items():
            lines += [f"[{section}]", *_lines(keys)]
        for name, tables in self.tables().items():
            for keys in tables:
                lines += [f"[[{name}]]", *_lines(keys)]
        self.config_file.write_text("\n".join(lines) + "\n")
        return [sys.executable, "-m", "brokerweave", self.name, str(self.config_file)]

    def ready(self) -> bool:
        try:
            self.ask_status()
        except BrokerweaveError:
            return False
        return True


def _lines(keys: Keys) -> list[str]:
    return [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
