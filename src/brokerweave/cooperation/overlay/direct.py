"""Direct dispatching (MQTT2EdgePeer 2.11.1): a publisher's node sends to each node that wants a topic.

Invariant: a message takes one hop. Must not know: who wants what, how that is found out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from brokerweave.cooperation.overlay.strategy import Overlay
from brokerweave.plugin import Hop


class Direct(Overlay):
    name: ClassVar[str] = "direct"

    def serve(self, topic: str, subscribers: Mapping[str, int]) -> Iterable[Hop]:
        return [Hop(node, qos) for node, qos in subscribers.items()]
