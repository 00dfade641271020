"""A small mesh in memory: a client whose home is killed at any step, and what it gets.

Nodes here are glue and nothing else: what they decide is decided by `brokerweave.care`. Every
connection is a FIFO with delays of its own, drawn from the seed; a killed node's last bytes may or may not
arrive. Publishers sit at several nodes, each with a topic on each of two lanes; one client, c, wants
everything at QoS 1.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random

from brokerweave.care.cutover import Cutover
from brokerweave.care.held import Held, hold
from brokerweave.care.ids import MessageId
from brokerweave.care.injections import InjectionLog
from brokerweave.care.queues import Queues
from brokerweave.care.receipt_outbox import ReceiptOutbox
from brokerweave.care.wire import (
    GOT,
    Ask,
    decode_answer,
    decode_ask,
    decode_got,
    decode_late,
    decode_number,
    decode_receipts,
    encode_answer,
    encode_ask,
    encode_late,
)
from brokerweave.links.run import Run
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish

LANES = 2
ROOM = 1 << 30


class World:
    """`kills` is which nodes die at which step."""

    def __init__(self, seed: int, copies: int, kills: dict[int, str], others: tuple[str, ...] = ()) -> None:
        self.random = Random(seed)
        self.copies = copies
        self.others = others
        """Nodes at which other clients want everything, too."""
        self.now = 0.0
        self.steps = 0
        self.kills = kills
        self.dead: dict[str, float] = {}
        self.acknowledged: set[str] = set()
        self.published: list[str] = []
        self.in_flight: set[str] = set()
        """What a home was giving to the client when it was killed, and a holder did not know of."""
        self.twice: set[str] = set()
        """What the broker of a home delivered, as others there want it, and the client had elsewhere."""
        self.texts: dict[MessageId | bytes, str] = {}
        self.holders: dict[str, set[str]] = defaultdict(set)
        """Of each publication, all who were asked to hold it."""
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.pace = self.random.choice((0.1, 0.3, 1.0))
        self._fifo: dict[tuple[str, str, str], float] = {}
        self.nodes = {name: Node(self, name) for name in "pdexyf"}
        self.client = Client(self, ["d", "e", "f"])

    def later(self, delay: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (self.now + delay, self._count, action))

    def send(self, source: str, target: str, kind: str, action: Callable[[], None]) -> None:
        """In order with everything else on this connection."""
        if source in self.dead:
            return
        channel = (source, target, kind)
        slow = self.random.choice((0.1, 1.0, 1.0, 5.0)) * self.pace
        when = max(self._fifo.get(channel, 0.0), self.now + self.random.random() * slow)
        self._fifo[channel] = when

        def arrive() -> None:
            # The bytes of a dead sender arrive up to some moment of each connection, or not at all.
            if target not in self.dead and when <= self.dead.get(source, when) + self._grace(channel):
                action()

        self.later(when - self.now, arrive)

    def _grace(self, channel: tuple[str, str, str]) -> float:
        return Random(repr((self.copies, channel))).choice((0.0, 1.0, 9.0))

    def run(self) -> None:
        while self._events:
            self.now, _, action = heapq.heappop(self._events)
            self.steps += 1
            assert self.steps < 20_000, "it does not come to an end"
            if self.steps in self.kills:
                self.kill(self.kills[self.steps])
            action()

    def kill(self, name: str) -> None:
        if name in self.dead:
            return
        self.dead[name] = self.now
        if self.client.home == name:
            self.in_flight |= self.client.in_flight()
            self.later(self.random.random() * 4 * self.pace, self.client.moves)
        for node in self.nodes.values():
            self.later(self.random.random() * 6 * self.pace, partial(node.learn_death, name))


class Client:
    def __init__(self, world: World, homes: list[str]) -> None:
        self.world = world
        self.homes = homes
        self.home = homes[0]
        self.got: list[str] = []
        self.homes_of: dict[str, str] = {}
        self.connection = 0

    def moves(self) -> None:
        self.home = next(home for home in self.homes if home not in self.world.dead)
        self.connection += 1
        node, number = self.world.nodes[self.home], self.connection
        self.world.send("c", self.home, "client", lambda: node.subscribe(number))

    def receives(self, connection: int, held: Held, own: bool) -> None:
        if connection != self.connection:
            return
        text = held.publish.payload.decode()
        if not own and self.homes_of.get(text, self.home) != self.home:
            self.world.twice.add(text)
        self.homes_of[text] = self.home
        self.got.append(text)
        node = self.world.nodes[self.home]
        self.world.send("c", node.name, "client", lambda: node.acknowledged_by_client(connection, held, own))

    def in_flight(self) -> set[str]:
        """What was given to it, here or before, and a holder that lives was not told that it has."""
        given = {one.publish.payload.decode() for one in self.world.nodes[self.home].written} | set(self.got)
        nodes = self.world.nodes
        return {
            text
            for text in given
            for name in self.world.holders[text]
            if name not in self.world.dead and text not in nodes[name].known
        }


class Node:
    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.log = InjectionLog()
        self.queues = Queues(ROOM, ROOM, 1e9, early_seconds=1e9)
        self.receipts = ReceiptOutbox()
        self.where = ("d", 0)
        self.known_dead: set[str] = set()
        self.sequences = [0] * LANES
        self.sent: Counter[tuple[str, int]] = Counter()
        self.taken: Counter[tuple[str, int]] = Counter()
        self.marks: dict[str, list[int]] = {}
        self.waiting: dict[str, set[str]] = {}
        self.known: set[str] = set()
        """What it was told that the client has."""
        self.written: list[Held] = []
        # The pair of c here, and the broker.
        self.connection = 0 if name == "d" else -1
        self.subscribed_at_broker = name == "d"
        self.subscribe_tick = 0
        self.granted_tick = 0
        self.answered_tick = 0
        self.cutover: Cutover | None = None
        self.standing: list[Held] | None = None
        self.pinging = False
        self.unacknowledged = 0
        self.open_publications: set[int] = set()
        self.awaited: set[int] = set()

    # Publishing

    def publish(self, text: str, lane: int) -> None:
        """A local client publishes; the broker's acknowledgement makes it a run."""
        if self.name in self.world.dead:
            return
        self.world.published.append(text)
        publish = Publish(f"t/{lane}", text.encode(), 1)
        one = hold(MessageId("?", 0, lane, 0), publish, 4, self.world.now)
        self.world.texts[one.hash] = text
        self.unacknowledged += 1
        number = self.unacknowledged
        self.open_publications.add(number)
        self._to_broker(f"publisher{lane}", one, lambda: self._published(publish, lane, number))

    def _published(self, publish: Publish, lane: int, number: int) -> None:
        self.open_publications.discard(number)
        self.sequences[lane] += 1
        identifier = MessageId(self.name, 1, lane, self.sequences[lane])
        held = hold(identifier, publish, 4, self.world.now)
        self.world.texts[identifier] = publish.payload.decode()
        self.log.own(identifier)
        home = self.where[0]
        if home == self.name and self.cutover is not None and not self.cutover.done:
            self.cutover.offer([held])
        if self.cutover is not None and not self.awaited & self.open_publications:
            self.cutover.arrived(self.name)
        self._go_on()
        holders = self._holders(home)
        self.world.holders[publish.payload.decode()] |= set(holders)
        if self.name in holders:
            self._hold(held, home)
        targets = ({home, *holders, *self.world.others} - {self.name}) - self.known_dead
        text = publish.payload.decode()
        self.waiting[text] = set(targets)
        for target in sorted(targets):
            self.sent[target, lane] += 1
            node = self.world.nodes[target]
            holds = home if target in holders else ""
            inject = target == home or target in self.world.others
            self._send(target, f"lane{lane}", node.take_run, held, lane, self.name, holds, inject)
        self._check(text)

    def _holders(self, home: str) -> list[str]:
        live = [name for name in "xyfpe" if name != home and name not in self.known_dead]
        return live[: self.world.copies - 1]

    def _check(self, text: str) -> None:
        if not self.waiting[text] and self.name not in self.world.dead:
            self.world.acknowledged.add(text)

    def take_run(self, held: Held, lane: int, source: str, holds: str, inject: bool) -> None:
        self.taken[source, lane] += 1
        if inject:
            frame = codec.encode(replace(held.publish, packet_id=1), 4)
            self.log.queued(held.id, Run(*held.id[:2], held.id.sequence, 1, 4, 1, 1, held.born, frame))
            self.world.later(self.world.random.random() * self.world.pace, lambda: self._inject(held))
        if holds:
            self._hold(held, holds)
        self._arrivals(source)
        self._send(source, "control", self.world.nodes[source].confirmed, self.name, held)

    def confirmed(self, name: str, held: Held) -> None:
        text = held.publish.payload.decode()
        self.waiting[text].discard(name)
        self._check(text)

    def _hold(self, held: Held, home: str) -> None:
        moved_to = self.queues.add("c", held, self.world.now, home, 1)
        if moved_to == self.name:
            self.late_arrived(held)
        elif moved_to is not None:
            for payload in encode_late(0, "c", [held], self.world.now):
                (late,) = decode_late(payload, self.world.now).held
                self._send(moved_to, "control", self.world.nodes[moved_to].late_arrived, late)

    def _inject(self, held: Held) -> None:
        if self.name not in self.world.dead:
            self.log.sent(held.id)
            self._to_broker(f"injector{held.id.lane}", held, lambda: self.log.ended(held.id))

    # The broker

    def _to_broker(self, kind: str, held: Held, done: Callable[[], None]) -> None:
        broker = self.name

        def processed() -> None:
            if self.subscribed_at_broker:
                self.world.send(broker, broker, "broker to c", lambda: self.delivered(held))
            self.world.send(broker, broker, f"{kind} answers", done)

        self.world.send(broker, broker, kind, processed)

    def subscribe(self, connection: int) -> None:
        self.connection = connection
        self.subscribe_tick = self.log.open()
        self.standing = []

        def processed() -> None:
            self.subscribed_at_broker = True
            self.world.send(self.name, self.name, "broker to c", self._granted)

        self.world.send(self.name, self.name, "c to broker", processed)

    # Coming back

    def _granted(self) -> None:
        self.granted_tick = tick = self.log.tick()
        others = [name for name in self.world.nodes if name != self.name]
        self.cutover = Cutover(self.subscribe_tick, tick, {"t/#": 1}, self.log, me=self.name, nodes=others)
        for name in sorted(self.known_dead):
            self.cutover.dead(name)
        self.awaited = set(self.open_publications)
        if self.awaited:
            self.cutover.arriving(self.name)
        self.moved(self.name, self.connection)
        self.cutover.offer(self.queues.take("c"))
        ask = encode_ask(Ask(1, self.connection, "c"))
        for name in others:
            self._send(name, "control", self.world.nodes[name].asked, self.name, ask)
        self._go_on()

    def moved(self, home: str, since: int) -> None:
        if self.queues.moved("c", home, since, self.world.now):
            self.where = (home, since)

    def asked(self, name: str, payload: bytes) -> None:
        ask = decode_ask(payload)
        self.moved(name, ask.since)
        node = self.world.nodes[name]
        positions = [self.sent[name, lane] for lane in range(LANES)]
        self._send(name, "control", node.heard, self.name, list(self.sequences), positions)
        for answer in encode_answer(ask.round, "c", self.queues.take("c"), self.world.now):
            self._send(name, "control", node.answered, self.name, answer)

    def heard(self, name: str, cuts: list[int], positions: list[int]) -> None:
        if self.cutover is not None:
            self.marks[name] = positions
            self.cutover.add_cut(name, 1, cuts, arrived=False)
            self._arrivals(name)

    def answered(self, name: str, payload: bytes) -> None:
        if self.cutover is None:
            return
        answer = decode_answer(payload, self.world.now)
        for held in answer.held:
            self.late_arrived(held)
        if answer.last:
            self.cutover.answered(name)
        self._go_on()

    def _arrivals(self, name: str) -> None:
        marks = self.marks.get(name)
        if marks and self.cutover and all(self.taken[name, lane] >= marks[lane] for lane in range(LANES)):
            self.cutover.arrived(name)
            self._go_on()

    def late_arrived(self, held: Held) -> None:
        if self.cutover is None:
            return
        if not self.cutover.done:
            self.cutover.offer([held])
            return
        for one in self.cutover.late(held, self.world.now):
            self._write(one, own=True)

    def _go_on(self) -> None:
        cutover = self.cutover
        if cutover is None or cutover.done or not cutover.heard or self.name in self.world.dead:
            return
        if not self._broker_told_all():
            if not self.pinging:
                self.pinging = True
                self._ping(self.log.tick())
            return
        given = cutover.ready(self.world.now)
        standing, self.standing = self.standing or [], None
        for one in given:
            self._write(one, own=True)
        for one in standing:
            self.delivered(one)

    def _broker_told_all(self) -> bool:
        """Whether the broker has delivered what it got before SUBACK, as the last PINGREQ that it answered
        shows: it is the time to doubt the rest."""
        since = self.log.since(self.subscribe_tick)
        early = (one for one in since if one.sent is not None and one.sent <= self.granted_tick)
        return all(one.ended is not None and one.ended <= self.answered_tick for one in early)

    def _ping(self, tick: int) -> None:
        def processed() -> None:
            self.world.send(self.name, self.name, "broker to c", lambda: self._pong(tick))

        self.world.send(self.name, self.name, "c to broker", processed)

    def _pong(self, tick: int) -> None:
        self.pinging = False
        self.answered_tick = tick
        self._go_on()

    # To the client, and what it says

    def delivered(self, held: Held) -> None:
        """The broker delivers to c."""
        if self.standing is None:
            self._write(held, own=False)
            return
        self.standing.append(held)
        if self.cutover is not None:
            self.cutover.live(held.hash)
            self._go_on()

    def _write(self, held: Held, own: bool) -> None:
        client, connection = self.world.client, self.connection
        if connection == client.connection and self.name not in self.world.dead:
            self.written.append(held)
            self.world.send(self.name, "c", "client", lambda: client.receives(connection, held, own))

    def acknowledged_by_client(self, connection: int, held: Held, own: bool) -> None:
        ids: list[MessageId] = []
        if self.cutover is not None:
            ids = self.cutover.finished([held]) if own else self.cutover.received([held.hash])
        hashes = [] if own or ids else [held.hash]
        if hashes:
            self.receipts.received("c", hashes)
        self.queues.got("c", ids, self.world.now)
        self.known |= {self.world.texts[one] for one in ids}
        self.receipts.got("c", ids, [name for name in self.world.nodes if name != self.name])
        for target, topic, payload in self.receipts.flush(self._holders(self.name), self.world.nodes):
            self._send(target, "control", self.world.nodes[target].told, self.name, topic, payload)

    def told(self, name: str, topic: str, payload: bytes) -> None:
        _, _, payload = decode_number(payload)
        if topic == GOT:
            for client, ids in decode_got(payload):
                self.queues.got(client, ids, self.world.now)
                self.known |= {self.world.texts[one] for one in ids}
        else:
            for client, hashes in decode_receipts(payload):
                self.known |= {self.world.texts[one] for one in hashes}
                self.queues.received(client, hashes, self.world.now, name)

    def learn_death(self, name: str) -> None:
        if self.name in self.world.dead:
            return
        self.known_dead.add(name)
        for text, waiting in self.waiting.items():
            waiting.discard(name)
            self._check(text)
        if self.cutover is not None:
            self.cutover.dead(name)
            self._go_on()

    def _send(self, target: str, kind: str, action: Callable[..., None], *arguments: object) -> None:
        self.world.send(self.name, target, kind, lambda: action(*arguments))


def play(
    seed: int, *, copies: int = 2, kills: dict[int, str] | None = None, others: tuple[str, ...] = ()
) -> World:
    world = World(seed, copies, dict(kills or {}), others)
    random = Random(seed)
    counts: dict[tuple[str, int], int] = defaultdict(int)
    for _ in range(30):
        name, lane = random.choice("ppdexf"), random.randrange(LANES)
        counts[name, lane] += 1
        text = f"{name}{lane}.{counts[name, lane]}"
        world.later(random.random() * 25, partial(world.nodes[name].publish, text, lane))
    world.run()
    return world


def check(world: World) -> None:
    """Everything acknowledged is there, and twice only what was on its way to the client at a kill, or what
    the broker of another home delivered as others there want it."""
    got = Counter(world.client.got)
    lost = world.acknowledged - set(got)
    assert not lost, f"lost {sorted(lost)}"
    doubled = {text for text, count in got.items() if count > 1} - world.in_flight
    assert world.others or not world.twice - world.in_flight
    doubled -= world.twice
    assert not doubled, f"doubled {sorted(doubled)}"
