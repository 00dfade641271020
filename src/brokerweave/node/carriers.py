"""Which connection carries which lane, and what arrives on it.

Owns the choice between two connections of one lane and the way from a connection's events into the core.
Invariants: a lane has at most one connection; where two nodes dial each other at once, the one dialed by
the smaller id stays; what arrives on a connection that carries nothing is ignored. Must not know: sockets,
who dials and when.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from brokerweave.links.connection import (
    AckArrived,
    BatchArrived,
    ControlArrived,
    Established,
    Event,
    LinkConnection,
    LinkRefused,
    PeerLeft,
)
from brokerweave.links.handshake import BUSY, HandshakeRefused, Hello
from brokerweave.links.lane import Lane, Resume
from brokerweave.mqtt.packets import Packet
from brokerweave.node.core import NodeCore

MOST_NEIGHBOURS = 1_000
"""Each keeps files open and is remembered for `forget_after`: whoever may link must not make up more. With
links on demand live members do not count: membership says who they are, and links are bounded."""


class Carrier(Protocol):
    """One connection of a link, dialed or accepted."""

    @property
    def connection(self) -> LinkConnection: ...

    @property
    def dialed(self) -> bool: ...

    peer: tuple[str, int] | None
    """The neighbour and lane that the connection is for; None until an accepted one is established."""

    @property
    def writable(self) -> bool:
        """False while the neighbour takes no more."""

    def flush(self) -> None:
        """Write what the connection has to send."""

    def close(self) -> None:
        """Flush, then end the connection."""


class CarrierHost(Protocol):
    def now(self) -> float: ...

    def remember_taken(self, neighbour: str, index: int, lane: Lane) -> None:
        """Note on disk how far a lane's stream was taken, before it is acknowledged."""

    def neighbour_left(self, neighbour: str) -> None:
        """The other side's operator removed us."""

    def link_changed(self, neighbour: str, up: bool) -> None:
        """For the log."""


class Carriers:
    def __init__(self, core: NodeCore, host: CarrierHost) -> None:
        self.refusals: dict[str, str] = {}
        """Why a neighbour is not linked: the reason of a refusal, or the error of the connection."""
        self.refused: Callable[[str, str], None] = lambda name, reason: None
        """Hears of a new reason."""
        self._epochs: dict[str, int] = {}
        self._core = core
        self._host = host
        self._carriers: dict[tuple[str, int], Carrier] = {}

    def get(self, neighbour: str, lane: int) -> Carrier | None:
        return self._carriers.get((neighbour, lane))

    def of(self, neighbour: str) -> list[Carrier]:
        return [carrier for (peer, _), carrier in self._carriers.items() if peer == neighbour]

    # Sending

    def admit(self, hello: Hello) -> Resume:
        """An authenticated neighbour calls; one that is not configured becomes one (ILDM 4.4)."""
        if hello.node_id not in self._core.neighbour_table and self._is_full(hello.node_id):
            raise HandshakeRefused(f"node {self._core.node_id} has too many neighbours", BUSY)
        if self._core.demand is not None and (reason := self._core.demand.refuses(hello.node_id)):
            raise HandshakeRefused(reason, BUSY)
        self._core.add_neighbour(hello.node_id)
        return self._core.neighbour_table[hello.node_id].lanes[hello.lane].resume()

    def _is_full(self, node: str) -> bool:
        """Whether there is no room for one more neighbour, this one."""
        stays = self._core.neighbour_stays
        others = (each for each in self._core.neighbour_table.ids() if not stays(each))
        return not stays(node) and sum(1 for _ in others) >= MOST_NEIGHBOURS

    def send_control(self, neighbour: str, packet: Packet) -> bool:
        carrier = self._carriers.get((neighbour, 0))
        if carrier is None or carrier.connection.closed:
            return False
        self._core.counters.add("control_bytes_sent", carrier.connection.send_control(packet))
        return True

    def write(self, neighbour: str, lane: int) -> None:
        """Give a lane's connection what the lane has to send."""
        carrier = self._carriers.get((neighbour, lane))
        if carrier is None or carrier.connection.closed:
            return
        if carrier.writable:
            carrier.connection.send(self._core.neighbour_table[neighbour].lanes[lane].poll(self._host.now()))
        carrier.flush()

    def stalled(self) -> list[tuple[str, int]]:
        """Connected lanes with something unsent: to be asked again now and then, for what kept them from
        sending (a disk that did not answer) need not tell when it is over."""
        table = self._core.neighbour_table
        return [
            (neighbour, lane)
            for (neighbour, lane), carrier in self._carriers.items()
            if not carrier.connection.closed and table[neighbour].lanes[lane].outbox.unsent
        ]

    # Arriving

    def handle(self, carrier: Carrier, event: Event) -> None:
        """Raises `RemoteProtocolError` where the neighbour's strategy sent nonsense: close the connection."""
        if isinstance(event, Established):
            self._established(carrier, event)
            return
        if isinstance(event, LinkRefused):
            self._refused(carrier, event)
            return
        if carrier.peer is None or self._carriers.get(carrier.peer) is not carrier:
            return  # it lost against another connection of the same lane
        neighbour, index = carrier.peer
        if isinstance(event, BatchArrived):
            self._core.arrivals.batch_arrived(neighbour, index, event.first, event.runs)
            self._host.remember_taken(neighbour, index, self._core.neighbour_table[neighbour].lanes[index])
        elif isinstance(event, AckArrived):
            self._core.neighbour_table[neighbour].lanes[index].received_ack(event.sequence)
            self._core.wiring.acknowledged()
            self._core.host.lane_ready(neighbour, index)
        elif isinstance(event, ControlArrived):
            self._core.control_arrived(neighbour, event.packet, index)
        elif isinstance(event, PeerLeft) and event.removed:
            self._host.neighbour_left(neighbour)

    def lost(self, carrier: Carrier) -> None:
        """The connection is gone, whoever ended it."""
        if carrier.peer is None or self._carriers.get(carrier.peer) is not carrier:
            return
        del self._carriers[carrier.peer]
        self._core.neighbour_table.lost(*carrier.peer)
        if carrier.peer[1] == 0:
            self._host.link_changed(carrier.peer[0], up=False)

    def _established(self, carrier: Carrier, event: Established) -> None:
        key = (event.peer_id, event.lane)
        if not self._still_true(carrier, key):
            carrier.connection.close()
            return
        rival = self._carriers.get(key)
        if rival is not None and not self._preferred(carrier, rival, event.peer_id):
            carrier.connection.close()
            return
        if rival is not None:
            self.lost(rival)
            rival.connection.close()
            rival.close()
            if not self._still_true(carrier, key):  # the end of the other one was the end of the link
                carrier.connection.close()
                return
        carrier.peer = key
        self._carriers[key] = carrier
        self.refusals.pop(event.peer_id, None)
        self._check_epoch(event.peer_id, event.peer_epoch)
        self._core.neighbour_table.connected(event.peer_id, event.lane, event.resume, event.peer_epoch)
        if event.lane == 0:
            self._host.link_changed(event.peer_id, up=True)
        self._core.host.lane_ready(*key)

    def _still_true(self, carrier: Carrier, key: tuple[str, int]) -> bool:
        """Whether the lane is still the one that the handshake spoke of.

        A neighbour that was removed meanwhile stays removed, and one that was removed and added again has
        new lanes: the peer would take their runs for repetitions of the old ones.
        """
        if key[0] not in self._core.neighbour_table:
            return False
        if carrier.dialed and self._core.demand is not None and not self._core.demand.dials(key[0]):
            return False  # it gave way to another link meanwhile
        said = carrier.connection.said
        return (
            said is not None
            and said.stream == self._core.neighbour_table[key[0]].lanes[key[1]].outbox.stream_id
        )

    def _check_epoch(self, peer: str, epoch: int) -> None:
        """A node's epoch only grows: one that goes back belongs to another node of the same id."""
        if epoch < self._epochs.get(peer, 0):
            self._core.count("links_displaced")
            self._core.host.warn(f"two nodes have the id {peer} and disconnect each other: rename one")
        self._epochs[peer] = epoch

    def _preferred(self, new: Carrier, old: Carrier, peer: str) -> bool:
        """The newer of two that the same side dialed (the older is dead); else the smaller id's call."""
        if new.dialed == old.dialed:
            return True
        return new.dialed == (self._core.node_id < peer)

    def _refused(self, carrier: Carrier, event: LinkRefused) -> None:
        if event.retry and self._core.demand is not None:
            self._core.count("links_postponed")  # both dialed, or one has no room now: daily life
        else:
            self._core.count("link_refusals")
            self.unreachable(carrier.peer[0] if carrier.peer else "rejected incoming link", event.reason)
        carrier.peer = None

    def unreachable(self, name: str, reason: str) -> None:
        """A neighbour cannot be linked, for this reason."""
        if self.refusals.get(name) != reason:
            self.refused(name, reason)
        self.refusals[name] = reason
