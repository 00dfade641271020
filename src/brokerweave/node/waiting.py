"""Publications whose route is not known yet (`NOT_YET`), until the strategy knows it.

Owns them, in one queue for each topic and place that they came from. Invariants: a queue is left at its front
only, and what comes for its topic goes to its end, so that order stays; no queue is empty; `bytes` is what
all of them take. What is to survive a crash is in the write-ahead log before it is here (`number`), and the
entry which says where it goes ends that. Must not know: routes, the strategy, disks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from brokerweave.links.run import Run

QUEUE_BYTES = 1024
"""What a queue takes in memory beside its runs, about; or many topics would escape the bound."""

Key = tuple[str | None, str]
"""Where it came from (None: it was published here), and the topic."""


@dataclass(frozen=True, slots=True)
class WaitingRun:
    topic: str
    run: Run
    """Of one message. One that was published here has no sequence yet (`first` is 0): it gets it when it
    goes, or the duplicate windows of others may have passed it by then."""
    came_from: str | None = None
    came_on: int = 0
    local: bool = True
    """Whether the broker here may get it."""
    hops: bool = True
    """Whether neighbours may."""
    number: int = 0
    """Its own in the write-ahead log; 0 if it is not there."""
    send: Callable[..., Any] | None = None
    """Who sends it, with (run, group, number), where somebody waits for that."""

    @property
    def key(self) -> Key:
        return self.came_from, self.topic


class Waiting:
    def __init__(self, limit: int = 16 << 20) -> None:
        self.limit = limit
        self.bytes = 0
        self.runs = 0
        self._queues: dict[Key, deque[WaitingRun]] = {}

    def __contains__(self, key: Key) -> bool:
        """Whether anything of this topic, from there, waits."""
        return key in self._queues

    def __bool__(self) -> bool:
        return bool(self._queues)

    def __iter__(self) -> Iterator[WaitingRun]:
        for queue in self._queues.values():
            yield from queue

    @property
    def full(self) -> bool:
        """Whether no more should be added. It is the caller's to heed, since some cannot be refused any
        more."""
        return self.bytes >= self.limit

    def add(self, one: WaitingRun) -> None:
        queue = self._queues.get(one.key)
        if queue is None:
            queue = self._queues[one.key] = deque()
            self.bytes += QUEUE_BYTES + len(one.topic)
        queue.append(one)
        self.bytes += one.run.size
        self.runs += 1

    def first(self, key: Key) -> WaitingRun | None:
        queue = self._queues.get(key)
        return queue[0] if queue else None

    def pop(self, key: Key) -> WaitingRun:
        """Take the first: it waits no longer."""
        queue = self._queues[key]
        one = queue.popleft()
        self.bytes -= one.run.size
        self.runs -= 1
        if not queue:
            del self._queues[key]
            self.bytes -= QUEUE_BYTES + len(one.topic)
        return one

    def queues(self, topics: Iterable[str] | None = None) -> list[Key]:
        """Whose turn it may be, where the answers about these topics are others now, or all are."""
        if topics is None:
            return list(self._queues)
        wanted = set(topics)
        return [key for key in self._queues if key[1] in wanted]

    def check(self) -> None:
        """Raises `AssertionError` where an invariant is broken."""
        assert all(self._queues.values()), "an empty queue"
        assert all(one.key == key for key, queue in self._queues.items() for one in queue), "a wrong queue"
        topics = sum(QUEUE_BYTES + len(topic) for _, topic in self._queues)
        assert self.bytes == topics + sum(one.run.size for one in self), "bytes that were not counted"
        assert self.runs == sum(1 for _ in self), "runs that were not counted"
        numbers = [one.number for one in self if one.number]
        assert len(set(numbers)) == len(numbers), "one entry of the write-ahead log waits twice"
