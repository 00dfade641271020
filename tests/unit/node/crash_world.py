"""A site with a real core and real files; its two neighbours, its broker and its client are never killed.

Any write to the disk can be the last: `Killer` lets a chosen one happen partly, and then nothing more. What
the site had in memory is dropped; the others see a lost connection and do what MQTT and links ask of them.
"""

from __future__ import annotations

import errno
import functools
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from brokerweave.care.moves import MoveResult
from brokerweave.config import LimitsSection
from brokerweave.cooperation.sf import SubscriptionFlooding
from brokerweave.links.abilities import BrokerAbilities
from brokerweave.links.dead_letters import DeadLetters, plain
from brokerweave.links.injector import Injector, InjectorState
from brokerweave.links.lane import Lane
from brokerweave.links.outbox import Outbox
from brokerweave.links.run import Run
from brokerweave.links.window import DuplicateWindow
from brokerweave.links.wire import ACK_TOPIC, decode_ack, decode_batch, open_publish
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    ConnAck,
    Connect,
    Packet,
    Publish,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
)
from brokerweave.mqtt.properties import Property
from brokerweave.mqtt.scanner import split
from brokerweave.node import state
from brokerweave.node.checkpointer import Bounds, Checkpointer
from brokerweave.node.core import NodeCore, Settings
from brokerweave.plugin import Strategy
from brokerweave.runtime.journal import Note
from brokerweave.runtime.storage import Storage
from brokerweave.session.pair import Pair
from tests.unit.links.model_broker import ModelBroker

NOW = 1_000_000.0
CLIENT = "sensor"
WHOLE = ((Property.USER_PROPERTY, ("sync", "whole")),)


class Killed(BaseException):
    """Nothing after this reached the disk."""


class Killer:
    """Counts what changes the disk. The change planned next is the last of a life: it happens by half, or,
    with `whole`, as a whole."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.full = False
        """The disk takes nothing."""
        self.whole = False
        self.changes = 0
        self._plan: list[int] = []
        self._pwrite = os.pwrite
        patch.setattr(os, "pwrite", self._write)
        for name in ("replace", "unlink", "truncate"):
            patch.setattr(os, name, self._change(getattr(os, name)))

    def arm(self, *plan: int) -> None:
        """Kill at the first of these changes, counted from now, in the next life at the second, ..."""
        self.changes, self._plan = 0, list(plan)

    def next_life(self) -> None:
        self.arm(*self._plan[1:])

    def _dies(self) -> bool:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.changes += 1
        return bool(self._plan) and self.changes >= self._plan[0]

    def _write(self, descriptor: int, data: bytes, offset: int) -> int:
        if self._dies():
            part = len(data) if self.whole else len(data) // 32 * 16
            self._pwrite(descriptor, data[:part], offset)
            raise Killed
        return self._pwrite(descriptor, data, offset)

    def _change(self, real: Callable[..., None]) -> Callable[..., None]:
        def changed(*arguments: Any, **options: Any) -> None:
            dies = self._dies()
            if not dies or self.whole:
                real(*arguments, **options)
            if dies:
                raise Killed

        return changed


class _Timer:
    def cancel(self) -> None: ...


class Peer:
    """A neighbour that lives on: what it takes counts after its duplicate window."""

    def __init__(self, name: str, stream: int) -> None:
        self.name = name
        self.lane = Lane(Outbox(stream))
        self.window = DuplicateWindow(10_000)
        self.got: list[bytes] = []
        self.plans: set[bytes] = set()
        """Those that came."""
        self.sent: list[bytes] = []

    def publish(self, *publishes: Publish) -> None:
        blob = b"".join(codec.encode(p, 4) for p in publishes)
        first = len(self.sent) + 1
        qos = max(p.qos for p in publishes)
        self.sent += [p.payload for p in publishes]
        self.lane.append(Run(self.name, 1, first, len(publishes), 4, qos, 2, NOW, blob))

    def take(self, first: int, runs: list[Run]) -> None:
        for run in self.lane.received_batch(first, runs):
            self.plans.add(run.plan)
            for offset, count in self.window.accept(run.origin, run.epoch, run.first, run.count):
                for frame in split(run.part(offset, count).blob):
                    packet = codec.decode(frame, run.version)
                    assert isinstance(packet, Publish)
                    self.got.append(packet.payload)
        self.lane.confirm()


class Site:
    """One life of the node: from its start to a kill."""

    def __init__(self, folder: Path, world: World) -> None:
        self.world = world
        self.random = Random(1)
        self.warnings: list[str] = []
        self.notes: dict[str, Note] = {}
        self.storage = Storage(folder, self.warnings.append)
        world.site = self
        bounds = Bounds(window=10_000, ordered=True, outbox_memory=1 << 20, outbox_disk=1 << 20)
        self.checkpointer = Checkpointer(self.storage, bounds, lambda: world.epoch + 10, self.warnings.append)
        stored = self.checkpointer.recover()
        self.letters = DeadLetters()
        outbox = self.checkpointer.outbox("injectors/0", durable=True)
        progress = self.storage.progress("injectors/0/progress")
        self.injector = Injector("n", BrokerAbilities(version=5), outbox, self.letters, progress=progress)
        world.epoch += 1
        settings = Settings("n", world.epoch, 1, True, 10_000, 1e6, 1e6, cycles=False)
        self.core = NodeCore(
            settings,
            LimitsSection(),
            world.strategy,
            (),
            self,
            self._make_lane,
            [self.injector],
            wal=self.checkpointer.wal,
        )
        if stored:
            state.load(self.core, self.letters, stored)
        self.letters.added = lambda letter: self.core.wal.note("letter", *plain(letter))
        self.checkpoint()
        self.pair = self.core.new_pair()
        for peer in world.peers.values():
            self.core.add_neighbour(peer.name)
            lane = self.core.neighbour_table[peer.name].lanes[0]
            resume = lane.resume()
            self.core.neighbour_table.connected(peer.name, 0, peer.lane.resume())
            peer.lane.connected(resume)
        world.broker.open()
        self._to_injector = world.broker.feed(self.injector.connected(NOW))

    # NodeHost

    def now(self) -> float:
        return NOW

    steady = now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> _Timer:
        return _Timer()

    def lane_ready(self, neighbour: str, lane: int) -> None: ...
    def injector_ready(self, lane: int) -> None: ...
    def send_control(self, neighbour: str, packet: Packet) -> None: ...
    def open_broker(self, pair: Pair) -> None: ...
    def write_client(self, pair: Pair, data: bytes) -> None: ...
    def write_broker(self, pair: Pair, data: bytes) -> None: ...

    def hang_up(self, pair: Pair, last_words: bytes) -> None: ...

    def clear_session(self, pair: Pair) -> None: ...

    def move_ended(self, result: MoveResult) -> None: ...
    def forget_lanes(self, neighbour: str) -> None: ...
    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def _make_lane(self, neighbour: str, index: int) -> Lane:
        folder = f"lanes/{neighbour}/{index}"
        lane = Lane(self.checkpointer.outbox(folder, durable=True))
        note = self.storage.note(f"{folder}/taken")
        assert note is not None
        self.notes[neighbour] = note
        if stored := note.read():
            lane.restore(stored)
        return lane

    # What happens in a loop turn

    def checkpoint(self) -> None:
        boxes = [n.lanes[0].outbox for n in self.core.neighbour_table.all()] + [self.injector.outbox]
        dump = functools.partial(state.dump, self.core, self.letters)
        self.checkpointer.checkpoint(dump, boxes, sync=False)

    def exchange(self, peer: Peer) -> bool:
        """One turn on a link; whether anything moved."""
        lane = self.core.neighbour_table[peer.name].lanes[0]
        arriving, leaving = peer.lane.poll(NOW), b""
        for topic, payload in map(_opened, split(arriving)):
            if topic == ACK_TOPIC:
                lane.received_ack(decode_ack(payload))
            else:
                self.core.arrivals.batch_arrived(peer.name, 0, *decode_batch(payload, NOW))
                self.storage.write_note(self.notes[peer.name], lane.snapshot())
        leaving = lane.poll(NOW)
        for topic, payload in map(_opened, split(leaving)):
            if topic == ACK_TOPIC:
                peer.lane.received_ack(decode_ack(payload))
            else:
                peer.take(*decode_batch(payload, NOW))
        return bool(arriving or leaving)

    def inject(self) -> bool:
        data, self._to_injector = self._to_injector, b""
        if data:
            self.injector.receive(data, NOW)
        written = self.injector.poll(NOW)
        self._to_injector = self.world.broker.feed(written)
        return bool(data or written)

    def settle(self) -> None:
        for _ in range(1_000):
            moved = [self.exchange(peer) for peer in self.world.peers.values()]
            if not any([*moved, self.inject()]) and self.injector.state is InjectorState.READY:
                return
        raise AssertionError("never quiet")

    def client_says(self, *packets: Packet) -> None:
        self.pair.from_client(b"".join(codec.encode(p, 4) for p in packets))

    def broker_says(self, *packets: Packet) -> None:
        self.pair.from_broker(b"".join(codec.encode(p, 4) for p in packets))


class World:
    """What outlives the site. A client action that was not over at the kill is repeated, as MQTT asks."""

    def __init__(self, folder: Path, killer: Killer, strategy: type[Strategy] = SubscriptionFlooding) -> None:
        self.strategy = strategy
        self.folder = folder
        self.killer = killer
        self.peers = {name: Peer(name, stream) for stream, name in enumerate(("b", "c"), 1)}
        self.broker = ModelBroker(stays=True)
        self.epoch = 0
        self.kills = 0
        self.site: Site
        self.session = False
        self.filters: dict[str, int] = {}
        self.unanswered: Packet | None = None
        self.published: list[bytes] = []

    def start(self) -> None:
        """Start the site, again if it is killed while it starts."""
        for _ in range(50):
            try:
                Site(self.folder, self)
                self._connect_client()
                return
            except Killed:
                self._bury()
        raise AssertionError("killed at every start")

    def run(self, action: Callable[[], None]) -> None:
        """An action that was not over at a kill is repeated by those who know that it was not."""
        try:
            action()
        except Killed:
            self._bury()
            self.start()
            if action in (self.want, self.subscribe):
                self.run(action)

    def _bury(self) -> None:
        self.kills += 1
        self.killer.next_life()
        self.broker.close()
        if self.site is not None:
            os.close(self.site.storage._lock)
            for peer in self.peers.values():
                peer.lane.disconnected()

    # The client: a persistent session, QoS 2 publications

    def _connect_client(self) -> None:
        self.site.client_says(Connect(CLIENT, 4, clean_start=False))
        self.site.broker_says(ConnAck(0, self.session))
        self.session = True
        if isinstance(self.unanswered, Publish):
            again = self.unanswered
            self._say(Publish(again.topic, again.payload, again.qos, False, True, again.packet_id))
        elif self.unanswered is not None:
            self._say(self.unanswered)

    def _say(self, packet: Packet) -> None:
        """When the site has passed it on, the broker answers: nothing can be lost after that."""
        self.unanswered = packet
        self.site.client_says(packet)
        self.unanswered = None

    def subscribe(self) -> None:
        self.site.client_says(Subscribe(5, (Subscription("t/#", 2), Subscription("other", 1))))
        self.site.broker_says(SubAck(5, (2, 1)))
        self.filters = {"t/#": 2, "other": 1}

    def want(self) -> None:
        """The neighbours say once what they want, and never again: the site has to remember it."""
        for peer in self.peers:
            self.site.core.control_arrived(peer, Subscribe(1, (Subscription("#", 2),), WHOLE))

    def publish(self, packet_id: int, payload: bytes) -> None:
        self.published.append(payload)
        self._say(Publish("local/t", payload, 2, packet_id=packet_id))

    def release(self, packet_id: int) -> None:
        self._say(PubRel(packet_id))

    # What must hold

    def check(self) -> None:
        record = self.site.core.interest.records[CLIENT]
        assert record.filters == self.filters
        assert record.incoming_qos2 == set()
        injected = Counter(p.payload for p in self.broker.taken)
        for peer, other in (("b", "c"), ("c", "b")):
            sent = self.peers[other].sent
            assert Counter(self.peers[peer].got) == Counter(sent + self.published)
            assert [p for p in self.peers[peer].got if p in sent] == sent
            assert [p for p in self.peers[peer].got if p in self.published] == self.published
            assert {p: injected[p] for p in sent} == dict.fromkeys(sent, 1)
        assert len(self.site.letters) == 0
        assert [w for w in self.site.warnings if "torn" not in w] == []


def _opened(frame: bytes) -> tuple[bytes, memoryview]:
    opened = open_publish(frame)
    assert opened is not None
    return opened
