"""What a client's MQTT session leaves behind between its connections.

Owns: the filters the broker granted, the QoS 2 packet ids in progress, when the session ends. Invariant:
one record per client id; `owner` is the newest pair, and only its end can end the session.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from brokerweave.mqtt.packets import Connect
from brokerweave.mqtt.properties import Properties, Property, get_int

NEVER = 0xFFFFFFFF
"""MQTT 5's Session Expiry Interval for a session that does not expire [MQTT-3.1.2.11.2]."""

Name: TypeAlias = tuple[str, int, int, int]
"""Of a publication: origin, epoch, lane, sequence."""


@dataclass(slots=True)
class SessionRecord:
    client_id: str
    expiry: float
    """Seconds the session outlives its connection; 0 ends it with the connection."""
    owner: object | None = None
    filters: dict[str, int] = field(default_factory=dict)
    """Granted filter (as the client wrote it) -> granted QoS."""
    incoming_qos2: set[int] = field(default_factory=set)
    """Packet ids of QoS 2 publications forwarded and not yet released: a resent one is not new."""
    since: float | None = None
    """When its client left; None while it is connected."""
    joined: int = 0
    """When its client last came here, as a hybrid time; a later one at another site takes it over."""
    unknown: bool = False
    """The broker knows filters of this session that the node has never seen."""
    shown: frozenset[int] | None = None
    """Packet ids of its broker's deliveries that the client may go on with; None: nobody knows which."""
    lost: bool = False
    """Its broker died, or hung up, and may not know it any more."""
    returned: dict[str, tuple[int, list[int]]] | None = None
    """Of one that came from another site, or lost its session, and for which something may be kept from
    before: the epoch and last sequences of each node that did not know yet that it is here."""
    granted: float | None = None
    """When it last subscribed here as such a one: what is published later its broker has for it."""
    had: dict[Name, None] = field(default_factory=dict)
    """What such a client got of its pending messages: its broker may still get these."""
    stored: bool = False
    """The node finds it again after a crash: sessions that end with their connection are never written."""


def state_of(record: SessionRecord, whole: bool = True) -> dict[str, Any]:
    """A session as plain data; not `whole`: without what is written down each time it changes."""
    kept: dict[str, Any] = {
        "client": record.client_id,
        "expiry": None if math.isinf(record.expiry) else record.expiry,
        "since": record.since,
        "joined": record.joined,
        "unknown": record.unknown,
        "returned": record.returned,
        "granted": record.granted,
    }
    if whole:
        qos2, had = sorted(record.incoming_qos2), list(record.had)
        kept |= {"filters": dict(record.filters), "qos2": qos2, "had": had}
    return kept


def record_of(kept: dict[str, Any]) -> SessionRecord:
    """The session that `state_of` gave, but for its filters: they come back one by one."""
    return SessionRecord(
        str(kept["client"]),
        math.inf if kept["expiry"] is None else float(kept["expiry"]),
        incoming_qos2=set(kept["qos2"]),
        since=None if kept["since"] is None else float(kept["since"]),
        joined=int(kept.get("joined", 0)),
        unknown=bool(kept["unknown"]),
        returned=_cuts(kept.get("returned")),
        granted=None if kept.get("granted") is None else float(kept["granted"]),
        had=_names(kept.get("had", ()) if kept.get("returned") is not None else ()),
    )


def _cuts(kept: Any) -> dict[str, tuple[int, list[int]]] | None:
    if not isinstance(kept, dict):
        return {} if kept else None  # as earlier versions wrote it
    return {str(node): (int(epoch), [int(each) for each in last]) for node, (epoch, last) in kept.items()}


def _names(kept: Iterable[Any]) -> dict[Name, None]:
    return {(str(origin), int(epoch), int(lane), int(last)): None for origin, epoch, lane, last in kept}


def expiry_of(connect: Connect, default: float) -> float:
    """Seconds a session outlives its connection; `default` for 3.1.1 sessions that are not clean."""
    if connect.version < 5:
        return 0.0 if connect.clean_start else default
    return seconds(get_int(connect.properties, Property.SESSION_EXPIRY_INTERVAL, 0))


def changed_expiry(properties: Properties, current: float) -> float:
    """The expiry after a CONNACK or DISCONNECT that may carry a new one."""
    value = get_int(properties, Property.SESSION_EXPIRY_INTERVAL, -1)
    return current if value < 0 else seconds(value)


def seconds(interval: int) -> float:
    return math.inf if interval == NEVER else float(interval)
