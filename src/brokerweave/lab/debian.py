"""The brokers that Debian packages: how each is configured for loopback and a directory of its own.

Must not know: how processes are kept (that is `broker`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from brokerweave.lab.broker import Broker, find_program, first_line


class Mosquitto(Broker):
    """Eclipse Mosquitto. `config` takes any further lines of mosquitto.conf."""

    name = "mosquitto"

    def __init__(
        self,
        *,
        config: Iterable[str] = (),
        passwords: dict[str, str] | None = None,
        acl: str | None = None,
        persistence: bool = False,
    ) -> None:
        super().__init__()
        self._config = tuple(config)
        self._passwords = passwords
        self._acl = acl
        self._persistence = persistence

    @classmethod
    def missing(cls) -> str | None:
        return None if find_program("mosquitto") else "mosquitto is not installed (scripts/install-debian)"

    @property
    def version(self) -> str:
        return first_line(find_program("mosquitto") or "mosquitto", "-h").removeprefix("mosquitto version ")

    def command(self) -> list[str]:
        lines = [
            f"listener {self.port} {self.host}",
            f"allow_anonymous {'false' if self._passwords else 'true'}",
            f"persistence {'true' if self._persistence else 'false'}",
            f"persistence_location {self.directory}/",
            # Every change is written at once, so that a kill loses nothing.
            *(["autosave_on_changes true", "autosave_interval 1"] if self._persistence else []),
            *self._config,
        ]
        if os.geteuid() == 0:
            # Without this it would change to another user, who may not read our directory.
            lines.append("user root")
        if self._passwords:
            lines.append(f"password_file {self._write_passwords(self._passwords)}")
        if self._acl is not None:
            acl_file = self.directory / "acl"
            acl_file.write_text(self._acl)
            acl_file.chmod(0o600)
            lines.append(f"acl_file {acl_file}")
        path = self.directory / "mosquitto.conf"
        path.write_text("\n".join(lines) + "\n")
        return [find_program("mosquitto") or "mosquitto", "-c", str(path)]

    def _write_passwords(self, passwords: dict[str, str]) -> str:
        path = self.directory / "passwords"
        path.write_text("".join(f"{user}:{password}\n" for user, password in passwords.items()))
        path.chmod(0o600)
        first_line(find_program("mosquitto_passwd") or "mosquitto_passwd", "-U", str(path))
        return str(path)
