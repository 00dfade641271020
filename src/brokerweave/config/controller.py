"""A controller's configuration: its keys, with unit, default, formula and cost.

Owns the names that users write (a contract); docs/controller.md is made from here. Invariants:
a `ControllerConfig` that `load` returned is complete and checked, and never changes. Must not know: the
runtime that uses it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from brokerweave.config.common import HERE, LOG_FORMAT, LOG_LEVEL, SITE_MONITOR
from brokerweave.config.keys import MembershipSection, keys_of
from brokerweave.config.sites import SiteFile, SiteText, check_readable
from brokerweave.config.values import (
    ID,
    LISTENING,
    PATH,
    PLUGIN,
    REMOTE,
    SWITCH,
    Address,
    about,
    choice,
    integer,
    number,
    seconds,
)
from brokerweave.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ControllerSection:
    """Who this controller is, and where it is reached."""

    id: str = field(
        default="controller",
        metadata=about(
            ID,
            "Its name. Of several controllers that a gateway hears, it follows the one with the lowest id.",
        ),
    )
    listen: Address = field(
        default=Address("127.0.0.1", 7900), metadata=about(LISTENING, "Where gateways reach it (UDP).")
    )
    api: Address = field(
        default=Address("127.0.0.1", 7901),
        metadata=about(
            LISTENING,
            "Where `brokerweave controller plan`, `moves`, `drain` and so on reach it (HTTP, JSON). Without "
            "a token it has to be a loopback address.",
        ),
    )
    api_token_file: Path | None = field(
        default=None,
        metadata=about(PATH, "A file with the token that callers of `api` show (`Authorization: Bearer`)."),
    )
    key_file: Path | None = field(
        default=None,
        metadata=about(PATH, "A file with the key that gateways, nodes and controllers share."),
    )
    sealed: bool = field(
        default=True,
        metadata=about(
            SWITCH,
            "Speak to gateways in datagrams that the key authenticates. `false`: EMMA's own packets, which "
            "move a gateway as a whole; for loopback and tests.",
        ),
    )
    data_dir: Path | None = field(
        default=None,
        metadata=about(
            PATH,
            "Where pins, and which sites are drained or evacuated, are kept over a restart. Without it a "
            "restart forgets them.",
        ),
    )
    round: float = field(
        default=15.0,
        metadata=about(
            seconds(0.1, 3600),
            "Between two looks of the policy at all gateways. What has to be done at once does not wait.",
            unit="seconds",
            cost="about 0.5 s of CPU for 1,000 gateways with 10,000 clients and 100 sites",
        ),
    )
    gateway_timeout: float = field(
        default=45.0,
        metadata=about(
            seconds(6, 86_400),
            "A gateway that was not heard for so long is forgotten, with its clients. It reports every 5 s.",
            unit="seconds",
        ),
    )
    order_timeout: float = field(
        default=30.0,
        metadata=about(seconds(1, 3600), "For one move, until it counts as failed.", unit="seconds"),
    )
    history: float = field(
        default=6 * 3600.0,
        metadata=about(
            seconds(1, 30 * 86_400),
            "For how long decisions are kept for `brokerweave controller moves`; at most 20,000 of them.",
            unit="seconds",
        ),
    )
    log_level: str = field(default="warning", metadata=LOG_LEVEL)
    log_format: str = field(default="text", metadata=LOG_FORMAT)


@dataclass(frozen=True, slots=True)
class PolicySection:
    """Which client should be where."""

    name: str = field(
        default="steady",
        metadata=about(
            PLUGIN,
            "`steady`: by latency, jitter and loss, and by load among sites that are about as near; seldom "
            "moves anybody. `emma`: Algorithm 1 of EMMA, whole gateways, by latency groups and connections. "
            "Or a plug-in of yours.",
        ),
    )
    load: str = field(
        default="connections",
        metadata=about(
            choice("connections", "messages", "cpu"),
            "What is balanced among sites that are as near: their connections, messages a second, or the CPU "
            "that their nodes use.",
        ),
    )
    theta: float = field(
        default=0.1,
        metadata=about(
            number(0, 1),
            "Among such sites a client moves only if the difference of two loads is more than this share of "
            "all their loads (EMMA, Algorithm 1).",
        ),
    )
    hold: float = field(
        default=30.0,
        metadata=about(
            seconds(0, 3600),
            "For so long, in every measurement, another site has to be better before a client moves "
            "(`steady`).",
            unit="seconds",
        ),
    )
    rest: float = field(
        default=300.0,
        metadata=about(
            seconds(0, 86_400),
            "For so long the policy does not move a client again (`steady`).",
            unit="seconds",
        ),
    )
    margin: float = field(
        default=0.5,
        metadata=about(
            number(0, 10),
            "A site is better if the other's cost is more than 1 + margin times as high, and by 1 ms "
            "(`steady`). The default leaves clients alone where two sites swing by 20 % around one mean.",
            formula="cost = mean + 2 x jitter + 0.5 s x loss",
        ),
    )


@dataclass(frozen=True, slots=True)
class PaceSection:
    """How fast clients are moved. A site that died or is evacuated is left at once, whatever this says."""

    at_once: int = field(default=50, metadata=about(integer(1, 100_000), "Moves under way at the same time."))
    per_second: float = field(
        default=20.0, metadata=about(number(0.01, 100_000), "Moves that begin in a second.")
    )
    drain_per_second: float = field(
        default=20.0,
        metadata=about(
            number(0.01, 100_000), "The same, away from a site that is drained; `drain --pace` says another."
        ),
    )


@dataclass(frozen=True, slots=True)
class SiteSection:
    """A site, one `[[site]]` each. With [membership] sites are found there; then only a weight is of use."""

    name: str = field(metadata=about(ID, "The site's name; with [membership] the node's `id`."))
    clients: Address | None = field(
        default=None,
        metadata=about(REMOTE, "Where gateways connect clients: the node's `listen`, or a bare broker."),
    )
    monitor: Address | None = field(default=None, metadata=SITE_MONITOR)
    weight: float = field(
        default=1.0,
        metadata=about(
            number(0.01, 1000), "Of two sites as near, the one with twice the weight gets twice the load."
        ),
    )


SECTIONS: Mapping[str, type[Any]] = MappingProxyType(
    {
        "controller": ControllerSection,
        "policy": PolicySection,
        "pace": PaceSection,
        "membership": MembershipSection,
    }
)
LISTS: Mapping[str, type[Any]] = MappingProxyType({"site": SiteSection})
KEYS = MappingProxyType(
    {key.dotted: key for section, shape in SECTIONS.items() for key in keys_of(section, shape)}
)


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Everything that a controller is told. `sources` names, for each key, the file or flag that set it."""

    controller: ControllerSection
    policy: PolicySection
    pace: PaceSection
    membership: MembershipSection
    sites: tuple[SiteSection, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)


def load(path: str | os.PathLike[str] | None, flags: Mapping[str, object]) -> ControllerConfig:
    """The configuration that a file and flags make together. A flag's name is the dotted key; "site" is a
    list of NAME=HOST:PORT,HOST:UDPPORT, which replace sites of the file that have the same name. Raises
    `ConfigError`."""
    file = SiteFile(path, flags, SECTIONS, LISTS)
    config = ControllerConfig(
        **{name: file.section(name) for name in SECTIONS},
        sites=file.sites(_site),
        sources=MappingProxyType(file.sources),
    )
    config = _observing(config)
    _check(config)
    return config


def _site(text: SiteText) -> SiteSection:
    return SiteSection(text.name, text.clients, text.monitor)


def _observing(config: ControllerConfig) -> ControllerConfig:
    """Who joins without a `bind` is probed at a port of its own beside `listen`."""
    membership = config.membership
    if membership.join and membership.bind is None:
        membership = replace(membership, bind=Address(config.controller.listen.host, 0))
    return replace(config, membership=membership)


def _check(config: ControllerConfig) -> None:
    """What single values cannot tell."""
    own, membership = config.controller, config.membership
    if membership.bind is None and not config.sites:
        raise ConfigError("no site is known: give --site NAME=HOST:PORT,HOST:UDPPORT or --join HOST:PORT")
    if own.sealed and own.key_file is None:
        raise ConfigError(
            "a controller needs a 'key_file', which gateways and nodes share; on loopback sealed = false does"
        )
    if membership.bind is not None:
        if membership.key_file is None and own.key_file is None:
            raise ConfigError("[membership] needs a 'key_file', there or in [controller]")
        if membership.bind.host in ("0.0.0.0", "::") and membership.advertise is None:
            raise ConfigError(
                f"[membership] bind is {membership.bind}: write 'advertise', where the others reach it"
            )
    for site in config.sites:
        if site.clients is None and membership.bind is None:
            raise ConfigError(f"site '{site.name}' has no 'clients', and there is no [membership] to tell it")
    if not own.sealed and own.listen.host not in HERE:
        raise ConfigError(
            f"sealed = false lets everybody who reaches {own.listen} move clients: listen on 127.0.0.1"
        )
    if own.api_token_file is None and own.api.host not in HERE:
        raise ConfigError(f"'api' {own.api} is reached from elsewhere and needs an 'api_token_file'")
    check_readable(
        [
            ("key_file", own.key_file),
            ("api_token_file", own.api_token_file),
            ("key_file", membership.key_file),
        ]
    )
