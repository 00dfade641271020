"""A lane: one ordered stream of runs each way between two nodes, which outlives its connections.

Owns what is sent when, what is acknowledged when, and where both sides go on after a cut. Invariants, for
an acknowledged lane: each run that the outbox kept reaches the neighbour's caller in order, and once as
long as both nodes remember their streams (beyond that the duplicate window decides); a run is acknowledged
only after the caller said that it is taken. A lane that is not acknowledged (link QoS 0) forgets a run when
it is sent and drops, counted, while there is no connection. Must not know: sockets, routes, duplicates of
other lanes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from brokerweave.errors import BrokerweaveError, RemoteProtocolError
from brokerweave.links.outbox import Outbox
from brokerweave.links.run import Run
from brokerweave.links.wire import LINK_VERSION, encode_ack, encode_batch
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Packet

LINK_DOWN = "link_down"

_STATE = struct.Struct(">QQ")


@dataclass(frozen=True, slots=True)
class Resume:
    """What one side tells the other in the handshake, so that both streams go on where they stopped.

    `stream` is the stream it sends and `oldest` the first sequence it still has of it; `peer_stream` is
    the last stream it took from and `taken` the last sequence of it; both 0 if there was none.
    """

    stream: int
    oldest: int
    peer_stream: int = 0
    taken: int = 0


class Lane:
    """`window_bytes` may be in flight unacknowledged: a link carries at most a window each round trip."""

    __slots__ = (
        "_ack_due",
        "_announce_due",
        "_announcement",
        "_arrived",
        "_peer_epoch",
        "_peer_stream",
        "_taken",
        "_unacknowledged",
        "_up",
        "ack_scheduled",
        "acknowledged",
        "batch_bytes",
        "held",
        "outbox",
        "received",
        "repeated",
        "sent",
        "window_bytes",
    )

    def __init__(
        self,
        outbox: Outbox,
        *,
        acknowledged: bool = True,
        window_bytes: int = 1 << 20,
        batch_bytes: int = 256 << 10,
    ) -> None:
        self.outbox = outbox
        self.acknowledged = acknowledged
        self.window_bytes = window_bytes
        self.batch_bytes = batch_bytes
        self.sent = 0
        """Messages written to the neighbour, repeated ones included."""
        self.received = 0
        """Messages that arrived, repeated ones not included."""
        self.repeated = 0
        """Runs that came again after a reconnect and were skipped."""
        self.held = False
        """Runs wait in the outbox though there is a connection; acknowledgements go."""
        self._announcement = b""
        self._announce_due = False
        self._up = False
        self._peer_epoch = 0
        self._peer_stream = 0
        self._taken = 0
        self._arrived = 0
        self._ack_due = False
        self._unacknowledged = 0
        self.ack_scheduled = False
        """Set by the caller while a timer waits to send what acknowledgement is due."""

    @property
    def taken(self) -> int:
        """The last run of the neighbour's stream that is in safe hands."""
        return self._taken

    @property
    def ack_urgent(self) -> bool:
        """The neighbour would soon have to stop and wait for an acknowledgement."""
        return self._unacknowledged > self.window_bytes // 4

    def append(self, run: Run, number: int = 0) -> bool:
        """Owe a run to the neighbour; `number` as for the outbox. False: it was dropped, and counted."""
        if not self._up and not self.acknowledged:
            self.outbox.dropped[LINK_DOWN] += run.count
            return False
        return self.outbox.append(run, number)

    def announce(self, packet: Packet) -> None:
        """Say this before anything that is sent from now on, and first on each connection to come."""
        self._announcement = codec.encode(packet, LINK_VERSION)
        self._announce_due = True

    def resume(self) -> Resume:
        return Resume(self.outbox.stream_id, self.outbox.oldest, self._peer_stream, self._taken)

    def connected(self, peer: Resume | None, epoch: int = 0) -> None:
        """A connection is established; `peer` is what the other side's `resume` said, None if it starts over.

        `epoch` is the other side's: another one than last time means that it was restarted meanwhile.
        """
        if peer is None:
            peer = Resume(stream=0, oldest=1)
        known = 0
        if peer.peer_stream == self.outbox.stream_id:
            known = peer.taken
        elif epoch != self._peer_epoch:
            # Not so between two connections with one process: what it says may be older than what it took.
            self.outbox.drop_unsure()
        self._peer_epoch = epoch
        self.outbox.rewind(known)
        if peer.stream == 0 or peer.stream != self._peer_stream:
            self._peer_stream, self._taken = peer.stream, 0
        # What the peer forgot it saw acknowledged, even if this node lost the note of it in a crash.
        self._taken = max(self._taken, peer.oldest - 1)
        self._arrived = self._taken
        self._ack_due = False
        self._announce_due = bool(self._announcement)
        self._up = True

    def disconnected(self) -> None:
        self._up = False
        if not self.acknowledged and self.outbox.backlog_runs:
            self.outbox.dropped[LINK_DOWN] += self.outbox.clear()

    def abandon(self) -> int:
        """The neighbour is removed: drop its pending messages; returns how many."""
        self._up = False
        return self.outbox.clear()

    def poll(self, now: float) -> bytes:
        """What to write now: batches as far as the window allows, and the acknowledgement that is due."""
        if not self._up:
            return b""
        parts = []
        if self._ack_due:
            parts.append(encode_ack(self._taken))
            self._ack_due = False
            self._unacknowledged = 0
        if self._announce_due:
            parts.append(self._announcement)
            self._announce_due = False
        if self.held or not self.outbox.unsent:
            return b"".join(parts)
        room = self.window_bytes - self.outbox.in_flight_bytes
        while room > 0:
            before = self.outbox.in_flight_bytes
            first, runs = self.outbox.take(min(room, self.batch_bytes))
            room -= self.outbox.in_flight_bytes - before
            if not runs:
                break
            parts.append(encode_batch(first, runs, now))
            self.sent += sum(run.count for run in runs)
            if not self.acknowledged:
                self.outbox.acknowledge(first + len(runs) - 1)
        return b"".join(parts)

    def received_ack(self, sequence: int) -> None:
        self.outbox.acknowledge(sequence)

    def received_batch(self, first: int, runs: list[Run]) -> list[Run]:
        """The runs of a batch that did not arrive before. Call `confirm` when they are in safe hands."""
        seen = self._arrived + 1 - first
        if seen < 0:
            raise RemoteProtocolError(f"the neighbour went on with run {first} after run {self._arrived}")
        if seen:
            seen = min(seen, len(runs))
            self.repeated += seen
            # The peer sends again what it saw no acknowledgement for: give it the same one again.
            self._ack_due = self.acknowledged
            runs = runs[seen:]
        self._arrived += len(runs)
        for run in runs:
            self.received += run.count
            self._unacknowledged += run.size
        return runs

    def confirm(self) -> None:
        """Everything that arrived is taken: the next `poll` acknowledges it."""
        if self._taken != self._arrived:
            self._taken = self._arrived
            self._ack_due = self.acknowledged

    def snapshot(self) -> bytes:
        """How far the neighbour's stream is taken, for `restore` after a restart."""
        return _STATE.pack(self._peer_stream, self._taken)

    def restore(self, data: bytes) -> None:
        if len(data) != _STATE.size:
            raise BrokerweaveError("the stored state of a lane is damaged")
        self._peer_stream, self._taken = _STATE.unpack(data)
        self._arrived = self._taken
