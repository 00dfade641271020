"""Guided dispatching (MQTT2EdgePeer 2.11.2): subscribers pass a topic on to others, by a plan.

Owns how plans are made of lists and followed. Invariants: each node on a list is named once, in one plan or
as a first hop; a node that is away relays nothing, and keeps its place; a plan that names somebody unknown
waits until membership tells of it. Must not know: lists, keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, NamedTuple

from brokerweave.cooperation.overlay.dispatch import (
    Share,
    decode_plan,
    encode_plan,
    nearest,
    relay_shares,
    shares,
)
from brokerweave.cooperation.overlay.fan_out import Choice, choose
from brokerweave.cooperation.overlay.strategy import Overlay
from brokerweave.plugin import NOT_YET, Context, Hop, RemoteProtocolError, Route, option

AUTO = "auto"
CHOICES = 10_000
"""Topics whose choice is remembered, and looked at again now and then."""
PAYLOAD, ROUND_TRIP = 1_000.0, 0.01
"""Bytes and seconds, before anything was measured."""
FIRST_LOOK = 0.5
"""Seconds until a choice that was made before anything was measured is looked at."""
TRIPS_SECONDS = 10.0
"""How long measured round trips are used: plans that followed each measurement would never rest."""


class _Chosen(NamedTuple):
    choice: Choice
    subscribers: int
    payload: float
    """What it was made for; a topic that rests keeps its size."""


class Guided(Overlay):
    name: ClassVar[str] = "guided"

    measures: ClassVar[bool] = True

    fan_out = option(
        AUTO,
        "How many nodes a node sends a publication to; they pass it on. By default it is chosen for each "
        "topic: the least mean latency with which no node sends more than its share.",
        choices=(AUTO,),
        or_from=2,
    )
    bandwidth = option(
        12_500_000.0,
        'What a node can send to others, for `fan_out = "auto"`.',
        unit="bytes per second",
        minimum=1_000,
    )
    share = option(
        0.5,
        'The part of its bandwidth that a node may use, for `fan_out = "auto"`.',
        minimum=0.01,
        maximum=1,
    )
    rotate = option(
        True,
        "The first relays are taken from those that are near by measured round trips, and each topic begins "
        "its walk around the ring elsewhere, so that topics with the same subscribers have other relays. "
        "`false`: it begins at the publisher's node, as in the thesis.",
    )

    def __init__(self, context: Context) -> None:
        self._choices: dict[str, _Chosen] = {}
        self._looking = False
        self._trips: Mapping[str, float] = {}
        self._trips_until = 0.0
        super().__init__(context)

    def serve(self, topic: str, subscribers: Mapping[str, int]) -> Iterable[Hop]:
        fan_out = self._choose(topic, len(subscribers)) if self.fan_out == AUTO else int(self.fan_out)
        start, near = None, frozenset[str]()
        if self.rotate:
            start = self.position(self.keys(topic)[0])
            near = nearest(subscribers, fan_out, self._round_trips())
        cut = shares(self.ring, self.node_id, subscribers, fan_out, start, near)
        return self._hops(cut, subscribers, fan_out)

    def _round_trips(self) -> Mapping[str, float]:
        now = self.context.steady()
        if now >= self._trips_until:
            self._trips, self._trips_until = self.context.round_trips(), now + TRIPS_SECONDS
        return self._trips

    # How many a node sends to

    def _choose(self, topic: str, subscribers: int) -> int:
        known = self._choices.pop(topic, None)
        usage, trips = self.context.usage(topic), self._round_trips()
        copies = min(known.choice.fan_out or known.subscribers, known.subscribers) if known else 0
        payload = usage.payload or (known.payload if known else PAYLOAD)
        choice = choose(
            subscribers,
            payload,
            sum(trips.values()) / len(trips) if trips else ROUND_TRIP,
            rate=usage.rate,
            bandwidth=self.bandwidth,
            share=self.share,
            others=max(0.0, usage.sent - copies * usage.rate * usage.payload),
            tree=False,
            present=known.choice if known else None,
        )
        self._choices[topic] = _Chosen(choice, subscribers, payload)
        if known is None and not usage.payload and not self._looking:
            self._looking = True
            self.context.call_later(FIRST_LOOK, self._look_first)
        while len(self._choices) > CHOICES:
            del self._choices[next(iter(self._choices))]
        return choice.fan_out

    def _look_first(self) -> None:
        self._look_at_choices()
        self._looking = False

    def _sweep(self) -> None:
        super()._sweep()
        self._look_at_choices()

    def _look_at_choices(self) -> None:
        for topic, chosen in list(self._choices.items()):
            if self._choose(topic, chosen.subscribers) != chosen.choice.fan_out:
                self.context.routes_changed((topic,))

    def explain(self) -> list[str]:
        rows = sorted(self._choices.items(), key=lambda row: -row[1].subscribers)
        return [f"topic {topic}: {chosen.choice}" for topic, chosen in rows]

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
        return self._hops(relay_shares(tuple(subscribers), decoded.fan_out), subscribers, decoded.fan_out)

    def _hops(self, cut: Iterable[Share], subscribers: Mapping[str, int], fan_out: int) -> list[Hop]:
        """A node that is away keeps its place, so that what waits for it waits in one place, in order; those
        whom it would serve get what it would have sent them."""
        hops: list[Hop] = []
        for child, rest in cut:
            qos = subscribers[child]
            if not self.is_live(child):
                hops.append(Hop(child, qos))
                hops += self._hops(relay_shares(rest, fan_out), subscribers, fan_out)
                continue
            named = [(node, subscribers[node]) for node in rest]
            plan = encode_plan(fan_out, named, self.numbers)
            hops.append(Hop(child, max(qos, *(each for _, each in named), -1), plan=plan))
        return hops
