"""Retained messages that the strategy wants a neighbour to have (`context.send_retained`).

Owns which topics are still to be sent to whom. Invariants: a topic waits once for a neighbour, however often
it was asked for; what is sent is its newest version at that moment, or its deletion; a lane is given no more
than leaves room for other messages; a link that fails interrupts nothing, since lanes outlive it. Must not
know: why somebody is to have something, how versions are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from brokerweave.links.outbox import Outbox
from brokerweave.links.run import Run
from brokerweave.mqtt.topics import matches
from brokerweave.node.neighbours import Neighbours
from brokerweave.node.outgoing import Outgoing
from brokerweave.plugin import Timer

PACE = 0.05
"""Seconds before looking again whether a lane has room for more."""
_WILDCARDS = frozenset("+#")


class SendingHost(Protocol):
    @property
    def neighbour_table(self) -> Neighbours: ...

    @property
    def outgoing(self) -> Outgoing: ...

    def lane_of(self, topic: str) -> int: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer: ...

    def count(self, counter: str, amount: int = 1) -> None: ...

    @property
    def when_passed(self) -> Callable[[Iterable[Outbox], Callable[[], None]], None]: ...


@dataclass(frozen=True, eq=False, slots=True)
class _End:
    """Behind the topics that somebody asked for."""

    done: Callable[[], None]


class RetainedSending:
    def __init__(self, host: SendingHost, index: Iterable[str], newest: Callable[[str], Run | None]) -> None:
        """`index`: the topics that are known. `newest`: a run that brings a topic's newest version."""
        self._host = host
        self._index = index
        self._newest = newest
        self._topics: dict[str, dict[str | _End, None]] = {}

        self._used: dict[str, dict[Outbox, None]] = {}
        """Outboxes that got something, while more is to be sent."""

    def __contains__(self, neighbour: object) -> bool:
        """Whether something is still to be sent to a neighbour."""
        return neighbour in self._topics

    def send(self, neighbour: str, topic_filter: str, done: Callable[[], None] | None = None) -> None:
        """The topics under a filter are to be sent. One without wildcards costs no look at the others. `done`
        is called later, when the neighbour has acknowledged them."""
        plain = _WILDCARDS.isdisjoint(topic_filter)
        topics: list[str | _End] = [topic_filter]
        if not plain:
            topics = [topic for topic in self._index if matches(topic_filter, topic)]
        if done is not None:
            topics.append(_End(done))
        waiting = self._topics.get(neighbour)
        if waiting is not None:
            waiting.update(dict.fromkeys(topics))
        elif topics:
            self._topics[neighbour] = dict.fromkeys(topics)
            self._go_on(neighbour)

    def forget(self, neighbour: str) -> None:
        self._topics.pop(neighbour, None)
        self._used.pop(neighbour, None)

    def _go_on(self, neighbour: str) -> None:
        topics = self._topics.get(neighbour)
        if topics is None:
            return
        lanes = self._host.neighbour_table[neighbour].lanes
        while topics:
            topic = next(iter(topics))
            if isinstance(topic, _End):
                del topics[topic]
                self._ends(neighbour, topic)
                continue
            lane = self._host.lane_of(topic)
            outbox, run = lanes[lane].outbox, self._newest(topic)
            full = run is not None and outbox.backlog_runs > 0 and not outbox.has_room(run)
            if is_busy(outbox) or full:
                self._host.call_later(PACE, lambda: self._go_on(neighbour))
                return
            del topics[topic]
            if run is not None:
                self._host.outgoing.enqueue(neighbour, lane, run)
                self._host.count("retained_sent")
                self._used.setdefault(neighbour, {})[outbox] = None
        del self._topics[neighbour]
        self._used.pop(neighbour, None)

    def _ends(self, neighbour: str, end: _End) -> None:
        entry = self._host.neighbour_table[neighbour]

        def done() -> None:
            if self._host.neighbour_table.get(neighbour) is entry:  # else its outboxes were emptied
                end.done()

        self._host.when_passed(tuple(self._used.get(neighbour, ())), done)


def is_busy(outbox: Outbox) -> bool:
    """Whether an outbox is to be left to others' messages."""
    return outbox.backlog_runs > 0 and outbox.backlog_bytes > outbox.memory_bytes // 4
