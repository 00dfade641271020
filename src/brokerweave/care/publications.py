"""What is published at QoS 1 and 2, here or elsewhere: who is to get it.

Owns what came to this node lately. Invariants: before a publication is confirmed it is in the queues of all
records and copies here that want it; one that its publisher sends again keeps its name. Must not know: how
clients get it, claims.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from operator import itemgetter

from brokerweave.care import held as keeping
from brokerweave.care.copies import Copies, Forward
from brokerweave.care.disk import Came, RecordJournal
from brokerweave.care.held import Held
from brokerweave.care.home import Home, State
from brokerweave.care.homes import Homes
from brokerweave.care.host import CareHost
from brokerweave.care.ids import MessageId, stamp_of, stamp_of_entering
from brokerweave.care.kept_topics import KeptTopics
from brokerweave.care.publishers import Publishers, Sent
from brokerweave.care.recent import Entering, RecentPublications
from brokerweave.care.record import told_of
from brokerweave.care.unconfirmed import UnconfirmedByTopic
from brokerweave.care.wills import WILL_OF
from brokerweave.links.hybrid_clock import time_of
from brokerweave.links.run import Run
from brokerweave.mqtt.content import content_hash
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.publish import publish_head
from brokerweave.mqtt.scanner import split
from brokerweave.mqtt.trie import FilterTrie
from brokerweave.session.pair import Pair

MOST_RECALLED = 10_000
"""RecordedPublications that were on their way to the broker before a restart, and are known again."""
_DUP = 0x08
_QOS = 0x06
"""Both of a PUBLISH's first byte."""


class RecordedPublications:
    def __init__(
        self,
        host: CareHost,
        window: float,
        homes: Homes,
        copies: Copies,
        disk: RecordJournal,
        recent: RecentPublications,
        publishers: Publishers,
        forward: Forward,
        pump: Callable[[Home], None],
    ) -> None:
        """`window`: seconds for which publications are remembered. `pump`: a client may have something to be
        given."""
        self._host = host
        self._window = window
        self._homes = homes
        self._copies = copies
        self._disk = disk
        self._recent = recent
        self._publishers = publishers
        self._forward = forward
        self._pump = pump
        self.topics = KeptTopics()
        self._unconfirmed = UnconfirmedByTopic(lambda callback: host.call_later(0, callback))
        self._entering: Entering | None = None
        """What is about to go to the broker."""
        self._entered: Entering | None = None
        """What the run that is about to be held was while it had no name."""
        self._decoded: tuple[tuple[bytes, MessageId | None], list[Held]] = (b"", None), []
        self._aging = False
        for lane, injector in enumerate(host.injectors):
            injector.stamp_with(_InjectedNames(self._lane(lane)), host.stamps)

    def recall(self) -> None:
        """What was on its way to the broker when the node ended the broker may deliver to those who come."""
        for lane, injector in enumerate(self._host.injectors):
            lane = self._lane(lane)
            for run in islice(injector.outbox.kept(), MOST_RECALLED):
                for held in _publications(run, lane):
                    self.remember(held, stamp_of(held.id))

    def remember(self, held: Held, stamp: bytes = b"") -> None:
        """The broker may deliver it."""
        self._age_later()
        self._recent.note(held, stamp)

    def restore(self, came: Came) -> None:
        """What an earlier start of this node knew: its publisher may have sent it again, also to others."""
        held = came.held
        self.remember(held, came.stamp)
        self._homes.table.restore(held.id)
        if came.sender is not None and held.born > self._host.now() - self._window:
            sent = Sent(held.id, bool(held.frame[0] & _DUP), held.id.origin, taken=False)
            self._publishers.note(*came.sender, held.hash, sent)

    def _lane(self, lane: int) -> int:
        return lane if self._host.settings.ordered else 0

    # Clients here publish

    def entering(self, pair: Pair, publish: Publish) -> None:
        """Something is about to go to the broker."""
        self._age_later()
        content = content_hash(publish.topic, publish.payload)
        client, packet_id = pair.client.client_id, publish.packet_id
        self._entering = Entering(
            client, packet_id, publish.topic, content, self._homes.moment(), publish.dup
        )
        self._recent.enter(self._entering)

    def stamp_entering(self, pair: Pair, publish: Publish) -> bytes:
        """Under which name the broker gets it."""
        entering = self._entering
        if entering is None or (entering.publisher, entering.packet_id) != (
            pair.client.client_id,
            publish.packet_id,
        ):
            return b""
        me, epoch = self._host.node_id, self._host.settings.epoch
        entering.stamp = stamp_of_entering(me, epoch, entering.tick)
        return entering.stamp

    def entered(self, sender: tuple[str, int], content: bytes, run: Run, lane: int, taken: bool) -> None:
        """It goes out next. `taken`: the broker has it."""
        entered = self._entered = self._recent.entered(*sender, content)
        self._known_as(run, self._lane(lane), content, taken)
        if entered is not None and run.max_qos == 2:
            # the broker passes it on when it is released, also to who subscribed since it was published
            for held in self._publications_of(run, self._lane(lane)):
                self.remember(held, entered.stamp)

    def _publications_of(self, run: Run, lane: int) -> list[Held]:
        """What is looked at twice, when it has entered and when it goes out, is decoded once."""
        (blob, name), found = self._decoded
        if blob is not run.blob or name != _name(run, lane):
            found = list(_publications(run, lane))
            self._decoded = (run.blob, _name(run, lane)), found
        return found

    def name(self, run: Run) -> Run:
        """A publication of a client here, under the name that it had when it was sent first."""
        if run.sender is None:
            return run
        sent = self._publishers.find(*run.sender, content_of(run)) if run.blob[0] & _DUP else None
        if sent is None:
            return run
        self._host.count("publications_resent")
        if not sent.id.epoch:
            return run.stamped(sent.id.origin, sent.id.sequence)
        return run.named(sent.id.origin, sent.id.epoch, sent.id.sequence)

    def hold(self, run: Run, lane: int) -> None:
        """It has its name, and is about to go out."""
        entered, self._entered = self._entered, None
        lane = self._lane(lane)
        found = self._publications_of(run, lane)
        self._apply(run, found, lane, entered, in_turn=run.origin == self._host.node_id)

    # They arrive

    def arrived(self, run: Run, lane: int, neighbour: str) -> Run | None:
        """As it goes to the broker here. None: this node has acted on it before."""
        lane = self._lane(lane)
        found = list(_publications(run, lane))
        content = found[0].hash if len(found) == 1 else None
        if run.sender is not None:
            before = self._known_as(run, lane, content or content_of(run))
            if before is not None:
                for held in found:
                    self._has_another_name(held, before)
                return None
        if run.max_qos:
            self._apply(run, found, lane, None, in_turn=run.origin == neighbour and not run.repair)
            if not run.cap:
                run = replace(run, cap=self._qos_here(run))
        return run.without_dup() if run.blob[0] & _DUP else run

    def _qos_here(self, run: Run) -> int:
        """Its origin may not know yet who wants more here; at QoS 0 nobody would hear who has it."""
        if self._homes.subscribing:
            return 2
        topic = publish_head(run.blob, run.version).topic.decode()
        return max(self._homes.table.matching(topic).values(), default=0)

    def _known_as(self, run: Run, lane: int, content: bytes, taken: bool = True) -> MessageId | None:
        """Remember what a publisher may send again. Its name, if the publisher has sent this before under
        another one, or if it is a will that another site has published."""
        if run.sender is None:
            return None
        client, packet_id = run.sender
        name = _name(run, lane)
        sent = self._publishers.find(client, packet_id, content)
        will, dup = client.startswith(WILL_OF), bool(run.blob[0] & _DUP)
        if sent is not None and will:
            return name  # all copies have one
        if sent is not None and sent.id != name and (dup or (sent.again and sent.at != run.origin)):
            return sent.id
        if sent is None or sent.id != name or taken > sent.taken:
            self._age_later()
            self._publishers.note(client, packet_id, content, Sent(name, dup, run.origin, taken))
        return None

    def _has_another_name(self, held: Held, before: MessageId) -> None:
        """Who wants it has it, or is to get it, under the name of before. Others may not know that one.

        All keep the lesser of two names: if each of two kept another one, each would tell the other that what
        it keeps is had.
        """
        if held.id == before:
            return
        earlier = replace(held, id=before)
        for client in self._homes.table.matching(held.topic):
            home = self._homes[client]
            if self._homes.table.seen(home.record, earlier):
                self._keep_one_name(home, held, earlier)
        if self._copies.renamed(held, earlier):
            self._disk.came(Came(held, b""))

    def _keep_one_name(self, home: Home, held: Held, earlier: Held) -> None:
        record, table, delivering = home.record, self._homes.table, home.delivering
        queued = earlier.id in record.queue
        kept, other = (earlier, held) if not queued or earlier.id < held.id else (held, earlier)
        if other.id in delivering.flight:  # the client is about to answer it
            table.name(record, other.id, kept.id)
            return
        table.add_if_new(record, kept)
        delivering.by_broker.discard(other.id)
        self._homes.received(home, [other.id])
        self._homes.holders.add_if_queued(record, kept.id)  # after that: see `Record.also`
        if home.state is State.LEAVING:
            new = [kept] if kept.id in record.queue else []
            self._forward(home.to, told_of(record, new, had=[other.id]))
        self._pump(home)

    def named(self, client: str, packet_id: int, content: bytes, name: MessageId) -> None:
        """Another site knows the name of what a client published."""
        if self._publishers.find(client, packet_id, content) is None:
            self._age_later()
            self._publishers.note(client, packet_id, content, Sent(name, True, "", taken=False))

    def last_of(self, client: str) -> tuple[tuple[int, bytes, MessageId], ...]:
        """What a client published last, by packet id and content."""
        return self._publishers.last(client)

    def unconfirmed(self, asker: str, filters: Iterable[str]) -> list[Held]:
        """What other sites have yet to take of what went out from here: nobody else may have it."""
        trie, found = FilterTrie(), dict[MessageId, Held]()
        for each in filters:
            trie.add(each, "", 0)
        for node in self._host.neighbours():
            for lane, sending in enumerate(self._host.neighbour_table[node].lanes if node != asker else ()):
                topics = self._unconfirmed.topics(sending.outbox)
                wanted = [places for topic, places in topics.items() if trie.match(topic.decode())]
                for _, run in sorted(chain.from_iterable(wanted), key=itemgetter(0)):
                    for held in _publications(run, self._lane(lane)):
                        if held.id not in found and trie.match(held.topic):
                            found[held.id] = held
        return list(found.values())

    # Who is to get them

    def _apply(self, run: Run, found: list[Held], lane: int, entered: Entering | None, in_turn: bool) -> None:
        """`found`: the publications in it. `in_turn`: all that its origin sent here before on its lane has
        come."""
        touched: dict[str, Home] = {}
        for held in found:
            topic = held.topic
            self._age_later()
            self.topics.note(topic.encode())
            clients = self._homes.table.matching(topic)
            for client in clients:
                if self._add(self._homes[client], held, entered):
                    touched[client] = self._homes[client]
            # after those: a copy of what such a client wanted elsewhere says nothing new then
            wanted = self._copies.came(topic, held, run.holds) or bool(clients)
            stamp = self._stamp(held, entered)
            if wanted:
                self._disk.came(Came(held, stamp, _publisher(run)))
            remembered = entered is not None and run.max_qos == 2
            if not remembered and (wanted or self._homes.subscribing):
                self.remember(held, stamp)
        if in_turn:
            self._homes.table.take((run.origin, run.epoch, lane), run.first + run.count - 1)
        for home in touched.values():
            self._pump(home)

    def _stamp(self, held: Held, entered: Entering | None) -> bytes:
        """Under which the broker has it from its publisher, or gets it from this node."""
        if entered is not None:
            return entered.stamp
        return stamp_of(held.id) if self._host.passes_user_properties else b""

    def _add(self, home: Home, held: Held, entered: Entering | None) -> bool:
        """A client here is to get this. Whether the node may have to give it."""
        record, delivering, homes = home.record, home.delivering, self._homes
        if homes.table.seen(record, held):
            return False
        homes.table.add(record, held)
        # Holders may have had it from its origin before they knew the record.
        homes.holders.add(record, held, everybody=not homes.table.is_kept(record, held.id))
        if entered is not None and home.client in entered.had:
            homes.received(home, [held.id])
            if home.state is State.LEAVING:
                self._forward(home.to, told_of(record, had=[held.id]))
            return False
        if home.state is State.LEAVING:
            self._forward(home.to, told_of(record, [held]))
            return False
        now = homes.moment()
        if entered is not None and home.client in entered.shown:
            delivering.begin(held.id)
        elif home.leaves_to_broker(held, entered.tick if entered else now):
            delivering.by_broker.add(held.id)
        return held.id not in delivering.by_broker

    def not_injected(self, run: Run, lane: int) -> None:
        """The broker here does not get it, for want of room: nothing waits for that."""
        for held in self._publications_of(run, self._lane(lane)):
            for client in self._homes.table.matching(held.topic):
                home = self._homes[client]
                home.delivering.refuse(held.id)
                self._pump(home)

    # They are forgotten

    def _age_later(self) -> None:
        if not self._aging:
            self._aging = True
            self._host.call_later(self._window, self._age)

    def _age(self) -> None:
        oldest = self._host.now() - 2 * self._window
        for table in (self._homes.table, *(copy.table for copy in self._copies.homes.values())):
            table.forget_retained(lambda stamp: time_of(stamp) < oldest)
        left = [self._recent.turn(), self._publishers.turn(), self.topics.turn()]
        self._aging = False
        if any(left):
            self._age_later()


class _InjectedNames:
    """Of what the injector of one lane publishes."""

    def __init__(self, lane: int) -> None:
        self._lane = lane

    def name_of(self, run: Run, offset: int) -> bytes:
        first = _name(run, self._lane)
        return stamp_of(first._replace(sequence=first.sequence + offset) if offset else first)


def content_of(run: Run) -> bytes:
    """Of the first one in it."""
    head = publish_head(run.blob, run.version)
    return content_hash(head.topic, run.blob[head.payload_start :])


def _publisher(run: Run) -> tuple[str, int] | None:
    """Who may send it again, under another name; a will has one name at all sites."""
    return None if run.sender is None or run.sender[0].startswith(WILL_OF) else run.sender


def _name(run: Run, lane: int) -> MessageId:
    """A will is known by its client, what is to be retained by its version: they may come another way."""
    if run.sender is not None and run.sender[0].startswith(WILL_OF):
        return MessageId(WILL_OF + content_hash(*run.sender[:1], b"").hex(), 0, 0, run.sender[1])
    if run.stamp:
        return MessageId(run.origin, 0, 0, run.stamp)
    return MessageId(run.origin, run.epoch, lane, run.first)


def _publications(run: Run, lane: int) -> Iterator[Held]:
    """Those of QoS 1 and 2. Raises RemoteProtocolError if a frame is damaged."""
    if not run.max_qos:
        return
    name = _name(run, lane)
    if run.count == 1:  # nearly always
        if run.blob[0] & _QOS:
            yield keeping.hold(name, run.blob, run.version, run.born)
        return
    for sequence, frame in enumerate(split(run.blob), name.sequence):
        if frame[0] & _QOS:
            yield keeping.hold(name._replace(sequence=sequence), frame, run.version, run.born)
