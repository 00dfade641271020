"""Guided dispatching (MQTT2EdgePeer 2.11.2): subscribers pass a topic on to others, by a plan.

Owns how plans are made of lists and followed. Invariants: each node on a list is named once, in one plan or
as a first hop; a node that is away relays nothing, and gets what is for it from whoever would have been
before it; a plan that names somebody unknown waits until membership tells of it. Must not know: lists, keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from brokerweave.cooperation.overlay.dispatch import Share, decode_plan, encode_plan, relay_shares, shares
from brokerweave.cooperation.overlay.strategy import Overlay
from brokerweave.plugin import NOT_YET, Hop, RemoteProtocolError, Route, option


class Guided(Overlay):
    name: ClassVar[str] = "guided"

    fan_out = option(
        5,
        "How many nodes a node sends a publication to; they pass it on.",
        minimum=2,
        maximum=65_535,
    )
    rotate = option(
        True,
        "Each topic begins its walk around the ring elsewhere, so that topics with the same subscribers have "
        "other relays. `false`: at the publisher's node, as in the thesis.",
    )

    def serve(self, topic: str, subscribers: Mapping[str, int]) -> Iterable[Hop]:
        start = self.position(self.keys(topic)[0]) if self.rotate else None
        live = [node for node in subscribers if self.is_live(node)]
        cut = shares(self.ring, self.node_id, live, self.fan_out, start)
        return self._hops(cut, subscribers, self.fan_out)

    def follow(self, topic: str, came_from: str, plan: bytes) -> Route:
        hops = self._relayed(plan)
        return NOT_YET if hops is None else Route(tuple(hops), local=self.wants(topic))

    def bypass(self, topic: str, relay: str, plan: bytes) -> Route:
        """A relay died: its children are served as it would have done."""
        hops = self._relayed(plan)
        return NOT_YET if hops is None else Route(tuple(hops))

    def _relayed(self, plan: bytes) -> list[Hop] | None:
        try:
            decoded = decode_plan(plan, self.numbers)
        except ValueError as error:
            raise RemoteProtocolError(str(error)) from None
        if decoded.unknown:
            return None
        subscribers = {node: qos for node, qos in decoded.rest if node != self.node_id}
        live = [node for node in subscribers if self.is_live(node)]
        return self._hops(relay_shares(live, decoded.fan_out), subscribers, decoded.fan_out)

    def _hops(self, cut: Iterable[Share], subscribers: Mapping[str, int], fan_out: int) -> list[Hop]:
        hops = [Hop(node, qos) for node, qos in subscribers.items() if not self.is_live(node)]
        for child, rest in cut:
            named = [(node, subscribers[node]) for node in rest]
            qos = max(subscribers[child], *(qos for _, qos in named), -1)
            hops.append(Hop(child, qos, plan=encode_plan(fan_out, named, self.numbers)))
        return hops
