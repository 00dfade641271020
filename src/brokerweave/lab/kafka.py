"""A real Kafka broker as a child process on loopback: one node that is broker and controller (KRaft).

`scripts/install-brokers kafka` puts its jars into .tools. Must not know: how processes are kept (that is
`broker`).
"""

from __future__ import annotations

import socket
import struct
import subprocess

from brokerweave.errors import Unavailable
from brokerweave.lab.broker import free_port
from brokerweave.lab.makers import JavaBroker

_CLUSTER = "brokerweave-lab-kafka1"
"""Kafka wants 22 characters."""
_API_VERSIONS = struct.pack(">IHHIh", 10, 18, 0, 1, -1)
"""The request that any version answers."""


class Kafka(JavaBroker):
    """`settings` are further lines of its configuration. Topics are made when they are first used."""

    name = "kafka"

    def __init__(self, partitions: int = 2, **settings: object) -> None:
        super().__init__()
        self._controller = free_port()
        self._partitions = partitions
        self._settings = settings

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def command(self) -> list[str]:
        path = self.directory / "server.properties"
        lines = [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.voters=1@{self.host}:{self._controller}",
            f"listeners=PLAINTEXT://{self.address},CONTROLLER://{self.host}:{self._controller}",
            f"advertised.listeners=PLAINTEXT://{self.address}",
            "controller.listener.names=CONTROLLER",
            f"log.dirs={self.directory / 'logs'}",
            f"num.partitions={self._partitions}",
            "offsets.topic.num.partitions=1",
            "offsets.topic.replication.factor=1",
            "transaction.state.log.num.partitions=1",
            "transaction.state.log.replication.factor=1",
            "transaction.state.log.min.isr=1",
            "share.coordinator.state.topic.replication.factor=1",
            "share.coordinator.state.topic.min.isr=1",
            "group.initial.rebalance.delay.ms=0",
            *(f"{key.replace('_', '.')}={value}" for key, value in self._settings.items()),
        ]
        path.write_text("\n".join(lines) + "\n")
        if not (self.directory / "logs" / "meta.properties").exists():
            self._format(str(path))
        return self.java("kafka.Kafka", str(path))

    def _format(self, path: str) -> None:
        command = self.java("kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", path)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=self.start_timeout, check=False
        )
        if done.returncode:
            raise Unavailable(f"kafka's storage cannot be formatted: {done.stderr.strip().splitlines()[-1:]}")

    def ready(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=1.0) as sock:
                sock.sendall(_API_VERSIONS)
                return len(sock.recv(4)) == 4
        except OSError:
            return False
