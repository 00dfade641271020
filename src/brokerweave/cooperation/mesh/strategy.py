"""The strategy `mesh`: sites tell each other what they want, so that a message takes one hop.

Owns who lives, and which neighbours have told what they want and heard what this site wants. Invariants: a
local publication goes to each site that wants its topic, and to its holders; what came over a link goes no
further. Must not know: clients' records, messages, connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import ClassVar

from brokerweave.cooperation.mesh.interest import (
    TOPIC,
    Filters,
    Heard,
    Life,
    OwnInterest,
    SiteInterest,
    Told,
    decode,
    encode_heard,
)
from brokerweave.cooperation.mesh.sites import Sites
from brokerweave.plugin import (
    Context,
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

GRACE_SECONDS = 2.0
"""Without membership: how long a link may be down before its neighbour is not live."""
RECOVER_SECONDS = 30.0
"""How long a node that was started waits for others before it is ready all the same."""


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
    died: dict[str, int] = field(default_factory=dict)
    """Those that died in the last window: they may come back with what they had. By the number of times."""


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
        self.live: frozenset[str] = frozenset((context.node_id,))
        self.counters = {"filters_told": 0}
        self._started = context.steady()
        self._complete = False
        """Whether this node knew at some time what all want that live, and they knew what it wants."""
        self._recovered = False
        """The same, or nobody waits for that any longer."""
        self._members: frozenset[str] | None = None
        self._links = Links()
        self._own = OwnInterest(context, self._tell_all)
        self._sites = Sites(context.node_id, self._own)

    @property
    def life(self) -> int:
        return self._own.told.life

    @property
    def version(self) -> int:
        return self._own.version

    # What a node asks

    def route(self, topic: str, came_from: str | None) -> Route:
        if came_from is not None:
            return Route((), local=self._sites.wanted_here(topic))
        return self._sites.route(topic, set(self.context.neighbours()), all_of_them=False)

    def route_retained(self, topic: str, came_from: str | None) -> Route:
        if came_from is not None:
            return Route((), local=True)
        return self._sites.route(topic, set(self.context.neighbours()), all_of_them=True)

    def describe(self, neighbour: str) -> dict[str, int]:
        site = self._sites.get(neighbour)
        heard = self._links.heard.get(neighbour, 0) >= self.version
        return {"filters_from": len(site.filters) if site is not None else 0, "heard": int(heard)}

    @classmethod
    def tells_interest(cls, packet: Packet) -> bool:
        return isinstance(packet, Publish) and packet.payload.startswith((b'["wants"', b'["all"'))

    def ready(self) -> bool:
        self._recovered = self._recovered or self._knew_all() or self._is_late()
        return self._recovered

    def takes_publications(self) -> bool:
        """Those in reach are waited for; who was out of reach all the time since the start is away."""
        links = self._links
        return self._knew_all() or (self._is_late() and not self._unheard() & (links.up | links.missed))

    def _knew_all(self) -> bool:
        """Now, or at some time since the start."""
        self._complete = self._complete or self.all_told()
        return self._complete

    def _is_late(self) -> bool:
        return self.context.steady() - self._started >= RECOVER_SECONDS

    def all_told(self) -> bool:
        """Whether all that live have told what they want, and know what this site wants."""
        return not (self.context.searching() or self._unheard())

    def _unheard(self) -> set[str]:
        others = set(self.context.neighbours() if self._members is None else self.live)
        return others - (self._links.told & self._links.heard.keys()) - {self.context.node_id}

    # What care asks

    def sites(self) -> SiteBook:
        return self

    def linked(self) -> tuple[str, ...]:
        return tuple(sorted(self._links.told))

    @property
    def remembered(self) -> frozenset[str]:
        return self.live | self._links.died.keys()

    def life_of(self, node: str) -> int:
        return self._sites.life_of(node)

    def holders_of(self, node: str) -> tuple[str, ...]:
        return self._sites.holders_of(node)

    def rank(self, nodes: Iterable[str]) -> tuple[str, ...]:
        def place(node: str) -> bytes:
            return blake2b(f"{self.context.node_id}\0{node}".encode(), digest_size=8).digest()

        return tuple(sorted(nodes, key=place))

    # What this site wants

    def subscribed(self, filters: Mapping[str, int]) -> None:
        self._own.session_wants(filters)
        self._own_changed(filters)

    def unsubscribed(self, filters: Iterable[str]) -> None:
        gone: Filters = dict.fromkeys(filters)
        self._own.session_wants(gone)
        self._own_changed(gone)

    def want(self, filters: Filters) -> None:
        self._own.record_wants(filters)
        self._own_changed(filters)

    def _own_changed(self, filters: Iterable[str]) -> None:
        self._sites.own_changed(filters)
        self.context.routes_changed()

    def hold_at(self, holders: tuple[str, ...]) -> None:
        self._own.told.holders = holders
        self.context.routes_changed()
        self._own.tell({})

    def adopted(self, homes: frozenset[Life]) -> None:
        self._own.told.adopted = homes
        self._own.tell({})
        self._forget_adopted(homes)

    def announce(self) -> int:
        return self._own.announce()

    def flush(self) -> None:
        self._own.flush()

    def _tell_all(self, packets: list[Packet]) -> None:
        for neighbour in sorted(self._links.up):
            self._send(neighbour, packets)

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
        had = (known.life, known.version) if known is not None else (0, 0)
        self._send(neighbour, self._own.whole(had))

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
        return self._sites.get(member) is not None

    def _look_who_lives(self) -> None:
        links = self._links
        # A link may be up before membership has found its node, whose clients are claimed then.
        members = links.up | (self._members if self._members is not None else links.missed)
        live = frozenset((*members, self.context.node_id))
        if live == self.live:
            return
        gone, self.live = self.live - live, live
        self.context.routes_changed()
        for node in sorted(gone):
            links.died[node] = death = links.died.get(node, 0) + 1
            self.context.call_later(self.window, partial(self._forget, node, death, self._sites.get(node)))
            self.events.died(node)
        self._forget_adopted(self._sites.adopted(live))
        self.events.lives()

    def _forget(self, node: str, death: int, site: SiteInterest | None) -> None:
        """What a dead site has is of no use any more, and nobody adopts its clients."""
        if self._links.died.get(node) == death:
            del self._links.died[node]
            if node not in self.live and site is not None and self._sites.get(node) is site:
                self._end(node)
            self.events.lives()

    def _end(self, node: str) -> None:
        self._sites.end(node)
        self.context.routes_changed()

    # What neighbours tell

    def packet_arrived(self, neighbour: str, packet: Packet) -> None:
        if not isinstance(packet, Publish) or packet.topic != TOPIC:
            raise RemoteProtocolError(f"a site does not speak of {type(packet).__name__}")
        told = decode(packet.payload)
        if isinstance(told, Told):
            self._told(neighbour, told)
        elif told.version <= self.version:
            heard = self._links.heard
            heard[neighbour] = max(told.version, heard.get(neighbour, 0))
            self._knew_all()
            self.events.heard(neighbour, told.version, told.cut)

    def _told(self, neighbour: str, told: Told) -> None:
        if told.whole:
            self._whole(neighbour, told)
        if self._sites.life_of(neighbour) != told.life:
            self._links.heard.pop(neighbour, None)
        ended = self._sites.told(neighbour, told)
        if ended is not None:
            self._life_ended(neighbour, ended)
        self.context.routes_changed()
        self._forget_adopted(told.adopted)
        if neighbour in self._links.up and told.version:
            self._links.told.add(neighbour)
            self.events.told(neighbour)
        if told.version:
            heard = Heard(told.version, self.context.cut(neighbour))
            self.context.send(neighbour, encode_heard(heard))

    def _whole(self, neighbour: str, told: Told) -> None:
        """Its link came up. It may have taken this site for dead meanwhile."""
        links = self._links
        goes_on = links.lives.get(neighbour) == told.life
        links.lives[neighbour] = told.life
        if goes_on and told.had and told.had[0] != self.life:
            links.heard.pop(neighbour, None)
            self.events.forgotten(neighbour)

    def _life_ended(self, node: str, site: SiteInterest) -> None:
        life = node, site.life
        if site.holders and life not in self._sites.adopted(self.live):
            self._sites.ended(node, site)
            self.context.call_later(self.window, partial(self._forget_adopted, frozenset((life,))))

    def _forget_adopted(self, lives: Iterable[Life]) -> None:
        """Somebody has adopted the clients of these lives of sites."""
        if self._sites.forget(lives):
            self.context.routes_changed()
        for node, life in lives:
            if node not in self.live and self._sites.life_of(node) == life:
                self._end(node)
