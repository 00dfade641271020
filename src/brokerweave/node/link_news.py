"""Link states: this node's own record of its links, and the records of all other nodes.

Owns the records that this node knows, and when it renews its own. Invariants: a new record is passed on to
all other linked neighbours, once; a flapping link costs at most one record in `RECORD_INTERVAL`; a link is
named only when the neighbour has sent its own records since the link came up. Must not know: what follows
from a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from brokerweave.node import tree
from brokerweave.node.views import Peers

if TYPE_CHECKING:
    from brokerweave.node.core import NodeCore

RECORDS_TOPIC = "$brokerweave/tree/records"

RECORD_INTERVAL = 0.2
"""Seconds between two records of this node: a flapping link costs everybody no more than this."""
GATHER_SECONDS = 0.02
"""From a change of this node's links to its record: changes that come together are told together."""


class LinkNews:
    def __init__(
        self, core: NodeCore, peers: Peers, heard: Callable[[], None], renewed: Callable[[], None]
    ) -> None:
        """`heard` is called after others' news, `renewed` after this node's own."""
        self.states = tree.LinkStates(core.node_id, core.settings.epoch)
        self._core = core
        self._peers = peers
        self._heard = heard
        self._renewed = renewed
        self._announced = -RECORD_INTERVAL
        self._due = False

    def link_up(self, neighbour: str) -> None:
        self._send(self.states.records.values(), (neighbour,))

    def link_down(self, neighbour: str) -> None:
        self.states.link_down(neighbour)
        self._renew_soon()

    def arrived(self, neighbour: str, payload: bytes) -> None:
        self._core.counters.add("tree_packets_received")
        fresh = self.states.take(tree.decode(payload))
        peer = self._peers[neighbour]
        if peer.up and not peer.named:
            # Not as soon as the link is up: what is known of the neighbour may be from before it failed.
            peer.named = True
            self.states.link_up(neighbour)
            self._renew_soon()
        if fresh:
            own = any(record.node == self._core.node_id for record in fresh)
            self._send(fresh, [n for n in self._peers.linked() if n != neighbour or own])
            self._heard()

    def tell_all(self, records: Iterable[tree.LinkRecord]) -> None:
        self._send(records, self._peers.linked())

    def renew_now(self) -> None:
        self._announced = -RECORD_INTERVAL
        self._renew()

    def _renew_soon(self) -> None:
        if not self._due:
            self._due = True
            wait = self._announced + RECORD_INTERVAL - self._core.now()
            # The clock may have been set back since: never wait longer than one interval.
            self._core.call_later(min(max(wait, GATHER_SECONDS), RECORD_INTERVAL), self._renew)

    def _renew(self) -> None:
        self._due = False
        record = self.states.renew()
        if record is not None:
            self._announced = self._core.now()
            self.tell_all((record,))
            self._renewed()

    def _send(self, records: Iterable[tree.LinkRecord], neighbours: Iterable[str]) -> None:
        payloads = list(tree.encode(records))
        for neighbour in neighbours:
            for payload in payloads:
                self._core.counters.add("tree_packets_sent")
                self._core.send_own(neighbour, RECORDS_TOPIC, payload)
