"""Brokers that come from their makers' package sites: scripts/install-brokers puts them into .tools.

Must not know: how processes are kept (that is `broker`).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import ClassVar

from brokerweave.lab.broker import Broker, find_program, free_port


def tools() -> Path:
    """Where scripts/install-brokers puts brokers: $BROKERWEAVE_TOOLS, else .tools of the checkout."""
    return Path(os.environ.get("BROKERWEAVE_TOOLS") or Path(__file__).parents[3] / ".tools")


class _Installed(Broker):
    """A broker in .tools, run by a program of the system's (java, node) or by itself."""

    runner: ClassVar[str | None] = None

    @classmethod
    def home(cls) -> Path:
        return tools() / cls.name

    @classmethod
    def missing(cls) -> str | None:
        if not (cls.home() / "VERSION").exists():
            return f"{cls.name} is not installed (scripts/install-brokers {cls.name})"
        if cls.runner and not find_program(cls.runner):
            return f"{cls.name} needs {cls.runner}, which is not installed"
        return None

    @property
    def version(self) -> str:
        return (self.home() / "VERSION").read_text().strip()


class JavaBroker(_Installed):
    runner = "java"
    start_timeout = 120.0

    def java(self, *arguments: str) -> list[str]:
        class_path = f"{self.home()}/*"
        # Small and quick to start: these brokers serve tests, not load.
        quick = [
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            f"-Djava.io.tmpdir={self.directory}",
        ]
        return [find_program("java") or "java", *quick, "-cp", class_path, *arguments]


class ActiveMQ(JavaBroker):
    """Apache ActiveMQ Classic, only its MQTT connector. Debian's package lacks the MQTT codec."""

    name = "activemq"

    def command(self) -> list[str]:
        uri = f"broker:(mqtt://{self.host}:{self.port})?useJmx=false&dataDirectory={self.directory}/data"
        main = "org.apache.activemq.console.command.ShellCommand"
        return self.java(
            f"-Dactivemq.base={self.directory}", f"-Dactivemq.home={self.directory}", main, "start", uri
        )


class Moquette(JavaBroker):
    name = "moquette"

    def command(self) -> list[str]:
        config = self.directory / "config"
        config.mkdir(exist_ok=True)
        lines = [
            f"port {self.port}",
            f"host {self.host}",
            "allow_anonymous true",
            "telemetry_enabled false",
            f"data_path {self.directory}/",
            "persistence_enabled true",
            "immediate_buffer_flush true",  # otherwise what it sends may wait for a second
            "websocket_port disabled",
        ]
        (config / "moquette.conf").write_text("\n".join(lines) + "\n")
        logging = config / "log4j.properties"
        logging.write_text(
            "log4j.rootLogger=WARN, out\n"
            "log4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.SimpleLayout\n"
        )
        places = [f"-Dmoquette.path={self.directory}", f"-Dlog4j.configuration=file:{logging}"]
        return self.java(*places, "io.moquette.broker.Server")


class Aedes(_Installed):
    """aedes, by its own command line, which has a version of its own."""

    name = "aedes"
    runner = "node"

    @property
    def version(self) -> str:
        package = json.loads((self.home() / "node_modules" / "aedes" / "package.json").read_text())
        return str(package["version"])

    def command(self) -> list[str]:
        program = self.home() / "node_modules" / ".bin" / "aedes"
        node = find_program("node") or "node"
        return [node, str(program.resolve()), "start", "--host", self.host, "--port", str(self.port)]


class Mochi(_Installed):
    """mochi-mqtt, by its own example command."""

    name = "mochi"

    def __init__(self) -> None:
        super().__init__()
        self._others = [f"{self.host}:{free_port()}" for _ in range(2)]

    def command(self) -> list[str]:
        websocket, info = self._others
        listeners = ["-tcp", f"{self.host}:{self.port}", "-ws", websocket, "-info", info]
        return [str(self.home() / "cmd"), *listeners]


class Amqtt(Broker):
    """amqtt, written in Python; installed with brokerweave[demo], so it is there where no other is."""

    name = "amqtt"

    @classmethod
    def missing(cls) -> str | None:
        if importlib.util.find_spec("amqtt"):
            return None
        return "amqtt is not installed (pip install 'brokerweave[demo]')"

    @property
    def version(self) -> str:
        return importlib.metadata.version("amqtt")

    def command(self) -> list[str]:
        path = self.directory / "amqtt.yaml"
        path.write_text(
            f"""listeners:
  default:
    type: tcp
    bind: {self.host}:{self.port}
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin:
    allow_anonymous: true
"""
        )
        return [sys.executable, "-m", "amqtt.scripts.broker_script", "-c", str(path)]
