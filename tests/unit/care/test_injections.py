"""When the broker was given what: by ticks, told by a real injector."""

import pytest

from brokerweave.care.ids import MessageId
from brokerweave.care.injections import InjectionLog
from brokerweave.links.abilities import BrokerAbilities
from tests.unit.links.model_broker import ModelBroker, World, message


def name(sequence: int) -> MessageId:
    return MessageId("elsewhere", 1, 3, sequence)


def watched(broker: ModelBroker | None = None) -> tuple[World, InjectionLog]:
    world, log = World(broker, BrokerAbilities(version=5)), InjectionLog()
    world.settle()
    world.injector.watch = log.lane(3)
    return world, log


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_is_queued_then_sent_then_ended(qos: int) -> None:
    world, log = watched()
    before = log.open()
    world.submit(message("a", qos), message("b", qos))
    entry = log.find(name(2))
    assert entry is not None
    assert (entry.sent, entry.ended) == (None, None)
    world.write()
    between = log.tick()
    assert entry.sent is not None
    assert before < entry.sent < between
    assert entry.ended is None
    world.settle()
    assert entry.ended is not None
    assert entry.ended > between


def test_without_a_cutover_nothing_that_the_broker_has_is_remembered() -> None:
    world, log = watched()
    world.submit(message("a", 1), message("b", 2))
    assert len(log) == 2
    world.settle()
    assert len(log) == 0


def test_qos_0_is_not_remembered_unless_it_was_published_at_more() -> None:
    world, log = watched()
    log.open()
    world.submit(message("a", 0))
    world.submit(message("b", 1), cap=0)
    world.settle()
    entry = log.find(name(2))
    assert len(log) == 1
    assert entry is not None
    assert (entry.sent is None, entry.ended) == (False, None)
    world.submit(message("c", 1))  # an answer proves that the broker has read what was written before
    world.settle()
    assert entry.ended is not None


def test_what_became_a_dead_letter_is_not_remembered() -> None:
    world, log = watched(ModelBroker(refused=lambda packet: packet.payload == b"bad"))
    log.open()
    world.submit(message("bad", 1), message("good", 1))
    world.settle()
    assert (log.find(name(1)), log.find(name(2)) is None) == (None, False)


def test_a_message_that_is_written_again_keeps_its_first_tick() -> None:
    world, log = watched()
    log.open()
    world.submit(message("a", 1))
    world.write()
    entry = log.find(name(1))
    assert entry is not None
    first = entry.sent
    world.cut()
    world.settle()
    assert entry.sent == first
    assert entry.ended is not None


def test_what_ended_is_remembered_until_the_last_cutover_that_may_ask_is_closed() -> None:
    log = InjectionLog()
    first = log.open()
    log.sent(name(1))
    log.ended(name(1))
    second = log.open()
    log.sent(name(2))
    log.ended(name(2))
    log.close(first)
    assert (log.find(name(1)), log.find(name(2)) is None) == (None, False)
    log.close(second)
    assert len(log) == 0


def test_beyond_its_capacity_what_ended_first_is_forgotten_and_counted() -> None:
    log = InjectionLog(capacity=3)
    log.open()
    log.queued(name(1))
    for sequence in (2, 3, 4, 5):
        log.sent(name(sequence))
        log.ended(name(sequence))
    assert [sequence for sequence in range(1, 6) if log.find(name(sequence))] == [1, 4, 5]
    assert log.forgotten == 2


def test_what_is_published_here_matters_only_while_a_client_comes_back() -> None:
    log = InjectionLog()
    log.own(name(1))
    assert len(log) == 0
    tick = log.open()
    log.own(name(2))
    entry = log.find(name(2))
    assert entry is not None
    assert entry.ended is not None
    assert (entry.sent, entry.ended > tick) == (0, True)


def test_what_happened_since_a_tick_is_found_without_looking_at_all_of_the_log() -> None:
    log = InjectionLog()
    log.open()
    first, second, third = (MessageId("p", 1, 0, sequence) for sequence in (1, 2, 3))
    for identifier in (first, second):
        log.queued(identifier)
        log.sent(identifier)
        log.ended(identifier)
    at = log.tick()
    log.queued(third)
    assert list(log.since(at)) == [log.find(third)]
    log.sent(third)
    log.ended(third)
    assert list(log.since(at)) == [log.find(third)]
    assert list(log.since(0)) == [log.find(third), log.find(second), log.find(first)]
