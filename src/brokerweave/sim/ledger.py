"""Everything that happened to every message, and the first thing that should not have.

Owns what DESIGN promises about doubling and order, one rule a place: the node a message is published at, each
node it passes, each broker it is injected into, each subscriber. Invariant: a repetition is accepted only
with a reason, the reason must have happened between the two times, and reasons are counted by name
(`excuses`), so that a test can see how much was let pass. A comment names the row of docs/guarantees.md that
lets it pass. Must not know: how faults are made.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import NoReturn

from brokerweave.links.run import Run
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.frames import publish_head
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.topics import matches
from brokerweave.node.router import Group
from brokerweave.node.wiring import SETTLE_LIMIT
from brokerweave.sim.client import ModelClient
from brokerweave.sim.deletions import Deletions
from brokerweave.sim.disk import DAYBOOK, HELD
from brokerweave.sim.doubts import NOTICED, Doubts, Losses
from brokerweave.sim.node import SimNode
from brokerweave.sim.owed import Debt, Owed
from brokerweave.sim.owed_in_one_hop import OwedInOneHop
from brokerweave.sim.promises import Broken, Promises
from brokerweave.sim.watching import Key, WatchedOutbox, copies, in_daybook, in_journal
from brokerweave.sim.world import World

INJECTOR = "brokerweave-"
DUP = 0x08
"""In the first byte of a PUBLISH: its publisher sends it again."""


@dataclass(slots=True)
class Publication:
    payload: bytes
    client: str
    number: int
    site: str
    topic: str
    qos: int
    retain: bool
    is_will: bool
    at: float
    acknowledged: bool = False
    resent: int = 0
    sites: list[str] = field(default_factory=list)
    """Where it was sent to: more than one if its publisher lost its site."""
    keys: list[Key] = field(default_factory=list)
    """The numbers its own node gave it: more than one if its publisher sent it again."""


@dataclass(frozen=True, slots=True)
class Visit:
    at: float
    key: Key
    came_from: str | None
    local: bool
    repair: bool = False
    """It came to repair an index, not as a message of its own."""
    acted: bool = True
    """It went on. A flood that only passes by is not remembered over a kill, and need not be."""
    flood: bool = False
    """It came once more, after a link had failed that it waited for."""


@dataclass(slots=True)
class NodeEnd:
    """A node went down."""

    at: float
    graceful: bool
    mid_write: bool
    disk_failed: bool
    ever_failed: bool
    """The disk refused something since the node started; what injectors noted then is not made up for."""
    held: frozenset[bytes]
    """What its injectors owed the broker, and would find again on disk."""
    disk_kept: bool = True
    restarted: float = inf


class Ledger:
    """Implements `Watcher` for nodes and `Observer` for clients."""

    def __init__(self, world: World, owed: Owed, promises: Promises, cluster: bool) -> None:
        """`cluster`: whether nodes run with `delivery = "cluster"`."""
        self.world = world
        self.cluster = cluster
        self.owed = owed
        self.promises = promises
        self.excuses = owed.excuses
        self.mesh = False
        self.doubts = Doubts({}, lambda node, other: False)
        self.losses = Losses(1)
        self.site_died: Callable[[str], bool] = lambda client: False
        """In a mesh: whether the site of a client is dead, or its broker."""
        self.reaches: Callable[[str, str], bool] = lambda node, other: True
        """Whether a node has a link with another that is up."""
        self.is_up: Callable[[str], bool] = lambda node: True
        self.sites_clients: Callable[[str], list[ModelClient]] = lambda site: []
        self.unread: set[bytes] = set()
        """What was kept for others' clients on a disk that failed at a start, or before its node ended."""
        self._came_blind: dict[str, float] = {}
        """By client: until when it was at a site that had not reached all others when it subscribed there."""
        self._redelivered: dict[tuple[str, bytes], str] = {}
        """What nodes gave to a client, and why its broker may give it, too."""
        self._excused: set[tuple[str, bytes]] = set()
        """What was given to a client again, for a reason, and is on its way."""
        self.cyclic = False
        """Whether nodes take care of cycles: then order can break, also in a tree, when links fail in quick
        succession (row "order")."""
        self.barriers: dict[str, bool] = {}
        """Which nodes run with `subscribe = "barrier"`."""
        self.publications: dict[bytes, Publication] = {}
        self.visits: defaultdict[tuple[str, bytes], list[Visit]] = defaultdict(list)
        self.deliveries: Counter[tuple[str, bytes]] = Counter()
        self.drops: defaultdict[bytes, list[tuple[str, str]]] = defaultdict(list)
        self.ends: defaultdict[str, list[NodeEnd]] = defaultdict(list)
        self.counts: Counter[str] = Counter()
        self.deletions = Deletions()
        self._arrivals: dict[tuple[str, bytes], float] = {}
        """When a message last came to a node over a link."""
        self._takes: defaultdict[tuple[str, bytes], list[float]] = defaultdict(list)
        """When a broker got a message from its node."""
        self._first_hand: defaultdict[tuple[str, bytes], list[float]] = defaultdict(list)
        """When it got one from its publisher."""
        self._given: Counter[tuple[str, bytes]] = Counter()
        self._given_at: defaultdict[tuple[str, bytes], set[str]] = defaultdict(set)
        """The sites whose brokers had it for a client."""
        self._last: dict[tuple[str, str, str, int], int] = {}
        self._subscribed: dict[tuple[str, str], float] = {}
        """When a client got a subscription that it did not have, or had at another site."""
        self._granted_at: dict[tuple[str, str], str] = {}
        self._waited: defaultdict[bytes, set[str]] = defaultdict(set)
        """In a mesh: the sites that were out of reach when their origin sent them a message."""
        self._broker_losses: defaultdict[str, list[float]] = defaultdict(list)
        self._injector_losses: defaultdict[str, list[float]] = defaultdict(list)
        self._deaths: defaultdict[str, list[float]] = defaultdict(list)
        """When a site's node, or its broker, died."""
        self._goodbyes: set[bytes] = set()
        self._cancelled: set[bytes] = set()
        self._starts: dict[str, float] = {}
        self._reads: dict[bytes, float] = {}
        """When a publication was last read by its node as a new one."""
        self._wired: list[float] = []
        self._failures: list[tuple[float, frozenset[str]]] = []
        self._spilled: set[bytes] = set()
        self._nowhere: set[bytes] = set()
        """What was to be retained, and no node knows of any more."""
        self._floods: set[tuple[str, int, Key]] = set()

    def broken(self, text: str) -> NoReturn:
        raise Broken(text)

    # The publisher

    def will_cancelled(self, payload: bytes) -> None:
        self._cancelled.add(payload)

    def made(self, client: ModelClient, payload: bytes, topic: str, qos: int, retain: bool) -> None:
        if not payload:
            self.deletions.made(client.site, topic, self.world.now)
            self.counts["deletions"] += 1
            return
        name, _, number = payload.decode().replace("!", ":!").partition(":")
        is_will = number.startswith("!")
        self.publications[payload] = Publication(
            payload, name, int(number.lstrip("!")), client.site, topic, qos, retain, is_will, self.world.now
        )
        self.counts["wills" if is_will else "publications"] += 1
        if is_will:
            self.sent(client, payload)

    def acknowledged(self, payload: bytes) -> None:
        if not payload:
            return
        publication = self.publications[payload]
        publication.acknowledged = True
        if self.cluster and self.owed.calm() and not self.drops[payload]:
            for debt in self.owed.open_of(payload):
                missing = [node for node in debt.path if not self.visits[node, payload]]
                if missing:
                    self.broken(f"{payload!r} was acknowledged before {missing} had it")

    def sent(self, client: ModelClient, payload: bytes) -> None:
        publication = self.publications.get(payload)
        if publication is not None and client.site not in publication.sites:
            publication.sites.append(client.site)
            if len(publication.sites) == 1:
                publication.site = client.site

    def resent(self, payload: bytes) -> None:
        if payload:
            self.publications[payload].resent += 1

    def passed_origin(self, node: SimNode, payload: bytes) -> None:
        publication = self.publications.get(payload)
        if not payload:
            return
        if publication is None or publication.is_will:
            self._goodbyes.add(payload)  # the mark behind a DISCONNECT
        elif publication.qos and not self._forwarded_before(publication):
            if self.cluster:  # it goes on when the broker has acknowledged it
                self.owed.read_again(node.name, payload)
                return
            # It was read and went nowhere: is that right?
            if not self.visits[node.name, payload]:
                self.owed.published(publication.payload, publication.topic, publication.qos, node.name)
            self.owed.passing(node.name, payload, {}, False)
            self._reads[payload] = self.world.now

    def _forwarded_before(self, publication: Publication) -> bool:
        """Whether its node knows that it has forwarded it."""
        site = publication.site
        since = self._starts[site]
        if publication.qos == 2:
            if self._reads.get(publication.payload, 0.0) > self._starts[site]:
                return True  # to nowhere: sent again it is the same message, whoever wants it by now
            # Where a disk failed the node may know it or not, as in `arrived`: if it does not, and it goes
            # nowhere, its first copy is still to be delivered, or has a drop to show.
            lost = [end for end in self.ends[site] if not self._keeps_ids(end)]
            since = max((end.at for end in lost if not end.disk_kept or not end.disk_failed), default=0.0)
        return any(visit.at > since for visit in self.visits[site, publication.payload])

    # The nodes

    def dispatched(
        self, node: str, came_from: str | None, payload: bytes, key: Key, group: Group, run: Run
    ) -> None:
        if not payload:
            if came_from is None and not run.repair:
                topic = publish_head(run.blob, run.version).topic.decode()
                self.deletions.read(node, topic, self.world.now)
            return
        publication = self.publications.get(payload)
        if publication is None:
            self.broken(f"{node} passes on {payload!r}, which nobody published")
        before = self.visits[node, payload]
        if self.mesh:
            self._check_resent(node, came_from, publication, key, before)
        acts = bool(group.hops or group.local or not run.flood)
        if run.repair:
            self.excuses["retained: sent again to repair an index"] += 1
            before.append(Visit(self.world.now, key, came_from, group.local, repair=True))
            return
        if came_from is None:
            self._forwarded(node, publication, key, before, run)
        else:
            if key not in publication.keys:
                self.broken(f"{node} got {payload!r} as {key}, but it was sent as {publication.keys}")
            again = [visit for visit in before if visit.key == key and visit.acted]
            if again and acts:
                self._repeated(node, came_from, publication, again[-1].at, run)
        before.append(Visit(self.world.now, key, came_from, group.local, acted=acts, flood=run.flood))
        self.counts["dispatches"] += 1
        if came_from is None and len(publication.keys) == 1:
            publication.acknowledged = publication.acknowledged or publication.is_will
            # At home the broker publishes a will. What goes on when the broker has acknowledged it, it may
            # have had before its publisher sent it again: it was for those who subscribed by then.
            known = self.cluster and publication.qos == 2 and publication.resent
            at_home = not (publication.is_will or known)
            if isinstance(self.owed, OwedInOneHop) and publication.is_will and self.is_up(publication.site):
                # Another node thinks that it is dead: whether its own subscribers get it, its broker decides.
                self.owed.spared = publication.site
            self.owed.published(payload, publication.topic, publication.qos, node, at_home)
        hops = {neighbour: min(run.cap, qos) for neighbour, qos in group.hops}
        if came_from is None:
            self._waited[payload].update(each for each in hops if not self.reaches(node, each))
        # Sent again, elsewhere perhaps: that it goes on is another node's part, or was this one's before.
        sent_again = (came_from is None or node in publication.sites) and len(publication.keys) > 1
        if not (self.mesh and (sent_again or (publication.is_will and node == publication.site))):
            self.owed.passing(node, payload, hops, group.local, came_from is not None)

    def _check_resent(
        self, node: str, came_from: str | None, publication: Publication, key: Key, before: list[Visit]
    ) -> None:
        """In a mesh a node knows a publication again that its publisher, or another node, sends once more."""
        others = [visit for visit in before if visit.key != key and visit.local and not visit.repair]
        if publication.is_will and self._first_hand[node, publication.payload]:
            others = before  # its broker published it
        if not others or publication.qos == 0 or key[1] == 0 or came_from is None:
            return  # what was sent again here goes on to the others, under its old name
        if any(end.at >= others[0].at for end in self.ends[node]):
            self.excuses["doubled: sent again to a node that was restarted"] += 1  # it remembers in memory
        elif publication.is_will and self._lost_its_broker(publication):
            self.excuses["doubled: a will that a broker published which its node had lost"] += 1
        elif publication.is_will or self.publications[publication.payload].resent:
            self.broken(f"{node} acts on {publication.payload!r} again, as {key} after {others[-1].key}")

    def _lost_its_broker(self, will: Publication) -> bool:
        """Whether a node lost its broker just when that published a will: it may have died before."""
        published = list(self._first_hand[will.site, will.payload])
        visits = self.visits[will.site, will.payload]
        published += [visit.at for visit in visits if visit.came_from is None]  # when the node noticed
        return any(abs(at - lost) < 1.0 for at in published for lost in self._injector_losses[will.site])

    def flooded(self, node: str, view: int, payload: bytes, key: Key) -> None:
        view += len(self.ends[node]) << 32
        if payload and (node, view, key) in self._floods:
            self.broken(f"{node} floods {payload!r} twice while the tree stays the same")
        self._floods.add((node, view, key))
        self.counts["floods"] += 1

    def _forwarded(
        self, node: str, publication: Publication, key: Key, before: list[Visit], run: Run
    ) -> None:
        payload = publication.payload
        if self.mesh and publication.is_will and node != publication.site:
            site = publication.site
            if not self.ends[site] and all(link != {node, site} for _, link in self._failures):
                self.broken(
                    f"{node} publishes the will {payload!r} of a client of {site}, which it could reach"
                )
            self.excuses["will: published by a holder of a node that was out of reach"] += 1
            publication.keys.append(key)
            return
        if payload in self._goodbyes:
            self.broken(f"{node} sends the will {payload!r} of a client that said good-bye")
        if payload in self._cancelled:
            self.broken(f"{node} sends the delayed will {payload!r} of a client that had come back")
        if node not in publication.sites:
            self.broken(f"{node} forwards {payload!r}, which was published at {publication.site}")
        publication.keys.append(key)
        if not before:
            return
        if self.mesh and publication.is_will and all(visit.came_from for visit in before):
            self.excuses["will: published by its own site after one that could not reach that"] += (
                1  # row "will"
            )
            return
        if not publication.resent:
            self.broken(f"{node} forwards {payload!r} twice, though its publisher sent it once")
        if self.mesh and run.sender is not None and run.blob[0] & DUP:
            # To those who may not have had it; who has knows it again by these two.
            self.excuses["sent again, and marked so"] += 1
            return
        if publication.qos == 2:
            killed = [end for end in self._ended(node, before[0].at) if not self._keeps_ids(end)]
            if not killed:
                self.broken(f"{node} forwards the QoS 2 message {payload!r} again after its publisher did")
            # Rows "crash" (without its disk) and "failing disk".
            self.excuses["doubled: QoS 2 publisher sent again to a killed node"] += 1
        else:
            self.excuses["doubled: QoS 1 publisher sent again"] += 1

    def _keeps_ids(self, end: NodeEnd) -> bool:
        if not end.disk_kept or end.disk_failed:
            return False
        return end.graceful or self.promises.ids_survive_kill

    def _repeated(self, node: str, came_from: str, publication: Publication, since: float, run: Run) -> None:
        """The same message under the same number again: only a node that forgot may let it pass (rows
        "crash", without its disk, and "failing disk"; row "QoS 0" for what shares a run with QoS 1)."""
        ends = self._ended(node, since)
        text = f"{node} passes on {publication.payload!r} again"
        forgot = [end for end in ends if not self._keeps_window(end)]
        same_way = self.visits[node, publication.payload][-1].came_from == came_from
        if not run.max_qos and same_way and not any(end.disk_failed for end in forgot):
            self.broken(f"{text}, though it is QoS 0")
        if not run.max_qos and not same_way and not all(end.graceful for end in ends):
            self.excuses["doubled: QoS 0, by another way, to a node that was killed"] += 1  # row "QoS 0"
            return
        if not forgot:
            self.broken(f"{text}, though it should remember it")
        if any(not end.disk_kept for end in forgot):
            self.excuses["doubled: a node lost its disk"] += 1
        elif any(end.disk_failed for end in forgot):
            self.excuses["doubled: a node was killed while its disk failed"] += 1
        elif self._ended(came_from, since):
            self.excuses["doubled: both ends of a link were restarted"] += 1
        else:
            self.broken(f"{text}, though {came_from} knew how far it had got")

    def _keeps_window(self, end: NodeEnd) -> bool:
        if not end.disk_kept or end.disk_failed:
            return False
        return end.graceful or self.promises.window_survives_kill

    def arrived(self, node: str, came_from: str, payloads: list[bytes]) -> None:
        # Where a disk failed the node may know what it had before or not: only what is lost for sure counts.
        lost = [end for end in self.ends[node] if not self._keeps_window(end)]
        forgot = max((end.at for end in lost if not end.disk_kept or not end.disk_failed), default=0.0)
        for payload in payloads:
            before = self._arrivals.get((node, payload))
            self._arrivals[node, payload] = self.world.now
            if self.mesh and self._knows_already(node, payload):
                continue
            if self.mesh and before is not None and not self._ended(node, before):
                continue  # sent again: who came since it was here has it from who keeps it
            if not any(visit.at > forgot for visit in self.visits[node, payload]):
                self.owed.passing(node, payload, {}, False, came=True)

    def _knows_already(self, node: str, payload: bytes) -> bool:
        """In a mesh: a node need not act on the will of a client of its own, which its broker publishes, nor
        on what was sent to it as its publisher's node."""
        publication = self.publications.get(payload)
        if publication is None:
            return False
        return node in publication.sites and (publication.is_will or bool(self._first_hand[node, payload]))

    def dropped(self, node: str, where: str, payloads: list[bytes], cause: str) -> None:
        for payload in payloads:
            self.drops[payload].append((node, cause))
            self.world.note(node, f"drops {payload.decode()} from {where}: {cause}")

    def spilled(self, payloads: list[bytes]) -> None:
        self._spilled.update(payloads)

    def node_ends(self, node: SimNode, graceful: bool) -> None:
        disk = node.disk
        written: defaultdict[str, set[bytes]] = defaultdict(set)
        for payload, owing in in_daybook(disk.journals.get(DAYBOOK)):
            for name in owing:
                written[name].add(payload)
        for name, journal in disk.journals.items():
            if name not in (DAYBOOK, HELD):
                written[name].update(in_journal(journal))
        if node.mid_write:
            self._undo(
                node.name,
                {copy for n, j in disk.journals.items() if n != HELD for copy in copies(j, n == DAYBOOK)},
            )
        for outbox in node.outboxes:
            self._lose(node, outbox, written[outbox.place])
        held = frozenset().union(*(kept for name, kept in written.items() if name.startswith("injectors/")))
        end = NodeEnd(self.world.now, graceful, node.mid_write, disk.failed, disk.ever_failed, held)
        if self.mesh and not graceful:
            self.site_dies(node.name)
        if self.mesh and disk.failed:
            self.doubts.disk_failed(disk.journals[HELD].contents() if HELD in disk.journals else ())
            self.unread.update(self._held_in_memory(node))  # row "failing disk"
        self.ends[node.name].append(end)
        if disk.failed or not self.promises.interest_survives_restart:
            self.owed.node_forgot(node.name)

    def _held_in_memory(self, node: SimNode) -> list[bytes]:
        """What a node keeps for others' clients, and its disk does not have."""
        kept = node.disk.journals[HELD].contents() if HELD in node.disk.journals else ()
        queues = node.core.failover.queues if node.core.failover is not None else None
        return [
            payload
            for payload, publication in self.publications.items()
            if queues is not None
            and any(queues.keeps(c, content_hash(publication.topic, payload)) for c in queues.clients)
            and not any(payload in record for record in kept)
        ]

    def _undo(self, node: str, written: set[tuple[bytes, str, int, int]]) -> None:
        """A node was killed in the middle of a turn: what it had not written down did not happen."""
        for (name, payload), visits in self.visits.items():
            while name == node and visits and visits[-1].at == self.world.now:
                origin, epoch, _, sequence = visits[-1].key
                if (payload, origin, epoch, sequence) in written:
                    break
                visits.pop()

    def _lose(self, node: SimNode, outbox: WatchedOutbox, written: set[bytes]) -> None:
        gone = [payload for payload in outbox.in_memory() if payload not in written]
        if gone:  # rows "QoS 0" and "failing disk"
            self.dropped(node.name, outbox.place, gone, "only in the memory of a node that ended")
        careless = [payload for payload in outbox.in_memory(durable=True) if payload not in written]
        if careless and not node.disk.failed and not node.mid_write:
            self.broken(f"{node.name} {outbox.place} kept {careless} in memory only")

    def node_starts(self, node: SimNode) -> None:
        self._starts[node.name] = self.world.now
        if isinstance(self.owed, OwedInOneHop):
            self.owed.restarted(node.name)
        if self.ends[node.name]:
            self.ends[node.name][-1].restarted = self.world.now
        if node.disk.failing and self.ends[node.name]:  # row "failing disk"
            self.ends[node.name][-1].disk_failed = True
            self.owed.node_forgot(node.name)
            for payload, _ in in_daybook(node.disk.journals.get(DAYBOOK)):
                self.dropped(node.name, DAYBOOK, [payload], "on a disk that failed at the start")
            kept = node.disk.journals[HELD].contents() if HELD in node.disk.journals else ()
            self.unread.update(p for p in self.publications if any(p in record for record in kept))

    def wiring_changes(self) -> None:
        self._wired.append(self.world.now)

    def disk_lost(self, node: SimNode) -> None:
        self.losses.lost(node.name, self.ends[node.name][-1].at if self.ends[node.name] else self.world.now)
        if self.ends[node.name]:
            self.ends[node.name][-1].disk_kept = False
        for name, journal in node.disk.journals.items():
            if name not in (DAYBOOK, HELD):
                self.dropped(node.name, name, list(in_journal(journal)), "disk lost")
        daybook = node.disk.journals.get(DAYBOOK)
        self.dropped(node.name, DAYBOOK, [payload for payload, _ in in_daybook(daybook)], "disk lost")
        self.owed.node_forgot(node.name)

    def link_failed(self, node: str, neighbour: str) -> None:
        self._failures.append((self.world.now, frozenset((node, neighbour))))

    def injector_lost(self, node: SimNode) -> None:
        self._injector_losses[node.name].append(self.world.now)

    def relay_ended(self, client_id: str, persistent: bool) -> None:
        if not persistent:
            self._session_over(client_id, "its session ended")

    def _session_over(self, client: str, reason: str) -> None:
        if isinstance(self.owed, OwedInOneHop) and self.site_died(client):
            self.owed.orphaned(client)
        else:
            self.owed.session_over(client, reason)

    def session_forgotten(self, client: str) -> None:
        """By its broker."""
        self._session_over(client, "its broker forgot its session")

    def site_dies(self, site: str) -> None:
        """In a mesh a node, or a broker, is about to die: before anything is lost."""
        self._deaths[site].append(self.world.now)
        for client in self.sites_clients(site):
            self.doubts.ending(client, self.publications)

    def own_copies_lost(self, debt: Debt, payload: bytes) -> set[str]:
        """The sites that a subscriber was at, if their nodes or brokers died since a message was published,
        or so shortly before that they were taken for alive: with that goes what they had for it."""
        sites = {debt.path[-1], *self._given_at[debt.client, payload]}
        since = self.publications[payload].at - NOTICED
        return {site for site in sites if any(at >= since for at in self._deaths[site])}

    def link_failed_since(self, node: str, other: str, since: float) -> bool:
        """Or a moment before: one end may have noticed it earlier."""
        return any(link == {node, other} and at >= since - 0.1 for at, link in self._failures)

    def protocol_error(self, node: SimNode, error: str) -> None:
        self.broken(f"{node.name}: {error}")

    def _failed_since(self, since: float) -> int:
        """How many links failed."""
        return len({link for at, link in self._failures if at >= since})

    def _ended(self, node: str, since: float) -> list[NodeEnd]:
        """The ends from which a node came back after `since`: what it had written may arrive after it."""
        return [end for end in self.ends[node] if end.restarted >= since]

    # The brokers

    def took(self, site: str, client_id: str, message: Publish) -> None:
        payload = message.payload
        if not client_id.startswith(INJECTOR):
            if self.mesh and payload:
                self._check_first_hand(site, payload)
            self._first_hand[site, payload].append(self.world.now)
            return
        if not payload:
            return
        takes = self._takes[site, payload]
        takes.append(self.world.now)
        self.counts["injections"] += 1
        asked = sum(visit.local for visit in self.visits[site, payload])
        if self.publications[payload].retain and len(takes) > asked:
            # Row "retained": all brokers end with the same message, whatever that takes.
            self.excuses["retained: injected again to correct a broker"] += 1
            return
        if not asked:
            self.broken(f"{site} injects {payload!r}, which it was not to")
        if len(takes) <= asked:
            return
        # Row "crash": QoS 1 in flight may double, QoS 2 only where the disk (or the broker's state) was lost.
        # Each time that happens, it may happen to each copy that the node had by then.
        since = takes[0]
        ends = [end for end in self._ended(site, since) if payload in end.held]
        doubting = [end.at for end in ends if message.qos == 1 or end.ever_failed or not end.disk_kept]
        restarts = self._copies(site, payload, doubting)
        losses = self._copies(site, payload, [at for at in self._broker_losses[site] if at >= since])
        cut = [at for at in self._injector_losses[site] if at >= since and message.qos == 1]
        cuts = self._copies(site, payload, cut)
        if len(takes) - asked > restarts + losses + cuts:
            self.broken(f"the broker of {site} got {payload!r} (QoS {message.qos}) {len(takes)} times")
        name = "node restarted" if restarts else "broker lost its state" if losses else "QoS 1 cut"
        self.excuses[f"doubled: in flight to the broker, {name}"] += 1

    def _check_first_hand(self, site: str, payload: bytes) -> None:
        """What a broker had from its node it does not get from the publisher, who sends it again."""
        from_node = [visit for visit in self.visits[site, payload] if visit.local and visit.came_from]
        before = [visit.at for visit in from_node if not visit.repair]
        if not before:  # row "retained": who sent what an index lacked is not known
            if from_node:
                self.excuses["doubled: sent again to a site that had got it by comparison"] += 1
            return
        publication = self.publications[payload]
        if any(end.at >= before[0] for end in self.ends[site]):
            self.excuses["doubled: sent again to a node that was restarted"] += 1
        elif publication.is_will and any(end.at >= publication.at for end in self.ends[site]):
            # Row "will": the node was restarted, and does not know what its broker is about to publish.
            self.excuses["doubled: a will that a broker published since its node was restarted"] += 1
        else:
            self.broken(f"the broker of {site} got {payload!r} from its publisher, after it had it")

    def _copies(self, site: str, payload: bytes, times: list[float]) -> int:
        """How many copies for its broker a node had got by each of these times, in sum: a publisher that
        sends a message again makes another copy."""
        visits = [visit.at for visit in self.visits[site, payload] if visit.local]
        return sum(at <= time for time in times for at in visits)

    def broker_lost_state(self, site: str) -> None:
        self._broker_losses[site].append(self.world.now)

    def had(self, node: str, payload: bytes) -> bool:
        """Whether a node had a message as such."""
        return any(not visit.repair for visit in self.visits[node, payload])

    def passed_on(self, site: str, client_id: str, message: Publish) -> None:
        """By the broker of a site."""
        self._given[client_id, message.payload] += 1
        self._given_at[client_id, message.payload].add(site)

    def redelivering(self, node: str, client_id: str, payloads: list[bytes]) -> None:
        """In a mesh: what was on its way to a client when its connection ended may come to it again."""
        for payload in filter(None, payloads):
            if self.deliveries[client_id, payload]:
                key = (client_id, payload)
                if key not in self._excused:  # else it was given before, and did not arrive
                    why = self.doubts.explain(*key) or self._came_another_way(payload)
                    why = why or self._forgot_session(node, *key)
                    if not why:
                        self.broken(f"{node} gives {payload!r} to {client_id}, which has it")
                    self.excuses[f"doubled: {why}"] += 1
                    self._excused.add(key)
                self._redelivered.pop((client_id, payload), None)
            publication = self.publications[payload]
            origins = {key[0] for key in publication.keys}
            if not self.deliveries[client_id, payload]:
                self._redelivered[client_id, payload] = ""
                if not all(self.reaches(node, each) for each in origins):
                    self._redelivered[client_id, payload] = "redelivered while its origin was out of reach"
                elif any(v.local for v in self.visits[node, payload]) and not self._takes[node, payload]:
                    self._redelivered[client_id, payload] = "redelivered while a slow broker was given it"
            self._given[client_id, payload] += 1

    def _forgot_session(self, node: str, client_id: str, payload: bytes) -> str:
        """Row "crash": a node that came back without its disk does not know a session that its broker has; it
        may hear that the client was elsewhere when that has something from the broker already."""
        lost = any(not end.disk_kept for end in self.ends[node][-1:])
        session = any(c.name == client_id and c.persistent for c in self.sites_clients(node))
        known = lost and session and self.doubts.got_here(client_id, payload, node, self._starts[node])
        return "its node had forgotten a session that the broker had" if known else ""

    def _came_another_way(self, payload: bytes) -> str:
        """Why the copy that a client has may not be the one that is kept for it."""
        publication = self.publications[payload]
        first_hand = [site for site in publication.sites if self._first_hand[site, payload]]
        if len(publication.keys) > 1 or len(first_hand) > 1:  # a node may die before it passes it on
            return "its publisher had no answer when a site died, and sent it again"
        elsewhere = any(key[0] != publication.site for key in publication.keys)
        if publication.is_will and elsewhere and self._first_hand[publication.site, payload]:
            return "a will that its own site published, and one that could not reach it"
        repaired = any(visit.repair for visits in self.visits_of(payload) for visit in visits)
        return "its site had got it by comparison" if publication.retain and repaired else ""

    def visits_of(self, payload: bytes) -> list[list[Visit]]:
        return [visits for (_, each), visits in self.visits.items() if each == payload]

    def unsure_topics(self) -> set[str]:
        """Cluster delivery forwards what the broker acknowledged: a node killed before that leaves a message
        retained at its own broker only (row "cluster"). So does a node that is killed while its disk fails
        (row "failing disk"), or that is started so when all others that had it have died."""
        failed = {node for node, ends in self.ends.items() if any(end.disk_failed for end in ends)}
        killed = self.deletions.unsure(
            lambda site, at: site in failed or (self.cluster and self._killed_since(site, at))
        )
        return killed | {
            p.topic
            for p in self.publications.values()
            if p.retain
            and (
                p.site in failed
                or (self.cluster and p.qos and self._killed_before_ack(p))
                or (self.mesh and self._nobody_has(p))
            )
        }

    def _nobody_has(self, publication: Publication) -> bool:
        """Whether all sites that had a message died with it, but for nodes that could not read, or write,
        their disks: it is at their brokers only."""
        payload = publication.payload
        havers = {node: visits[0].at for (node, p), visits in self.visits.items() if p == payload and visits}
        blind = {
            node
            for node, since in havers.items()
            if any(end.disk_failed for end in self.ends[node] if end.restarted >= since)
        }
        dead = {
            node
            for node, since in havers.items()
            if any(not end.disk_kept for end in self.ends[node] if end.at >= since)
            and any(at >= since for at in self._broker_losses[node])
        }
        if not blind or blind | dead != havers.keys():
            return False
        if payload not in self._nowhere:
            self._nowhere.add(payload)
            self.excuses["retained: lost by disks that failed, and with sites that died"] += 1
        return True

    def _killed_before_ack(self, publication: Publication) -> bool:
        return not publication.acknowledged and self._killed_since(publication.site, publication.at)

    def _killed_since(self, site: str, since: float) -> bool:
        return any(not end.graceful for end in self.ends[site] if end.at >= since)

    def newer_than(self, payload: bytes) -> bytes | None:
        """A retained message that was published where this one had been before: it should have won."""
        older = self.publications[payload]
        for publication in self.publications.values():
            if not publication.retain or publication.topic != older.topic or publication is older:
                continue
            own = self.visits[publication.site, publication.payload]
            if own and self._had_before(publication.site, payload, own[0].at):
                return publication.payload
        gone = any(self._had_before(d.site, payload, d.at) for d in self.deletions.of(older.topic))
        return b"" if gone else None

    def _had_before(self, node: str, payload: bytes, until: float) -> bool:
        """Whether a node knew at this time that it had had a message."""
        seen = self.visits[node, payload]
        if not seen or seen[-1].at >= until:
            return False
        between = [end for end in self.ends[node] if seen[-1].at <= end.at <= until]
        return not any(end.mid_write or not end.disk_kept for end in between)

    # The subscriber

    def granted(self, client: ModelClient, topic_filter: str, qos: int) -> None:
        key = (client.name, topic_filter)
        if topic_filter not in self.owed.filters(client.name) or self._granted_at.get(key) != client.site:
            self._subscribed[key] = self.world.now
        self._granted_at[key] = client.site
        if not all(self.reaches(client.site, each) for each in self.barriers):
            self._came_blind[client.name] = inf
        elif self._came_blind.get(client.name) == inf:
            self._came_blind[client.name] = self.world.now
        self.owed.granted(client, topic_filter, qos, self.barriers[client.site])

    def unsubscribing(self, client: ModelClient, topic_filter: str) -> None:
        self.owed.unsubscribed(client.name, topic_filter)

    def disconnected(self, client: ModelClient) -> None:
        if self.mesh:
            self.doubts.ending(client, self.publications)
        if not client.persistent:
            self._session_over(client.name, "its session ended")
            self._let_go_of_session(client)

    def _let_go_of_session(self, client: ModelClient) -> None:
        """A client that lost its site had a session elsewhere, which it has ended with its connection before
        it heard SUBACK: what the broker there had for it went with that (row "session")."""
        for payload, debt in self.owed.open() if self.mesh and not self.site_died(client.name) else ():
            had = debt.client == client.name and client.site in self._given_at[client.name, payload]
            if had and not self.deliveries[client.name, payload]:
                debt.let_go = "it was in a clean session that ended with its connection"
                self.excuses[f"lost: {debt.let_go}"] += 1

    def said_goodbye(self, client: ModelClient) -> None:
        """A session that ends with its connection is over, also before its client heard that it is
        subscribed again where it came back (row "session")."""
        if not isinstance(self.owed, OwedInOneHop) or client.persistent or self.site_died(client.name):
            return
        for payload, debt in self.owed.gave_up(client.name):
            if not self.deliveries[client.name, payload] and self.publications[payload].acknowledged:
                self.excuses[f"lost: {debt.let_go}"] += 1

    def delivered(self, client: ModelClient, message: Publish) -> None:
        if message.retain or not message.payload:
            return  # stored at the broker, given to a new subscriber: nobody was promised when
        payload = message.payload
        publication = self.publications.get(payload)
        if publication is None:
            self.broken(f"{client.name} got {payload!r}, which nobody published")
        key = (client.name, payload)
        first = not self.deliveries[key]
        self.deliveries[key] += 1
        self._excused.discard(key)
        self.doubts.delivered(client.name, payload, self.world.now, client.site)
        self.counts["deliveries"] += 1
        if not first and message.qos == 1 and message.dup:
            self.excuses["doubled: QoS 1 redelivered by the broker"] += 1
            self._given[key] += 1
        if self.deliveries[key] > self._given[key]:
            self.broken(f"{client.name} got {payload!r} more often than its broker passed it on")
        if not first and not message.dup and key in self._redelivered:
            self._check_redelivered(client, payload)
        if first and not publication.is_will:  # a will has no place among its client's messages
            self._check_order(client, publication, message.qos)

    def _check_redelivered(self, client: ModelClient, payload: bytes) -> None:
        """It came to a client from its broker, and because it missed it."""
        publication = self.publications[payload]
        if publication.is_will and self._first_hand[publication.site, payload]:
            self.excuses["doubled: a will of a node that died before its broker"] += 1
        elif why := self._redelivered.pop((client.name, payload)):
            # Who sent it sends it to the site, too, once it can.
            self.excuses[f"doubled: {why}"] += 1
        elif why := self.doubts.explain(client.name, payload) or self._came_another_way(payload):
            self.excuses[f"doubled: {why}"] += 1
        elif self._compared(client.site, publication):
            self.excuses["doubled: its broker had lost what it was to retain, and got it again"] += 1
        elif any(end.ever_failed or not end.disk_kept for end in self.ends[client.site][-1:]):
            # Row "failing disk": it knew where the client was before, and took its session for a new one.
            self.excuses["doubled: its node had forgotten a session that the broker had"] += 1
        else:
            self.broken(f"{client.name} got {payload!r} from its broker, and redelivered")

    def _compared(self, site: str, publication: Publication) -> bool:
        """Whether a site has a message because its index, or its broker, lacked what it was to retain."""
        visits, takes = self.visits[site, publication.payload], self._takes[site, publication.payload]
        dropped = any(node == site for node, _ in self.drops[publication.payload])
        corrected = len(takes) > sum(visit.local for visit in visits)
        return publication.retain and (dropped or corrected or any(visit.repair for visit in visits))

    def _first_by_comparison(self, client: ModelClient, publication: Publication, last: int) -> bool:
        """Whether a site got number `last` of a publisher first because its index lacked it, and has this one
        only as its publisher sent it again."""
        later = self.visits[client.site, f"{publication.client}:{last}".encode()]
        copies = [visit.key for visit in self.visits[client.site, publication.payload] if not visit.repair]
        return bool(later) and later[0].repair and publication.keys[0] not in copies

    def _came_in_turn(self, site: str, publication: Publication, last: int) -> bool:
        """Whether the broker has a message twice, and had it before number `last` of its publisher."""
        # From its publisher as from its node: between a client and its broker nodes change nothing (row
        # "transparency").
        heard = self._first_hand if site == publication.site else self._takes
        takes = heard[site, publication.payload]
        later = heard[site, f"{publication.client}:{last}".encode()]
        return len(takes) > 1 and bool(later) and takes[0] <= later[0]

    def _subscribed_while_stuck(self, client: ModelClient, publication: Publication) -> bool:
        """Whether a client's site got a message only as a flood, and the client subscribed to it, by whatever
        filter, after it was published."""
        first = [visit for visit in self.visits[client.site, publication.payload] if visit.local][:1]
        return any(visit.flood for visit in first) and self._subscribed_since(client, publication)

    def _subscribed_since(self, client: ModelClient, publication: Publication) -> bool:
        """Whether a client subscribed to a message, by whatever filter, after it was published."""
        since = [
            self._subscribed[client.name, topic_filter]
            for topic_filter in self.owed.filters(client.name)
            if matches(topic_filter, publication.topic)
        ]
        return bool(since) and min(since) > publication.at

    def _came_before_its_broker_had(
        self, client: ModelClient, publication: Publication, later: bytes
    ) -> bool:
        """Whether a client had a later message at another site, before the broker of this one, where it
        subscribed since, had an earlier one."""
        takes = self._takes[client.site, publication.payload]
        since = [at for (name, _), at in self._subscribed.items() if name == client.name]
        came = max(since, default=0.0)
        had = self.doubts.got_at(client.name, later)
        return self._subscribed_since(client, publication) and bool(takes) and had < min(came, takes[0])

    def _stuck(self, publication: Publication, site: str) -> bool:
        """In a mesh: whether a message had to wait for the link from its origin to a site, which failed, or
        an end of which was killed before the other noticed."""
        return site in self._waited[publication.payload] or any(
            visit.at >= failed >= publication.at
            for visit in self.visits[site, publication.payload]
            for failed in self._failed_between(visit.came_from, site)
        )

    def _failed_between(self, one: str | None, other: str) -> list[float]:
        failed = [at for at, link in self._failures if link == {one, other}]
        return failed + [end.at for node in (one, other) if node is not None for end in self.ends[node]]

    def _redelivered_out_of_turn(
        self, client: ModelClient, publication: Publication, last: int, qos: int
    ) -> bool:
        """Whether a client got this one, or the later one, because it had missed it, when the broker of its
        site had not got, or was not to get, the other."""
        later = f"{publication.client}:{last}".encode()
        if set(self.publications[later].sites) != {publication.site}:
            self.excuses["order: its publisher lost its site, and sent the later one elsewhere"] += 1
            return True
        if (client.name, publication.payload) in self._redelivered:
            if self.drops[publication.payload]:
                self.excuses["order: a full queue dropped it in its turn, and it was redelivered"] += 1
                return True
            if self._came_blind.get(client.name, 0.0) >= publication.at:
                self.excuses["order: who kept it was out of reach when its subscriber came"] += 1
                return True
            if self.link_failed_since(publication.site, client.site, publication.at):
                self.excuses["order: the link with its origin failed before its subscriber had it"] += 1
                return True
            if qos == 0:
                self.excuses["order: at QoS 0 it had been lost, and was redelivered"] += 1
                return True
        if (client.name, later) in self._redelivered:
            if self.drops[later]:
                self.excuses["order: a full queue dropped a later one, which was redelivered before it"] += 1
                return True
            if any(visit.local for visit in self.visits[client.site, publication.payload]):
                self.excuses["order: it waited for its broker while a later one was redelivered"] += 1
                return True
        if self._subscribed_since(client, publication) and self._stuck(publication, client.site):
            self.excuses["order: subscribed while it was stuck at a link that failed"] += 1
            return True
        if self._came_before_its_broker_had(client, publication, later):
            self.excuses[
                "order: its subscriber came before the broker there had it, and had a later one"
            ] += 1
            return True
        visits = self.visits[client.site, later]
        if self.publications[later].retain and visits and visits[0].repair:
            self.excuses["order: behind a later one that a site got by comparison"] += 1
            return True
        return False

    def _check_order(self, client: ModelClient, publication: Publication, qos: int) -> None:
        """Row "order"."""
        stream = (client.name, publication.client, publication.topic, publication.qos)
        last = self._last.get(stream, 0)
        if publication.number > last:
            self._last[stream] = publication.number
        elif self.mesh and self._redelivered_out_of_turn(client, publication, last, qos):
            pass
        elif publication.resent and self.drops[publication.payload]:
            self.excuses["order: its first copy was dropped, its publisher sent it again"] += 1
        elif self._compared(client.site, publication):
            self.excuses["order: it came because a site lacked what it was to retain"] += 1
        elif publication.resent and self._first_by_comparison(client, publication, last):
            self.excuses["order: sent again, behind a later one that a site got by comparison"] += 1
        elif self._came_in_turn(client.site, publication, last):
            # It is doubled, for a reason that `took` knows, or because its publisher sent it again; the first
            # time this client was not there.
            self.excuses["order: its broker had it in its turn, and got it again"] += 1
        elif any(at >= publication.at for at in self._wired):
            self.excuses["order: the wiring changed while it was on its way"] += 1
        elif self.cyclic and self._failed_since(publication.at - SETTLE_LIMIT) > 1:
            self.excuses["order: a second link failed while it was on its way"] += 1
        elif self.cyclic and publication.payload in self._spilled and self._failed_since(publication.at):
            self.excuses["order: a link failed that had it on disk only"] += 1
        elif (
            self.cyclic
            and self._failed_since(publication.at)
            and self._subscribed_while_stuck(client, publication)
        ):
            self.excuses["order: subscribed while it was stuck at a link that failed"] += 1
        else:
            self.broken(
                f"{client.name} got {publication.payload!r} on {publication.topic} after number {last}"
            )
