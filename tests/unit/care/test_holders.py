"""What a home tells its holders, with payloads read off a host that only records them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from brokerweave.care import wire
from brokerweave.care.held import hold
from brokerweave.care.holders import HolderStreams
from brokerweave.care.ids import MessageId
from brokerweave.care.record import RecordTable
from brokerweave.care.room import Room
from brokerweave.care.wire import LogEntry
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish
from brokerweave.plugin.sites import SiteBook


class Host:
    """Timers are called at once when the test says so; what is sent is kept."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []
        self.due: list[Callable[[], None]] = []

    def now(self) -> float:
        return 1000.0

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Any:
        self.due.append(callback)

    def send_own(self, neighbour: str, topic: str, payload: bytes) -> None:
        assert topic == wire.LOG
        self.sent.append((neighbour, payload))

    def turn(self) -> list[tuple[str, int, list[LogEntry]]]:
        """What is sent in this turn: to whom, up to which position, what."""
        while self.due:
            self.due.pop(0)()
        told = [(node, wire.decode_log(payload, self.now())) for node, payload in self.sent]
        self.sent.clear()
        return [(node, last, entries) for node, (_, last, entries) in told]


class Sites:
    life, version, copies = 1, 1, 2

    def __init__(self, *nodes: str) -> None:
        self.live = frozenset(("home", *nodes))

    def linked(self) -> tuple[str, ...]:
        return tuple(sorted(self.live - {"home"}))

    def rank(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return nodes

    def life_of(self, node: str) -> int:
        return 1

    def announce(self) -> int:
        return self.version

    def hold_at(self, holders: tuple[str, ...]) -> None: ...


class World:
    def __init__(self, *nodes: str) -> None:
        self.host, self.sites = Host(), Sites(*nodes)
        self.place = RecordTable(Room(1 << 30, 1 << 30), lambda record, identifier: None)
        sites = cast(SiteBook, self.sites)
        self.holders = HolderStreams(self.host, sites, ("home", 1), self.place, lambda entry: None)

    def choose(self) -> None:
        """Choose holders, which acknowledge."""
        self.holders.choose()
        self.acknowledge()

    def acknowledge(self) -> None:
        while told := self.host.turn():
            for node, last, _ in told:
                self.holders.acknowledged(node, last)


def test_a_holder_that_died_and_is_back_has_what_was_noted_before_it_died() -> None:
    world = World("holder")
    world.choose()
    for _ in range(100):
        world.holders.note(LogEntry("settled", "client"))
    world.host.turn()
    positions = world.holders.position()
    world.sites.live = frozenset(("home",))
    world.choose()
    world.sites.live = frozenset(("home", "holder"))
    world.choose()
    assert world.holders.names == ("holder",)
    assert world.holders.have(positions)


def test_records_with_long_queues_go_to_a_holder_in_payloads_that_a_link_takes() -> None:
    world = World("holder")
    for number in range(20):
        record = world.place.open(f"client{number}")
        for sequence in range(10):
            frame = codec.encode(Publish("t", bytes(50_000), 1, packet_id=1), 4)
            world.place.add(record, hold(MessageId("o", number + 1, 0, sequence + 1), frame, 4, 1000.0))
    world.holders.choose()
    world.holders.flush()
    assert max(len(payload) for _, payload in world.host.sent) < 2 * 10 * 50_000
    world.acknowledge()
    assert world.holders.names == ("holder",)


def test_what_a_holder_acknowledged_before_it_was_let_go_does_not_count_for_when_it_is_one_again() -> None:
    world = World("holder")
    world.choose()
    for _ in range(100):
        world.holders.note(LogEntry("settled", "client"))
    ((node, last, _),) = world.host.turn()
    world.sites.live = frozenset(("home",))
    world.choose()
    world.sites.live = frozenset(("home", "holder"))
    world.holders.choose()
    world.holders.acknowledged(node, last)
    assert not world.holders.names
