"""What an injector writes for what was submitted, and when it is done with it."""

from dataclasses import replace

import pytest

from brokerweave.links.injector import BrokerAbilities
from brokerweave.links.outbox import Outbox
from brokerweave.links.run import Run
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.properties import Property
from tests.unit.links.model_broker import ModelBroker, World, make_run, message

V5 = BrokerAbilities(version=5)
EXPIRY = Property.MESSAGE_EXPIRY_INTERVAL
TYPED = ((Property.CONTENT_TYPE, "json"),)


def ready(broker: ModelBroker | None = None, abilities: BrokerAbilities | None = None) -> World:
    world = World(broker, abilities)
    world.settle()
    return world


def test_a_run_of_qos_0_is_written_as_it_is() -> None:
    world = ready()
    run = world.submit(message("a"), message("b", topic="u"), message(b"\x00\x01"))
    assert world.injector.poll(world.now) == run.blob
    assert world.injector.idle
    assert world.injector.counters.injected == [3, 0, 0]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_age_of_each_message_is_counted_when_the_broker_has_it(qos: int) -> None:
    world = ready()
    world.submit(message("a", qos), message("b", qos))
    world.now += 3.0
    world.settle()
    counters = world.injector.counters
    assert counters.timed == 2
    assert counters.latency_seconds == pytest.approx(6.0, rel=0.01)


@pytest.mark.parametrize("qos", [0, 1])
def test_what_repairs_a_brokers_retained_messages_has_no_latency(qos: int) -> None:
    world = ready()
    world.injector.submit(replace(make_run((message("a", qos),), 4, 2, world.now - 1000, 1), repair=True))
    world.settle()
    counters = world.injector.counters
    assert counters.injected[qos] == 1
    assert (counters.timed, counters.latency_seconds) == (0, 0.0)


def test_a_run_of_another_version_is_converted() -> None:
    world = ready()
    world.submit(message("a", properties=TYPED), message("b"), version=5)
    world.settle()
    assert world.broker.taken == [Publish("t", b"a"), Publish("t", b"b")]
    assert world.injector.counters.properties_dropped == 1


def test_a_run_to_an_mqtt_5_broker_gets_empty_properties() -> None:
    world = ready(abilities=V5)
    world.submit(message("a"), message("b", 1), version=4)
    world.settle()
    assert world.broker.payloads() == [b"a", b"b"]
    assert world.injector.counters.properties_dropped == 0


def test_properties_reach_an_mqtt_5_broker_unchanged() -> None:
    world = ready(abilities=V5)
    properties = (*TYPED, (Property.USER_PROPERTY, ("k", "v")), (EXPIRY, 60))
    for qos in (0, 1, 2):
        world.submit(message("a", qos, properties=properties), version=5)
    world.settle()
    assert [p.properties for p in world.broker.taken] == [properties] * 3


@pytest.mark.parametrize("qos", [1, 2])
def test_dropped_properties_are_counted_by_message(qos: int) -> None:
    world = ready()
    world.submit(message("a", qos, properties=TYPED), message("b", qos), version=5)
    world.settle()
    assert world.broker.payloads() == [b"a", b"b"]
    assert world.injector.counters.properties_dropped == 1


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_expiry_is_reduced_by_the_time_spent_waiting(qos: int) -> None:
    world = ready(abilities=V5)
    world.submit(message("a", qos, properties=(*TYPED, (EXPIRY, 60))), version=5, age=20.5)
    world.settle()
    assert [p.properties for p in world.broker.taken] == [(*TYPED, (EXPIRY, 40))]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_an_expired_message_is_not_injected(qos: int, version: int) -> None:
    world = ready(abilities=BrokerAbilities(version))
    late = message("late", qos, properties=((EXPIRY, 20),))
    world.submit(late, message("in time", qos), version=5, age=20.0)
    world.settle()
    assert world.broker.payloads() == [b"in time"]
    assert world.injector.counters.expired == 1


def test_frames_keep_their_order_whatever_their_qos() -> None:
    broker = ModelBroker(window=2)
    world = ready(broker, BrokerAbilities(receive_maximum=2))
    expected = []
    for n in range(40):
        expected += [f"{n}.{i}".encode() for i in range(3)]
        world.submit(*(message(f"{n}.{i}", (n + i) % 3) for i in range(3)))
        world.submit(message(f"{n} whole"))
        expected.append(f"{n} whole".encode())
    world.settle()
    assert broker.payloads() == expected
    assert world.injector.counters.resent == 0


def test_no_more_is_in_flight_than_the_window() -> None:
    broker = ModelBroker(silent=True)
    world = ready(broker, BrokerAbilities(receive_maximum=5))
    world.submit(*(message(str(n), 1 + n % 2) for n in range(20)), message("last"))
    for _ in range(3):
        world.turn()
    assert len(broker.arrived) == world.injector.in_flight == 5


@pytest.mark.parametrize(("cap", "max_qos"), [(0, 2), (1, 2), (2, 1), (2, 0), (1, 0)])
def test_qos_is_lowered_to_what_is_wanted_and_what_the_broker_can(cap: int, max_qos: int) -> None:
    world = ready(abilities=BrokerAbilities(max_qos=max_qos))
    world.submit(*(message(str(qos), qos) for qos in range(3)), cap=cap)
    world.settle()
    assert [p.qos for p in world.broker.taken] == [min(qos, cap, max_qos) for qos in range(3)]
    lowered = sum(min(qos, cap) > max_qos for qos in range(3))
    assert world.injector.counters.downgraded_qos == lowered


def test_retain_is_kept_where_the_broker_has_it() -> None:
    world = ready()
    world.submit(Publish("t", b"a", retain=True), Publish("t", b"b", 1, retain=True, packet_id=1))
    world.submit(Publish("t", b"c", retain=True))
    world.settle()
    assert [p.retain for p in world.broker.taken] == [True, True, True]


def test_retain_is_dropped_and_counted_where_the_broker_has_none() -> None:
    world = ready(ModelBroker(properties=((Property.RETAIN_AVAILABLE, 0),)), V5)
    world.submit(Publish("t", b"a", retain=True), message("b"))
    world.submit(Publish("t", b"c", 2, retain=True, packet_id=1))
    world.settle()
    assert [(p.payload, p.retain) for p in world.broker.taken] == [
        (b"a", False),
        (b"b", False),
        (b"c", False),
    ]
    assert world.injector.counters.retain_dropped == 2


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_too_large_for_the_broker_is_a_dead_letter_and_never_sent(qos: int) -> None:
    world = ready(ModelBroker(properties=((Property.MAXIMUM_PACKET_SIZE, 100),)), V5)
    world.submit(message("a", qos), message("x" * 100, qos), message("b", qos))
    world.settle()
    assert [p.payload for p in world.broker.arrived] == [b"a", b"b"]
    assert [(d.topic, d.qos, d.size > 100) for d in world.dead.entries()] == [("t", qos, True)]
    assert world.injector.counters.dead_letters == 1


def test_a_run_is_acknowledged_when_its_last_message_is_complete_and_not_before_earlier_runs() -> None:
    stuck = [b"a2"]
    broker = ModelBroker(mute=lambda p: p.payload in stuck)
    world = ready(broker)
    world.submit(message("a1", 1), message("a2", 1))
    world.submit(message("b", 2))
    world.submit(message("c"))
    for _ in range(5):
        world.turn()
    assert world.outbox.backlog_runs == 3
    stuck.clear()
    world.cut()
    world.settle()
    assert world.outbox.backlog_runs == 0
    assert world.injector.counters.injected == [1, 2, 1]


def test_a_full_outbox_drops_what_is_submitted() -> None:
    world = World(outbox=Outbox(1, memory_bytes=300))
    world.submit(message("a"))
    run = Run("elsewhere", 1, 2, 1, 4, 0, 2, world.now, b"\x30\x04\x00\x01tb")
    assert not world.injector.submit(run)
    world.settle()
    assert world.broker.payloads() == [b"a"]


def test_a_run_that_cannot_be_read_is_a_dead_letter() -> None:
    world = ready()
    assert world.injector.submit(Run("elsewhere", 1, 1, 1, 4, 1, 2, world.now, b"\x32\x7f\x00\x01t"))
    assert world.injector.submit(Run("elsewhere", 1, 2, 1, 5, 0, 2, world.now, b"\x30\x04\x00\x01t\x7f"))
    world.submit(message("after", 1))
    world.settle()
    assert world.broker.payloads() == [b"after"]
    assert len(world.dead) == 2


def test_one_poll_gives_about_its_budget() -> None:
    world = ready()
    for n in range(100):
        world.submit(message(str(n) * 10))
    size = len(world.injector.poll(world.now, 200))
    assert 200 <= size < 300
