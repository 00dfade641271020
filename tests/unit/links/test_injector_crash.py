"""A node that is killed while it injects, and goes on with the broker's session after its restart."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.links.injector import BrokerAbilities, Injector, InjectorState
from brokerweave.links.journal import MemoryJournal
from brokerweave.links.outbox import Outbox
from brokerweave.links.progress import MemoryProgress, Step
from brokerweave.mqtt.packets import PacketType
from tests.unit.links.model_broker import ModelBroker, World, message


class CrashingWorld(World):
    """What was on disk is all that `crash` leaves; the broker does not notice more than a lost connection."""

    def __init__(self, broker: ModelBroker | None = None, abilities: BrokerAbilities | None = None) -> None:
        super().__init__(broker, abilities)
        self.journal = MemoryJournal()
        self.progress = MemoryProgress()
        self.starts = 0
        self._abilities = abilities or BrokerAbilities()
        self._start()

    def crash(self) -> None:
        if self.up:
            self.broker.close()
        self.up = False
        self.to_broker = self.to_injector = b""
        self.progress.crash()
        self._start()

    def _start(self) -> None:
        self.starts += 1
        self.outbox = Outbox.restored(self.starts, self.journal)
        unlearned = BrokerAbilities(version=self._abilities.version)
        self.injector = Injector("injector", unlearned, self.outbox, self.dead, progress=self.progress)
        self.injector.learn(self._abilities)


WAYS = 6


def established(version: int = 5) -> CrashingWorld:
    world = CrashingWorld(abilities=BrokerAbilities(version=version))
    world.settle()
    return world


def killed_on_the_way(version: int, way: int) -> CrashingWorld:
    """A world in which the node is about to be killed at one of `WAYS` points of the QoS 2 handshake."""
    world = established(version)
    world.submit(*(message(str(number), 2) for number in range(5)))
    steps = (
        world.write,  # PUBLISH
        lambda: world.carry(None, 0),
        lambda: world.carry(),  # PUBREC
        world.write,  # PUBREL
        lambda: world.carry(None, 0),
        lambda: world.carry(None, 7),  # PUBCOMP of one, and half of the next
    )
    for step in steps[: way + 1]:
        step()
    return world


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("way", range(WAYS))
def test_a_kill_at_any_point_of_the_qos_2_handshake_neither_loses_nor_doubles(version: int, way: int) -> None:
    world = killed_on_the_way(version, way)
    world.crash()
    world.settle()
    assert world.broker.payloads() == [b"0", b"1", b"2", b"3", b"4"]
    assert not world.broker.connects[-1].clean_start


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("way", range(WAYS))
def test_what_was_in_flight_is_known_again_when_the_disk_gives_it_only_later(
    version: int, way: int, forgets: bool
) -> None:
    world = killed_on_the_way(version, way)
    before = world.broker.payloads()
    world.journal.failing = True
    world.crash()
    if forgets:
        world.broker.forget()
    world.connect()
    for _ in range(3):
        world.turn()
    assert world.injector.state is InjectorState.READY
    assert world.broker.payloads() == before
    world.journal.failing = False
    world.submit(message("new", 2))
    world.settle()
    # A broker that forgot gets again what it had taken without the node knowing that.
    again = before if forgets and way in (1, 2) else []
    assert world.broker.payloads() == [*again, b"0", b"1", b"2", b"3", b"4", b"new"]
    assert world.injector.idle


def test_a_broker_that_forgot_the_session_gets_again_only_what_it_had_not_taken() -> None:
    world = established()
    world.submit(message("taken", 2), message("lost", 2))
    world.write()
    first = len(world.to_broker) // 2 + 2
    world.carry(first)
    world.write()
    world.crash()
    world.broker.forget()
    world.settle()
    assert world.broker.payloads() == [b"taken", b"lost"]


def test_of_a_run_half_done_at_the_kill_only_the_rest_comes_again() -> None:
    world = established()
    world.broker.mute = lambda packet: packet.payload == b"2"
    world.submit(*(message(str(number), 1) for number in range(4)))
    world.turn()
    world.write()
    world.crash()
    world.broker.mute = lambda packet: False
    world.settle()
    assert Counter(world.broker.payloads()) == {b"0": 1, b"1": 1, b"2": 1, b"3": 1}
    assert [p.payload for p in world.broker.arrived].count(b"2") == 2
    assert world.broker.arrived[-1].dup


def test_qos_0_in_a_run_that_comes_again_is_not_repeated() -> None:
    world = established()
    world.broker.mute = lambda packet: packet.qos == 1
    world.submit(message("once", 0), message("kept", 1))
    world.turn()
    world.crash()
    world.broker.mute = lambda packet: False
    world.settle()
    assert world.broker.payloads() == [b"once", b"kept"]
    assert world.injector.counters.maybe_lost_qos0 == 1


def test_an_identifier_whose_message_is_lost_is_not_given_to_another() -> None:
    world = established()
    world.submit(message("lost with the disk", 2))
    world.write()
    world.carry()
    world.write()
    world.journal = MemoryJournal()
    world.crash()
    world.submit(message("new", 2))
    world.settle()
    assert world.broker.payloads() == [b"lost with the disk", b"new"]


def test_an_identifier_that_a_failing_disk_did_not_keep_is_not_given_to_another() -> None:
    world = established()
    world.progress.flush = world.progress.crash  # type: ignore[method-assign]
    world.submit(message("not noted", 2))
    world.write()
    world.carry(None, 0)
    world.journal = MemoryJournal()
    del world.progress.flush
    world.crash()
    world.submit(message("new", 2))
    world.settle()
    assert world.broker.payloads() == [b"not noted", b"new"]


def test_a_session_of_unknown_origin_is_still_dropped_first() -> None:
    world = CrashingWorld(ModelBroker(has_session=True, unreleased={1, 2, 3}, stays=True))
    world.submit(message("a", 2), message("b", 2))
    world.settle()
    assert any(connect.clean_start for connect in world.broker.connects)
    assert world.broker.payloads() == [b"a", b"b"]


def test_identifiers_stay_taken_while_their_runs_wait_for_an_older_one() -> None:
    world = established()
    world.broker.mute = lambda packet: packet.payload == b"stuck"
    world.submit(message("stuck", 1))
    for number in range(50):
        world.submit(message(str(number), 1))
        world.turn()
        world.write()
    assert sum(mark.step is Step.DONE for mark in world.progress.marks()) == 50
    world.crash()
    world.broker.mute = lambda packet: False
    world.settle()
    assert Counter(world.broker.payloads()) == Counter([b"stuck", *(str(n).encode() for n in range(50))])


@given(st.data())
def test_whatever_is_killed_and_cut_when_qos_2_is_exactly_once(data: st.DataObject) -> None:
    world = CrashingWorld(abilities=BrokerAbilities(version=data.draw(st.sampled_from((4, 5)))))
    world.settle()
    submitted: list[tuple[bytes, int]] = []
    bytes_moved = st.integers(0, 60)
    for _ in range(data.draw(st.integers(1, 40))):
        match data.draw(st.sampled_from(("submit", "write", "carry", "turn", "cut", "crash"))):
            case "submit":
                qos = data.draw(st.lists(st.sampled_from((1, 2, 2)), min_size=1, max_size=3))
                packets = [message(f"{len(submitted) + n}", q) for n, q in enumerate(qos)]
                submitted += [(p.payload, p.qos) for p in packets]
                world.submit(*packets)
            case "crash":
                world.crash()
            case "cut" if world.up:
                world.cut()
            case "write" if world.up:
                world.write()
            case "carry" if world.up:
                world.carry(data.draw(bytes_moved), data.draw(bytes_moved))
            case "turn":
                if not world.up:
                    world.connect()
                world.turn()
    world.settle()
    got = Counter(world.broker.payloads())
    assert set(got) == {payload for payload, _ in submitted}
    assert [payload for payload, qos in submitted if qos == 2 and got[payload] != 1] == []
    firsts = list(dict.fromkeys(p.payload for p in world.broker.taken if p.qos == 2))
    assert firsts == [payload for payload, qos in submitted if qos == 2]
    assert len(world.dead) == 0


def test_a_mark_is_kept_for_the_packet_types_that_matter() -> None:
    world = established()
    world.submit(message("m", 2))
    world.write()
    assert [mark.step for mark in world.progress.marks()] == [Step.SENT]
    assert world.to_broker[0] >> 4 == PacketType.PUBLISH
    world.carry()
    assert [mark.step for mark in world.progress.marks()] == [Step.SENT]
    world.write()
    assert [mark.step for mark in world.progress.marks()] == [Step.RECEIVED]
    assert world.to_broker[0] >> 4 == PacketType.PUBREL


def test_what_was_sent_at_a_lower_qos_is_repeated_at_that_qos() -> None:
    world = CrashingWorld(abilities=BrokerAbilities(version=5, max_qos=1))
    world.settle()
    world.submit(message("m", 2))
    world.write()
    world.carry(None, 0)
    world.crash()
    world.injector.learn(BrokerAbilities(version=5, max_qos=1))
    world.settle()
    assert [(p.qos, p.dup) for p in world.broker.arrived] == [(1, False), (1, True)]
