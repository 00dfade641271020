"""What local clients publish and what that costs, measured for strategies that decide by it (`TrafficUsage`).

Owns the counts. Invariants: counts are of the last `WINDOW` to twice that; at most `TOPICS` topics are known,
of which those that are rare make room. Must not know: what is decided.
"""

from __future__ import annotations

from collections.abc import Callable

from brokerweave.links.run import Run
from brokerweave.mqtt.publish import publish_head
from brokerweave.plugin import TrafficUsage

WINDOW = 10.0
TOPICS = 10_000


class _Counts:
    __slots__ = ("bytes", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0


class UsageMeter:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = now()
        self._before: tuple[float, int, dict[bytes, _Counts]] = (0.0, 0, {})
        """The window before: how long it was, bytes sent, topics."""
        self._topics: dict[bytes, _Counts] = {}
        self._sent = 0

    def sent(self, size: int) -> None:
        """So many bytes of local publications go to neighbours."""
        self._turn()
        self._sent += size

    def published(self, run: Run) -> None:
        """A run of local publications; its topics are taken to be the first's."""
        self._turn()
        topic = publish_head(run.part(0, 1).blob, run.version).topic
        counts = self._topics.get(topic)
        if counts is None:
            if len(self._topics) >= TOPICS:
                return
            counts = self._topics[topic] = _Counts()
        counts.messages += run.count
        counts.bytes += len(run.blob)

    def of(self, topic: str) -> TrafficUsage:
        self._turn()
        lasted, sent, topics = self._before
        seconds = max(lasted + self._now() - self._began, 1.0)
        name = topic.encode()
        found = [each[name] for each in (topics, self._topics) if name in each]
        messages, size = sum(each.messages for each in found), sum(each.bytes for each in found)
        mean = size / messages if messages else 0.0
        return TrafficUsage(messages / seconds, mean, (sent + self._sent) / seconds)

    def _turn(self) -> None:
        lasted = self._now() - self._began
        if lasted >= WINDOW:
            self._before = (lasted, self._sent, self._topics) if lasted < 2 * WINDOW else (0.0, 0, {})
            self._began, self._sent, self._topics = self._now(), 0, {}
