"""In a mesh: what may come to a client twice, because nobody could know that it had it.

Owns, for each client, what was on its way to it (or the news of that on its way to those who keep it) at the
moment when its site, or its connection, ended. Invariants: a doubt is used up by the one repetition that it
explains; what a client had answered, and all who keep it for the client had heard of, is no doubt. Must not
know: how much of it is doubled in the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from math import inf
from typing import TYPE_CHECKING

from brokerweave.mqtt.content import content_hash
from brokerweave.sim import caring
from brokerweave.sim.client import ModelClient
from brokerweave.sim.disk import HELD

if TYPE_CHECKING:
    from brokerweave.sim.facts import ModelPublication
    from brokerweave.sim.node import SimNode

IN_FLIGHT = "on its way to its subscriber when its site died"
ON_ITS_WAY = "its receipt was on its way when the site died"
COPY_ON_ITS_WAY = "a copy was on its way to who keeps it when the site died"
DISK_FAILED = "who kept it ended while its disk failed"
KEEPER_AWAY = "who kept it was away when its subscriber got it"


class RepeatAllowances:
    def __init__(self, nodes: Mapping[str, SimNode], sound: Callable[[SimNode, SimNode], bool]) -> None:
        """`sound(a, b)`: their link stands, and nothing is on its way from b to a."""
        self._nodes = nodes
        self._sound = sound
        self._allowances: defaultdict[str, dict[bytes, str]] = defaultdict(dict)
        self.ended: Callable[[str, float], bool] = lambda node, since: False
        """Whether a node was killed, or stopped, since then: what it had to tell is lost with it."""
        self._got: defaultdict[str, dict[bytes, float]] = defaultdict(dict)
        self._sites: dict[tuple[str, bytes], str] = {}
        self._unwritten: set[tuple[str, bytes]] = set()

    def delivered(self, client: str, payload: bytes, now: float, site: str) -> None:
        self._got[client][payload] = now
        self._sites[client, payload] = site

    def got_here(self, client: str, payload: bytes, site: str, since: float) -> bool:
        """Whether a client got something at a site since then."""
        return self._sites.get((client, payload)) == site and self._got[client][payload] >= since

    def got_at(self, client: str, payload: bytes) -> float:
        """When a client last got something."""
        return self._got[client].get(payload, inf)

    def ending(
        self,
        client: ModelClient,
        publications: Mapping[bytes, ModelPublication],
    ) -> None:
        """A client's connection, or its site, ends now."""
        away = _joined(
            record
            for other in self._nodes.values()
            if not other.up and HELD in other.disk.journals
            for record in other.disk.journals[HELD].contents()
        )
        node = self._nodes[client.site]
        unanswered = self._unanswered(node, client.name)
        on_its_way = {
            payload
            for each in self._nodes.values()
            for outbox in each.outboxes
            if outbox.place.startswith("lanes/")
            for payload in outbox.held()
        }
        for payload, at in self._got[client.name].items():
            content = content_hash(publications[payload].topic, payload)
            if content in unanswered:
                self._allowances[client.name][payload] = IN_FLIGHT
            elif payload in away:
                self._allowances[client.name].setdefault(payload, KEEPER_AWAY)
            elif payload in on_its_way:
                self._allowances[client.name].setdefault(payload, COPY_ON_ITS_WAY)
            elif self._kept_unheard(node, client.name, content, at):
                self._allowances[client.name].setdefault(payload, ON_ITS_WAY)

    def disk_failed(self, records: Iterable[bytes]) -> None:
        """A node ends that has this on its disk, for others' clients or for those who keep it for them, and
        the disk did not hear who has what of it by now (row "failing disk"). Who told it tells it again,
        unless that ends, too."""
        kept = _joined(records)
        for client, got in self._got.items():
            for payload in got:
                if payload in kept:
                    self._unwritten.add((client, payload))

    def explain(self, client: str, payload: bytes) -> str:
        """Why a client may get this again; empty if it may not."""
        why = self._allowances[client].pop(payload, "")
        key = (client, payload)
        if not why and key in self._unwritten and self.ended(self._sites[key], self._got[client][payload]):
            self._unwritten.discard(key)
            why = DISK_FAILED
        return why

    def _unanswered(self, node: SimNode, client: str) -> set[bytes]:
        pairs = [pair for pair in node.relays if pair.client.client_id == client] if node.up else []
        return set().union(*(pair.undelivered for pair in pairs))

    def _kept_unheard(self, node: SimNode, client: str, content: bytes, at: float) -> bool:
        """Whether somebody keeps it who has yet to hear that the client has it."""
        for other in self._nodes.values():
            if other is node or not other.up or not caring.keeps(other.core, client, content):
                continue
            if not node.up or not self._sound(other, node):
                return True
            if caring.has_to_tell(node.core, client, other.name):
                return True
        return False


def _joined(records: Iterable[bytes]) -> bytes:
    """For one search instead of one in each: no client's payload holds a NUL, so none is found across two."""
    return b"\0".join(records)


NOTICED = 3.0
"""Seconds in which the death of a site is noticed everywhere."""


class Losses:
    """Which sites lost what they kept, and when: where as many died as there were copies, nothing is owed."""

    def __init__(self, copies: int) -> None:
        self.copies = copies
        self._lost: list[tuple[float, str]] = []

    def lost(self, site: str, now: float) -> None:
        self._lost.append((now, site))

    def too_many(self, since: float, own: Set[str] = frozenset()) -> bool:
        """Since then, or so shortly before that they were taken for alive. `own`: sites that the subscriber
        was at, where node or broker died: each had one of the copies."""
        return len(self._since(since) | own) >= self.copies

    def all_of(self, sites: Set[str], since: float) -> bool:
        """Whether all of these lost what they kept since then."""
        return sites <= self._since(since)

    def _since(self, since: float) -> set[str]:
        return {site for at, site in self._lost if at >= since - NOTICED}
