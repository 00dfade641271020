"""What other sites have yet to take of what goes out from here, by topic.

Owns an index of each outbox that was asked for in this turn. Invariant: an index is of its outbox as it is
now; hundreds of clients that come at once do not make the node look through all outboxes for each. Must not
know: who asks, records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from brokerweave.links.outbox import Outbox
from brokerweave.links.run import Run
from brokerweave.mqtt.publish import publish_head
from brokerweave.mqtt.scanner import split

Places = list[tuple[int, Run]]
"""Runs with their places in the outbox."""


@dataclass(slots=True)
class _Index:
    oldest: int
    last: int
    topics: dict[bytes, Places]


class UnconfirmedByTopic:
    def __init__(self, soon: Callable[[Callable[[], None]], object]) -> None:
        """`soon`: calls back when the turn is over."""
        self._soon = soon
        self._indexes: dict[int, _Index] = {}

    def topics(self, outbox: Outbox) -> Mapping[bytes, Places]:
        """The runs of QoS 1 and 2 that nobody has acknowledged, by the topics in them."""
        known = self._indexes.get(outbox.stream_id)
        if known is None or (known.oldest, known.last) != (outbox.oldest, outbox.last):
            if not self._indexes:
                self._soon(self._indexes.clear)
            known = _Index(outbox.oldest, outbox.last, _by_topic(outbox))
            self._indexes[outbox.stream_id] = known
        return known.topics


def _by_topic(outbox: Outbox) -> dict[bytes, Places]:
    topics: dict[bytes, Places] = {}
    for place, run in enumerate(outbox.everything()):
        for topic in _topics(run) if run.max_qos else ():
            topics.setdefault(topic, []).append((place, run))
    return topics


def _topics(run: Run) -> Iterator[bytes]:
    if run.count == 1:
        yield publish_head(run.blob, run.version).topic
    else:
        yield from dict.fromkeys(publish_head(each, run.version).topic for each in split(run.blob))
