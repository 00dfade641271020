"""Finds out what a broker can do, by trying it.

Owns what is asked (`experiments` knows how) and how it is shown. Invariants: every wait is bounded, nothing
is left behind, a field is None where the question could not be asked or answered. Must not know: which
maker's broker it talks to.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from brokerweave.config import BrokerAddress
from brokerweave.mqtt.properties import Property, Value
from brokerweave.runtime import experiments
from brokerweave.runtime.experiments import VERSION_NAMES, Bench, tried


@dataclass(frozen=True, slots=True)
class Essentials:
    """What an injector needs to know before it publishes."""

    version: int
    """The highest protocol level the broker speaks: 3, 4 or 5."""
    max_qos: int
    """The highest QoS that publications to this broker can have."""
    retain: bool
    """False only where an MQTT 5 broker says that it retains nothing."""
    receive_maximum: int
    """How many unacknowledged publications the broker takes at once."""
    maximum_packet: int | None
    """The largest packet the broker declares to take; None if it declares none."""
    topic_alias_maximum: int
    user_properties: bool | None = None
    """It delivers user properties as they were published. None: not asked, or MQTT 5 is not spoken."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a broker can do. None means: not known, or a question that its version cannot ask."""

    essentials: Essentials
    versions: tuple[int, ...]
    qos2: str
    """What happened to a publication at QoS 2, in a few words."""
    max_qos_subscribe: int | None
    retained_exact: bool | None
    retained_wildcard: bool | None
    wills: bool | None
    shared_subscriptions: bool | None
    maximum_packet: int | None
    """Declared by the broker, or else the largest one that arrived: it may take more."""
    maximum_packet_declared: bool
    persistent_sessions: bool | None
    """A message that came while its subscriber was away was delivered on return."""
    session_present: bool | None
    """CONNACK said so on that return. Not every broker that keeps sessions does, nor the other way round."""
    no_local: bool | None
    retain_as_published: bool | None
    odd_topics: tuple[tuple[str, str], ...]
    """The kinds of topic that do not arrive as they were published, each with what happens instead."""


async def probe_essentials(
    address: BrokerAddress,
    *,
    username: str | None = None,
    password: bytes | None = None,
    timeout: float = 2.0,
    proxied: bool = False,
    user_properties: bool = False,
) -> Essentials:
    """What an injector needs, with two or three connections. Raises `Unavailable`.

    `timeout` bounds each single wait, in seconds; `proxied`: each connection begins with a PROXY header.
    `user_properties`: find out about these, too, by a publication that comes back.
    """
    bench = Bench(address, username, password, timeout, proxied)
    essentials = await _essentials(bench)
    return await _with_user_properties(bench, essentials) if user_properties else essentials


async def probe(
    address: BrokerAddress,
    *,
    username: str | None = None,
    password: bytes | None = None,
    timeout: float = 2.0,
) -> Abilities:
    """Everything. Takes some three times `timeout`, since what never comes must be waited for."""
    bench = Bench(address, username, password, timeout)
    essentials = await _with_user_properties(bench, await _essentials(bench))
    bench.version = essentials.version
    bench.qos = min(1, essentials.max_qos)
    async with asyncio.TaskGroup() as group:
        versions = group.create_task(experiments.versions_spoken(bench))
        qos2 = group.create_task(tried(experiments.fate_of_qos2, bench, "closes the connection"))
        granted = group.create_task(tried(experiments.granted_qos, bench, None))
        exact = group.create_task(tried(experiments.retains_for_exact, bench, False))
        wildcard = group.create_task(tried(experiments.retains_for_wildcard, bench, False))
        wills = group.create_task(tried(experiments.publishes_wills, bench, False))
        shared = group.create_task(tried(experiments.shares_subscriptions, bench, False))
        sessions = group.create_task(tried(experiments.keeps_sessions, bench, (False, None)))
        no_local = group.create_task(tried(experiments.respects_no_local, bench, False))
        as_published = group.create_task(tried(experiments.respects_retain_as_published, bench, False))
        odd_topics = group.create_task(experiments.fates_of_odd_topics(bench))
    kept, told = sessions.result()
    declared = essentials.maximum_packet
    return Abilities(
        essentials=essentials,
        versions=versions.result(),
        qos2=qos2.result(),
        max_qos_subscribe=granted.result(),
        retained_exact=exact.result(),
        retained_wildcard=wildcard.result(),
        wills=wills.result(),
        shared_subscriptions=shared.result(),
        # Last and alone: large packets would make the other experiments wait.
        maximum_packet=declared or await tried(experiments.largest_packet, bench, None),
        maximum_packet_declared=declared is not None,
        persistent_sessions=kept,
        session_present=told,
        no_local=no_local.result(),
        retain_as_published=as_published.result(),
        odd_topics=odd_topics.result(),
    )


async def _essentials(bench: Bench) -> Essentials:
    client = await experiments.open_highest(bench)
    async with client:
        declared_qos = client.property(Property.MAXIMUM_QOS)
        if declared_qos is not None:
            max_qos = _number(declared_qos, 2)
        else:
            # MQTT 5 brokers must declare less than 2 [MQTT-3.2.2-9]; older ones can only be tried.
            bench.version = client.version
            max_qos = 2 if client.version == 5 else await experiments.highest_qos(bench)
        size = client.property(Property.MAXIMUM_PACKET_SIZE)
        return Essentials(
            version=client.version,
            max_qos=max_qos,
            retain=client.property(Property.RETAIN_AVAILABLE) != 0,
            receive_maximum=_number(client.property(Property.RECEIVE_MAXIMUM), 65_535),
            maximum_packet=None if size is None else _number(size, 0),
            topic_alias_maximum=_number(client.property(Property.TOPIC_ALIAS_MAXIMUM), 0),
        )


async def _with_user_properties(bench: Bench, essentials: Essentials) -> Essentials:
    if essentials.version < 5:
        return essentials
    bench.version, bench.qos = essentials.version, min(1, essentials.max_qos)
    passes = await tried(experiments.passes_user_properties, bench, False)
    return replace(essentials, user_properties=passes)


def _number(value: Value | None, default: int) -> int:
    return value if isinstance(value, int) else default


def rows(abilities: Abilities) -> list[tuple[str, str]]:
    """What was found, as label and text, for people."""
    essentials = abilities.essentials
    size = "unknown" if abilities.maximum_packet is None else f"{abilities.maximum_packet:,} bytes"
    if not abilities.maximum_packet_declared and abilities.maximum_packet is not None:
        size = f"at least {size}"
    odd = "; ".join(f"{kind}: {fate}" for kind, fate in abilities.odd_topics)
    granted = abilities.max_qos_subscribe
    return [
        ("MQTT versions", ", ".join(VERSION_NAMES[version] for version in abilities.versions)),
        ("highest QoS published", str(essentials.max_qos)),
        ("highest QoS granted", "unknown" if granted is None else str(granted)),
        ("QoS 2", abilities.qos2),
        ("retained, exact filter", _word(abilities.retained_exact)),
        ("retained, wildcard filter", _word(abilities.retained_wildcard)),
        ("wills", _word(abilities.wills)),
        ("persistent sessions", _word(abilities.persistent_sessions)),
        ("session present", _word(abilities.session_present)),
        ("shared subscriptions", _word(abilities.shared_subscriptions)),
        ("no-local", _word(abilities.no_local)),
        ("retain as published", _word(abilities.retain_as_published)),
        ("user properties", _word(essentials.user_properties)),
        ("topic aliases", str(essentials.topic_alias_maximum)),
        ("receive maximum", str(essentials.receive_maximum)),
        ("maximum packet", size),
        ("odd topics", odd or "all arrive"),
    ]


def _word(value: bool | None) -> str:
    return {True: "yes", False: "no", None: "-"}[value]
