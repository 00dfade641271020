"""Stamps on what an injector publishes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerweave.links.injector import BrokerAbilities
from brokerweave.links.run import Run
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.properties import Property
from brokerweave.mqtt.scanner import split
from brokerweave.mqtt.stamp import Stamps
from tests.unit.links.model_broker import ModelBroker, World, message
from tests.unit.links.test_injector_crash import CrashingWorld

STAMPS = Stamps(b"the key of the tests")
PASSES = BrokerAbilities(version=5, user_properties=True)


class Numbered:
    """Names messages by their numbers."""

    def name_of(self, run: Run, offset: int) -> bytes:
        assert run.max_qos  # nobody asks for names of what gets none
        assert split(run.blob)[offset][0] >> 1 & 3
        return b"number %d" % (run.first + offset)


def world(abilities: BrokerAbilities = PASSES, broker: ModelBroker | None = None) -> World:
    made = World(broker, abilities)
    made.injector.stamp_with(Numbered(), STAMPS)
    return made


def taken(world: World) -> list[tuple[Publish, bytes | None]]:
    """What the broker has, without stamps, and these."""
    found = []
    for packet in world.broker.taken:
        frame, name = STAMPS.take_off(codec.encode(packet, 5))
        plain = codec.decode(frame, 5)
        assert isinstance(plain, Publish)
        found.append((replace(plain, packet_id=0), name))
    return found


def test_messages_of_qos_1_and_2_have_theirs_and_those_of_qos_0_none() -> None:
    at = world()
    at.submit(message("a", 1), message("b", 2), message("c"), version=5)
    at.submit(message("d"))
    at.settle()
    assert [(p.payload, name) for p, name in taken(at)] == [
        (b"a", b"number 1"),
        (b"b", b"number 2"),
        (b"c", None),
        (b"d", None),
    ]


@pytest.mark.parametrize("version", [4, 5])
def test_all_else_is_as_without(version: int) -> None:
    properties = ((Property.CONTENT_TYPE, "json"), (Property.USER_PROPERTY, ("bw", "own")))
    packets = [message("a", qos, properties=properties if version == 5 else ()) for qos in (1, 2)]
    stamped, plain = world(), World(None, PASSES)
    for each in (stamped, plain):
        each.submit(*packets, version=version)
        each.settle()
    assert [packet for packet, _ in taken(stamped)] == [replace(p, packet_id=0) for p in plain.broker.taken]


@pytest.mark.parametrize(
    "abilities", [BrokerAbilities(version=5), BrokerAbilities(version=4, user_properties=True)]
)
def test_a_broker_that_does_not_pass_user_properties_gets_none(abilities: BrokerAbilities) -> None:
    at = world(abilities)
    at.submit(message("a", 1))
    at.settle()
    assert [packet.properties for packet in at.broker.taken] == [()]


def test_a_broker_that_falls_back_to_3_1_1_gets_none() -> None:
    at = world(broker=ModelBroker(versions=(4,)))
    at.submit(message("a", 1))
    at.settle()
    assert at.broker.payloads() == [b"a"]
    assert not at.injector.limits.user_properties
    assert not at.dead.entries()


@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_repeated_has_the_same_stamp(qos: int) -> None:
    at = world(broker=ModelBroker(mute=lambda packet: not packet.dup))
    at.connect()
    at.turn()
    at.submit(message("a", qos), version=5)
    at.turn()
    at.cut()
    at.settle()
    first, again = at.broker.arrived
    assert again == replace(first, dup=True)
    assert taken(at)[0][1] == b"number 1"


def test_what_is_too_large_with_its_stamp_goes_without_and_is_counted() -> None:
    broker = ModelBroker(properties=((Property.MAXIMUM_PACKET_SIZE, 60),))
    at = world(broker=broker)
    at.submit(message(bytes(45), 1), message("small", 1), version=5)
    at.settle()
    assert [name for _, name in taken(at)] == [None, b"number 2"]
    assert at.injector.counters.unstamped == 1
    assert not at.dead.entries()


def test_an_expiry_is_still_reduced() -> None:
    at = world()
    at.submit(message("a", 1, properties=((Property.MESSAGE_EXPIRY_INTERVAL, 60),)), version=5, age=10)
    at.settle()
    ((packet, name),) = taken(at)
    assert packet.properties == ((Property.MESSAGE_EXPIRY_INTERVAL, 50),)
    assert name == b"number 1"


def test_a_copied_stamp_from_another_site_is_replaced() -> None:
    at = world()
    copied = codec.decode(STAMPS.stamp(codec.encode(message("a", 1), 5), b"copied"), 5)
    assert isinstance(copied, Publish)
    at.submit(copied, version=5)
    at.settle()
    assert [name for _, name in taken(at)] == [b"number 1"]


def test_what_the_broker_refuses_is_a_dead_letter_without_a_stamp() -> None:
    at = world(broker=ModelBroker(refused=lambda packet: True))
    run = at.submit(message("a", 1), version=5)
    at.settle()
    (letter,) = at.dead.entries()
    assert letter.frame == run.blob


def test_what_was_in_flight_when_the_node_was_killed_has_the_stamp_that_it_had() -> None:
    at = CrashingWorld(abilities=PASSES)
    at.injector.stamp_with(Numbered(), STAMPS)
    at.settle()
    at.submit(message("a", 1), version=5)
    at.write()
    at.crash()
    at.injector.stamp_with(Numbered(), STAMPS)
    at.settle()
    assert [(p.payload, name) for p, name in taken(at)] == [(b"a", b"number 1")]
