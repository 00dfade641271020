"""Wills of other nodes' clients, at a node that holds for them.

Owns what it was told, and what is due since a node died. Invariants: a will is given out once; a client that
came back before its will was due cancels it; the total is bounded, and what did not fit is counted. Must not
know: who else holds, how a will is published.

Every holder of a node is told; the first one that lives publishes. The caller asks `due` only while it is
that one, and tells the others `cleared` of what it published.
"""

from __future__ import annotations

from dataclasses import dataclass

from brokerweave.mqtt.packets import Will
from brokerweave.mqtt.properties import Property, get_int

OVERHEAD = 600
"""Bytes that one takes beside topic and payload, about."""


@dataclass(frozen=True, slots=True)
class PendingWill:
    """`since` is when its client came to `node`; `version` the MQTT version of its session."""

    client: str
    node: str
    since: int
    version: int
    will: Will
    expiry: int = 0
    """Seconds that its session lasts: no will waits longer [MQTT-3.1.3-9]."""

    @property
    def size(self) -> int:
        return OVERHEAD + len(self.client) + len(self.will.topic) + len(self.will.payload)

    @property
    def delay(self) -> int:
        if self.version < 5:
            return 0
        return min(get_int(self.will.properties, Property.WILL_DELAY_INTERVAL, 0), self.expiry)


class PendingWills:
    def __init__(self, max_bytes: int) -> None:
        self.dropped = 0
        """Wills that there was no room for."""
        self._max_bytes = max_bytes
        self._bytes = 0
        self._told: dict[str, PendingWill] = {}
        self._due: dict[str, float] = {}
        """Client to when, of those whose node is dead."""

    def __len__(self) -> int:
        return len(self._told)

    def told(self, pending: PendingWill) -> None:
        """A client came to a node, with this will. Of two of one client the later counts."""
        known = self._told.get(pending.client)
        if known is not None and known.since > pending.since:
            return
        self._forget(pending.client)
        if self._bytes + pending.size > self._max_bytes:
            self.dropped += 1
            return
        self._told[pending.client] = pending
        self._bytes += pending.size

    def cleared(self, client: str, since: int) -> None:
        """Its node sent the will or dropped it, or another holder published it, or the client is elsewhere
        since then, without one."""
        known = self._told.get(client)
        if known is not None and known.since <= since:
            self._forget(client)

    def dead(self, node: str, now: float) -> None:
        """The node died with its broker. May be said again: what is due stays due when it was."""
        for client, pending in self._told.items():
            if pending.node == node:
                self._due.setdefault(client, now + pending.delay)

    def alive(self, node: str) -> None:
        """It was not dead after all, or is back: its own broker publishes."""
        for client in [client for client in self._due if self._told[client].node == node]:
            del self._due[client]

    def next_due(self) -> float | None:
        return min(self._due.values(), default=None)

    def due(self, node: str, now: float) -> list[PendingWill]:
        """The wills of a dead node's clients to publish now, which are not owed any more."""
        clients = [c for c, when in self._due.items() if when <= now and self._told[c].node == node]
        given = [self._told[client] for client in clients]
        for client in clients:
            self._forget(client)
        return given

    def of(self, node: str) -> list[PendingWill]:
        """Everything told of a node, for one that begins to hold for it."""
        return [pending for pending in self._told.values() if pending.node == node]

    def _forget(self, client: str) -> None:
        pending = self._told.pop(client, None)
        if pending is not None:
            self._bytes -= pending.size
        self._due.pop(client, None)
