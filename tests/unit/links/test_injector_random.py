"""Injector and broker over a wire that is cut at random: what QoS promises holds, and nothing gets stuck."""

from random import Random

import pytest

from brokerweave.links.injector import BrokerAbilities
from brokerweave.mqtt.packets import Publish
from brokerweave.mqtt.properties import Property
from tests.unit.links.model_broker import ModelBroker, World, message

SEEDS = range(60)


def storm(world: World, random: Random, steps: int, forgetful: bool, kinds: tuple[int, ...]) -> list[Publish]:
    """Random submissions, bytes moved bit by bit, cuts. Few cuts, so that no two hit one message alone."""
    sent: list[Publish] = []
    for _ in range(steps):
        world.now += random.random()
        if random.random() < 0.3:
            packets: list[Publish] = []
            for _ in range(random.randrange(1, 6)):
                topic = random.choice("uvw")
                packets.append(message(f"{len(sent) + len(packets):05}", random.choice(kinds), topic))
            sent += packets
            world.submit(*packets, version=random.choice((4, 5)))
        if not world.up:
            if random.random() < 0.5:
                world.connect()
            continue
        world.write()
        world.carry(random.choice((None, 1, 7, 50)), random.choice((None, 1, 3, 11)))
        if world.injector.wants_reconnect or random.random() < 0.02:
            world.cut()
            if forgetful and random.random() < 0.5:
                world.broker.forget()
    return sent


def in_order(taken: list[Publish]) -> bool:
    """Per topic; a repetition may come late, the first arrivals may not."""
    seen: set[bytes] = set()
    last: dict[str, bytes] = {}
    for packet in taken:
        if packet.payload not in seen:
            if packet.payload < last.get(packet.topic, b""):
                return False
            last[packet.topic] = packet.payload
            seen.add(packet.payload)
    return True


def world_of(random: Random, persistent: bool) -> World:
    window = random.choice((1, 2, 5, 20))
    version = random.choice((4, 5))
    properties = ((Property.RECEIVE_MAXIMUM, window),)
    broker = ModelBroker(persistent=persistent, window=window, properties=properties)
    return World(broker, BrokerAbilities(version, receive_maximum=window, persistent_sessions=persistent))


@pytest.mark.parametrize("persistent", [True, False])
def test_qos_1_arrives_at_least_once_and_qos_2_once_in_order_through_random_cuts(persistent: bool) -> None:
    cuts = 0
    for seed in SEEDS:
        random = Random(seed)
        world = world_of(random, persistent)
        sent = storm(world, random, 150, forgetful=False, kinds=(0, 1, 2))
        world.settle()
        taken = world.broker.taken
        payloads = [p.payload for p in taken]
        for packet in sent:
            count = payloads.count(packet.payload)
            if packet.qos == 0:
                assert count <= 1, seed
            else:
                assert count >= 1, seed
                assert packet.qos == 1 or count == 1 or not persistent, seed
        assert in_order(taken), seed
        assert len(world.dead) == 0, seed
        assert world.injector.in_flight == 0, seed
        cuts += len(world.broker.connects)
    assert cuts > 3 * len(SEEDS), "the storm was too weak to prove anything"


def test_nothing_is_stuck_or_lost_when_the_broker_forgets_sessions_now_and_then() -> None:
    for seed in SEEDS:
        random = Random(seed)
        world = world_of(random, persistent=True)
        sent = storm(world, random, 150, forgetful=True, kinds=(1, 2))
        world.settle()
        assert {p.payload for p in sent} == set(world.broker.payloads()), seed
        assert len(world.dead) == 0, seed
        assert in_order(world.broker.taken), seed


@pytest.mark.parametrize("version", [4, 5])
def test_exactly_the_poison_ends_in_the_dead_letters(version: int) -> None:
    for seed in SEEDS:
        random = Random(seed)
        broker = ModelBroker(
            persistent=random.random() < 0.7, deadly=lambda p: p.payload.startswith(b"poison")
        )
        if version == 5:
            broker.refused = lambda p: p.payload.startswith(b"unwanted")
        world = World(broker, BrokerAbilities(version))
        good: set[bytes] = set()
        bad: set[bytes] = set()
        for n in range(60):
            kind = random.choices(("plain", "poison", "unwanted"), (10, 1, version == 5))[0]
            packet = message(f"{kind}{n:05}", random.choice((1, 2)), random.choice("uvwxyz"))
            (good if kind == "plain" else bad).add(packet.payload)
            world.submit(packet)
            if random.random() < 0.3:
                world.settle()
        world.settle()
        assert {letter.frame[-len(p) :] for letter in world.dead.entries() for p in bad} >= bad, seed
        assert len(world.dead) == len(bad), seed
        assert set(broker.payloads()) == good, seed
