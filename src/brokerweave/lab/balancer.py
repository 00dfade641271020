"""A real HAProxy in front of several nodes, with the configuration that `brokerweave haproxy` writes.

Owns its file and its master process, which takes a new file when it is told to. Must not know: what is in the
file (`runtime.haproxy`).
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from brokerweave.config import Address
from brokerweave.lab.broker import Broker, find_program, first_line
from brokerweave.runtime.haproxy import HaproxyOptions, HaproxyServer, configuration, reload_by_signal, write


class Balancer(Broker):
    """Clients connect to `port`. `slow_start` as in the options of the file."""

    name = "balancer"

    def __init__(self, servers: Iterable[HaproxyServer], *, slow_start: float = 1.0) -> None:
        super().__init__()
        self._servers = list(servers)
        self.options = HaproxyOptions(Address(self.host, self.port), slow_start=slow_start)

    @classmethod
    def missing(cls) -> str | None:
        return None if find_program("haproxy") else "haproxy is not installed (scripts/install-debian)"

    @property
    def version(self) -> str:
        return first_line(find_program("haproxy") or "haproxy", "-v").split()[2]

    @property
    def config_file(self) -> Path:
        return self.directory / "haproxy.cfg"

    @property
    def pid_file(self) -> Path:
        return self.directory / "haproxy.pid"

    def command(self) -> list[str]:
        write(self.config_file, configuration(self._servers, self.options))
        # -W: a master that starts a worker, and another one when it is told to take the file anew.
        program = find_program("haproxy") or "haproxy"
        return [program, "-W", "-f", str(self.config_file), "-p", str(self.pid_file)]

    def change(self, servers: Iterable[HaproxyServer]) -> None:
        """From now on these are the nodes."""
        self._servers = list(servers)
        write(self.config_file, configuration(self._servers, self.options))
        reload_by_signal(str(self.pid_file))


def served(node_id: str, port: int, health_port: int, host: str = "127.0.0.1") -> HaproxyServer:
    return HaproxyServer(node_id, Address(host, port), Address(host, health_port))
