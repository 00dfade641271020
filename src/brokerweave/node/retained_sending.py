"""Retained messages that the strategy wants a neighbour to have (`context.send_retained`).

Owns which topics are still to be sent to whom. Invariants: a topic waits once for a neighbour, however often
it was asked for; what is sent is its newest version at that moment, or its deletion; a lane is given no more
than leaves room for other messages; a link that fails interrupts nothing, since lanes outlive it. Must not
know: why somebody is to have something, how versions are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from brokerweave.links.outbox import Outbox
from brokerweave.links.run import Run
from brokerweave.mqtt.topics import matches
from brokerweave.node.neighbours import Neighbours
from brokerweave.node.outgoing import Outgoing
from brokerweave.plugin import Timer

PACE = 0.05
"""Seconds before looking again whether a lane has room for more."""
PAUSE = 0.01
"""Seconds before looking again whether a neighbour has all."""
_WILDCARDS = frozenset("+#")


class SendingHost(Protocol):
    @property
    def neighbour_table(self) -> Neighbours: ...

    @property
    def outgoing(self) -> Outgoing: ...

    def lane_of(self, topic: str) -> int: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer: ...

    def count(self, counter: str, amount: int = 1) -> None: ...


class RetainedSending:
    def __init__(self, host: SendingHost, index: Iterable[str], newest: Callable[[str], Run | None]) -> None:
        """`index`: the topics that are known. `newest`: a run that brings a topic's newest version."""
        self._host = host
        self._index = index
        self._newest = newest
        self._topics: dict[str, dict[str, None]] = {}
        self._done: dict[str, list[tuple[list[int] | None, Callable[[], None]]]] = {}
        """By neighbour, who waits until it has all: the last of each lane's outbox, once all are in them."""

    def __contains__(self, neighbour: object) -> bool:
        """Whether something is still to be sent to a neighbour."""
        return neighbour in self._topics or neighbour in self._done

    def send(self, neighbour: str, topic_filter: str, done: Callable[[], None] | None = None) -> None:
        """The topics under a filter are to be sent. One without wildcards costs no look at the others.
        `done` is called when the neighbour has acknowledged them."""
        plain = _WILDCARDS.isdisjoint(topic_filter)
        topics = [topic_filter] if plain else [t for t in self._index if matches(topic_filter, t)]
        waiting = self._topics.get(neighbour)
        if waiting is not None:
            waiting.update(dict.fromkeys(topics))
        elif topics:
            self._topics[neighbour] = dict.fromkeys(topics)
            self._go_on(neighbour)
        if done is not None:
            waits = self._done.setdefault(neighbour, [])
            waits.append((None, done))
            if len(waits) == 1:
                self._host.call_later(0.0, lambda: self._look(neighbour))

    def forget(self, neighbour: str) -> None:
        self._topics.pop(neighbour, None)
        self._done.pop(neighbour, None)

    def _look(self, neighbour: str) -> None:
        """Whether those that somebody waits for have been acknowledged."""
        waits = self._done.get(neighbour, [])
        outboxes = [lane.outbox for lane in self._host.neighbour_table[neighbour].lanes] if waits else []
        left, over = [], []
        for last, done in waits:
            if last is None and neighbour not in self._topics:
                last = [outbox.last for outbox in outboxes]
            if last is not None and all(o.oldest > at for o, at in zip(outboxes, last, strict=True)):
                over.append(done)
            else:
                left.append((last, done))
        if left:
            self._done[neighbour] = left
            self._host.call_later(PAUSE, lambda: self._look(neighbour))
        else:
            self._done.pop(neighbour, None)
        for done in over:
            done()

    def _go_on(self, neighbour: str) -> None:
        topics = self._topics.get(neighbour)
        if topics is None:
            return
        lanes = self._host.neighbour_table[neighbour].lanes
        while topics:
            topic = next(iter(topics))
            lane = self._host.lane_of(topic)
            if is_busy(lanes[lane].outbox):
                self._host.call_later(PACE, lambda: self._go_on(neighbour))
                return
            del topics[topic]
            run = self._newest(topic)
            if run is not None:
                self._host.outgoing.enqueue(neighbour, lane, run)
                self._host.count("retained_sent")
        del self._topics[neighbour]


def is_busy(outbox: Outbox) -> bool:
    """Whether an outbox is to be left to others' messages."""
    return outbox.backlog_runs > 0 and outbox.backlog_bytes > outbox.memory_bytes // 4
