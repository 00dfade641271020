"""Sites that tell each other what they want, so that a message takes one hop.

Owns what each site wants, who keeps copies of its records, who lives, and which neighbours have heard what
this site wants. Invariants: a local publication goes to each site that wants its topic, and to its holders;
what came over a link goes no further. What a life of a site wanted goes to its holders until another site has
adopted its clients, or `window` is over. Must not know: clients' records, messages, connections.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import ClassVar

from brokerweave.mqtt.trie import FilterTrie
from brokerweave.plugin import (
    Context,
    Cut,
    Hop,
    Linking,
    NetworkShape,
    Packet,
    Publish,
    RemoteProtocolError,
    Route,
    Strategy,
    Traits,
    option,
)
from brokerweave.plugin.sites import SiteBook, SiteEvents

TOPIC = "mesh"
PACKET_BYTES = 32 << 10
"""Of filters in one packet, about."""
GRACE_SECONDS = 2.0
"""Without membership: how long a link may be down before its neighbour is not live."""
RECOVER_SECONDS = 30.0
"""How long a node that was started waits for others before it is ready all the same."""

Life = tuple[str, int]
"""A site and one of its lives."""


@dataclass(slots=True)
class SiteInterest:
    """What one life of a site told."""

    life: int
    version: int = 0
    filters: dict[str, int] = field(default_factory=dict)
    holders: tuple[str, ...] = ()
    adopted: frozenset[Life] = frozenset()


class Mesh(Strategy):
    """What `strategy = "mesh"` keeps for clients that change or lose their site. It implies
    `delivery = "cluster"`, `subscribe = "barrier"` and `cycles = "none"`."""

    name: ClassVar[str] = "mesh"
    linking: ClassVar[Linking] = Linking.MEMBERS
    tree: ClassVar[bool] = False
    marks: ClassVar[bool] = False
    cluster_delivery: ClassVar[bool] = True
    traits: ClassVar[Traits] = Traits(
        NetworkShape.FULL, selective=True, keeps_for_absent=True, counts_told=("filters_told",)
    )

    copies = option(
        2,
        "At how many sites a QoS 1 or 2 publication is before it is acknowledged to its publisher; one less "
        "may die at once.",
        minimum=1,
        maximum=16,
    )
    window = option(60.0, "How long what clients without a site missed is kept.", unit="seconds", minimum=1)
    patience = option(
        15.0,
        "How long a member that lives and is slow is waited for before a SUBACK or an acknowledgement goes "
        "on all the same, counted.",
        unit="seconds",
        minimum=0.01,
    )
    client_bytes = option(
        1024 * 1024,
        "What is kept for one client at most; the oldest beyond it is dropped and counted.",
        unit="bytes per client",
        minimum=1024,
    )
    max_bytes = option(
        256 * 1024 * 1024,
        "What is kept for all clients together at most; the oldest beyond it is dropped and counted.",
        unit="bytes",
        minimum=64 * 1024,
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.events = SiteEvents()
        self.life = self.version = int(context.now() * 1_000_000)
        self.live: frozenset[str] = frozenset((context.node_id,))
        self.counters = {"filters_told": 0}
        self._started = context.steady()
        self._members: frozenset[str] | None = None
        self._links = Links()
        self._own = SiteInterest(self.life)
        self._kept: dict[str, int] = {}
        """What only records want, not sessions here."""
        self._sessions: dict[str, int] = {}
        self._sites: dict[str, SiteInterest] = {}
        self._ended: dict[Life, SiteInterest] = {}
        """Lives that ended, until somebody has adopted their clients."""
        self._trie = FilterTrie()
        self._changes: dict[str, int | None] | None = None
        """What the next flush tells; None: there is none due."""
        self._recovered = False

    # What a node asks

    def route(self, topic: str, came_from: str | None) -> Route:
        wanted = self._trie.match(topic)
        if came_from is not None:
            return Route((), local=_key(self.context.node_id) in wanted)
        return self._hops(wanted, {})

    def route_retained(self, topic: str, came_from: str | None) -> Route:
        if came_from is not None:
            return Route((), local=True)
        return self._hops(self._trie.match(topic), dict.fromkeys(self.context.neighbours(), 2))

    def _hops(self, wanted: Mapping[str, int], there: dict[str, int]) -> Route:
        me, linked = self.context.node_id, set(self.context.neighbours())
        holds: dict[str, list[str]] = {}
        for key, qos in sorted(wanted.items()):
            node, _, life = key.partition("\0")
            node = node.removesuffix("+")
            if not life and node != me:
                there[node] = max(qos, there.get(node, -1))
            holders = self._ended[node, int(life)].holders if life else self.holders_of(node)
            for holder in {*holders, *((me,) if node == me else ())} & (linked | {me}):
                if node not in holds.setdefault(holder, []):
                    holds[holder].append(node)
        own = tuple(holds.pop(me, ()))
        hops = [
            Hop(node, there.get(node, -1), tuple(holds.get(node, ())))
            for node in sorted((there.keys() | holds.keys()) & linked)
        ]
        return Route(tuple(hops), _key(me) in wanted, own)

    def holders_of(self, node: str) -> tuple[str, ...]:
        site = self._own if node == self.context.node_id else self._sites.get(node)
        return site.holders if site is not None else ()

    def describe(self, neighbour: str) -> dict[str, int]:
        site = self._sites.get(neighbour)
        heard = self._links.heard.get(neighbour, 0) >= self.version
        return {"filters_from": len(site.filters) if site is not None else 0, "heard": int(heard)}

    @classmethod
    def tells_interest(cls, packet: Packet) -> bool:
        return isinstance(packet, Publish) and packet.payload.startswith(b'["wants"')

    def ready(self) -> bool:
        self._recovered = self._recovered or self.all_told() or self._is_late()
        return self._recovered

    def takes_publications(self) -> bool:
        """Those in reach are waited for; who was out of reach all the time since the start is away."""
        links = self._links
        return self.all_told() or (self._is_late() and not self._unheard() & (links.up | links.missed))

    def _is_late(self) -> bool:
        return self.context.steady() - self._started >= RECOVER_SECONDS

    def all_told(self) -> bool:
        """Whether all that live have told what they want, and know what this site wants."""
        return not (self.context.searching() or self._unheard())

    def _unheard(self) -> set[str]:
        others = set(self.context.neighbours() if self._members is None else self.live)
        return others - (self._links.told & self._links.heard.keys()) - {self.context.node_id}

    def sites(self) -> SiteBook:
        return self

    def linked(self) -> tuple[str, ...]:
        return tuple(sorted(self._links.told))

    def life_of(self, node: str) -> int:
        site = self._sites.get(node)
        return site.life if site is not None else 0

    def rank(self, nodes: Iterable[str]) -> tuple[str, ...]:
        def place(node: str) -> bytes:
            return blake2b(f"{self.context.node_id}\0{node}".encode(), digest_size=8).digest()

        return tuple(sorted(nodes, key=place))

    # What this site wants

    def subscribed(self, filters: Mapping[str, int]) -> None:
        self._sessions |= filters
        self._changed(filters)

    def unsubscribed(self, filters: Iterable[str]) -> None:
        filters = list(filters)
        for each in filters:
            self._sessions.pop(each, None)
        self._changed(filters)

    def want(self, filters: Mapping[str, int | None]) -> None:
        for topic_filter, qos in filters.items():
            if qos is None:
                self._kept.pop(topic_filter, None)
            else:
                self._kept[topic_filter] = qos
        self._changed(filters)

    def _changed(self, filters: Iterable[str]) -> None:
        me = self.context.node_id
        for each in filters:
            _set(self._trie, _key(me), each, self._sessions.get(each))
            _set(self._trie, _key(me) + "+", each, self._kept.get(each))
            qos = max(self._sessions.get(each, -1), self._kept.get(each, -1))
            if qos != self._own.filters.get(each, -1):
                self._own.filters[each] = qos
                if qos < 0:
                    del self._own.filters[each]
                self._tell({each: qos if qos >= 0 else None})
        self.context.routes_changed()

    def hold_at(self, holders: tuple[str, ...]) -> None:
        self._own.holders = holders
        self.context.routes_changed()
        self._tell({})

    def adopted(self, homes: frozenset[Life]) -> None:
        self._own.adopted = homes
        self._tell({})
        self._drop_adopted(homes)

    def announce(self) -> int:
        self._tell({})
        return self.version + 1

    def _tell(self, changes: Mapping[str, int | None]) -> None:
        if self._changes is None:
            self._changes = {}
            self.context.call_later(0, self.flush)
        self._changes.update(changes)

    def flush(self) -> None:
        if self._changes is None:
            return
        changes, self._changes = self._changes, None
        self.version += 1
        packets = self._packets("wants", changes)
        for neighbour in sorted(self._links.up):
            self._send(neighbour, packets)

    def _packets(self, kind: str, filters: Mapping[str, int | None], had: Sequence[int] = ()) -> list[Packet]:
        """The last one of several has the version. `had`: the life and version of who is told, as known."""
        pages: list[dict[str, int | None]] = [{}]
        size = 0
        for each, qos in filters.items():
            if size > PACKET_BYTES:
                pages.append({})
                size = 0
            pages[-1][each] = qos
            size += len(each) + 8
        rest = [list(self._own.holders), sorted(map(list, self._own.adopted)), list(had)]
        said = [
            [kind if n == 0 else "wants", self.life, self.version if n == len(pages) - 1 else 0, page, *rest]
            for n, page in enumerate(pages)
        ]
        return [Publish(TOPIC, json.dumps(each).encode()) for each in said]

    def _send(self, neighbour: str, packets: Iterable[Packet]) -> None:
        for packet in packets:
            self.counters["filters_told"] += 1
            self.context.send(neighbour, packet)

    # For the records of clients

    def client_joined(self, client: str, since: int) -> None:
        self.events.joined(client, since)

    def client_wants(self, client: str, filters: Mapping[str, int | None]) -> None:
        self.events.wants(client, filters)

    def client_left(self, client: str) -> None:
        self.events.left(client)

    # Neighbours and members

    def neighbour_up(self, neighbour: str) -> None:
        self.flush()
        links = self._links
        links.up.add(neighbour)
        links.told.discard(neighbour)
        links.missed.discard(neighbour)
        self._look_who_lives()
        known = self._sites.get(neighbour)
        had = [known.life, known.version] if known is not None else [0, 0]
        self._send(neighbour, self._packets("all", dict(self._own.filters), had))

    def neighbour_down(self, neighbour: str) -> None:
        links = self._links
        if neighbour in links.up and self._members is None:
            links.missed.add(neighbour)
            lost = links.lost[neighbour] = links.lost.get(neighbour, 0) + 1
            self.context.call_later(GRACE_SECONDS, partial(self._gone, neighbour, lost))
        links.up.discard(neighbour)
        links.told.discard(neighbour)
        self._look_who_lives()
        self.events.down(neighbour)

    def _gone(self, neighbour: str, lost: int) -> None:
        if self._links.lost.get(neighbour) == lost and neighbour in self._links.missed:
            self._links.missed.discard(neighbour)
            self._look_who_lives()

    def neighbour_removed(self, neighbour: str) -> None:
        self.neighbour_down(neighbour)
        self._links.missed.discard(neighbour)
        self._look_who_lives()

    def members_changed(self, live: frozenset[str]) -> None:
        self._members = live
        self._look_who_lives()

    def needs(self, member: str) -> bool:
        return member in self._sites

    def _look_who_lives(self) -> None:
        links = self._links
        members = self._members if self._members is not None else links.up | links.missed
        live = frozenset((*members, self.context.node_id))
        if live == self.live:
            return
        gone, self.live = self.live - live, live
        self.context.routes_changed()
        for node in sorted(gone):
            if node in self._sites:
                self.context.call_later(self.window, partial(self._forget, node, self._sites[node]))
            self.events.died(node)
        self._drop_adopted(self._adopted())
        self.events.lives()

    def _forget(self, node: str, site: SiteInterest) -> None:
        """Nobody adopted the clients of a dead site."""
        if node not in self.live and self._sites.get(node) is site:
            self._end(node)

    def _end(self, node: str) -> None:
        site = self._sites.pop(node, None)
        if site is not None:
            for each in site.filters:
                self._trie.discard(each, _key(node))
            self.context.routes_changed()

    # What neighbours tell

    def packet_arrived(self, neighbour: str, packet: Packet) -> None:
        if not isinstance(packet, Publish) or packet.topic != TOPIC:
            raise RemoteProtocolError(f"a home does not speak of {type(packet).__name__}")
        try:
            match json.loads(packet.payload):
                case ["heard", int(version), int(epoch), list(sequences), list(sent)]:
                    cut = Cut(epoch, tuple(map(int, sequences)), tuple(map(int, sent)))
                    if version <= self.version:
                        self._links.heard[neighbour] = max(version, self._links.heard.get(neighbour, 0))
                        self.events.heard(neighbour, version, cut)
                    return
                case ["all" | "wants" as kind, int(life), int(version), dict(filters), *rest]:
                    holders, adopted, had = rest
                    lives = frozenset((str(node), int(each)) for node, each in adopted)
                    if not all(f and qos in (None, 0, 1, 2) for f, qos in filters.items()):
                        raise ValueError("filters without a QoS")
                    told = SiteInterest(life, version, filters, tuple(map(str, holders)), lives)
                    self._take(neighbour, kind, told, list(map(int, had)))
                    return
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            raise RemoteProtocolError(f"what a site wants cannot be read ({error})") from None
        raise RemoteProtocolError("a site speaks of something unknown")

    def _take(self, neighbour: str, kind: str, told: SiteInterest, had: Sequence[int]) -> None:
        if kind == "all":
            goes_on = self._links.lives.get(neighbour) == told.life
            self._links.lives[neighbour] = told.life
            if goes_on and had and had[0] != self.life:
                self._links.heard.pop(neighbour, None)
                self.events.forgotten(neighbour)
        known = self._sites.get(neighbour)
        if known is not None and known.life != told.life:
            self._life_ended(neighbour, known)
            known = None
        if known is None:
            known = self._sites[neighbour] = SiteInterest(told.life)
            self._links.heard.pop(neighbour, None)
        key = _key(neighbour)
        changes: dict[str, int | None] = dict(told.filters)
        if kind == "all":
            changes = {**dict.fromkeys(known.filters), **changes}
        for each, qos in changes.items():
            _set(self._trie, key, each, qos)
            if qos is None:
                known.filters.pop(each, None)
            else:
                known.filters[each] = qos
        known.holders, known.adopted = told.holders, told.adopted
        known.version = told.version or known.version
        self.context.routes_changed()
        self._drop_adopted(told.adopted)
        if neighbour in self._links.up and told.version:
            self._links.told.add(neighbour)
            self.events.told(neighbour)
        if told.version:
            cut = self.context.cut(neighbour)
            said = ["heard", told.version, cut.epoch, cut.sequences, cut.sent]
            self.context.send(neighbour, Publish(TOPIC, json.dumps(said).encode()))

    def _life_ended(self, node: str, site: SiteInterest) -> None:
        """A site was started again: the clients of before are whose holders adopt them."""
        self._end(node)
        life = node, site.life
        if life in self._adopted() or not site.holders:
            return
        self._ended[life] = site
        for each, qos in site.filters.items():
            self._trie.add(each, f"{node}\0{site.life}", qos)
        self.context.call_later(self.window, lambda: self._drop_adopted(frozenset((life,))))

    def _adopted(self) -> frozenset[Life]:
        live = [site.adopted for node, site in self._sites.items() if node in self.live]
        return self._own.adopted.union(*live)

    def _drop_adopted(self, lives: Iterable[Life]) -> None:
        for life in lives:
            ended = self._ended.pop(life, None)
            if ended is not None:
                for each in ended.filters:
                    self._trie.discard(each, f"{life[0]}\0{life[1]}")
                self.context.routes_changed()
            site = self._sites.get(life[0])
            if site is not None and site.life == life[1] and life[0] not in self.live:
                self._end(life[0])


@dataclass(slots=True)
class Links:
    """What this node knows of its links."""

    up: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    """Those that have told what they want since their links are up."""
    heard: dict[str, int] = field(default_factory=dict)
    """The version of this site that each knows."""
    lives: dict[str, int] = field(default_factory=dict)
    missed: set[str] = field(default_factory=set)
    """Without membership: those whose links failed a moment ago."""
    lost: dict[str, int] = field(default_factory=dict)


def _key(node: str) -> str:
    """Of a site in the trie. `+` behind it: only records there want it, not its broker."""
    return node


def _set(trie: FilterTrie, key: str, topic_filter: str, qos: int | None) -> None:
    if qos is None:
        trie.discard(topic_filter, key)
    else:
        trie.add(topic_filter, key, qos)
