"""Rule "replay": a client gets a message that is stored once for each time that it subscribed, no more.

Whoever subscribes again in its stead must not have it get them again. Must not know: gateways.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from brokerweave.mqtt.topics import matches
from brokerweave.sim.users_view.history import History


def find(history: History) -> Iterator[str]:
    for client, stored in history.retained.items():
        got = Counter(topic for _, topic in stored)
        for topic, times in got.items():
            asked = sum(
                matches(topic_filter, topic)
                for _, topic_filters in history.asked[client]
                for topic_filter in topic_filters
            )
            if times > asked:
                yield f"{client} got what is stored on {topic} {times} times, and subscribed {asked} times"
