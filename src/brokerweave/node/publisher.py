"""Makes runs of what local clients publish, and sends them out.

Owns the sequences of this origin, and what is collected for the next run. Invariants: no two messages of one
lane have the same number; what was collected goes out before anything that is published later; a message
above QoS 0, or a retained one, is in the outboxes and the index before the broker sees it. Must not know: the
packets of pairs, how a run reaches a neighbour or the broker (`Outgoing`).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from brokerweave.errors import LocalProtocolError
from brokerweave.links.dead_letters import DeadLetter
from brokerweave.links.run import Run
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish, Will
from brokerweave.mqtt.properties import Property, without
from brokerweave.mqtt.publish import publish_head, route_run
from brokerweave.mqtt.scanner import Routed, split
from brokerweave.node.confirmations import PublicationId
from brokerweave.node.router import RouteGroup
from brokerweave.node.waiting import WaitingRun
from brokerweave.node.write_ahead_log import OWN
from brokerweave.session.hold_points import HeldAck
from brokerweave.session.host import Publication
from brokerweave.session.pair import Pair
from brokerweave.session.publications import NoRoom

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

    def has_room(self, topic: str, retain: bool) -> bool:
        """As `PairPublisher` says."""
        if not self._core.waiting.full:
            return True
        group = self._core.local_routes.lookup(topic.encode(), retain)
        if not isinstance(group, RouteGroup) or group.known:
            return True
        self._core.counters.add("refused_waiting")
        return False

    def forward(self, publication: Publication) -> bool:
        """As `PairPublisher` says. Those of QoS 0 are gathered first."""
        group = publication.group
        assert isinstance(group, RouteGroup)
        if self._core.waiting or not group.known or self._core.relayed.is_replaced(group):
            return self._forward_by_topic(publication)
        self._forward(group, publication)
        return True

    def _forward_by_topic(self, publication: Publication) -> bool:
        """While anything waits: what is published of the same topic goes behind it. And what waited for the
        broker while its route changed."""
        kept = True
        version = _frame_version(publication.version)
        for group, _, count, blob in route_run(publication.blob, version, self._core.local_routes):
            if not isinstance(group, RouteGroup):
                continue
            frames = split(blob)
            if group.known:
                qos = max(frame[0] >> 1 & 3 for frame in frames)
                self._forward(group, replace(publication, count=count, blob=blob, max_qos=qos))
                continue
            for frame in frames:
                kept = self._park(group, frame, publication) and kept
        return kept

    def _park(self, group: RouteGroup, frame: bytes, publication: Publication) -> bool:
        version = publication.version
        head = publish_head(frame, _frame_version(version))
        if self._core.waiting.full:
            self._core.counters.add("refused_waiting" if head.qos else "dropped_waiting")
            return head.qos == 0
        run = self._new_run(group, 1, frame, head.qos, version, sender=publication.sender)
        one = WaitingRun(head.topic.decode(), run, came_on=OWN, local=False, send=self._leave)
        self._core.deferral.park(one, publication.taken)
        return True

    def _forward(self, group: RouteGroup, publication: Publication) -> None:
        blob, max_qos, version = publication.blob, publication.max_qos, publication.version
        if not group.hops and not group.retained and not (max_qos and group.kept):
            return  # only a tap wants it
        if max_qos or group.retained:  # these must be in the index before the broker sees them
            self.settle()
            run = self._new_run(group, publication.count, blob, max_qos, version, sender=publication.sender)
            self._leave(run, group, taken=publication.taken)
            return
        key = (group, version)
        gathered = self._gathered.get(key)
        if gathered is None:
            gathered = self._gathered[key] = []
            for neighbour, _ in group.hops:
                self._core.host.lane_ready(neighbour, max(group.lane, 0))
        gathered.append((publication.count, blob))
        self._gathered_bytes += len(blob)
        if self._gathered_bytes > GATHERED_BYTES:
            self.settle()

    def _leave(
        self,
        run: Run,
        group: RouteGroup,
        came_on: int = OWN,
        waited: int = 0,
        taken: tuple[str, int] | None = None,
    ) -> None:
        """Send what a client published and nobody waits for."""
        if run.sender is not None:
            self._core.care.left_unanswered(run, max(group.lane, 0))
        self._core.outgoing.dispatch(run, group, came_on, taken, waited)

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

    def forward_confirmed(self, group: object, publish: Publish, pair: Pair, ack: HeldAck) -> bool:
        """True: all who were to hear of it have, or nobody was; else the pair goes on once they have."""
        core, care = self._core, self._core.care
        assert isinstance(group, RouteGroup)
        if group.known and not group.hops and not group.retained and not group.kept:
            return True  # only a tap wants it
        self.settle()
        version = pair.client.mqtt_version
        blob = codec.encode(publish, version)
        sender = care.sender(pair, publish)
        run = self._new_run(group, 1, blob, publish.qos, version, True, sender, ack.resent)
        if group.known and (ack.resent or not run.stamp):  # what the broker retains anew is another version
            run = care.name(run)
        record = core.sessions.of(pair) if publish.qos == 2 else None
        taken = None
        if record is not None and record.stored:
            taken = (pair.client.client_id, publish.packet_id)
        awaited = _Awaited(core, publish, pair, ack)
        if group.known:
            return awaited.wait(partial(awaited.send, run, group, taken=taken))
        one = WaitingRun(publish.topic, run, came_on=OWN, local=False, send=awaited.send_late)
        core.deferral.park(one, taken)
        return awaited.wait(lambda: False)

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
        """Numbered, unless it has to wait for its route."""
        run = Run(
            origin=self._core.settings.node_id,
            epoch=self._core.settings.epoch,
            first=self._sequence(group, count) if group.known else 0,
            count=count,
            version=_frame_version(version),
            max_qos=max_qos,
            cap=2,
            born=self._core.host.now(),
            blob=blob,
            confirm=confirm,
            sender=sender,
        )
        if self._core.usage_meter is not None:
            self._core.usage_meter.published(run)
        if not group.retained:
            return run
        return self._core.retained.published_again(run) if resent else self._core.retained.published(run)

    def numbered(self, run: Run, group: RouteGroup) -> Run:
        """A run that waited, as the next of its lane."""
        return replace(run, epoch=self._core.settings.epoch, first=self._sequence(group, run.count))

    def _sequence(self, group: RouteGroup, count: int) -> int:
        lane = max(group.lane, 0)
        self.sequences[lane] += count
        return self.sequences[lane] - count + 1

    def will_due(self, pair: Pair, will: Will) -> None:
        """The will of a client that was here. The broker publishes it at this site."""
        if will.topic.startswith("$") or not self._core.admission.may_write(pair, will.topic):
            return
        sender = self._core.care.will_due(pair, will)
        group = self._core.local_routes.lookup(will.topic.encode(), will.retain)
        if group is None:
            return
        assert isinstance(group, RouteGroup)
        self._core.record_publications(pair, Routed(group, 1, _encoded(will, pair.version), will.qos))
        if not group.known or group.hops or group.retained or (will.qos and group.kept):
            self._send_will(group, will, pair.version, sender)
        self._core.counters.add("wills_forwarded")

    def publish_will(self, will: Will, version: int, sender: tuple[str, int]) -> None:
        """The will of a client whose site is dead, at this one and all others. They know it by its `sender`,
        since another node may think that it should publish it, too."""
        if will.topic.startswith("$"):
            return
        group = self._core.local_routes.lookup(will.topic.encode(), will.retain)
        if not isinstance(group, RouteGroup):
            group = RouteGroup((), True, zlib.crc32(will.topic.encode()) % self._core.settings.lanes)
        self._send_will(group, will, version, sender, local=True)

    def _send_will(
        self, group: RouteGroup, will: Will, version: int, sender: tuple[str, int] | None, local: bool = False
    ) -> None:
        """Nobody would publish it again: it waits for its route even where there is no room left."""
        self.settle()
        run = self._new_run(group, 1, _encoded(will, version), will.qos, version, sender=sender)
        if group.known:
            self._core.outgoing.dispatch(run, replace(group, local=local))
        else:
            self._core.deferral.park(WaitingRun(will.topic, run, came_on=OWN, local=local))

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


class _Awaited:
    """A publication whose acknowledgement waits for other sites, or first for the route to them."""

    def __init__(self, core: NodeCore, publish: Publish, pair: Pair, ack: HeldAck) -> None:
        self._core = core
        self._publish = publish
        self._pair = pair
        self._ack = ack
        self._heard: Callable[[], None] | None = None
        self._sent: PublicationId | None = None
        self._over = False

    def wait(self, start: Callable[[], bool]) -> bool:
        """True: there is no need to."""

        def register(heard: Callable[[], None]) -> bool:
            self._heard = heard
            return start()

        assert self._core.settings.cluster_timeout is not None
        limit = self._core.settings.cluster_timeout
        self._over = self._core.await_others(register, self._go_on, limit, "cluster_timeouts")
        return self._over

    def send(
        self,
        run: Run,
        group: RouteGroup,
        came_on: int = OWN,
        waited: int = 0,
        taken: tuple[str, int] | None = None,
    ) -> bool:
        """True: there is nobody to wait for."""
        core, lane = self._core, max(group.lane, 0)
        core.care.published(self._pair, self._publish, run, lane)
        publication = PublicationId(run.origin, run.epoch, lane, run.first)
        reached = core.outgoing.dispatch(run, group, came_on, taken, waited)
        reachable = set(filter(core.in_reach, reached))
        self._sent = publication
        assert self._heard is not None
        alone = self._over or core.confirmations.expect(
            publication, ((neighbour, publication) for neighbour in reachable), self._heard
        )
        if alone:
            core.care.flush()
        return alone

    def send_late(self, run: Run, group: RouteGroup, came_on: int, waited: int) -> None:
        """Its route is known now; the client may have been answered meanwhile."""
        done = self.send(run, group, came_on, waited)
        if done and not self._over and self._heard is not None:
            self._heard()

    def _go_on(self) -> None:
        self._over = True
        if self._sent is None:
            self._core.counters.add("refused_waiting")
            self._pair.close_refused(NoRoom())
            return
        self._core.confirmations.abandon(self._sent)
        self._core.care.flush()
        self._pair.release(self._ack)


def _frame_version(version: int) -> int:
    """Of the frames: those of MQTT 3.1 look as those of 3.1.1."""
    return 5 if version == 5 else 4


def _encoded(will: Will, version: int) -> bytes:
    """The publication that a will becomes."""
    properties = without(will.properties, Property.WILL_DELAY_INTERVAL) if version == 5 else ()
    packet_id = 1 if will.qos else 0  # a placeholder: each injector gives its own
    publish = Publish(will.topic, will.payload, will.qos, will.retain, False, packet_id, properties)
    return codec.encode(publish, version)
