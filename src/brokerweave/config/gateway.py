"""A gateway's configuration: its keys, with unit, default, formula and cost.

Owns the names that users write (a contract); docs/gateway.md is made from here. Invariants: a `GatewayConfig`
that `load` returned is complete and checked, and never changes. Must not know: the runtime that uses it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from brokerweave.config.common import HERE, LOG_FORMAT, LOG_LEVEL, OWN_TOPIC, SITE_MONITOR
from brokerweave.config.keys import LimitsSection, keys_of
from brokerweave.config.sites import SiteFile, SiteText, check_readable
from brokerweave.config.socket import default_admin_socket
from brokerweave.config.values import (
    ADDRESSES,
    ID,
    LISTENING,
    PATH,
    REMOTE,
    SWITCH,
    TEXT,
    Address,
    about,
    choice,
    integer,
    seconds,
)
from brokerweave.errors import ConfigError


@dataclass(frozen=True, slots=True)
class GatewaySection:
    """Who this gateway is, where clients connect, and whom it follows."""

    id: str = field(
        default="gateway", metadata=about(ID, "Its name. Each gateway of a controller needs its own.")
    )
    listen: Address = field(
        default=Address("127.0.0.1", 1883),
        metadata=about(LISTENING, "Where clients connect: MQTT over plain TCP."),
    )
    controller: tuple[Address, ...] = field(
        default=(),
        metadata=about(
            ADDRESSES,
            "Controllers (their `listen`). Of those that answer, the one with the lowest id is followed. "
            "Without one, the gateway chooses by what it measures.",
        ),
    )
    sealed: bool = field(
        default=True,
        metadata=about(
            SWITCH,
            "Speak to controllers and sites in datagrams that the key authenticates. `false`: in EMMA's own "
            "packets to one controller that does so, too, which moves all clients together. The `id` has at "
            "most 36 characters then. For loopback and tests.",
        ),
    )
    monitor: Address = field(
        default=Address("0.0.0.0", 0),
        metadata=about(
            LISTENING,
            "From where sites are measured and controllers are spoken to (UDP). By default any port.",
        ),
    )
    measure_every: float = field(
        default=15.0,
        metadata=about(
            seconds(3, 3600),
            "How often the nearest sites, and those in use, are measured (EMMA: 15 s).",
            unit="seconds",
            formula="a measurement takes 2.5 s; at most the policy's `hold`",
            cost="some 1.9 kB for a site and measurement",
        ),
    )
    health: Address | None = field(
        default=None,
        metadata=about(
            LISTENING,
            "Where a balancer asks by HTTP whether this gateway takes clients: 200, or 503 and why not.",
        ),
    )
    key_file: Path | None = field(
        default=None,
        metadata=about(
            PATH,
            "A file with the key that nodes, controllers and gateways share. Without it sites are not "
            "measured, and moves are EMMA's.",
        ),
    )
    admin_socket: Path | None = field(
        default=None,
        metadata=about(
            PATH,
            "The socket that `gateway status` and `gateway move` talk to; by default one per user and id.",
        ),
    )
    log_level: str = field(default="warning", metadata=LOG_LEVEL)
    log_format: str = field(default="text", metadata=LOG_FORMAT)


@dataclass(frozen=True, slots=True)
class MovesSection:
    """How clients go from one site to another."""

    procedure: str = field(
        default="planned",
        metadata=about(
            choice("planned", "emma"),
            "`planned`: the old site drains, and nothing is lost or doubled; sites have to be nodes of one "
            "mesh. `emma`: EMMA's own procedure, for any site. A site with `bare = true` has EMMA's in any "
            "case.",
        ),
    )
    at_once: int = field(
        default=50, metadata=about(integer(1, 100_000), "Moves under way at the same time; others wait.")
    )
    timeout: float = field(
        default=20.0,
        metadata=about(
            seconds(0.1, 3600),
            "How long the old site may take to drain before its connection is ended.",
            unit="seconds",
            formula="more than half of the mesh's `patience`, which ends a drain by itself",
        ),
    )
    search: float = field(
        default=30.0,
        metadata=about(
            seconds(0.1, 3600),
            "How long a site is looked for when a client's own died, before the client is let go.",
            unit="seconds",
        ),
    )


@dataclass(frozen=True, slots=True)
class GatewayTelemetrySection:
    """The gateway's own numbers as MQTT messages."""

    interval: float = field(
        default=0.0,
        metadata=about(
            seconds(0, 86_400),
            "Time between two messages; 0: none. The gateway publishes them through itself, at QoS 0, as a "
            "client with the id `brokerweave-telemetry-` and its own.",
            unit="seconds",
            cost="some 0.5 KB and less than a millisecond each",
        ),
    )
    topic: str = field(
        default="brokerweave/gateways/{gateway}",
        metadata=about(OWN_TOPIC, "Their topic; `{gateway}` is this gateway's id."),
    )
    username: str | None = field(
        default=None, metadata=about(TEXT, "With which that client connects, where the brokers ask for one.")
    )
    password_file: Path | None = field(
        default=None, metadata=about(PATH, "A file whose first line is the password that goes with it.")
    )


@dataclass(frozen=True, slots=True)
class GatewaySiteSection:
    """A site, one `[[site]]` each. A controller's list replaces them. But a site that is in both lists is
    reached by the addresses that are written here: this gateway may need others than the rest."""

    name: str = field(metadata=about(ID, "The site's name: the node's `id`."))
    clients: Address = field(
        metadata=about(REMOTE, "Where clients are connected: the node's `listen`, or a bare broker.")
    )
    monitor: Address | None = field(default=None, metadata=SITE_MONITOR)
    bare: bool = field(
        default=False,
        metadata=about(SWITCH, "It is no node of a mesh: a broker, or a node with another strategy."),
    )


MOST_NAME = 36
"""Characters of an id in Table I's packets."""
SECTIONS: Mapping[str, type[Any]] = MappingProxyType(
    {
        "gateway": GatewaySection,
        "moves": MovesSection,
        "telemetry": GatewayTelemetrySection,
        "limits": LimitsSection,
    }
)
LISTS: Mapping[str, type[Any]] = MappingProxyType({"site": GatewaySiteSection})
KEYS = MappingProxyType(
    {key.dotted: key for section, shape in SECTIONS.items() for key in keys_of(section, shape)}
)


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Everything that a gateway is told. `sources` names, for each key, the file or flag that set it."""

    gateway: GatewaySection
    moves: MovesSection
    telemetry: GatewayTelemetrySection
    limits: LimitsSection
    sites: tuple[GatewaySiteSection, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def admin_socket(self) -> Path:
        return self.gateway.admin_socket or default_socket(self.gateway.id)


def default_socket(gateway: str) -> Path:
    """Not taken for a node's."""
    return default_admin_socket(gateway).with_suffix(".gateway")


def load(path: str | os.PathLike[str] | None, flags: Mapping[str, object]) -> GatewayConfig:
    """The configuration that a file and flags make together. A flag's name is the dotted key; "site" is a
    list of NAME=HOST:PORT,HOST:UDPPORT, which replace sites of the file that have the same name. Raises
    `ConfigError`."""
    file = SiteFile(path, flags, SECTIONS, LISTS)
    config = GatewayConfig(
        **{name: file.section(name) for name in SECTIONS},
        sites=file.sites(_site),
        sources=MappingProxyType(file.sources),
    )
    _check(config)
    return config


def _site(text: SiteText) -> GatewaySiteSection:
    return GatewaySiteSection(text.name, text.clients, text.monitor)


def _check(config: GatewayConfig) -> None:
    """What single values cannot tell."""
    own = config.gateway
    if not config.sites and not own.controller:
        raise ConfigError(
            "no site is known: give --site NAME=HOST:PORT,HOST:UDPPORT or --controller HOST:PORT"
        )
    if not own.sealed:
        if len(own.controller) != 1 or own.controller[0].host not in HERE or len(own.id) > MOST_NAME:
            raise ConfigError(
                "sealed = false is for one 'controller' on this machine, and an 'id' of at most "
                f"{MOST_NAME} characters"
            )
    elif own.controller and own.key_file is None:
        raise ConfigError("a gateway with a controller needs the 'key_file' that they share")
    check_readable([("key_file", own.key_file)])
