"""How the simulator observes a node: thin subclasses that report and change nothing.

Owns the list of observable events (`SimWatcher`). Invariant: each override calls the real method with the
given arguments and returns its result. Must not know: what is promised.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from brokerweave.links.dead_letters import DeadLetter, DeadLetters
from brokerweave.links.outbox import Outbox
from brokerweave.links.run import Run
from brokerweave.links.wire import decode_record
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.publish import publish_head
from brokerweave.mqtt.scanner import split
from brokerweave.node.arrivals import Arrivals
from brokerweave.node.core import NodeCore
from brokerweave.node.deferral import Deferral
from brokerweave.node.outgoing import Outgoing
from brokerweave.node.router import RouteGroup
from brokerweave.node.waiting import WaitingRun
from brokerweave.node.write_ahead_log import OWN, RunEntry, decode_entry
from brokerweave.sim.disk import DiskJournal

if TYPE_CHECKING:
    from brokerweave.sim.node import SimNode

Key = tuple[str, int, int, int]
"""What makes a message one message to the nodes: origin, epoch, lane, sequence."""

QUEUE_FULL = "queue full"
"""Why an outbox dropped something: row "QoS 1 and 2, local delivery" of docs/guarantees.md."""
_RUN_BYTES = 1_000
"""More than a run of a simulated client takes."""


class SimWatcher(Protocol):
    def dispatched(
        self, node: str, came_from: str | None, payload: bytes, key: Key, group: RouteGroup, run: Run
    ) -> None:
        """A node put a message where its route says."""

    def flooded(self, node: str, view: int, payload: bytes, key: Key) -> None:
        """A node passes on what was stuck where the tree changed; `view` counts its views of the tree."""

    def bypassed(self, node: str, payload: bytes, key: Key) -> None:
        """A node serves those behind a relay that died."""

    def arrived(self, node: str, came_from: str, payloads: list[bytes]) -> None:
        """A lane brought these; `dispatched` was called before for those that were to go on."""

    def waits(self, node: str, payloads: list[bytes], version: int) -> None:
        """A node keeps these until it knows their route; `dispatched` is called then. `version`: of what is
        to be retained."""

    def passed_origin(self, node: SimNode, payload: bytes) -> None:
        """A client's publication was read by its node."""

    def redelivering(self, node: str, client: str, payloads: list[bytes]) -> None:
        """A node gives a client what it missed elsewhere."""

    def dropped(self, node: str, where: str, payloads: list[bytes], cause: str) -> None: ...

    def spilled(self, payloads: list[bytes]) -> None:
        """An outbox has these on disk only."""

    def node_ends(self, node: SimNode, graceful: bool) -> None:
        """Called before anything is lost."""

    def node_starts(self, node: SimNode) -> None: ...

    def disk_lost(self, node: SimNode) -> None: ...

    def link_changed(self, node: str, neighbour: str, up: bool) -> None:
        """What a node shows of a link changes."""

    def link_failed(self, node: str, neighbour: str) -> None:
        """One end of a link noticed that it is down."""

    def injector_lost(self, node: SimNode) -> None: ...

    def relay_ended(self, client_id: str, persistent: bool) -> None: ...

    def protocol_error(self, node: SimNode, error: str) -> None: ...


class WatchedCore(NodeCore):
    def __init__(self, *arguments: Any) -> None:
        *given, self.watcher = arguments
        super().__init__(*given)
        self.arrivals = self.watched = WatchedArrivals(self)
        self.outgoing = WatchedOutgoing(self)
        self.deferral = WatchedDeferral(self)

    def redelivering(self, client: str, publishes: list[Publish]) -> None:
        self.watcher.redelivering(self.node_id, client, [publish.payload for publish in publishes])
        super().redelivering(client, publishes)


class WatchedArrivals(Arrivals):
    def __init__(self, core: WatchedCore) -> None:
        super().__init__(core)
        self._watched = core
        self.came_from: str | None = None

    def _take(self, neighbour: str, lane: int, run: Run, skip: Collection[str]) -> None:
        self.came_from = neighbour
        try:
            super()._take(neighbour, lane, run, skip)
        finally:
            self.came_from = None
        if not run.repair:  # of which only the newest version of a topic is for anybody
            self._watched.watcher.arrived(self._watched.node_id, neighbour, payloads(run))


class WatchedDeferral(Deferral):
    def __init__(self, core: WatchedCore) -> None:
        super().__init__(core)
        self._watched = core

    def park(self, one: WaitingRun, taken: tuple[str, int] | None = None) -> None:
        super().park(one, taken)
        self._watched.watcher.waits(self._watched.node_id, payloads(one.run), one.run.stamp)

    def _send(self, one: WaitingRun, group: RouteGroup) -> None:
        self._watched.watched.came_from = one.came_from
        try:
            super()._send(one, group)
        finally:
            self._watched.watched.came_from = None


class WatchedOutgoing(Outgoing):
    def __init__(self, core: WatchedCore) -> None:
        super().__init__(core)
        self._watched = core

    def dispatch(self, run: Run, group: RouteGroup, *rest: Any, **named: Any) -> list[str]:
        core, watcher, lane = self._watched, self._watched.watcher, max(group.lane, 0)
        flood = run.flood and (rest or (OWN,))[0] == OWN
        for number, payload in enumerate(payloads(run)):
            key = (run.origin, run.epoch, lane, run.first + number)
            if flood:
                watcher.flooded(core.node_id, core.counters["tree_elections"], payload, key)
                continue
            watcher.dispatched(core.node_id, core.watched.came_from, payload, key, group, run)
        return super().dispatch(run, group, *rest, **named)

    def put(self, run: Run, group: RouteGroup, *rest: Any) -> list[str]:
        core = self._watched
        if core.relayed.bypassing:
            for number, payload in enumerate(payloads(run)):
                key = (run.origin, run.epoch, max(group.lane, 0), run.first + number)
                core.watcher.bypassed(core.node_id, payload, key)
        return super().put(run, group, *rest)


class WatchedOutbox(Outbox):
    def watch(self, watcher: SimWatcher, node: str, name: str) -> None:
        self._watcher = watcher
        self._node = node
        self.place = name

    def append(self, run: Run, number: int = 0) -> bool:
        before = self._spilled
        kept = super().append(run, number)
        if not kept:
            self._watcher.dropped(self._node, self.place, payloads(run), QUEUE_FULL)
        elif self._spilled > before:
            self._watcher.spilled(payloads(run))
        return kept

    def clear(self) -> int:
        self._watcher.dropped(self._node, self.place, list(self.held()), "neighbour removed")
        return super().clear()

    def held(self) -> Iterator[bytes]:
        """Everything not acknowledged, in memory and on disk; a message in both comes twice."""
        yield from self.in_memory()
        yield from self.on_disk()

    def on_disk(self) -> Iterator[bytes]:
        if isinstance(self._journal, DiskJournal):
            yield from in_journal(self._journal)

    def in_memory(self, durable: bool = False) -> Iterator[bytes]:
        """With `durable`, only what should be on disk too; the next link-up repairs again."""
        for run, _ in self._memory:
            if not durable or (run.durable and not run.repair):
                yield from payloads(run)

    def check(self) -> None:
        super().check()
        # What lies in memory may be in the journal as well, since the last checkpoint.
        allowed = self.disk_bytes + self.memory_bytes + _RUN_BYTES
        size = self._journal.size if self._journal is not None else 0
        assert size <= allowed, f"{self.place}: {size} bytes on disk, {allowed} allowed"


class WatchedDeadLetters(DeadLetters):
    def __init__(self, watcher: SimWatcher, node: str) -> None:
        super().__init__()
        self._watcher = watcher
        self._node = node

    def add(self, when: float, topic: str, qos: int, version: int, reason: str, frame: bytes) -> DeadLetter:
        payload = frame[publish_head(frame, version).payload_start :]
        self._watcher.dropped(self._node, "injectors", [payload], "dead letter")
        return super().add(when, topic, qos, version, reason, frame)


def payloads(run: Run) -> list[bytes]:
    return [frame[publish_head(frame, run.version).payload_start :] for frame in split(run.blob)]


def in_journal(journal: DiskJournal) -> Iterator[bytes]:
    for record in journal.contents():
        yield from payloads(decode_record(record))


def copies(journal: DiskJournal, wal: bool) -> Iterator[tuple[bytes, str, int, int]]:
    """Each message in a journal with its origin, epoch and sequence: one that was resent has several."""
    for data in journal.contents():
        entry = decode_entry(data) if wal else RunEntry(decode_record(data), OWN, ())
        if isinstance(entry, RunEntry):
            run = entry.run
            for number, payload in enumerate(payloads(run)):
                yield payload, run.origin, run.epoch, run.first + number


def in_wal(journal: DiskJournal | None) -> Iterator[tuple[bytes, tuple[str, ...]]]:
    """Each message that the write-ahead log has, and its outboxes."""
    for data in journal.contents() if journal is not None else ():
        entry = decode_entry(data)
        if isinstance(entry, RunEntry):
            outboxes = tuple(name for name, _ in entry.destinations)
            for payload in payloads(entry.run):
                yield payload, outboxes
