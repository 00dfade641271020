"""What a client's MQTT session leaves behind between its connections.

Owns: the filters the broker granted, the QoS 2 packet ids in progress, when the session ends. Invariant:
one record per client id; `owner` is the newest pair, and only its end can end the session.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from brokerweave.mqtt.packets import Connect
from brokerweave.mqtt.properties import Properties, Property, get_int

NEVER = 0xFFFFFFFF
"""MQTT 5's Session Expiry Interval for a session that does not expire [MQTT-3.1.2.11.2]."""


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
    }
    if whole:
        kept |= {"filters": dict(record.filters), "qos2": sorted(record.incoming_qos2)}
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
    )


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
