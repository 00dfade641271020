"""The brokers that Debian packages: how each is configured for loopback and a directory of its own.

Must not know: how processes are kept (that is `broker`).
"""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterable
from pathlib import Path

from brokerweave.config import BrokerAddress, UnixSocket
from brokerweave.lab.broker import Broker, answers_mqtt, find_program, first_line, free_port


class Mosquitto(Broker):
    """Eclipse Mosquitto. `config` takes any further lines of mosquitto.conf; `unix`: at `socket`, too."""

    name = "mosquitto"

    def __init__(
        self,
        *,
        config: Iterable[str] = (),
        passwords: dict[str, str] | None = None,
        acl: str | None = None,
        persistence: bool = False,
        unix: bool = False,
    ) -> None:
        super().__init__()
        self.socket = UnixSocket(str(self.directory / "broker.sock"))
        self._unix = unix
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
            # Every change is written on the loop's next turn, so that a kill loses almost nothing.
            *(["autosave_on_changes true", "autosave_interval 1"] if self._persistence else []),
            *self._config,
            *([f"listener 0 {self.socket.path}"] if self._unix else []),
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


class RabbitMQ(Broker):
    """RabbitMQ with its MQTT plug-in, as a node of its own that no other node can reach.

    Starting takes some ten seconds, five of which its MQTT plug-in waits for a cluster that never comes.
    Erlang's port mapper would stay behind as a daemon, so this broker runs one of its own.
    """

    name = "rabbitmq"
    start_timeout = 300.0
    _server = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

    def __init__(self, *, config: Iterable[str] = ()) -> None:
        super().__init__()
        self._config = tuple(config)
        self._mapper_port = free_port()
        self._distribution_port = free_port()
        self._mapper: subprocess.Popen[bytes] | None = None

    @classmethod
    def missing(cls) -> str | None:
        if cls._server.exists() and find_program("epmd"):
            return None
        return "rabbitmq-server is not installed (scripts/install-debian)"

    @property
    def version(self) -> str:
        # The program itself takes seconds to tell; its folder is called rabbitmq_server-VERSION.
        return self._server.resolve().parents[1].name.partition("-")[2]

    def command(self) -> list[str]:
        lines = [
            "listeners.tcp = none",
            f"mqtt.listeners.tcp.default = {self.host}:{self.port}",
            "mqtt.allow_anonymous = true",
            *self._config,
        ]
        (self.directory / "rabbitmq.conf").write_text("\n".join(lines) + "\n")
        (self.directory / "enabled_plugins").write_text("[rabbitmq_mqtt].\n")
        return [str(self._server)]

    def environment(self) -> dict[str, str]:
        return super().environment() | {
            "HOME": str(self.directory),  # where Erlang keeps its cookie
            "ERL_EPMD_ADDRESS": self.host,
            "ERL_EPMD_PORT": str(self._mapper_port),
            "RABBITMQ_NODENAME": f"brokerweave{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(self._distribution_port),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.directory / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.directory / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.directory),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            # The start script then replaces itself by the server, which gets our signals directly.
            "detached": "yes",
        }

    def start(self) -> None:
        if self._mapper is None:
            self._mapper = self._spawn(
                [find_program("epmd") or "epmd", "-address", self.host, "-port", str(self._mapper_port)]
            )
        super().start()

    def stop(self, *, kill: bool = False) -> None:
        super().stop(kill=kill)
        mapper, self._mapper = self._mapper, None
        if mapper is not None:
            mapper.kill()
            mapper.wait(10)


class Nats(Broker):
    """NATS with JetStream, which its MQTT side needs for QoS 1 and sessions."""

    name = "nats"

    @classmethod
    def missing(cls) -> str | None:
        return (
            None if find_program("nats-server") else "nats-server is not installed (scripts/install-debian)"
        )

    @property
    def version(self) -> str:
        return first_line(find_program("nats-server") or "nats-server", "--version").rpartition("v")[2]

    def __init__(self) -> None:
        super().__init__()
        self._own_protocol_port = free_port()

    def command(self) -> list[str]:
        path = self.directory / "nats.conf"
        path.write_text(
            f"""
            server_name: "brokerweave-{self.port}"
            listen: "{self.host}:{self._own_protocol_port}"
            jetstream {{ store_dir: "{self.directory}/jetstream" }}
            mqtt {{ listen: "{self.host}:{self.port}" }}
            """
        )
        return [find_program("nats-server") or "nats-server", "-c", str(path)]


class HAProxy(Broker):
    """Not a broker: a TCP proxy with one thread in front of one, to compare a node with.

    `accept_proxy`: it expects the PROXY protocol; `rules` are further lines about its clients.
    """

    name = "haproxy"

    def __init__(
        self, *, backend: BrokerAddress, accept_proxy: bool = False, rules: Iterable[str] = ()
    ) -> None:
        super().__init__()
        self._backend = f"unix@{backend.path}" if isinstance(backend, UnixSocket) else str(backend)
        self._accept_proxy = accept_proxy
        self._rules = tuple(rules)

    def ready(self) -> bool:
        return answers_mqtt(self.port, proxied=self._accept_proxy)

    @classmethod
    def missing(cls) -> str | None:
        return None if find_program("haproxy") else "haproxy is not installed (scripts/install-debian)"

    @property
    def version(self) -> str:
        return first_line(find_program("haproxy") or "haproxy", "-v").split()[2]

    def command(self) -> list[str]:
        path = self.directory / "haproxy.cfg"
        # Two files a connection and a few of its own; it refuses to start when told to take more.
        _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
        connections = max(100, min(files, 65_536) // 2 - 100)
        rules = "\n    ".join(self._rules)
        path.write_text(
            f"""global
    nbthread 1
    maxconn {connections}
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
frontend clients
    bind {self.host}:{self.port}{" accept-proxy" if self._accept_proxy else ""}
    {rules}
    default_backend broker
backend broker
    server broker {self._backend}
"""
        )
        return [find_program("haproxy") or "haproxy", "-db", "-f", str(path)]
