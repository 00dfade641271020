"""The overlay as a strategy: the ring of live members, and the parts that register, keep and ask together.

Owns the ring as this node sees it, the way of each control packet to its part, and what of a key's keepers
goes to new ones. Invariants: coordinator and shadows of a key are its closest live members, so all who see
the same members agree, and nobody is elected; what this node tells itself takes the same way as what it tells
others; a topic whose lists are not complete has no route yet. Must not know: links, messages, how a list is
served (the subclasses' part).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import ClassVar

from brokerweave.cooperation.overlay import wire
from brokerweave.cooperation.overlay.dispatch import NumberTable
from brokerweave.cooperation.overlay.keeper import Keeper, on_arc
from brokerweave.cooperation.overlay.keys import key_of_filter, keys_of_topic
from brokerweave.cooperation.overlay.lists import SubscriberLists
from brokerweave.cooperation.overlay.registrar import Registrar
from brokerweave.cooperation.overlay.ring import CIRCLE, Ring, key_position
from brokerweave.cooperation.overlay.wire import (
    Absent,
    AskList,
    Entry,
    KeeperClaim,
    ListChanged,
    Listed,
    Message,
    Noted,
    Register,
    Registered,
    Settled,
)
from brokerweave.mqtt.trie import FilterTrie
from brokerweave.plugin import (
    NOT_YET,
    Context,
    Hop,
    Linking,
    NetworkShape,
    Packet,
    Route,
    Strategy,
    Traits,
    option,
)

SWEEP_SECONDS = 5.0
SEARCH_SECONDS = 0.2
"""Before a node that searches for members looks whether it has found them."""
TENTATIVE_SECONDS = 30.0
"""How long a filter that the broker has not granted yet stays registered."""
HAND_SECONDS = 1.0
"""After members changed, before retained messages are handed over: more changes may follow."""
HANDED_SECONDS = 10.0
"""After which a new keeper has surely been given them; until then others are asked for them as well."""
HANDED_AT_ONCE = 500
"""Retained topics looked at in one turn, after members changed."""
DEPARTED = 10_000
"""Members that left and may still be named in plans."""
TOGETHER_SECONDS = 10.0
"""Keepers that leave within this time may not have handed on what they knew of sites that are away."""
MOST_UNKNOWN = 256
"""Members that are away and get what they may want."""

_ring = lru_cache(8)(Ring)  # many nodes in one process see the same members
_numbers = lru_cache(8)(NumberTable)
_key = lru_cache(1 << 16)(key_of_filter)
_keys = lru_cache(1 << 16)(keys_of_topic)
_position = lru_cache(1 << 16)(key_position)


class Overlay(Strategy):
    """Implements `RegistrarHost`, `KeeperHost` and `ListsHost`."""

    linking: ClassVar[Linking] = Linking.ON_DEMAND
    tree: ClassVar[bool] = False
    marks: ClassVar[bool] = False
    retained_everywhere: ClassVar[bool] = False
    traits: ClassVar[Traits] = Traits(NetworkShape.FULL, selective=True)
    trusting: ClassVar[bool] = False

    shadows = option(
        3,
        "How many nodes, beside its coordinator, know who wants a topic. As many may die at once. Every node "
        "of a deployment should use the same.",
        minimum=0,
        maximum=15,
    )
    list_lifetime = option(
        60.0,
        "After how long a list of subscribers that is in use is asked for again: a backstop, since keepers "
        "tell of changes.",
        unit="seconds",
        minimum=1,
    )
    prefix_levels = option(
        2,
        "Filters with wildcards are registered under as many of their first levels; those that begin with a "
        "wildcard, or all with 0, under one key for the whole deployment. Every node should use the same.",
        minimum=0,
        maximum=16,
    )
    absent_for = option(
        3600.0,
        "How long what a site wants is remembered while it is away.",
        unit="seconds",
        minimum=1,
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.life = int(context.now() * 1_000_000)
        self.node_id = context.node_id
        self._live = frozenset(context.members())
        self.ring = _ring(self._live)
        self._departed: dict[str, float] = {}
        """With when they left."""
        self._whole: Ring | None = None
        """The ring with those that are away; made when it is needed."""
        self._unknown: set[str] = set()
        """Members that are away, and nobody is left who knows what they want: they get all that they may."""
        self.numbers = _numbers(self._live)
        self._lives: dict[str, int] = {}
        self._mine = FilterTrie()
        self._filters: dict[str, int] = {}
        self._tentative: dict[str, float] = {}
        self._loop: deque[Message] = deque()
        self._looping = False
        self._searching = False
        self._handing: Iterator[str] | None = None
        self._arc_since = context.steady()
        """When the arc of keys that this node keeps became what it is."""
        self._before: Ring | None = None
        """The ring before the changes of which new keepers are yet to be told."""
        self._were_away: set[str] = set()
        """Members that left or were restarted since then, and may lack what they had."""
        self.registrar = Registrar(self, self.life, lambda call: _ignore(context.call_later(0.0, call)))
        self.keeper = Keeper(self, self.list_lifetime, self.absent_for, self.trusting)
        self.lists = SubscriberLists(self, self.list_lifetime)
        context.announce(self.life.to_bytes(8))
        context.call_later(SWEEP_SECONDS, self._sweep)

    @classmethod
    def in_one_process(cls) -> type[Overlay]:
        """All begin at one moment: nobody has to hear from everybody before it knows."""
        return type(cls.__name__, (cls,), {"trusting": True})

    # Where a topic goes

    def serve(self, topic: str, subscribers: Mapping[str, int]) -> Iterable[Hop]:
        """How the nodes that want a topic, other than this one, are reached."""
        raise NotImplementedError

    def route(self, topic: str, came_from: str | None) -> Route:
        if came_from is not None:
            return Route(local=self.wants(topic))
        subscribers = self._subscribers(topic)
        return NOT_YET if subscribers is None else Route(tuple(self.serve(topic, subscribers)))

    def route_retained(self, topic: str, came_from: str | None) -> Route:
        """To all who want it, and to the keepers of all keys under which somebody may come to want it."""
        if came_from is not None:
            return Route(local=True)
        subscribers = self._subscribers(topic)
        if subscribers is None:
            return NOT_YET
        hops = tuple(self.serve(topic, subscribers))
        served = subscribers.keys() | {hop.neighbour for hop in hops} | {self.node_id}
        keepers = dict.fromkeys(k for key in self.keys(topic) for k in self.keepers_of_key(key))
        return Route((*hops, *(Hop(keeper) for keeper in keepers if keeper not in served)))

    def _subscribers(self, topic: str) -> dict[str, int] | None:
        found = None if self.is_searching() else self.lists.subscribers(topic, self.keys(topic))
        if found is not None:
            found.pop(self.node_id, None)
            if self._departed and any(map(self._keepers_left, self.keys(topic))):
                self._serve_unknown(found)
        return found

    def _keepers_left(self, key: str) -> bool:
        """Whether all who kept a key left together, but for some that do not answer: so it seems to a site
        that is cut off."""
        if self._whole is None:
            self._whole = _ring(self._live.union(self._away()))
        keepers = self._whole.closest(self.position(key), 1 + self.shadows)
        present = self._live & (self.lists.answered(key) | {self.node_id})
        left = [self._departed[node] for node in keepers if node in self._departed]
        return bool(left) and present.isdisjoint(keepers) and max(left) - min(left) < TOGETHER_SECONDS

    def _away(self) -> list[str]:
        late = self.context.steady() - self.absent_for
        return [node for node, left in self._departed.items() if left > late]

    def _serve_unknown(self, subscribers: dict[str, int]) -> None:
        """All that are away get a topic, and pass it to their brokers if somebody there wants it."""
        away = [node for node in self._away() if node not in subscribers]
        self._unknown.update(away[:MOST_UNKNOWN])
        self.counters["away_not_served"] = len(away[MOST_UNKNOWN:])
        subscribers.update(dict.fromkeys(away[:MOST_UNKNOWN], 2))

    def is_searching(self) -> bool:
        """Whether the members are not known yet; if so, routes change when they are."""
        searching = self.context.searching()
        if searching and not self._searching:
            self._searching = True
            self.context.call_later(SEARCH_SECONDS, self._search)
        return searching

    def _search(self) -> None:
        self._searching = False
        if not self.is_searching():
            self.context.routes_changed()

    def wants(self, topic: str) -> bool:
        return bool(self._mine.match(topic))

    # The ring

    def keys(self, topic: str) -> tuple[str, ...]:
        return tuple(key.decode() for key in _keys(topic, self.prefix_levels))

    def key_of(self, topic_filter: str) -> str:
        return _key(topic_filter, self.prefix_levels).decode()

    def position(self, key: str) -> int:
        return _position(key.encode())

    def keepers_of_key(self, key: str) -> tuple[str, ...]:
        return self.ring.closest(self.position(key), 1 + self.shadows)

    def keepers(self, topic_filter: str) -> tuple[str, ...]:
        return self.keepers_of_key(self.key_of(topic_filter))

    def on_arc(self, topic_filter: str, start: int, length: int) -> bool:
        return on_arc(self.position(self.key_of(topic_filter)), start, length)

    def arc(self) -> tuple[int, int]:
        return self.arc_of(self.node_id)

    def arc_of(self, node: str) -> tuple[int, int]:
        """A key is kept by a node if fewer than 1 + `shadows` members stand closer: up to half the way to the
        member that is so many places away, on both sides."""
        places, count, reach = self.ring.places, len(self.ring), 1 + self.shadows
        if count <= reach:
            return 0, CIRCLE
        here = self.ring.position(node)
        at = bisect_left(places, here)
        before = (here - places[(at - reach) % count]) % CIRCLE // 2 + 1
        behind = (places[(at + reach) % count] - here) % CIRCLE // 2 + 1
        return (here - before) % CIRCLE, before + behind

    def live(self) -> frozenset[str]:
        return self._live

    def is_live(self, node: str) -> bool:
        return node in self._live

    # What local clients want

    def subscribed(self, filters: Mapping[str, int]) -> None:
        for topic_filter, qos in filters.items():
            self._filters[topic_filter] = qos
            self._mine.add(topic_filter, "", qos)
            self._tentative.pop(topic_filter, None)
        self.registrar.want(filters)
        self.context.routes_changed()

    def unsubscribed(self, filters: Iterable[str]) -> None:
        gone = tuple(filters)
        for topic_filter in gone:
            self._filters.pop(topic_filter, None)
            self._mine.discard(topic_filter, "")
        self.registrar.unwant(gone)
        self.context.routes_changed()

    def subscribing(self, client: str, filters: Mapping[str, int], proceed: Callable[[], None]) -> bool:
        """Registered before the broker hears of it: retained messages have to be there by then."""
        until = self.context.steady() + TENTATIVE_SECONDS
        new = {each: qos for each, qos in filters.items() if not self.registrar.knows(each)}
        self._tentative.update(dict.fromkeys(new, until))
        self.registrar.want(new, retained=True)
        return self.registrar.when_registered(filters, lambda: self.context.when_injected(proceed))

    def granted(self, client: str, filters: Mapping[str, int], proceed: Callable[[], None]) -> bool:
        return self.registrar.when_registered(filters, proceed)

    # Members

    def members_changed(self, live: frozenset[str]) -> None:
        joined, gone = sorted(live - self._live), sorted(self._live - live)
        before = self.ring
        arc = self.arc()
        self._live, self.ring = live, _ring(live)
        if self.arc() != arc:
            self._arc_since = self.context.steady()
        for node in gone:
            self._departed[node] = self.context.steady()
        for node in self._departed.keys() & joined if self._departed else ():
            del self._departed[node]
        self._unknown.difference_update(joined)
        self._whole = None
        for node in list(islice(self._departed, max(0, len(self._departed) - DEPARTED))):
            del self._departed[node]
        self.numbers = _numbers(live.union(self._departed) if self._departed else live)
        self.keeper.members_changed(joined, gone)
        self.registrar.members_changed(joined, gone)
        self.lists.members_changed()
        self.context.routes_changed()
        self._before = self._before or before
        self._were_away.update(gone)
        self._hand_over()

    def member_announced(self, member: str, data: bytes) -> None:
        life = int.from_bytes(data[:8])
        before = self._lives.get(member, 0)
        if life > before:
            self._lives[member] = life
            self.keeper.announced(member, life)
            if before:
                self.registrar.restarted(member)
                self.lists.restarted(member)
                self._were_away.add(member)
                self._hand_over()

    def neighbour_down(self, neighbour: str) -> None:
        self.registrar.link_lost(neighbour)
        self.keeper.link_lost(neighbour)
        self.lists.ask_again(neighbour)

    def neighbour_removed(self, neighbour: str) -> None:
        if neighbour not in self._live:
            self.keeper.forget(neighbour)

    def neighbour_recalled(self, neighbour: str, kept: Mapping[str, int]) -> None:
        self.context.keep(neighbour, kept)
        self.keeper.recalled(neighbour, kept)

    def needs(self, member: str) -> bool:
        wanted = self.keeper.registered_by(member) > 0 or self.lists.names(member)
        return wanted or member in self._unknown

    def ready(self) -> bool:
        return not self.context.searching()

    def describe(self, neighbour: str) -> dict[str, int]:
        return {
            "filters_from": self.keeper.registered_by(neighbour),
            "filters_to": self.registrar.told(neighbour),
        }

    def roles(self) -> Mapping[str, int]:
        """Keys of which this node is coordinator or shadow, or has the list of subscribers (as a publisher's
        node), and filters that it registered (as a subscriber's)."""
        kept = [self.keepers_of_key(key) for key in self.keeper.keys]
        coordinated = sum(keepers[0] == self.node_id for keepers in kept)
        shadowed = sum(self.node_id in keepers[1:] for keepers in kept)
        return {
            "coordinator": coordinated,
            "shadow": shadowed,
            "publisher": len(self.lists),
            "subscriber": len(self._filters),
        }

    # Control packets

    def packet_arrived(self, neighbour: str, packet: Packet) -> None:
        self._heard(neighbour, wire.decode(packet))

    def tell(self, node: str, message: Message) -> None:
        if node != self.node_id:
            if node in self._live:
                self.context.send(node, wire.encode(message), wait=True)
            return
        self._loop.append(message)
        if not self._looping:
            self._looping = True
            while self._loop:
                self._heard(node, self._loop.popleft())
            self._looping = False

    def _heard(self, node: str, message: Message) -> None:
        match message:
            case Register():
                self.keeper.register(node, message)
            case Registered():
                self.registrar.registered(node, message)
            case AskList():
                self.keeper.ask(node, message)
            case Listed():
                self.lists.listed(node, message)
            case ListChanged():
                self.lists.changed(node, message)
            case Noted():
                self.keeper.noted(node, message)
            case KeeperClaim():
                self._tell_of_absent(node, self.keeper.of_absent())
                self.registrar.claimed(node, message)
            case Settled():
                self.keeper.settled(node, message)
            case Absent():
                self.keeper.absent(message)

    def steady(self) -> float:
        return self.context.steady()

    def keep(self, node: str, changes: Mapping[str, int | None]) -> None:
        self.context.keep(node, changes)

    def has_retained(self) -> bool:
        return self.trusting or self.context.steady() - self._arc_since > HANDED_SECONDS

    def send_retained(self, node: str, topic_filter: str, done: Callable[[], None] | None = None) -> None:
        self.context.send_retained(node, topic_filter, done)

    def lists_changed(self, topics: Iterable[str] | None) -> None:
        self.context.routes_changed(topics)

    def lists_aged(self, topics: Iterable[str] | None) -> None:
        self.context.routes_changed(topics)

    def look_later(self, seconds: float) -> None:
        self.context.call_later(seconds, self.lists.look)

    def _sweep(self) -> None:
        self.context.call_later(SWEEP_SECONDS, self._sweep)
        now = self.context.steady()
        refused = [each for each, until in self._tentative.items() if until < now]
        for topic_filter in refused:
            del self._tentative[topic_filter]
        self.registrar.unwant(each for each in refused if each not in self._filters)
        self.keeper.sweep()
        self.lists.sweep()
        self._whole = None
        self._unknown.intersection_update(self._away())
        self.counters.update(
            lists=len(self.lists),
            lists_waiting=self.lists.waiting,
            registered_here=len(list(self.keeper.keys)),
            list_holders=self.keeper.holders,
        )

    # What new keepers need of the others

    def _hand_over(self) -> None:
        absent = self.keeper.of_absent()
        for node in dict.fromkeys(k for entry in absent for k in self.keepers(entry.topic_filter)):
            if node != self.node_id and (self._before is not None or node in self._were_away):
                self._tell_of_absent(node, absent)
        if self._handing is None:
            self._handing = iter(())
            self.context.call_later(HAND_SECONDS, self._hand_retained)

    def _hand_retained(self) -> None:
        self._handing = iter(tuple(self.context.retained_topics()))
        self._hand_some()

    def _tell_of_absent(self, node: str, entries: list[Entry]) -> None:
        wanted = [entry for entry in entries if node in self.keepers(entry.topic_filter)]
        for part in wire.batches(wanted) if wanted else ():
            self.tell(node, Absent(tuple(part)))

    def _hand_some(self) -> None:
        topics = list(islice(self._handing or (), HANDED_AT_ONCE))
        for topic in topics:
            for node in sorted(self._new_keepers(topic)):
                self.context.send_retained(node, topic)
        if topics:
            self.context.call_later(0.0, self._hand_some)
        else:
            self._handing = None
            self._before = None
            self._were_away.clear()

    def _new_keepers(self, topic: str) -> set[str]:
        """Those that need to hear of a retained topic from this node: each keeper that is not new tells."""
        found: set[str] = set()
        for key in self.keys(topic):
            position = self.position(key)
            keepers = self.keepers_of_key(key)
            new = {node for node in keepers if self._is_new(node, position)}
            old = [node for node in keepers if node not in new]
            if new and (not old or self.node_id in old):
                found |= new
        return found - {self.node_id}

    def _is_new(self, node: str, position: int) -> bool:
        if node == self.node_id:
            return False
        before = self._before
        moved = before is not None and node not in before.closest(position, 1 + self.shadows)
        return moved or node in self._were_away


def _ignore(value: object) -> None: ...
