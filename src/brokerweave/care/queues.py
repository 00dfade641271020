"""The recovery table: what clients of other nodes are owed should their node die
(docs/decisions/0011-mesh.md).

Owns one queue per client, the receipts that came before their publications, what clients were said to have a
moment ago, and where they are by now. Invariants: a queue is in order of arrival; a publication is in it
once, and not again once its receipt came, whoever brings it; a receipt takes off one entry, of
the node that sent it, the oldest with its hash; every bound (bytes of a client, bytes of all, age) drops the
oldest, counted for its client. Must not know: links, who holds for whom, what goes to whom.

An early receipt swallows the next publication with its hash, so it lives no longer than links may differ in
speed: what a broker delivered without our holding it (QoS 0 publications) leaves such receipts too.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf, nextafter
from typing import TypeAlias

from brokerweave.care.held import Held
from brokerweave.care.ids import MessageId
from brokerweave.care.shelf import Body, Shelf
from brokerweave.tables import fit

EARLY_SECONDS = 5.0
"""How long a receipt waits for its publication."""
MOST_EARLY = 50_000
"""Receipts that wait; beyond, the oldest goes."""
UNDER_WAY_SECONDS = 1.0
"""What came over a link may be older by this than it seems: its age is from before it was written."""
HAD_SECONDS = 30.0
"""How long it is known what a client has, by its id: longer than a copy of it may be on its way."""
MOST_HAD = 100_000
"""What clients were said to have a moment ago; beyond, the oldest goes."""
MOST_HOMES = 100_000
"""Clients whose whereabouts are remembered."""
MOST_NAMES = 10_000
"""Clients whose drops are counted by name; of further ones they are counted under the empty name."""

NOWHERE = "\0"
"""Behind the name of the node where a client was, and is no longer."""

_Early: TypeAlias = tuple[str, str, bytes]


class _Queue:
    __slots__ = ("bodies", "bytes", "hashes")

    def __init__(self) -> None:
        self.bodies: dict[MessageId, Body] = {}
        self.hashes: dict[bytes, dict[MessageId, Body]] = {}
        self.bytes = 0

    def add(self, body: Body) -> None:
        self.bodies[body.id] = body
        self.hashes.setdefault(body.hash, {})[body.id] = body
        self.bytes += body.size

    def remove(self, body: Body) -> None:
        del self.bodies[body.id]
        same = self.hashes[body.hash]
        del same[body.id]
        if not same:
            del self.hashes[body.hash]
        self.bytes -= body.size


class Queues:
    """`max_client_bytes` and `max_bytes` bound what is owed, on disk or not; `window` is in seconds."""

    def __init__(
        self,
        max_client_bytes: int,
        max_bytes: int,
        window: float,
        shelf: Shelf | None = None,
        early_seconds: float = EARLY_SECONDS,
    ) -> None:
        self.dropped: Counter[str] = Counter()
        """By client: publications dropped by a bound while they were owed."""
        self.early_dropped = 0
        """Receipts that no publication came for, in time or in numbers."""
        self.had_dropped = 0
        """What clients have, and was forgotten for want of room: handed over late, they get it again."""
        self.bytes = 0
        """Of all queues; one that several clients are owed counts for each."""
        self.shelf = shelf or Shelf()
        self._max_client_bytes = max_client_bytes
        self._max_bytes = max_bytes
        self._window = window
        self._early_seconds = early_seconds
        self._queues: dict[str, _Queue] = {}
        # Oldest first. Where an entry is gone already it is passed over.
        self._order: deque[tuple[str, Body]] = deque()
        self._entries = 0
        self._early: dict[_Early, deque[float]] = {}
        self._early_order: deque[tuple[float, _Early]] = deque()
        # Those that go from the front: a dict would pass over what went before, each time.
        self._before: OrderedDict[_Early, float] = OrderedDict()
        """What clients had before this node was told of them, and when it was."""
        self._had: OrderedDict[tuple[str, MessageId], float] = OrderedDict()
        """What clients were said to have, and when: a copy of it may be on its way from who kept it, too."""
        self._homes: dict[str, tuple[int, str, float]] = {}

    def __len__(self) -> int:
        """Entries of all queues."""
        return self._entries

    @property
    def remembers(self) -> bool:
        """Whether there is anything that ages."""
        return bool(self._entries or self._homes or self._had or self._before)

    @property
    def clients(self) -> list[str]:
        """Those who are owed something."""
        return list(self._queues)

    # What happens

    def hold(
        self, held: Held, pending: Mapping[str, tuple[str, int]], now: float, nowhere: Collection[str] = ()
    ) -> dict[str, str]:
        """Keep a publication for these clients, each of a node and with the QoS that it asked for there; of
        those that are `nowhere` no broker has it, also if they come back to that node.

        Given back: clients that have moved on by now, and to where. Pass it on to those, for them alone; it
        stays owed all the same, until its receipt.
        """
        wanted = {
            client: (home, qos)
            for client, (home, qos) in pending.items()
            if not (self.is_pending(client, held.id) or self._has(client, home, held, now))
        }
        if wanted:
            kept = {c: (home + (NOWHERE if c in nowhere else ""), qos) for c, (home, qos) in wanted.items()}
            body = self.shelf.put(held, kept, now)
            for client in list(wanted):
                self._enter(client, body)
        moved = {}
        for client, (home, _) in wanted.items():
            _, now_at, _ = self._homes.get(client, (0, home, 0.0))
            if now_at != home:
                moved[client] = now_at
        return moved

    def add(self, client: str, held: Held, now: float, home: str = "", qos: int = 2) -> str | None:
        """`hold` for one client: where it is by now, if it has moved on."""
        return self.hold(held, {client: (home, qos)}, now).get(client)

    def received(self, client: str, hashes: Iterable[bytes], now: float, home: str = "") -> None:
        """The client has these; its node, `home`, says so."""
        done = []
        queue = self._queues.get(client)
        for one in hashes:
            body = self._find(queue, client, one, home) if queue is not None else None
            if body is not None and queue is not None:
                queue.remove(body)
                done.append(body)
                self._note_had(client, body.id, now)
            else:
                self._wait_for(client, home, one, now)
        self._gone(client, done)

    def received_before(self, client: str, hashes: Iterable[bytes], now: float, home: str) -> None:
        """The client had these before its node, `home`, knew that this one may hold for it: what comes of it
        now is from before, too."""
        queue = self._queues.get(client)
        for one in hashes:
            body = self._find(queue, client, one, home) if queue is not None else None
            if body is not None:
                self.got(client, (body.id,), now)
            elif len(self._before) < MOST_EARLY:
                self._before[client, home, one] = now
            else:
                self.early_dropped += 1

    def got(self, client: str, ids: Iterable[MessageId], now: float) -> None:
        """The client has these; the node that it came back to says so."""
        known = dict.fromkeys(ids)
        for one in known:
            self._note_had(client, one, now)
        self.let_go(client, known)

    def let_go(self, client: str, ids: Iterable[MessageId], but: str | None = None) -> None:
        """Nobody need keep these for a client; `but` what it is to get at that node."""
        queue = self._queues.get(client)
        if queue is not None:
            known = [queue.bodies[one] for one in ids if one in queue.bodies]
            done = [body for body in known if body.pending[client][0] != but]
            for body in done:
                queue.remove(body)
            self._gone(client, done)

    def routed_there(self, client: str, ids: Iterable[MessageId], home: str) -> None:
        """The client gets these where it is: what is kept for it elsewhere is owed no more."""
        self.let_go(client, dict.fromkeys(ids), but=home)

    def routed(self, client: str, ids: Iterable[MessageId], home: str) -> None:
        """The client gets these where it is, from a node for whose clients they are kept here: from now on as
        that."""
        queue = self._queues.get(client)
        if queue is not None:
            done = []
            for body in [queue.bodies[one] for one in dict.fromkeys(ids) if one in queue.bodies]:
                held = self.shelf.load(body)
                if (held and self._had_before(client, home, held)) or self._came_early(
                    client, home, body.hash
                ):
                    queue.remove(body)
                    done.append(body)
                else:
                    body.pending[client] = (home, body.pending[client][1])
            self._gone(client, done)

    def moved(self, client: str, home: str, since: int, now: float, sure: bool = False) -> bool:
        """The client is at this node since then. False: it is known to be elsewhere since later, unless it is
        `sure` that it is not. What a node says later counts, though its clock may have been set back with a
        restart."""
        known = self._homes.get(client)
        if known is not None and known[:2] == (since, home):
            return True
        if known is not None and known[1] != home and known[:2] > (since, home) and not sure:
            return False
        self._homes.pop(client, None)
        self._homes[client] = (since, home, now)
        if len(self._homes) > MOST_HOMES:
            del self._homes[next(iter(self._homes))]
        return True

    # For the new home

    def is_pending(self, client: str, identifier: MessageId) -> bool:
        queue = self._queues.get(client)
        return queue is not None and identifier in queue.bodies

    def had(self, client: str, identifier: MessageId) -> bool:
        """Whether the client was said to have it, a moment ago."""
        return (client, identifier) in self._had

    def keeps(self, client: str, hash: bytes) -> bool:
        """Whether a publication of this content is kept for a client."""
        queue = self._queues.get(client)
        return queue is not None and hash in queue.hashes

    def has_pending(self, client: str) -> bool:
        return client in self._queues

    def take(self, client: str, own: bool | None = None, own_before: float = inf) -> list[Held]:
        """Everything that a client is owed, in order. It stays owed until it is known to have it, but for
        what it asked for at QoS 0: that is given at most once. Not what came since it is where it is: its
        broker there has that. `own`: only what it was to get where it is now, in an earlier session; or only
        what it was to get elsewhere. `own_before`: of the former only what was published before that."""
        queue = self._queues.get(client)
        if queue is None:
            return []
        _, home, since = self._homes.get(client, (0, None, 0.0))
        given: list[Held] = []
        done: list[Body] = []
        for body in list(queue.bodies.values()):
            at_home = body.pending[client][0] == home
            if (at_home and body.added > since) or own not in (None, at_home):
                continue
            held = self.shelf.load(body)
            if held is None:
                self._count_dropped(client)  # the disk has lost it
            elif at_home and held.born >= own_before:
                continue
            else:
                given.append(held)
            if held is None or body.pending[client][1] == 0:
                queue.remove(body)
                done.append(body)
        self._gone(client, done)
        return given

    # For other holders

    def copy(self, client: str, node: str) -> list[tuple[int, Held]]:
        """What is kept for a client of a node, in order, with the QoS that it asked for there. Not what the
        client has asked for since: who has it will be told when the client has it, and nobody else."""
        queue = self._queues.get(client)
        _, home, since = self._homes.get(client, (0, node, 0.0))
        if queue is None or home != node:
            return []
        bodies = [body for body in queue.bodies.values() if body.added > since]
        return self._load(client, [body for body in bodies if _home(body, client) == node])

    def left_behind(self, client: str, node: str, since: float) -> dict[str, list[tuple[int, Held]]]:
        """The same of what is kept for a client of a node where it was before, and came after `since`: whom
        it was published by, or who keeps it, heard too late where the client is."""
        queue = self._queues.get(client)
        if queue is None or self._homes.get(client, (0, "", 0.0))[1] != node:
            return {}
        bodies = [body for body in queue.bodies.values() if body.added > since]
        homes = dict.fromkeys(_home(body, client) for body in bodies)
        return {
            home: self._load(client, [body for body in bodies if _home(body, client) == home])
            for home in homes
            if home != node
        }

    def _load(self, client: str, bodies: Iterable[Body]) -> list[tuple[int, Held]]:
        loaded = [(body.pending[client][1], self.shelf.load(body)) for body in bodies]
        return [(qos, held) for qos, held in loaded if held is not None]

    def take_over(
        self, client: str, node: str, kept: Iterable[tuple[int, Held]], now: float, since: float
    ) -> list[tuple[Held, str]]:
        """Another node keeps these for a client of a node, and so does this one from now on; but not what is
        older than `since`. Given back, as by `hold`: what to pass on, and to where."""
        fresh = [(q, one) for q, one in kept if one.born > since and now - one.born < self._window]
        moved = [(one, self.add(client, one, now, node, qos)) for qos, one in fresh]
        return [(one, home) for one, home in moved if home is not None]

    # A session's end

    def forget(self, client: str) -> None:
        """The client is owed nothing any more: its session ended."""
        queue = self._queues.get(client)
        if queue is not None:
            bodies = list(queue.bodies.values())
            for body in bodies:
                queue.remove(body)
            self._gone(client, bodies)

    # Time, and starting again

    def expire(self, now: float) -> None:
        """Call it about once a second."""
        while self._order:
            client, body = self._order[0]
            if client in body.pending and now - body.added < self._window:
                break
            self._drop_oldest()
        while self._early_order and now - self._early_order[0][0] >= self._early_seconds:
            self._forget_early()
        while self._before and now - next(iter(self._before.values())) >= self._early_seconds:
            self._before.popitem(last=False)
        while self._had and now - next(iter(self._had.values())) >= HAD_SECONDS:
            self._had.popitem(last=False)
        while self._homes:
            client = next(iter(self._homes))
            if now - self._homes[client][2] < self._window:
                break
            del self._homes[client]
        fit(self._queues)

    def stepped(self, step: float, before: float) -> None:
        """The clock was set by so many seconds, at some time after `before`: what came until then is as old
        as it was."""
        bodies = {id(body): body for queue in self._queues.values() for body in queue.bodies.values()}
        for body in bodies.values():
            if body.added <= before:
                body.added += step
        for client, (since, home, at) in self._homes.items():
            if at <= before:
                self._homes[client] = (since, home, at + step)

    def flush(self) -> None:
        """Once per loop turn, before a confirmation of what was held goes out: the disk has it then."""
        self.shelf.flush()

    def restore(self, now: float) -> None:
        """Once, before anything else: what the journal of an earlier start has, as if it came just before.
        The clock may have been set, and who can say for how long this node was away?"""
        for part in self.shelf.replay():
            if isinstance(part, tuple):
                self.let_go(part[0], dict.fromkeys(part[1]))
                continue
            for client in list(part.pending):
                if self.is_pending(client, part.id):  # it was rewritten: that one counts from now on
                    self.let_go(client, (part.id,))
                self._enter(client, part)
        for _, body in self._order:
            body.added = nextafter(now, 0.0)

    # Inside

    def _enter(self, client: str, body: Body) -> None:
        self._queues.setdefault(client, _Queue()).add(body)
        self._order.append((client, body))
        self._entries += 1
        self.bytes += body.size
        while self.bytes > self._max_bytes:
            self._drop_oldest()
        while (queue := self._queues.get(client)) is not None and queue.bytes > self._max_client_bytes:
            self._drop(client, next(iter(queue.bodies.values())))

    def _gone(self, client: str, bodies: Sequence[Body]) -> None:
        """These were taken out of the client's queue."""
        if not bodies:
            return
        self._entries -= len(bodies)
        self.bytes -= sum(body.size for body in bodies)
        self.shelf.drop(client, bodies)
        if not self._queues[client].bodies:
            del self._queues[client]
        if len(self._order) > 2 * self._entries + 1000:
            self._order = deque(item for item in self._order if item[0] in item[1].pending)

    def _find(self, queue: _Queue, client: str, hash: bytes, home: str) -> Body | None:
        """The oldest with this hash, of this home; or one that came since the client is there, from an origin
        that may not have known it."""
        same = queue.hashes.get(hash)
        if same is None:
            return None
        _, now_at, since = self._homes.get(client, (0, None, 0.0))
        for body in same.values():
            if _home(body, client) == home or (now_at == home and body.added >= since):
                return body
        return None

    def _drop_oldest(self) -> None:
        client, body = self._order.popleft()
        if client in body.pending:
            self._drop(client, body)

    def _drop(self, client: str, body: Body) -> None:
        self._queues[client].remove(body)
        self._gone(client, (body,))
        self._count_dropped(client)

    def _count_dropped(self, client: str) -> None:
        named = client in self.dropped or len(self.dropped) < MOST_NAMES
        self.dropped[client if named else ""] += 1

    def _has(self, client: str, home: str, held: Held, now: float) -> bool:
        """Whether the client was said to have it before it came, or a moment ago for another copy of it."""
        if self._had_before(client, home, held) or (client, held.id) in self._had:
            return True
        early = self._came_early(client, home, held.hash)
        if early:
            self._note_had(client, held.id, now)
        return early

    def _had_before(self, client: str, home: str, held: Held) -> bool:
        before = self._before.get((client, home, held.hash))
        return before is not None and held.born < before + UNDER_WAY_SECONDS

    def _note_had(self, client: str, identifier: MessageId, now: float) -> None:
        self._had[client, identifier] = now
        self._had.move_to_end((client, identifier))  # the order is by time
        if len(self._had) > MOST_HAD:
            self._had.popitem(last=False)
            self.had_dropped += 1

    def _came_early(self, client: str, home: str, hash: bytes) -> bool:
        key = (client, home, hash)
        waiting = self._early.get(key)
        if waiting is None:
            return False
        waiting.popleft()
        if not waiting:
            del self._early[key]
        return True

    def _wait_for(self, client: str, home: str, hash: bytes, now: float) -> None:
        key = (client, home, hash)
        self._early.setdefault(key, deque()).append(now)
        self._early_order.append((now, key))
        if len(self._early_order) > MOST_EARLY:
            self._forget_early()

    def _forget_early(self) -> None:
        """The oldest one, unless it has met its publication."""
        since, key = self._early_order.popleft()
        if key in self._early and self._early[key][0] == since:
            self._came_early(*key)
            self.early_dropped += 1


def _home(body: Body, client: str) -> str:
    """The node where a client was to get it."""
    return body.pending[client][0].removesuffix(NOWHERE)
