"""What clients here receive: from their broker, or from the node.

Owns when a client gets what is in its queue, and what of its broker's deliveries is swallowed. Invariants: a
client gets each publication from one of the two; nothing goes to it from the node before its stream is open,
nor behind a place in its stream that waits. Must not know: claims, holders, what other sites know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, takewhile

from brokerweave.care.hearing import Hearing
from brokerweave.care.held import Held
from brokerweave.care.home import Delivering, Home, Standing, State
from brokerweave.care.homes import Homes
from brokerweave.care.host import CareHost
from brokerweave.care.ids import MessageId, stamp_of
from brokerweave.care.publishers import Publishers
from brokerweave.care.recent import Entering, RecentPublications
from brokerweave.mqtt.content import HASH_BYTES
from brokerweave.plugin.sites import SiteBook
from brokerweave.session.hold_points import HoldPoint
from brokerweave.session.pair import Pair


class ClientDeliveries:
    def __init__(
        self,
        host: CareHost,
        sites: SiteBook,
        homes: Homes,
        hearing: Hearing,
        recent: RecentPublications,
        publishers: Publishers,
    ) -> None:
        self._host = host
        self._sites = sites
        self._homes = homes
        self._hearing = hearing
        self._recent = recent
        self._publishers = publishers

    # They subscribe

    def subscribing(self, pair: Pair) -> None:
        """A SUBSCRIBE is on its way to the broker."""
        self._homes.subscribing.add(pair.client.client_id)

    def granted(
        self, home: Home, pair: Pair, filters: list[tuple[str, int]], suback: HoldPoint, timeout: float
    ) -> None:
        """The broker granted filters. SUBACK, and what is behind it, waits until all in reach know."""
        self._homes.subscribing.discard(home.client)
        home.grant(dict(filters), self._homes.moment())
        position = self._homes.holders.position()
        standing = Standing(suback, pair.hold_behind(), self._sites.announce(), position)
        home.delivering.standing.append(standing)
        self._homes.waiting.add(home, standing.version, position)

        def late() -> None:
            if standing in home.delivering.standing:
                self._host.count("barrier_timeouts")
                standing.late = True
                self.pump(home)

        self._host.call_later(timeout, late)
        self.pump(home)

    # The node gives

    def pump(self, home: Home) -> None:
        """Give the client what is its turn."""
        pair, delivering = home.pair, home.delivering
        if pair is None or home.state is not State.HOME or not delivering.opened:
            return
        ready = self._ready(delivering)
        for standing in ready:
            if standing.suback is not None:
                pair.end_hold(standing.suback)
                standing.suback = None
        if delivering.giving or (delivering.standing and not ready):
            return
        del delivering.standing[: len(ready)]
        waiting = home.waiting(self._host.now())
        if waiting:
            delivering.flight.update(held.id for held, _ in waiting)
            delivering.giving = True
            publishes = [publish for _, publish in waiting]
            given = {stamp_of(held.id): held for held, _ in waiting}
            delivering.given |= given
            self._host.redelivering(home.client, publishes)
            behind = ready.pop(0).behind if ready else None
            pair.redeliver(publishes, lambda: self._gave(home, pair), behind, list(given))
        for standing in ready:
            pair.end_hold(standing.behind)

    def _ready(self, delivering: Delivering) -> list[Standing]:
        """The places in the stream that need not wait any longer for other sites, in order."""
        linked, knows = self._sites.linked(), self._hearing.all_know
        return list(takewhile(lambda s: s.late or knows(linked, s.version, s.positions), delivering.standing))

    def _gave(self, home: Home, pair: Pair) -> None:
        if home.pair is pair:
            home.delivering.giving = False
            self._host.call_later(0, lambda: self.pump(home))

    # The broker delivers

    def swallows(self, pair: Pair, name: bytes, must_see: bool) -> bool:
        """Whether the client has what its broker delivers, or gets it from the node."""
        home = self._homes.get(pair.client.client_id)
        if home is None or home.pair is not pair:
            return False
        found, delivering = self._found(home, name), home.delivering
        pending = [each for each in self._queued(home, name, found) if each.id not in delivering.flight]
        if pending:
            expected = next((held for held in pending if held.id in delivering.by_broker), None)
            if expected is not None and not must_see and home.gives_before(expected):
                delivering.by_broker.discard(expected.id)
                expected = None
            if expected is None and not must_see:
                return True  # the node gives it, in its turn
            delivering.begin((expected or pending[0]).id)
            return False
        for entering in self._recent.entering(name):
            if home.client not in entering.shown and not self._is_known(home, entering):
                entering.shown.add(home.client)
                return False
        for held in reversed(found):
            had = self._homes.table.has(home.record, held) and self._is_for(home, held)
            if had or held.id in delivering.flight:
                return not must_see and held.id not in home.record.dropped
        # It came before this node knew that the client is to get it.
        delivering.flight.update(held.id for held in found[:1])
        return False

    def _sent_before(self, entering: Entering) -> Held | None:
        """What its publisher sends again, if that is known here; without its frame."""
        sent = self._publishers.find(entering.publisher, entering.packet_id, entering.content)
        if not entering.again or sent is None:
            return None
        return Held(sent.id, entering.topic, b"", 4, entering.content, 0.0)

    def _is_known(self, home: Home, entering: Entering) -> bool:
        """Whether the record has what its publisher sends again, or will not get it under another name."""
        before = self._sent_before(entering)
        return before is not None and self._homes.table.seen(home.record, before)

    def _is_for(self, home: Home, held: Held) -> bool:
        """Whether the record was looked through for it: it wants it, or did until it was withdrawn."""
        topic, client = held.topic, home.client
        withdrawn = client not in self._homes.subscribing and home.delivering.qos_of(topic) < 0
        return withdrawn or client in self._homes.table.matching(topic)

    def _found(self, home: Home, name: bytes) -> list[Held]:
        """What the broker may mean: one, if it says which; else all that say the same."""
        given = home.delivering.given.get(name[HASH_BYTES:])
        if given is not None:
            return [given]
        return self._recent.of(name) or self._sent_again(name) or self._forgotten(home, name)

    def _sent_again(self, name: bytes) -> list[Held]:
        """What came to other sites before, and not here."""
        return [before for each in self._recent.entering(name) if (before := self._sent_before(each))]

    def _forgotten(self, home: Home, name: bytes) -> list[Held]:
        """The node was started since. Of what was published here before it may have forgotten the stamps."""
        equal, stamp = _equal(home.record.queue.values(), name), name[HASH_BYTES:]
        return [held for held in equal if not stamp or self._before(held.id) or stamp_of(held.id) == stamp]

    def _before(self, identifier: MessageId) -> bool:
        """Whether it was published here before this start."""
        return identifier.origin == self._host.node_id and identifier.epoch < self._host.settings.epoch

    def _queued(self, home: Home, name: bytes, found: list[Held]) -> list[Held]:
        """Those of them that are in the client's queue."""
        queue = home.record.queue
        some = found if len(found) <= len(queue) else _equal(queue.values(), name)
        return [held for held in some if held.id in queue]

    # They answer

    def received(
        self, pair: Pair, names: list[bytes], more: bool, left: Callable[[Home, set[MessageId]], None]
    ) -> None:
        """A client has these. `left`: called for a client that another site has claimed."""
        home = self._homes.get(pair.client.client_id)
        if home is None:
            return
        ids = []
        for name in names:
            found = self._found(home, name)
            # what is in the queue first: of a topic on which all say the same, much may have come
            identifier = home.received(chain(self._queued(home, name, found), found))
            home.delivering.given.pop(name[HASH_BYTES:], None)
            if identifier is not None:
                ids.append(identifier)
                continue
            for entering in self._recent.entering(name):
                if home.client in entering.shown - entering.had:
                    entering.had.add(home.client)
                    break
        if ids:
            self._homes.received(home, ids)
            if more:
                self._homes.holders.flush()
            if home.state is State.LEAVING:
                left(home, set(ids))
            self.pump(home)


def _equal(some: Iterable[Held], name: bytes) -> list[Held]:
    return [held for held in some if held.hash == name[:HASH_BYTES]]
