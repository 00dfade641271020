"""What the clients here publish becomes runs of this node's own, and goes out.

Owns the sequences of this origin, and what was gathered for the next run. Invariants: no two messages of one
lane have the same number; what was gathered goes out before whatever is published after it; what is above
QoS 0, or retained, is in the outboxes and the index before the broker sees it. Must not know: pairs' packets,
how a run reaches a neighbour or the broker (`Outgoing`).
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import TYPE_CHECKING

from brokerweave.errors import LocalProtocolError
from brokerweave.links.dead_letters import DeadLetter
from brokerweave.links.run import Run
from brokerweave.mqtt import codec
from brokerweave.mqtt.frames import Routed, publish_head
from brokerweave.mqtt.packets import Publish, Will
from brokerweave.mqtt.properties import Property, without
from brokerweave.node.confirmations import PublicationId
from brokerweave.node.router import RouteGroup
from brokerweave.session.hold_points import HeldAck
from brokerweave.session.pair import Pair

if TYPE_CHECKING:
    from brokerweave.node.core import NodeCore

GATHERED_BYTES = 256 * 1024
"""QoS 0 publications gathered before runs are made of them without waiting for the next write."""


class Publisher:
    def __init__(self, core: NodeCore) -> None:
        self._core = core
        # One for each lane: messages on one lane arrive in order, so the duplicate window never has to reach
        # back over what another, faster lane brought meanwhile.
        self.sequences = [0] * core.settings.lanes
        self._gathered: dict[tuple[RouteGroup, int], list[tuple[int, bytes]]] = {}
        self._gathered_bytes = 0

    def forward(
        self,
        group: RouteGroup,
        count: int,
        blob: bytes,
        max_qos: int,
        version: int,
        taken: tuple[str, int] | None = None,
        sender: tuple[str, int] | None = None,
    ) -> None:
        """Publications of one group, encoded. Those of QoS 0 are gathered first."""
        if not group.hops and not group.retained and not (max_qos and group.kept):
            return  # only a tap wants it
        if max_qos or group.retained:  # these must be in the index before the broker sees them
            self.settle()
            run = self._new_run(group, count, blob, max_qos, version, sender=sender)
            if sender is not None:
                self._core.care.left_unanswered(run, max(group.lane, 0), group.holds)
            self._core.outgoing.dispatch(run, group, taken=taken)
            return
        key = (group, version)
        gathered = self._gathered.get(key)
        if gathered is None:
            gathered = self._gathered[key] = []
            for neighbour, _ in group.hops:
                self._core.host.lane_ready(neighbour, max(group.lane, 0))
        gathered.append((count, blob))
        self._gathered_bytes += len(blob)
        if self._gathered_bytes > GATHERED_BYTES:
            self.settle()

    def settle(self) -> None:
        """Make runs of the QoS 0 publications gathered so far. The host calls it before it writes.

        Publications of one group that arrive one by one thus cost one run per write, not one each.
        """
        if not self._gathered:
            return
        gathered, self._gathered, self._gathered_bytes = self._gathered, {}, 0
        for (group, version), parts in gathered.items():
            blob = parts[0][1] if len(parts) == 1 else b"".join([blob for _, blob in parts])
            run = self._new_run(group, sum(count for count, _ in parts), blob, 0, version)
            self._core.outgoing.dispatch(run, group)

    def forward_confirmed(
        self, group: RouteGroup, publish: Publish, version: int, pair: Pair, ack: HeldAck
    ) -> bool:
        """True: all who were to hear of it have, or nobody was; else the pair goes on once they have."""
        core, care = self._core, self._core.care
        assert core.settings.cluster_timeout is not None
        if not group.hops and not group.retained and not group.kept:
            return True  # only a tap wants it
        self.settle()
        blob = codec.encode(publish, version)
        sender, holds = care.sender(publish, pair, group.holds, ack.resent)
        group = replace(group, holds=holds) if ack.resent else group
        run = self._new_run(group, 1, blob, publish.qos, version, True, sender, ack.resent)
        care.published(run, max(group.lane, 0), publish, pair, ack.resent)
        publication = PublicationId(run.origin, run.epoch, max(group.lane, 0), run.first)
        record = core.sessions.of(pair) if publish.qos == 2 else None
        kept = record is not None and record.stored
        taken = (pair.client.client_id, publish.packet_id) if kept else None
        reachable = list(filter(core.in_reach, core.outgoing.dispatch(run, group, taken=taken)))
        unreached = {neighbour for neighbour, _ in group.sure_hops if neighbour not in reachable}

        def go_on() -> None:
            missing = unreached | core.confirmations.abandon(publication)  # also those not heard of in time
            care.not_kept(run, publication.lane, group.keepers, missing)
            pair.release(ack)

        if core.await_others(
            lambda heard: core.confirmations.expect(publication, reachable, heard),
            go_on,
            core.settings.cluster_timeout,
            "cluster_timeouts",
        ):
            if unreached:
                care.not_kept(run, publication.lane, group.keepers, unreached)
            return True
        return False

    def _new_run(
        self,
        group: RouteGroup,
        count: int,
        blob: bytes,
        max_qos: int,
        version: int,
        confirm: bool = False,
        sender: tuple[str, int] | None = None,
        resent: bool = False,
    ) -> Run:
        lane = max(group.lane, 0)
        first = self.sequences[lane] + 1
        self.sequences[lane] += count
        run = Run(
            origin=self._core.settings.node_id,
            epoch=self._core.settings.epoch,
            first=first,
            count=count,
            version=5 if version == 5 else 4,
            max_qos=max_qos,
            cap=2,
            born=self._core.host.now(),
            blob=blob,
            confirm=confirm,
            sender=sender,
        )
        if not group.retained:
            return run
        return self._core.retained.published_again(run) if resent else self._core.retained.published(run)

    def will_due(self, pair: Pair, will: Will) -> None:
        """The will of a client that was here. The broker publishes it at this site."""
        if will.topic.startswith("$") or not self._core.admission.may_write(pair, will.topic):
            return
        sender = self._core.care.will_due(pair, will)
        group = self._core.local_routes.lookup(will.topic.encode(), will.retain)
        if group is None:
            return
        assert isinstance(group, RouteGroup)
        blob = _encoded(will, pair.version)
        self._core.record_publications(pair, Routed(group, 1, blob, will.qos))
        if sender is None:
            self.forward(group, 1, blob, will.qos, pair.version)
        elif group.hops or group.retained or (will.qos and group.kept):
            self.settle()
            run = self._new_run(group, 1, blob, will.qos, pair.version)
            self._core.outgoing.dispatch(run.sent_by(*sender), group)
        self._core.counters.add("wills_forwarded")

    def publish_will(self, will: Will, version: int, sender: tuple[str, int]) -> None:
        """The will of a client whose site is dead, at this one and all others. They know it by its `sender`,
        since another node may think that it should publish it, too."""
        if will.topic.startswith("$"):
            return
        group = self._core.local_routes.lookup(will.topic.encode(), will.retain)
        if not isinstance(group, RouteGroup):
            group = RouteGroup((), True, zlib.crc32(will.topic.encode()) % self._core.settings.lanes)
        self.settle()
        run = self._new_run(group, 1, _encoded(will, version), will.qos, version)
        self._core.outgoing.dispatch(run.sent_by(*sender), replace(group, local=True))

    def retry(self, letter: DeadLetter) -> bool:
        """Give the broker here once more what it would not take, as a message of this node's own.

        False: the injector's outbox is full. Raises `LocalProtocolError` for a letter without its frame.
        """
        if not letter.frame:
            raise LocalProtocolError(f"letter {letter.id} was too large to be kept: it cannot be retried")
        head = publish_head(letter.frame, letter.version)
        lane = zlib.crc32(head.topic) % self._core.settings.lanes
        run = self._new_run(RouteGroup((), True, lane), 1, letter.frame, head.qos, letter.version)
        if not self._core.injectors[lane % len(self._core.injectors)].submit(run):
            return False
        if head.retain:
            self._core.retained.check.doubt((head.topic.decode(),))  # there may be a newer one by now
        self._core.counters.add("dead_letters_retried")
        self._core.host.injector_ready(lane % len(self._core.injectors))
        return True


def _encoded(will: Will, version: int) -> bytes:
    """The publication that a will becomes."""
    properties = without(will.properties, Property.WILL_DELAY_INTERVAL) if version == 5 else ()
    packet_id = 1 if will.qos else 0  # stands for any: each injector gives its own
    publish = Publish(will.topic, will.payload, will.qos, will.retain, False, packet_id, properties)
    return codec.encode(publish, version)
