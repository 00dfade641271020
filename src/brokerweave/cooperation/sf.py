"""Subscription flooding (ILDM 3.2): publications go only towards nodes that asked for their topic.

Owns, per neighbour, the filters it inter-subscribed here and the filters we inter-subscribed there.
What is *wanted of* a neighbour is what local clients and all other neighbours want. Invariants, for each
neighbour whose link is up: every wanted filter is covered, with at least its QoS, by what was sent
there; nothing was sent there that is not wanted; nothing is withdrawn or lowered before what takes its
place went out. Must not know: clients, messages, connections.

On the wire: SUBSCRIBE asks for filters or changes their QoS, UNSUBSCRIBE withdraws them; neither is
acknowledged, a link delivers them in order or fails. When a link comes up each side sends a *full sync*:
SUBSCRIBEs whose user property `sync` is `whole`, or `begin`, `more` ..., `end`. At its end the receiver
drops what the sync did not name. MQTT has no SUBSCRIBE without filters, so "nothing" is said as
UNSUBSCRIBE `#` with `sync` = `whole`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from heapq import nlargest
from typing import ClassVar, TypeAlias

from brokerweave.mqtt.trie import FilterTrie
from brokerweave.plugin import (
    Context,
    Hop,
    Packet,
    Properties,
    Property,
    RemoteProtocolError,
    Route,
    Strategy,
    Subscribe,
    Subscription,
    Unsubscribe,
    user_properties,
)
from brokerweave.tables import fit

LOCAL = ""
"""The key of local clients' interest; a node's id is never empty."""

PACKET_FILTERS = 1_000
PACKET_BYTES = 60_000
"""Bounds of one control packet; a single longer filter still goes, alone."""

PACKET_ID = 1
"""MQTT wants one in SUBSCRIBE; without acknowledgements it means nothing."""

SYNC = "sync"
NOTHING = ("#",)
SENT = "sent"
"""The one key in the tries of what was sent."""

_RANKS, _END = {"#": 0, "+": 2}, 1

Interest: TypeAlias = dict[str, int]
"""Filter to QoS."""

Filters: TypeAlias = list[tuple[str, int]]

Wishes: TypeAlias = list[tuple[int, str]]
"""Who wants a filter most, and who next: (QoS, key)."""


class SubscriptionFlooding(Strategy):
    name: ClassVar[str] = "sf"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._held: dict[str, Interest] = {LOCAL: {}}
        self._matcher: FilterTrie = FilterTrie()  # the same as _held, for matching
        self._sent: dict[str, FilterTrie] = {}  # only neighbours whose link is up
        self._syncing: dict[str, Interest] = {}
        self.counters = {"inter_subscribes_sent": 0, "inter_unsubscribes_sent": 0}

    # What a node asks.

    def route(self, topic: str, came_from: str | None) -> Route:
        wanted = self._matcher.match(topic)
        local = wanted.pop(LOCAL, None) is not None
        hops = tuple(Hop(n, qos) for n, qos in sorted(wanted.items()) if n != came_from)
        return Route(hops, local)

    def interest_of(self, neighbour: str) -> list[tuple[str, int]]:
        """The filters that a neighbour inter-subscribed here."""
        return sorted(self._held.get(neighbour, {}).items())

    def asked_of(self, neighbour: str) -> list[tuple[str, int]]:
        """The filters that we inter-subscribed at a neighbour; none while its link is down."""
        return sorted(self._sent[neighbour].filters()) if neighbour in self._sent else []

    def describe(self, neighbour: str) -> dict[str, int]:
        sent = self._sent.get(neighbour)
        return {
            "filters_from": len(self._held.get(neighbour, {})),
            "filters_to": len(sent) if sent is not None else 0,
        }

    # What a node tells.

    def subscribed(self, filters: Mapping[str, int]) -> None:
        self._change(LOCAL, filters)

    def unsubscribed(self, filters: Iterable[str]) -> None:
        self._change(LOCAL, dict.fromkeys(filters))

    def neighbour_recalled(self, neighbour: str, kept: Mapping[str, int]) -> None:
        """Its interest as it was before a restart, until it says it anew."""
        self._held.setdefault(neighbour, {})
        self._change(neighbour, kept)

    def neighbour_up(self, neighbour: str) -> None:
        """Send all that is wanted of the neighbour (Fig. 8); what was sent before is forgotten."""
        self._held.setdefault(neighbour, {})
        self._sent[neighbour] = FilterTrie()
        self._send_sync(neighbour, self._ask(neighbour, _widest_first(self._matcher.filters()), self._wishes))

    def neighbour_down(self, neighbour: str) -> None:
        """Nothing can be sent; the neighbour's interest stays, and with it the debt."""
        self._sent.pop(neighbour, None)
        self._syncing.pop(neighbour, None)

    def neighbour_removed(self, neighbour: str) -> None:
        self.neighbour_down(neighbour)
        if neighbour in self._held:
            self._change(neighbour, dict.fromkeys(self._held[neighbour]))
            del self._held[neighbour]

    def packet_arrived(self, neighbour: str, packet: Packet) -> None:
        if neighbour not in self._held or neighbour == LOCAL:
            raise RemoteProtocolError(f"{neighbour!r} is not a neighbour")
        match packet:
            case Subscribe():
                asked = {s.topic_filter: s.qos for s in packet.subscriptions}
                self._take_subscribe(neighbour, asked, _sync_part(packet))
            case Unsubscribe():
                self._take_unsubscribe(neighbour, packet.topic_filters, _sync_part(packet))
            case _:
                raise RemoteProtocolError(f"{neighbour!r} sent sf a {type(packet).__name__}")

    # Taking a neighbour's interest.

    def _take_subscribe(self, neighbour: str, asked: Interest, part: str | None) -> None:
        held = self._held[neighbour]
        if part in ("begin", "whole"):
            self._syncing[neighbour] = {}
        elif (part is not None) != (neighbour in self._syncing):
            raise RemoteProtocolError(f"{neighbour!r} sent SUBSCRIBE with sync={part} out of turn")
        if part is None:
            self._change(neighbour, asked)
            return
        named = self._syncing[neighbour]
        named.update(asked)
        if part in ("whole", "end"):
            del self._syncing[neighbour]
            self._change(neighbour, {**dict.fromkeys(held), **named})
        else:
            # What makes up for a lower QoS may be in a later part: until the end, only raise.
            self._change(neighbour, {f: qos for f, qos in asked.items() if qos > held.get(f, -1)})

    def _take_unsubscribe(self, neighbour: str, filters: Iterable[str], part: str | None) -> None:
        if part == "whole" and tuple(filters) == NOTHING:
            self._syncing.pop(neighbour, None)
            self._change(neighbour, dict.fromkeys(self._held[neighbour]))
        elif part is None and neighbour not in self._syncing:
            self._change(neighbour, dict.fromkeys(filters))
        else:
            raise RemoteProtocolError(f"{neighbour!r} sent UNSUBSCRIBE with sync={part} out of turn")

    # The tables.

    def _change(self, key: str, changes: Mapping[str, int | None]) -> None:
        """Set what local clients or a neighbour want (None: no longer) and pass on what follows."""
        held = self._held[key]
        changed = [f for f, qos in changes.items() if held.get(f) != qos]
        routes_changed = False
        for topic_filter in changed:
            qos = changes[topic_filter]
            # At what QoS local clients listen is between them and their broker.
            routes_changed |= key != LOCAL or qos is None or topic_filter not in held
            if qos is None:
                del held[topic_filter]
                self._matcher.discard(topic_filter, key)
            else:
                held[topic_filter] = qos
                self._matcher.add(topic_filter, key, qos)
        fit(held)
        if changed and key != LOCAL:
            self.context.keep(key, {topic_filter: changes[topic_filter] for topic_filter in changed})
        changed.sort(key=_breadth)
        # Once for all neighbours: a hub has up to a thousand of them.
        inside = cache(lambda f: _widest_first(self._matcher.covered_by(f)))
        wishes = cache(self._wishes)
        for neighbour in self._sent:
            if neighbour != key:
                self._pass_on(neighbour, changed, inside, wishes)
        if routes_changed:
            self.context.routes_changed()

    def _pass_on(
        self,
        neighbour: str,
        changed: list[str],
        inside: Callable[[str], Filters],
        wishes: Callable[[str], Wishes],
    ) -> None:
        """Make what was sent to a neighbour cover what is wanted of it, for filters that changed."""
        sent = self._sent[neighbour]
        raised: Interest = {}
        lowered: Interest = {}
        dropped: list[str] = []
        for topic_filter in changed:
            wanted, was = _wanted(neighbour, wishes(topic_filter)), sent.qos_of(topic_filter)
            if was is None or (wanted is not None and wanted >= was):
                if wanted is not None:
                    raised |= self._ask(neighbour, [(topic_filter, wanted)], wishes)
                continue
            sent.discard(topic_filter, SENT)
            if wanted is None:
                dropped.append(topic_filter)
            else:
                sent.add(topic_filter, SENT, wanted)
                lowered[topic_filter] = wanted
            if not sent.covered(topic_filter, was):
                raised |= self._ask(neighbour, inside(topic_filter), wishes)
        # ILDM 3.2.1, with covering: first what takes their place, then the ones to be withdrawn.
        self._send_subscribe(neighbour, raised)
        self._send_subscribe(neighbour, lowered)
        self._send_unsubscribe(neighbour, dropped)

    def _ask(self, neighbour: str, filters: Filters, wishes: Callable[[str], Wishes]) -> Interest:
        """The overlap check (ILDM 3.2): note as sent, and return, what is wanted and not yet covered.

        `filters` come widest first, each with the highest QoS that anyone wants.
        """
        sent = self._sent[neighbour]
        asked: Interest = {}
        for topic_filter, highest in filters:
            was = sent.qos_of(topic_filter)
            if was is not None and was >= highest:
                continue  # the common case when one wide filter goes, and much cheaper than what follows
            wanted = _wanted(neighbour, wishes(topic_filter))
            if wanted is not None and not sent.covered(topic_filter, wanted):
                sent.add(topic_filter, SENT, wanted)
                asked[topic_filter] = wanted
        return asked

    def _wishes(self, topic_filter: str) -> Wishes:
        wishes = [(h[topic_filter], key) for key, h in self._held.items() if topic_filter in h]
        return nlargest(2, wishes)

    # Sending.

    def _send_sync(self, neighbour: str, asked: Interest) -> None:
        batches = list(_batches(asked))
        if not batches:
            self.context.send(neighbour, Unsubscribe(PACKET_ID, NOTHING, _sync("whole")))
        for number, batch in enumerate(batches, 1):
            part = "begin" if number == 1 else "end" if number == len(batches) else "more"
            part = "whole" if len(batches) == 1 else part
            self.context.send(neighbour, _subscribe(batch, asked, _sync(part)))
        self.counters["inter_subscribes_sent"] += len(asked)

    def _send_subscribe(self, neighbour: str, asked: Interest) -> None:
        for batch in _batches(asked):
            self.context.send(neighbour, _subscribe(batch, asked))
        self.counters["inter_subscribes_sent"] += len(asked)

    def _send_unsubscribe(self, neighbour: str, dropped: list[str]) -> None:
        for batch in _batches(dropped):
            self.context.send(neighbour, Unsubscribe(PACKET_ID, tuple(batch)))
        self.counters["inter_unsubscribes_sent"] += len(dropped)


def _wanted(neighbour: str, wishes: Wishes) -> int | None:
    """The highest QoS at which anyone but the neighbour itself wants a filter."""
    return next((qos for qos, key in wishes if key != neighbour), None)


def _subscribe(filters: Iterable[str], asked: Interest, properties: Properties = ()) -> Subscribe:
    return Subscribe(PACKET_ID, tuple(Subscription(f, asked[f]) for f in filters), properties)


def _sync(part: str) -> Properties:
    return ((Property.USER_PROPERTY, (SYNC, part)),)


def _sync_part(packet: Subscribe | Unsubscribe) -> str | None:
    part = user_properties(packet.properties).get(SYNC)
    if part not in (None, "whole", "begin", "more", "end"):
        raise RemoteProtocolError(f"there is no sync={part!r}")
    return part


def _batches(filters: Iterable[str]) -> Iterator[list[str]]:
    """Cut filters into lists that fit into one packet each."""
    batch: list[str] = []
    size = 0
    for topic_filter in filters:
        weight = len(topic_filter.encode()) + 3  # its length before it, its QoS behind it
        if batch and (len(batch) == PACKET_FILTERS or size + weight > PACKET_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(topic_filter)
        size += weight
    if batch:
        yield batch


def _widest_first(filters: Iterable[tuple[str, int]]) -> Filters:
    return sorted(filters, key=lambda pair: _breadth(pair[0]))


def _breadth(topic_filter: str) -> tuple[list[int], str]:
    """A sort key that puts a filter before all that it covers: `a/#`, `a`, `a/+`, `a/b`."""
    return [_RANKS.get(level, 3) for level in topic_filter.split("/")] + [_END], topic_filter
