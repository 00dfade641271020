"""Keeps the retained messages of all sites equal: gives versions, compares them, and repairs after a link was
down.

Owns the handling of each retained publication. Invariants: a local publication is in the index, on disk,
before the broker sees it; one that came over a link is in the index before the link confirms it; a message
reaches the broker with the retain flag only if it is newer than all before it; each publication reaches live
subscribers once, by its own run or by a repair. Must not know: sockets, files, brokers.

Repair: when a link comes up, or dropped a retained message for lack of room, each side asks for the versions
that the other has. It then sends what the other lacks on the topic's lane, behind the messages that were
pending before. So the order holds, and a message that arrives both ways is recognised. If the link fails, the
repair ends, and starts again when the link is up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from brokerweave.care.interface import Care
from brokerweave.links.run import Run
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.publish import publish_head
from brokerweave.mqtt.scanner import split
from brokerweave.node.retained import (
    BROKERS_OWN,
    BUCKETS,
    OLDEST,
    RetainedEntry,
    RetainedIndex,
    RetainedSettings,
    RetainedStore,
    RetainedVerdict,
    tag_of,
)
from brokerweave.node.retained_check import BrokerCheck, CheckHost
from brokerweave.node.retained_sending import PACE, RetainedSending, SendingHost, is_busy
from brokerweave.node.retained_wire import ASK, HAVE, answer, decode_have, encode_ask
from brokerweave.plugin import Timer

RETRY = 1.0
"""Seconds before a neighbour that had no room for a retained message is compared again."""
PURGE = 60.0

_RETAIN = 0x01
_SPREAD = 2_654_435_761
"""Prime, and about the golden part of 2^32: neighbouring numbers end far apart."""


class RetainedHost(CheckHost, SendingHost, Protocol):
    """What of the core is needed here."""

    @property
    def controls(self) -> dict[str, Callable[[str, bytes], None]]: ...

    def send_own(self, neighbour: str, topic: str, payload: bytes) -> None: ...

    @property
    def care(self) -> Care: ...


@dataclass(slots=True)
class _Repair:
    """Where the comparison with one neighbour stands: topics to send, and the bucket to go on with."""

    round: int
    queue: deque[str] = field(default_factory=deque)
    next: int = 0
    timer: Timer | None = None
    sent: int = 0


class RetainedSync:
    def __init__(
        self,
        host: RetainedHost,
        settings: RetainedSettings,
        store: RetainedStore,
        epoch: int,
        compares: bool = True,
    ) -> None:
        """`compares`: every node is to have everything; else only the strategy says who gets what."""
        self.index = RetainedIndex(settings, store)
        self.sending = RetainedSending(host, self.index, self._repair_run)
        self._compares = compares
        self.check = BrokerCheck(host, self.index, self._correct, self._adopt_one)
        self.broker_read = True
        """False: the broker may hold messages from before this node that the index does not know."""
        self._held: dict[str, bytes] | None = None
        self.unsure_until = 0
        """The stamp up to which QoS 0 may come once more, by another way, after a crash."""
        self._host = host
        self._repairs: dict[str, _Repair] = {}
        # Each start has rounds of its own: an answer to a question from before is no answer now.
        self._rounds = epoch * _SPREAD % 0xFFFF_FFFF
        self._later: dict[str, Timer] = {}
        self._agreed: dict[str, tuple[float, int]] = {}
        self._purging = False
        host.controls[ASK] = self._asked
        host.controls[HAVE] = self._told
        self._purge_later()

    # Messages on their way

    def published(self, run: Run) -> Run:
        """Local clients' publications: the same run, stamped, and in the index."""
        now = self._host.now()
        stamp = self.index.clock.reserve(run.count, now)
        for offset, frame in enumerate(split(run.blob)):
            head = publish_head(frame, run.version)
            self.index.offer(stamp + offset, run.origin, frame, head, run.version, run.born, now)
            self.check.published(head.topic.decode())
        self.commit()
        return replace(run, stamp=stamp)

    def published_again(self, run: Run) -> Run:
        """One that a client sends again, and the broker had: under its version, if it is still the topic's; a
        newer one is not to be undone."""
        head = publish_head(run.blob, run.version)
        entry = self.index.get(head.topic.decode())
        same = entry is not None and entry.tag == tag_of(entry.origin, run.blob[head.payload_start :])
        return replace(run, stamp=entry.stamp if entry is not None and same else OLDEST)

    def taken(self, run: Run, had: list[int] | None = None) -> list[tuple[Run, bool]]:
        """Judge a stamped run from a link. What is to be passed on, each part with whether the local broker
        needs it; `had` gets the sequences of messages that are, or were, in the index. Raises
        RemoteProtocolError if a frame is damaged. Call `commit` before confirming."""
        kept: list[tuple[int, bytes, bool, bool]] = []
        for offset, frame in enumerate(split(run.blob)):
            retain, local = self._judge(run, offset, frame)
            if had is not None and retain is not False:
                had.append(run.first + offset)
            if retain:
                kept.append((offset, frame, True, local))
            elif not run.repair and retain is not None:
                kept.append((offset, bytes((frame[0] & ~_RETAIN,)) + frame[1:], False, True))
            elif run.plan:  # a repair has brought it here, and to nobody behind
                kept.append((offset, frame, True, False))
        return list(_joined(run, kept))

    def _judge(self, run: Run, offset: int, frame: bytes) -> tuple[bool | None, bool]:
        """(True: retain it; False: only live subscribers need it; None: nobody does; for the broker?)."""
        head = publish_head(frame, run.version)
        if not head.retain or head.topic.startswith(b"$"):
            return False, True
        topic, now = head.topic.decode(), self._host.now()
        before = self.index.get(topic)
        verdict = self.index.offer(run.stamp + offset, run.origin, frame, head, run.version, run.born, now)
        if verdict is RetainedVerdict.NEW:
            if run.repair:
                self._host.care.repaired()
            local = not run.repair or self._needs(before, frame[head.payload_start :])
            if local:
                self.check.injected(topic)
            elif before is None:
                self.check.doubt((topic,))  # the broker may have what a failing disk did not keep
            return True, local
        if verdict is RetainedVerdict.KNOWN:
            return None, False
        if not run.repair:
            self._host.counters.add(f"retained_{verdict.value}")
        if verdict is RetainedVerdict.STALE and not head.qos and run.stamp + offset <= self.unsure_until:
            return None, False  # before a crash this node may have had it, and not known: QoS 0
        return False, True

    def _needs(self, before: RetainedEntry | None, payload: bytes) -> bool:
        """Whether the broker needs a repair. It needs neither its own message from before this node nor a
        deletion of an absent one: live subscribers would get a needless message."""
        if before is not None and before.origin == BROKERS_OWN and before.tag == tag_of(BROKERS_OWN, payload):
            return False
        absent = before is None or before.dead
        return bool(payload) or not absent or not self.broker_read

    def recalled(self, runs: Iterable[Run]) -> None:
        """What links had brought before a crash. It counts as seen, so nobody would send it again: the index
        must have it, too, though the crash may have come before the last `commit`."""
        now = self._host.now()
        for run in runs:
            for offset, frame in enumerate(split(run.blob)):
                head = publish_head(frame, run.version)
                if head.retain and not head.topic.startswith(b"$"):
                    self.index.offer(run.stamp + offset, run.origin, frame, head, run.version, run.born, now)
        self.commit()

    def commit(self) -> None:
        self.index.commit()
        self._purge_later()

    def adopt(self, frames: Iterable[tuple[bytes, int]]) -> int:
        """Retained messages that were at the broker before this node (frame, MQTT version): older than all
        that nodes have taken. How many were news."""
        now, news = self._host.now(), 0
        for frame, version in frames:
            head = publish_head(frame, version)
            if not head.topic.startswith(b"$"):
                verdict = self.index.offer(OLDEST, BROKERS_OWN, frame, head, version, now, now)
                news += verdict is RetainedVerdict.NEW
        self.commit()
        if news:
            for neighbour in self._host.neighbour_table.ids():
                self.linked(neighbour)
        return news

    def _adopt_one(self, topic: str, payload: bytes) -> None:
        self.adopt([(codec.encode(Publish(topic, payload, retain=True), 4), 4)])

    def broker_returned(self) -> None:
        """The broker was away: make sure that it still has everything."""
        self.check.doubt(self.index)

    def _correct(self, topic: str) -> None:
        run = self._repair_run(topic)
        if run is not None:
            self._host.outgoing.inject(self._host.lane_of(topic), run)

    # Neighbours

    def linked(self, neighbour: str) -> None:
        """A link came up, or its two ends may differ: compare."""
        self._stop(neighbour)  # but what the neighbour asked meanwhile still waits for its answer
        table = self._host.neighbour_table
        if self._compares and self._held is None and neighbour in table and table[neighbour].up:
            self._rounds = self._rounds % 0xFFFF_FFFF + 1
            self._repairs[neighbour] = _Repair(self._rounds)
            self._ask(neighbour)

    def unlinked(self, neighbour: str) -> None:
        if self._held is not None:
            self._held.pop(neighbour, None)
        self._stop(neighbour)

    def _stop(self, neighbour: str) -> None:
        repair = self._repairs.pop(neighbour, None)
        for timer in (repair.timer if repair else None, self._later.pop(neighbour, None)):
            if timer is not None:
                timer.cancel()

    def forgotten(self, neighbour: str) -> None:
        self.unlinked(neighbour)
        self.sending.forget(neighbour)
        self._agreed.pop(neighbour, None)

    def missed(self, neighbour: str) -> None:
        """A lane had no room for a retained message, or the neighbour may lack one: compare again, later."""
        if neighbour not in self._later:
            self._later[neighbour] = self._host.call_later(RETRY, lambda: self.linked(neighbour))

    def not_injected(self, run: Run) -> None:
        """The injector had no room for a retained message."""
        self.check.doubt(publish_head(frame, run.version).topic.decode() for frame in split(run.blob))

    def hold(self) -> None:
        """Compare with nobody until `go_on`: this node does not know yet what its broker has."""
        self._held = {}

    def go_on(self) -> None:
        if self._held is not None:
            held, self._held = self._held, None
            for neighbour, ask in held.items():
                self._asked(neighbour, ask)
            for neighbour in self._host.neighbour_table.ids():
                self.linked(neighbour)

    def _ask(self, neighbour: str) -> None:
        repair = self._repairs[neighbour]
        if any(self.index.fingerprints):
            ask = encode_ask(repair.round, repair.next, self.index.fingerprints)
            self._host.send_own(neighbour, ASK, ask)
        else:
            self._finished(neighbour)

    def _asked(self, neighbour: str, payload: bytes) -> None:
        if self._held is not None:
            self._held[neighbour] = payload
        else:
            self._host.send_own(neighbour, HAVE, answer(payload, self.index))

    def _told(self, neighbour: str, payload: bytes) -> None:
        have = decode_have(payload)
        repair = self._repairs.get(neighbour)
        if repair is None or repair.round != have.round or repair.timer is not None:
            return  # an answer to a question that is over, or answered
        for number in have.buckets:
            for topic, entry in self.index.bucket(number).items():
                if entry.rank > have.ranks.get(topic, (0, 0)):
                    repair.queue.append(topic)
        repair.next = have.next
        self._send(neighbour)

    def _send(self, neighbour: str) -> None:
        """Send the neighbour what it lacks, but never so much that other messages find no room."""
        repair = self._repairs[neighbour]
        repair.timer = None
        lanes = self._host.neighbour_table[neighbour].lanes
        while repair.queue:
            lane = self._host.lane_of(repair.queue[0])
            if is_busy(lanes[lane].outbox):
                repair.timer = self._host.call_later(PACE, lambda: self._send(neighbour))
                return
            run = self._repair_run(repair.queue.popleft())
            if run is not None:
                self._host.outgoing.enqueue(neighbour, lane, run)
                repair.sent += 1
        if repair.next < BUCKETS:
            self._ask(neighbour)
        else:
            self._finished(neighbour)

    def _finished(self, neighbour: str) -> None:
        repair = self._repairs.pop(neighbour)
        self._agreed[neighbour] = self._host.now(), repair.sent
        self._host.counters.add("retained_repairs_sent", repair.sent)

    def _repair_run(self, topic: str) -> Run | None:
        entry, frame = self.index.get(topic), self.index.frame(topic)
        if entry is None:
            return None
        if frame is None:
            self._host.counters.add("retained_not_kept")
            return None
        qos = publish_head(frame, entry.version).qos
        return Run(entry.origin, 0, 0, 1, entry.version, qos, 2, entry.born, frame, entry.stamp, repair=True)

    # Time and status

    def _purge_later(self) -> None:
        def purge() -> None:
            self._purging = False
            self.index.purge(self._host.now())
            self._purge_later()

        if self.index.mortal and not self._purging:
            self._purging = True
            self._host.call_later(PURGE, purge)

    def status(self) -> dict[str, Any]:
        return {
            "entries": len(self.index),
            "tombstones": self.index.tombstones,
            "bytes": self.index.bytes,
            "payload_not_kept": self.index.without_frame,
            "doubtful": len(self.check),
        }

    def describe(self, neighbour: str) -> dict[str, Any]:
        """For a neighbour's row in `status`."""
        at, sent = self._agreed.get(neighbour, (None, 0))
        seconds = None if at is None else round(self._host.now() - at, 3)
        return {"retained_compared_seconds_ago": seconds, "retained_repairs_sent": sent}


def _joined(run: Run, kept: list[tuple[int, bytes, bool, bool]]) -> Iterable[tuple[Run, bool]]:
    """The messages kept, joined again to runs of neighbours that share a fate."""
    at = 0
    while at < len(kept):
        offset, _, retain, local = kept[at]
        end = at + 1
        while end < len(kept) and kept[end][0] == offset + end - at and kept[end][2:] == (retain, local):
            end += 1
        blob = b"".join(frame for _, frame, _, _ in kept[at:end])
        stamp = run.stamp + offset if retain else 0
        yield replace(run, first=run.first + offset, count=end - at, blob=blob, stamp=stamp), local
        at = end
