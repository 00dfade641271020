"""The mesh: every node knows every client of every other node, and a message takes one hop (decision 0011).

Owns the tables of clients, which of them neighbours have heard of, and who holds what for whom. Invariants: a
local publication goes to each node whose clients want its topic, and to the holders of each such node; what
came over a link goes no further. All nodes that know the same live members name the same holders. The clients
of a node that is not live stay in the tables for `window` seconds, so that messages are kept for them. A
neighbour whose copy of the table differs gets all of it. Must not know: messages, what holders do with them,
connections.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from hashlib import blake2b
from heapq import nsmallest
from json.encoder import encode_basestring_ascii as _quoted
from math import inf
from typing import ClassVar

from brokerweave.cooperation import adverts
from brokerweave.cooperation.adverts import Advert, Digest, Heard, Orphaned, Pull, Told
from brokerweave.cooperation.clients import ClientTable
from brokerweave.plugin import (
    Context,
    Hop,
    Linking,
    NetworkShape,
    Packet,
    Publish,
    RemoteProtocolError,
    Roster,
    RosterEvents,
    Route,
    Strategy,
    Traits,
    option,
)

DIGEST_SECONDS = 60.0
"""Between two digests on each link: a backstop, since links deliver all changes in order or fail."""
DIGESTS_A_SECOND = 2.0
"""With many neighbours a node sends no more of them than this, and each link has one more rarely."""
GRACE_SECONDS = 2.0
"""Without membership, how long a link may be down before its neighbour is not live."""
RECOVER_SECONDS = 30.0
"""How long a node that was started waits for others that it cannot reach. Then it is ready without them, and
takes publications."""
PULL_SECONDS = 1.0
"""Between two pulls from one neighbour."""
FEW = 10
"""Members that come at once, up to which it is worth a look whether they are holders."""
_ADVERTS = tuple(f'["{part}"'.encode() for part in adverts.PARTS)


_TABLE = struct.Struct(">QQ")
"""What a node announces of its table: version and digest."""


class _AdvertWait:
    __slots__ = ("callback", "neighbours", "version")

    def __init__(self, version: int, neighbours: set[str], callback: Callable[[], None]) -> None:
        self.version = version
        self.neighbours = neighbours
        self.callback = callback


class _Loss:
    """Of a client that nobody knows where it is: what it wanted, and when it is given up."""

    __slots__ = ("filters", "until")

    def __init__(self, filters: set[str], until: float) -> None:
        self.filters = filters
        self.until = until


class Mesh(Strategy):
    """What `strategy = "mesh"` keeps for clients whose site dies. It implies `delivery = "cluster"`,
    `subscribe = "barrier"` and `cycles = "none"`."""

    name: ClassVar[str] = "mesh"
    linking: ClassVar[Linking] = Linking.MEMBERS
    tree: ClassVar[bool] = False
    marks: ClassVar[bool] = False
    cluster_delivery: ClassVar[bool] = True
    traits: ClassVar[Traits] = Traits(
        NetworkShape.FULL, selective=True, keeps_for_absent=True, counts_told=("adverts_sent",)
    )

    copies = option(
        2,
        "At how many sites a QoS 1 or 2 publication is before it is acknowledged to its publisher; one less "
        "may die at once. Every node of a deployment should use the same. Each publication goes to "
        "`copies` - 1 further nodes for each node whose clients want it.",
        minimum=1,
        maximum=16,
    )
    window = option(
        60.0,
        "How long the clients of a dead site are remembered, and what they missed is kept.",
        unit="seconds",
        minimum=1,
    )
    patience = option(
        15.0,
        "How long a member that lives and is slow is waited for before a SUBACK or an acknowledgement goes "
        "on all the same, counted; for one that died, nobody waits. In a mesh this stands for "
        "`barrier_timeout` and `cluster_timeout`.",
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
        "What is kept for all clients together at most; the oldest beyond it is dropped and counted. Allow "
        "for bytes per second of QoS 1 and 2 * subscribers of each * window * (copies - 1) / nodes.",
        unit="bytes",
        minimum=64 * 1024,
    )

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.table = ClientTable()
        self._losses: dict[tuple[str, str], _Loss] = {}
        """By node and client."""
        self._recovered = False
        self._started = context.steady()
        self.version = int(context.now() * 1_000_000)
        """Of this node's own table; a later start begins with a higher one."""
        self._life = self.version
        self._lives: dict[str, int] = {}
        self.live: frozenset[str] = frozenset((context.node_id,))
        self._members: frozenset[str] | None = None
        self._up: set[str] = set()
        self._current: set[str] = set()
        """Neighbours that have told all their clients since their link is up."""
        self._missed: set[str] = set()
        """Without membership: neighbours whose links failed a moment ago."""
        self._lost: dict[str, int] = {}
        self._versions: dict[str, int] = {}
        self._deaths: dict[str, float] = {}
        """Nodes that are not live, and when their clients are forgotten."""
        self._heard: dict[str, int] = {}
        self._syncing: dict[str, set[str]] = {}
        self._pulled: dict[str, float] = {}
        self._changes: dict[str, dict[str, int | None] | None] = {}
        """What is to be told at the next flush; None: the client left."""
        self._flushing = False
        self._waits: list[_AdvertWait] = []
        self.cut_off: dict[str, float] = {}
        """Clients here whose sessions may have ended with their broker, until they say again what they want;
        and when they are given up."""
        self._holders: dict[str, tuple[str, ...]] = {}
        self._stand_ins: tuple[str, ...] | None = None
        self._digesting = False
        self._said: tuple[tuple[int, int], list[Packet]] = ((-1, 0), [])
        """A version and digest of this node's table, and the packets that say all of it."""
        self.counters = {"adverts_sent": 0, "adverts_heard": 0, "tables_sent": 0, "tables_pulled": 0}

    # What a node asks

    def route(self, topic: str, came_from: str | None) -> Route:
        wanted = self.table.nodes_wanting(topic)
        own = self.context.node_id
        if came_from is not None:
            return Route((), local=own in wanted)
        return self._hops(wanted, {n: qos for n, qos in wanted.items() if n != own}, own in wanted)

    def route_retained(self, topic: str, came_from: str | None) -> Route:
        if came_from is not None:
            return Route((), local=True)
        everybody = dict.fromkeys(self.context.neighbours(), 2)
        return self._hops(self.table.nodes_wanting(topic), everybody, True)

    def _hops(self, wanted: Iterable[str], there: dict[str, int], local: bool) -> Route:
        holds: dict[str, list[str]] = {}
        for node in sorted(wanted):
            for holder in self.holders(node):
                holds.setdefault(holder, []).append(node)
            if self.table.orphaned(node):  # it may have heard where they are
                holds.setdefault(node, []).append(node)
        # Holders that were started, or cut off, when a node died or began anew may not know its clients, nor
        # has it anybody to give this to while they have yet to say what they want; this one does know them.
        me = self.context.node_id
        mine = set(holds.pop(me, ()))
        if self.alone or self.cut_off:  # its own clients may be elsewhere by now, which it has yet to hear
            mine.add(me)
        told = self._current | {me}
        own = tuple(n for n in sorted(wanted) if n in mine or n not in told or self.table.lingers(n))
        linked = set(self.context.neighbours())
        hops = [
            Hop(node, there.get(node, -1), tuple(holds.get(node, ())))
            for node in sorted(there.keys() | holds.keys())
            if node in linked
        ]
        return Route(tuple(hops), local, own)

    def holders(self, node: str) -> tuple[str, ...]:
        """Who keeps messages for a node's clients: of the live ones, those that come first for it; one more
        where the node itself has none. Which member comes or goes changes as few of them as can be."""
        known = self._holders.get(node)
        if known is None:
            known = self._holders[node] = self.first_for(node, self.copies - (node in self.live))
        return known

    def knows(self, node: str) -> bool:
        """Whether a node has told all its clients since this one was started."""
        return node in self._lives or node == self.context.node_id

    @property
    def alone(self) -> bool:
        """Whether too few other nodes live to keep messages for this node's clients."""
        return len(self.holders(self.context.node_id)) < self.copies - 1

    def stand_ins(self) -> tuple[str, ...]:
        """Who keeps messages for this node's clients at a node that does not know that this one lives."""
        if self._stand_ins is None:
            self._stand_ins = self.first_for(self.context.node_id, self.copies)
        return self._stand_ins

    def first_for(self, node: str, count: int) -> tuple[str, ...]:
        return first_for(node, self.live, count)

    def _forget_holders(self, gone: frozenset[str], new: frozenset[str]) -> None:
        """Of those that may be others now: where nodes are many, to rank all of them for each takes long."""
        self._stand_ins = None
        if len(new) > FEW:
            self._holders.clear()
        for node, known in list(self._holders.items()):
            enough = len(known) == self.copies - (node in self.live)
            first = first_for(node, new.union(known), len(known)) if new else known
            if not enough or first != known or not gone.isdisjoint(known):
                del self._holders[node]

    def describe(self, neighbour: str) -> dict[str, int]:
        clients = self.table.clients(neighbour)
        filters = sum(len(entry.filters) for entry in clients.values())
        heard = int(self._up_to_date(neighbour))
        return {"clients": len(clients), "filters_from": filters, "heard": heard}

    @classmethod
    def tells_interest(cls, packet: Packet) -> bool:
        """Adverts do; that they were heard, digests and pulls do not."""
        return isinstance(packet, Publish) and packet.payload.startswith(_ADVERTS)

    @classmethod
    def in_one_process(cls) -> type[Mesh]:
        from brokerweave.cooperation.mesh_shared import SharedMesh

        return SharedMesh

    def ready(self) -> bool:
        if not self._recovered:
            self._recovered = self.all_told() or self._is_late()
        return self._recovered

    def takes_publications(self) -> bool:
        """Those in reach are waited for. Who was out of reach all the time since the start is away: that
        must not keep this node from its clients for ever."""
        return self.all_told() or (self._is_late() and not self._unheard() & (self._up | self._missed))

    def _is_late(self) -> bool:
        return self.context.steady() - self._started >= RECOVER_SECONDS

    def roster(self) -> Roster:
        return self

    @property
    def events(self) -> RosterEvents:
        return self.table.events

    @events.setter
    def events(self, events: RosterEvents) -> None:
        self.table.events = events

    def all_told(self) -> bool:
        """Whether all that should be there have told their clients since this node was started."""
        return not (self.context.searching() or self._unheard())

    def _unheard(self) -> set[str]:
        """Who should be there, and has yet to tell its clients or to hear of this node's."""
        others = set(self.context.neighbours() if self._members is None else self.live)
        told = self._lives.keys() & self._heard.keys()  # who has heard has said, too, who is orphaned
        return (others - told - {self.context.node_id}) | self._syncing.keys()

    def dead(self) -> tuple[str, ...]:
        """Nodes that are not live, and whose clients are not forgotten yet."""
        return tuple(self._deaths)

    def reachable(self) -> tuple[str, ...]:
        """Nodes whose links are up."""
        return tuple(sorted(self._up))

    def has_told(self, node: str) -> bool:
        """Whether a neighbour has told all its clients since its link is up."""
        return node in self._current

    def untold(self, client: str) -> bool:
        """Whether something of a client waits to be told."""
        return client in self._changes

    def when_heard(self, callback: Callable[[], None]) -> bool:
        """Call back when all neighbours in reach know this node's clients. True: they do; no call follows."""
        self.flush()
        late = {n for n in self._up if not self._up_to_date(n)}
        if late:
            self._waits.append(_AdvertWait(self.version, late, callback))
        return not late

    def forget_wait(self, callback: Callable[[], None]) -> None:
        self._waits = [wait for wait in self._waits if wait.callback is not callback]

    # What a node tells of its clients

    def client_joined(self, client: str, since: int) -> None:
        new = client not in self.table.clients(self.context.node_id)
        self.table.put(self.context.node_id, client, since, {})
        self._tell(client, {})
        if new:
            self.events.joined(self.context.node_id, client)

    def client_wants(self, client: str, filters: Mapping[str, int | None]) -> None:
        entry = self.table.clients(self.context.node_id).get(client)
        if entry is None:
            return  # it left
        changed = {f: qos for f, qos in filters.items() if entry.filters.get(f) != qos}
        if changed:
            self._not_cut_off(client)
            self.table.put(self.context.node_id, client, entry.since, changed)
            self._tell(client, changed)

    def client_left(self, client: str) -> None:
        if client in self.table.clients(self.context.node_id):
            at_home = self.table.home(client) == self.context.node_id
            self._not_cut_off(client)
            self.table.drop(self.context.node_id, client)
            self._tell(client, None)
            if at_home:
                self.events.left(self.context.node_id, client)

    def client_cut_off(self, client: str) -> None:
        """Its broker was lost: who knows whether that has its session when it is back?"""
        window = self.window
        until = self.cut_off[client] = self.context.now() + window
        self.context.call_later(window, partial(self._not_cut_off, client, until))
        self.context.routes_changed()

    def _not_cut_off(self, client: str, until: float | None = None) -> None:
        if client in self.cut_off and until in (None, self.cut_off[client]):
            del self.cut_off[client]
            self.context.routes_changed()

    def _tell(self, client: str, changes: Mapping[str, int | None] | None) -> None:
        before = self._changes.get(client)
        if changes is None:
            self._changes[client] = None
        elif client in self._changes and before is None:
            self._changes[client] = dict(changes)
            self.flush_first(client)
        else:
            self._changes[client] = {**(before or {}), **changes}
        self._apply()
        if not self._flushing:
            self._flushing = True
            self.context.call_later(0, self.flush)

    def flush_first(self, client: str) -> None:
        """A client left and came again within one turn: the two must not become one change."""
        again = self._changes.pop(client)
        self._changes[client] = None
        self.flush()
        self._changes[client] = again

    def flush(self) -> None:
        """Tell everybody in reach what changed, in one packet where it fits."""
        self._flushing = False
        if not self._changes:
            return
        changes, self._changes = self._changes, {}
        mine = self.table.clients(self.context.node_id)
        told = [
            Told(client, mine[client].since if client in mine else self._elsewhere(client), filters)
            for client, filters in changes.items()
        ]
        digest = self.table.digest(self.context.node_id)
        packets = [adverts.encode(each) for each in adverts.changes(self._life, self.version, digest, told)]
        self.version += len(packets)
        for neighbour in sorted(self._up):
            self._send(neighbour, packets)
        self.context.announce(_TABLE.pack(self.version, digest))

    def _elsewhere(self, client: str) -> int:
        """In the place of `since`, of a client that this node has no longer."""
        return adverts.GONE if self.table.home(client) is None else adverts.ELSEWHERE

    def _send(self, neighbour: str, packets: Iterable[Packet]) -> None:
        for packet in packets:
            self.counters["adverts_sent"] += 1
            self.context.send(neighbour, packet)

    # Neighbours and members

    def members_changed(self, live: frozenset[str]) -> None:
        """From now on these are live, whatever links say."""
        self._members = live
        self._look_who_lives()

    def member_announced(self, member: str, data: bytes) -> None:
        if len(data) == _TABLE.size:
            self.digest_seen(member, *_TABLE.unpack(data))

    def needs(self, member: str) -> bool:
        """Whether its clients are waited for."""
        return bool(self.table.clients(member))

    def neighbour_recalled(self, neighbour: str, kept: Mapping[str, int]) -> None:
        """Its clients as they were before a restart, until it announces them again."""
        since = {}
        wants: dict[str, dict[str, int | None]] = {}
        for name, value in kept.items():
            client, *topic_filter = json.loads(name)
            if topic_filter:
                wants.setdefault(client, {})[topic_filter[0]] = value
            else:
                since[client] = value
        for client, when in since.items():
            self.table.put(neighbour, client, when, wants.get(client, {}))
        self.context.keep(neighbour, kept)
        self._apply()
        if neighbour not in self.live:
            self._forget_later(neighbour)

    def neighbour_up(self, neighbour: str) -> None:
        self._up.add(neighbour)
        self._not_current(neighbour)
        self._missed.discard(neighbour)
        self._lost.pop(neighbour, None)
        self._heard.pop(neighbour, None)
        self._links_changed()
        self.flush()
        self._send_table(neighbour)
        self._digest_later()
        self.events.up(neighbour)

    def neighbour_down(self, neighbour: str) -> None:
        if neighbour in self._up and self._members is None:
            self._missed.add(neighbour)
            lost = self._lost[neighbour] = self._lost.get(neighbour, 0) + 1
            self.context.call_later(GRACE_SECONDS, partial(self._gone, neighbour, lost))
        self._up.discard(neighbour)
        self._not_current(neighbour)
        self._syncing.pop(neighbour, None)
        self._links_changed()
        self._settle(neighbour)
        self.events.down(neighbour)

    def _not_current(self, neighbour: str) -> None:
        if neighbour in self._current:
            self._current.discard(neighbour)
            self.table.changed = True
            self._apply()

    def _gone(self, neighbour: str, lost: int) -> None:
        """A link that failed is not back."""
        if self._lost.get(neighbour) == lost:
            self._missed.discard(neighbour)
            self._links_changed()

    def neighbour_removed(self, neighbour: str) -> None:
        self._missed.discard(neighbour)
        self.neighbour_down(neighbour)
        self._forget(neighbour)

    def _links_changed(self) -> None:
        if self._members is None:
            self._look_who_lives()

    def _look_who_lives(self) -> None:
        members = self._members if self._members is not None else self._up | self._missed
        live = frozenset((*members, self.context.node_id))
        if live == self.live:
            return
        gone, new, self.live = self.live - live, live - self.live, live
        for node in new:
            self._deaths.pop(node, None)
        self._forget_holders(gone, new)
        self.context.routes_changed()
        for node in sorted(gone):
            self.events.died(node)
            self._forget_later(node)
        self.events.lives()

    def _forget_later(self, node: str, limit: float = inf) -> None:
        seconds = min(limit, self.window)
        until = self._deaths[node] = self.context.now() + seconds
        self.context.call_later(seconds, partial(self._forget_dead, node, until))

    def _forget_dead(self, node: str, until: float) -> None:
        if node not in self.live and self._deaths.get(node) == until:
            del self._deaths[node]
            self._forget(node)

    def _forget(self, node: str) -> None:
        for client in self.table.clients(node):
            self._keep_no_more(node, client)
        self.table.forget(node)
        self._versions.pop(node, None)
        self._apply()
        self.events.forgot(node)

    # What neighbours tell

    def read(self, packet: Packet) -> adverts.Message:
        """Raises `RemoteProtocolError`."""
        return adverts.decode(packet)

    def answer(self, heard: Heard) -> Packet:
        return adverts.encode(heard)

    def packet_arrived(self, neighbour: str, packet: Packet) -> None:
        match self.read(packet):
            case Advert() as advert:
                self._take(neighbour, advert)
            case Heard(version, cut):
                self.counters["adverts_heard"] += 1
                if version <= self.version:
                    self._heard[neighbour] = max(version, self._heard.get(neighbour, 0))
                    self.events.heard(neighbour, version, cut)
                    self._settle(neighbour)
            case Orphaned() as orphaned:
                self._take_orphaned(neighbour, orphaned)
            case Digest(version, digest):
                self.digest_seen(neighbour, version, digest)
            case Pull():
                self._send_table(neighbour)

    def digest_seen(self, node: str, version: int, digest: int) -> None:
        """A node has this version of its table: pull it if ours should be the same and is not."""
        current = node in self._up and node not in self._syncing and version >= self._versions.get(node, 0)
        if current and digest != self.table.digest(node):
            self._pull(node)

    def _take(self, neighbour: str, advert: Advert) -> None:
        if advert.part in (adverts.WHOLE, adverts.BEGIN):
            self._syncing[neighbour] = set()
        elif (advert.part != adverts.CHANGE) != (neighbour in self._syncing):
            raise RemoteProtocolError(f"{neighbour!r} sent an advert ({advert.part}) out of turn")
        named = self._syncing.get(neighbour)
        started = self._lives.get(neighbour) != advert.life
        for told in advert.clients:
            self._take_one(neighbour, told, named)
        if advert.part in (adverts.BEGIN, adverts.MORE):
            self._apply()
            return
        if named is not None:
            self._sweep(neighbour, named, not started)
            del self._syncing[neighbour]
            self._lives[neighbour] = advert.life
            if neighbour in self._up and neighbour not in self._current:
                self._current.add(neighbour)
                self.table.changed = True
        self._versions[neighbour] = advert.version
        self._apply()
        if named is not None:
            self.events.synced(neighbour)
            if started:
                self._tell_orphaned(neighbour)
        # Only now: what is routed from here on goes where this advert says.
        self.context.send(neighbour, self.answer(Heard(advert.version, self.context.cut(neighbour))))
        if advert.digest not in (self.table.digest(neighbour), adverts.UNKNOWN):
            self._pull(neighbour)

    def _sweep(self, neighbour: str, named: set[str], same_life: bool) -> None:
        """Clients that a neighbour does not name any more: they left, or it was restarted and has forgotten
        them. Messages are kept for those, as for the clients of a dead node."""
        for client in [c for c in self.table.clients(neighbour) if c not in named]:
            gone = same_life or self.table.home(client) != neighbour
            told = Told(client, adverts.GONE if gone else adverts.ELSEWHERE, None)
            self._take_one(neighbour, told, None)

    def _lose(self, neighbour: str, client: str) -> None:
        """A client's session did not end, and nobody has said yet where it is. What it wants is kept, so that
        a restart here does not forget it; but wherever else it is named counts."""
        filters = set(self.table.clients(neighbour)[client].filters)
        self.context.keep(neighbour, {_kept(client): 0})  # wherever it turns up, it came there later
        self.table.lose(neighbour, client)
        earlier = self._losses.get((neighbour, client))
        self._give_up_later(neighbour, client, filters | earlier.filters if earlier else filters)

    def _give_up_later(self, node: str, client: str, filters: set[str], limit: float = inf) -> None:
        seconds = min(limit, self.window)
        loss = self._losses[node, client] = _Loss(filters, self.context.now() + seconds)
        self.context.call_later(seconds, partial(self._give_up, node, client, loss))

    def _give_up(self, neighbour: str, client: str, loss: _Loss) -> None:
        if self._losses.get((neighbour, client)) is not loss:
            return  # it came back since, and was lost again: that counts from then on
        del self._losses[neighbour, client]
        entry = self.table.clients(neighbour).get(client)
        names = [_kept(client, f) for f in loss.filters if entry is None or f not in entry.filters]
        self.context.keep(neighbour, dict.fromkeys(names if entry is not None else [*names, _kept(client)]))
        self.forget_former(neighbour, client)

    def _tell_orphaned(self, neighbour: str) -> None:
        """A neighbour was started: who was at sites that are gone, itself included, and has yet to turn up,
        it cannot know."""
        orphaned: dict[tuple[str, float], list[Told]] = {}
        for node, client, filters in self.table.lost():
            loss = self._losses.get((node, client))
            if loss is not None and filters:
                orphaned.setdefault((node, loss.until), []).append(Told(client, 0, dict(filters)))
        for node in set(self.table.nodes()) - self._up - {self.context.node_id}:
            for client, entry in self.table.clients(node).items():
                if self.table.home(client) != node:
                    continue
                if entry.filters:
                    told = Told(client, entry.since, dict(entry.filters))
                    orphaned.setdefault((node, self._deaths.get(node, inf)), []).append(told)
                elif entry.new:  # it still gets what it wanted at its former node
                    was, filters = self.table.was(client)
                    if filters:
                        orphaned.setdefault((was, inf), []).append(Told(client, 0, dict(filters)))
        for (node, until), clients in sorted(orphaned.items(), key=lambda item: item[0]):
            self._send_orphaned(neighbour, node, until, clients)

    def _send_orphaned(self, neighbour: str, node: str, until: float, clients: list[Told]) -> None:
        window = self.window
        seconds = until - self.context.now()
        if not 0.0 < seconds < window:  # the clock was set, or the node is not known to be dead
            seconds = window
        self._send(neighbour, map(adverts.encode, adverts.orphaned(node, seconds, clients)))

    def _take_orphaned(self, neighbour: str, orphaned: Orphaned) -> None:
        node, seconds = orphaned.node, max(orphaned.seconds, 0.0)
        me, unheard = self.context.node_id, not self.knows(node)
        for told in orphaned.clients:
            filters = {f: qos for f, qos in (told.filters or {}).items() if qos is not None}
            if told.since and unheard:  # nobody has heard yet that it is not there any more
                self._take_one(node, Told(told.client, told.since, dict(filters)), None)
            elif filters and self.table.remember(node, told.client, filters):
                loss = self._losses.get((node, told.client))
                if loss is None:
                    self._give_up_later(node, told.client, set(filters), seconds)
                else:
                    loss.filters |= filters.keys()
            elif self.table.home(told.client) == me != node:
                self.events.elsewhere(told.client)
            elif self.table.home(told.client) not in (None, me) and node == me:
                self.table.recall_former(me, told.client, filters)
                self._give_up_later(me, told.client, set(filters), seconds)
                self.events.sought(neighbour)
        longer = self._deaths.get(node, 0.0) < self.context.now() + seconds
        if unheard and node not in self.live and longer:
            self._forget_later(node, seconds)
        self._apply()
        self._know_better(neighbour, orphaned)
        self.events.remembered()

    def _know_better(self, neighbour: str, orphaned: Orphaned) -> None:
        """A neighbour takes clients for lost, or for those of a site, that are elsewhere since later: a site
        that it has yet to hear."""
        better: dict[str, list[Told]] = {}
        for told in orphaned.clients:
            home, since = self.table.home(told.client), self.table.since(told.client)
            if home not in (None, orphaned.node, neighbour, self.context.node_id) and since > told.since:
                assert home is not None
                filters = dict(self.table.clients(home)[told.client].filters)
                better.setdefault(home, []).append(Told(told.client, since, filters))
        for node, clients in better.items():
            self._send_orphaned(neighbour, node, self._deaths.get(node, inf), clients)

    def forget_former(self, node: str, client: str) -> None:
        self.table.forget_former(node, client)
        self._apply()

    def _keep_no_more(self, neighbour: str, client: str) -> None:
        names = [_kept(client), *(_kept(client, f) for f in self.table.clients(neighbour)[client].filters)]
        self.context.keep(neighbour, dict.fromkeys(names))

    def _take_one(self, neighbour: str, told: Told, named: set[str] | None) -> None:
        client, filters = told.client, told.filters
        if filters is None:
            entry = self.table.clients(neighbour).get(client)
            if entry is not None:
                at_home = self.table.home(client) == neighbour
                if at_home and told.since == adverts.ELSEWHERE:
                    self._lose(neighbour, client)
                    return
                self._keep_no_more(neighbour, client)
                self.table.drop(neighbour, client)
                if at_home:
                    self.events.left(neighbour, client)
            return
        entry = self.table.clients(neighbour).get(client)
        if named is not None and client not in named:
            named.add(client)
            if entry is not None:
                filters = {**dict.fromkeys(entry.filters), **filters}
        kept = {_kept(client, f): qos for f, qos in filters.items()}
        if named is not None or entry is None or entry.since != told.since:
            kept[_kept(client)] = told.since
        self.context.keep(neighbour, kept)
        self.table.put(neighbour, client, told.since, filters)
        if entry is None:
            self.events.joined(neighbour, client)

    def _pull(self, neighbour: str) -> None:
        now = self.context.now()
        if now - self._pulled.get(neighbour, -PULL_SECONDS) < PULL_SECONDS and neighbour in self._pulled:
            return
        self._pulled[neighbour] = now
        self.counters["tables_pulled"] += 1
        self.context.send(neighbour, adverts.encode(Pull()))

    def _send_table(self, neighbour: str) -> None:
        self.counters["tables_sent"] += 1
        own = self.context.node_id
        digest = self.table.digest(own)
        if self._said[0] != (self.version, digest):
            told = [Told(c, e.since, dict(e.filters)) for c, e in self.table.clients(own).items()]
            # Else they would be taken for gone where it was not heard that they went, nor where they are.
            told += [Told(client, adverts.ELSEWHERE, None) for client in self.table.went_from(own)]
            table = adverts.whole(self._life, self.version, digest, told)
            self._said = (self.version, digest), [adverts.encode(each) for each in table]
        self._send(neighbour, self._said[1])

    def _digest_later(self) -> None:
        if not self._digesting:
            self._digest_after(0.0)

    def _digest_after(self, waited: float) -> None:
        self._digesting = True
        seconds = max(DIGEST_SECONDS, len(self._up) / DIGESTS_A_SECOND)
        self.context.call_later(seconds - waited, partial(self._send_digests, seconds))

    def _send_digests(self, waited: float) -> None:
        self._digesting = False
        if len(self._up) / DIGESTS_A_SECOND > waited:  # more links are up by now
            self._digest_after(waited)
            return
        self.flush()
        packet = adverts.encode(Digest(self.version, self.table.digest(self.context.node_id)))
        for neighbour in sorted(self._up):
            self.context.send(neighbour, packet)
        if self._up:
            self._digest_later()

    # Shared

    def _up_to_date(self, neighbour: str) -> bool:
        return self._heard.get(neighbour, 0) >= self.version and not self._changes

    def _settle(self, neighbour: str) -> None:
        """Let those go on that waited for this neighbour alone."""
        if not self._waits:
            return
        due = []
        for wait in self._waits:
            if neighbour not in self._up or self._heard.get(neighbour, 0) >= wait.version:
                wait.neighbours.discard(neighbour)
                if not wait.neighbours:
                    due.append(wait)
        self._waits = [wait for wait in self._waits if wait.neighbours]
        for wait in due:
            wait.callback()

    def _apply(self) -> None:
        if self.table.changed:
            self.table.changed = False
            self.context.routes_changed()


def first_for(node: str, members: frozenset[str], count: int) -> tuple[str, ...]:
    """Those that come first for a node among the others (rendezvous hashing)."""
    begun = blake2b(f"{node}\0".encode(), digest_size=8)

    def rank(other: str) -> bytes:
        whole = begun.copy()
        whole.update(other.encode())
        return whole.digest()

    return tuple(nsmallest(count, members - {node}, key=rank))


@lru_cache(maxsize=4096)
def _kept(client: str, *topic_filter: str) -> str:
    """The name under which the node keeps, for a neighbour, since when it has a client, or a filter's QoS."""
    return f"[{','.join(map(_quoted, (client, *topic_filter)))}]"
