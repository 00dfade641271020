"""Checks that the local broker holds the retained messages that the index names.

A local client's publication and an injected one reach the broker on two connections, and only the broker
knows which came last. A broker may also return from a crash without its retained messages. So a topic can
become *doubtful*. The node then reads it back from the broker by its exact name, which every broker supports.
Only what the broker has wrong twice in a row is injected again, so that no subscriber gets a message twice
without need. Invariants: a topic is checked only when it has not changed for `SETTLE` seconds and nothing
waits to be injected; an answer, or its absence, says nothing about a topic that changed after the question.
Must not know: how a broker is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from brokerweave.mqtt.publish import publish_head
from brokerweave.node.counters import Counters
from brokerweave.node.retained import RetainedIndex
from brokerweave.plugin import Timer

SETTLE = 1.0
"""Seconds without a change of the topic before the broker is asked."""
RACE = 5.0
"""Seconds within which a local publication and an injected one may overtake each other."""
BATCH = 500
"""Topics in one question: a broker's queue for one client holds more (Mosquitto: 1,000)."""
ATTEMPTS = 5
"""How often a question that the broker does not answer is asked, with fewer topics each time."""

Found: TypeAlias = dict[str, bytes] | None
"""Topic to payload; None if the broker could not be read."""

Reader: TypeAlias = Callable[[list[str], Callable[[Found], None]], None]


class CheckHost(Protocol):
    @property
    def counters(self) -> Counters: ...

    def now(self) -> float: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer: ...

    def injectors_idle(self) -> bool: ...


class BrokerCheck:
    """`reader` asks the broker; None: it cannot be asked. `correct` injects a topic's entry once more;
    `adopt` takes over what only the broker has."""

    def __init__(
        self,
        host: CheckHost,
        index: RetainedIndex,
        correct: Callable[[str], None],
        adopt: Callable[[str, bytes], None],
    ) -> None:
        self.reader: Reader | None = None
        self._host = host
        self._index = index
        self._correct = correct
        self._adopt = adopt
        self._doubtful: dict[str, float] = {}
        """Topic to the time of its last change."""
        self._changed: set[str] = set()
        """Topics that changed since the last question: the broker may have been read before that."""
        self._wrong: set[str] = set()
        self._corrected: set[str] = set()
        """Topics whose correction may still be on its way: a client's next message may come before it."""
        self._failures = 0
        self._waiting = False
        self._turned = 0.0
        # Topics of this period and of the one before: what is older cannot race any more.
        self._local: tuple[set[str], set[str]] = (set(), set())
        self._injected: tuple[set[str], set[str]] = (set(), set())

    def __len__(self) -> int:
        return len(self._doubtful)

    def published(self, topic: str) -> None:
        """A local client's message is on its way to the broker."""
        self._turn()
        self._local[0].add(topic)
        overtakes = topic in self._injected[0] or topic in self._injected[1] or topic in self._corrected
        if overtakes or topic in self._doubtful:
            self.doubt((topic,))

    def injected(self, topic: str) -> None:
        """A message from elsewhere is on its way to the broker."""
        self._turn()
        self._injected[0].add(topic)
        if topic in self._local[0] or topic in self._local[1] or topic in self._doubtful:
            self.doubt((topic,))

    def doubt(self, topics: Iterable[str]) -> None:
        now = self._host.now()
        for topic in topics:
            self._doubtful[topic] = now
            self._changed.add(topic)
            self._wrong.discard(topic)
        self._wait()

    def _turn(self) -> None:
        now = self._host.now()
        if now - self._turned > RACE and self._host.injectors_idle():
            recent = now - self._turned < 2 * RACE
            self._local = set(), self._local[0] if recent else set()
            self._injected = set(), self._injected[0] if recent else set()
            self._turned = now
        if self._corrected and self._host.injectors_idle():
            self._corrected.clear()

    def _wait(self) -> None:
        if self._doubtful and not self._waiting:
            self._waiting = True
            self._host.call_later(SETTLE, self._ask)

    def _ask(self) -> None:
        self._waiting = False
        self._changed.clear()
        if self.reader is None:
            self._give_up(list(self._doubtful))
            return
        still = self._host.now() - SETTLE / 2
        topics: list[str] = []
        if self._host.injectors_idle():
            size = max(BATCH >> 2 * self._failures, 1)  # one topic may be what the broker cannot handle
            topics = [t for t, changed in self._doubtful.items() if changed <= still][:size]
        if not topics:
            self._wait()
            return
        self._waiting = True
        self.reader(topics, lambda found: self._answered(topics, found))

    def _answered(self, asked: list[str], found: Found) -> None:
        self._waiting = False
        if found is None:
            self._failures += 1
            if self._failures >= ATTEMPTS:
                hopeless: Iterable[str] = asked if self._failures < 2 * ATTEMPTS else self._doubtful
                self._give_up([topic for topic in hopeless if topic not in self._changed])
        else:
            self._failures = max(self._failures - 1, 0)
            for topic in asked:
                if topic not in self._changed:
                    self._judge(topic, found.get(topic, b""))
        self._wait()

    def _judge(self, topic: str, payload: bytes) -> None:
        entry, frame = self._index.get(topic), self._index.frame(topic)
        if entry is None and payload:
            self._settled(topic)
            self._adopt(topic, payload)
        elif (
            entry is None
            or frame is None
            or frame[publish_head(frame, entry.version).payload_start :] == payload
        ):
            self._settled(topic)
        elif topic in self._wrong:
            self._settled(topic)
            self._corrected.add(topic)
            self._host.counters.add("retained_corrected")
            self._correct(topic)
        else:
            # It may just have been slow: ask once more, behind the others.
            self._wrong.add(topic)
            self._doubtful[topic] = self._doubtful.pop(topic)

    def _settled(self, topic: str) -> None:
        self._doubtful.pop(topic, None)
        self._wrong.discard(topic)

    def _give_up(self, topics: list[str]) -> None:
        self._host.counters.add("retained_unchecked", len(topics))
        for topic in topics:
            self._settled(topic)
        if not self._doubtful:
            self._failures = 0
