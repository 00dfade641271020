"""Refused messages, connections that die over a message, and brokers that merely restart."""

import pytest

from brokerweave.links.injector import BrokerAbilities
from brokerweave.links.sender import UNPROVEN
from brokerweave.links.suspects import CAPACITY, HOLD, QUARANTINE_AFTER, Suspects, SuspectVerdict
from brokerweave.mqtt.packets import Publish
from tests.unit.links.model_broker import ModelBroker, World, message

V5 = BrokerAbilities(version=5)
PING = b"\xc0\x00"


def poison(packet: Publish) -> bool:
    return packet.payload.startswith(b"poison")


def dead(world: World) -> list[bytes]:
    return [letter.frame[-7:] for letter in world.dead.entries()]


@pytest.mark.parametrize("qos", [1, 2])
def test_a_refused_message_is_tried_once_more_and_then_a_dead_letter(qos: int) -> None:
    world = World(ModelBroker(refused=poison), V5)
    world.submit(message("a", qos), message("poison1", qos), message("b", qos))
    world.settle()
    assert sorted(world.broker.payloads()) == [b"a", b"b"]
    assert [p.payload for p in world.broker.arrived].count(b"poison1") == 2
    assert [(d.topic, d.qos, d.reason) for d in world.dead.entries()] == [
        ("t", qos, "the broker refused it: reason 0x87")
    ]
    assert world.injector.counters.injected[qos] == 2


def test_a_message_refused_once_gets_through() -> None:
    world = World(ModelBroker(refused=lambda p: len(world.broker.arrived) == 1), V5)
    world.submit(message("a", 1))
    world.settle()
    assert world.broker.payloads() == [b"a"]
    assert len(world.dead) == 0


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_that_kills_the_connection_is_found_out_and_the_others_pass(
    qos: int, persistent: bool
) -> None:
    broker = ModelBroker(persistent=persistent, deadly=poison)
    world = World(broker)
    world.submit(*(message("poison1" if n == 5 else f"{n}", qos) for n in range(12)))
    world.settle()
    assert set(broker.payloads()) == {f"{n}".encode() for n in range(12) if n != 5}
    assert dead(world) == [b"poison1"]
    assert broker.deaths == 3, "once among others, twice alone"
    if persistent and qos == 2:
        assert len(broker.payloads()) == 11


def test_suspects_go_one_at_a_time_and_then_everything_as_before() -> None:
    broker = ModelBroker(silent=True)
    world = World(broker)
    world.submit(*(message(str(n), 1) for n in range(4)))
    world.connect()
    world.turn()
    world.turn()
    assert len(broker.arrived) == 4
    world.cut()
    assert world.injector.careful
    world.connect()
    world.turn()
    world.turn()
    world.turn()
    assert [p.payload for p in broker.arrived[4:]] == [b"0"]
    broker.silent = False
    world.cut()
    world.settle()
    assert not world.injector.careful
    assert broker.payloads() == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_broker_that_restarts_once_makes_no_dead_letter(qos: int) -> None:
    """At any moment of a busy exchange, and again while it is in careful mode with another message."""
    for moment in range(1, 30):
        world = World()
        world.submit(*(message(str(n), qos) for n in range(6)))
        world.connect()
        for _ in range(moment):
            if world.up:
                world.write()
                world.carry(to_broker=9, to_injector=3)
        world.broker.forget()
        world.cut()
        world.submit(message("after", qos))
        world.settle()
        assert len(world.dead) == 0
        assert b"after" in world.broker.payloads()


def test_connections_that_fail_before_connack_count_against_nobody() -> None:
    world = World(ModelBroker(silent=True))
    world.submit(message("a", 1))
    world.connect()
    world.turn()
    world.turn()
    for _ in range(5):
        world.cut()
        world.connect()
    world.broker.silent = False
    world.settle()
    assert world.broker.payloads() == [b"a"]
    assert len(world.dead) == 0


def test_a_broker_that_hangs_as_a_whole_makes_no_dead_letter() -> None:
    world = World(ModelBroker(silent=True))
    world.submit(message("a", 1))
    for _ in range(4):
        world.connect()
        world.turn()
        world.turn()
        world.pass_time(60)
        assert world.injector.wants_reconnect
        world.cut()
    world.broker.silent = False
    world.settle()
    assert len(world.dead) == 0


def test_a_message_that_a_living_broker_never_acknowledges_ends_as_a_dead_letter() -> None:
    world = World(ModelBroker(mute=poison))
    world.submit(message("poison1", 1), message("b", 1))
    for _ in range(3):
        world.connect()
        world.turn()
        world.turn()
        world.pass_time(60)
        world.cut()
    world.settle()
    assert dead(world) == [b"poison1"]
    assert b"b" in world.broker.payloads()


def test_qos_0_is_never_repeated() -> None:
    broker = ModelBroker(deadly=poison)
    world = World(broker)
    world.submit(message("a"), message("poison1"), message("b"))
    world.submit(message("c", 1))
    world.settle()
    assert [p.payload for p in broker.arrived] == [b"a", b"poison1", b"c"]
    assert world.injector.counters.maybe_lost_qos0 == 3


def test_a_topic_whose_qos_0_messages_kill_is_found_out_without_taking_others_along() -> None:
    """As a broker does that cannot stand a character in the topic."""
    broker = ModelBroker(deadly=lambda p: p.topic == "bad.topic")
    world = World(broker)
    world.submit(message("a"), message("poison0", topic="bad.topic"))
    world.settle()
    for n in range(20):
        world.submit(message(f"x{n}"), message(f"poison{n}", topic="bad.topic"), message(f"y{n}"))
        world.settle()
    wanted = [b"a", *(f"{side}{n}".encode() for n in range(20) for side in "xy")]
    assert broker.payloads() == wanted
    assert broker.deaths == 1 + QUARANTINE_AFTER, "then the topic is in quarantine"
    assert world.injector.counters.maybe_lost_qos0 == broker.deaths + 1, "and what was before the first"
    assert [letter.topic for letter in world.dead.entries()] == ["bad.topic"] * 19


def test_a_topic_in_quarantine_is_tried_again_later() -> None:
    deadly = [True]
    broker = ModelBroker(deadly=lambda p: deadly[0] and p.topic == "bad")
    world = World(broker)
    for n in range(8):
        world.submit(message(f"poison{n}", 1, topic="bad"))
    world.settle()
    assert len(world.dead) == 8
    deaths = broker.deaths
    deadly[0] = False
    world.submit(message("too early", 1, topic="bad"))
    world.settle()
    assert broker.deaths == deaths
    assert broker.payloads() == []
    world.now += HOLD
    world.submit(message("healed1", 1, topic="bad"), message("healed2", 1, topic="bad"))
    world.settle()
    assert broker.payloads() == [b"healed1", b"healed2"]


def test_without_a_session_what_the_broker_had_taken_is_not_sent_again() -> None:
    world = World()
    world.submit(message("taken", 2), message("not yet", 2))
    world.connect()
    world.turn()
    world.write()
    world.carry(to_injector=4)  # one PUBREC
    world.broker.forget()
    world.cut()
    world.broker.taken.clear()
    world.broker.forget()
    world.settle()
    assert world.broker.payloads() == [b"not yet"]
    assert not world.broker.taken[0].dup
    assert world.injector.counters.injected == [0, 0, 2]


def test_with_a_session_everything_goes_on_under_its_identifier() -> None:
    world = World()
    world.submit(message("taken", 2), message("not yet", 2), message("one", 1))
    world.connect()
    world.turn()
    world.write()
    world.carry(to_injector=4)  # one PUBREC
    before = [p.packet_id for p in world.broker.arrived]
    world.cut()
    world.settle()
    again = world.broker.arrived[3:]
    assert [(p.payload, p.packet_id, p.dup) for p in again] == [
        (b"not yet", before[1], True),
        (b"one", before[2], True),
    ]
    assert world.broker.payloads() == [b"taken", b"not yet", b"one", b"one"]
    assert world.broker.unreleased == set()
    assert world.injector.counters.resent == 2


def test_a_message_goes_alone_only_when_nothing_unproven_is_before_it() -> None:
    """Or it would be blamed for a QoS 0 message that was just written."""
    broker = ModelBroker(deadly=lambda p: p.topic == "bad")
    world = World(broker)
    world.settle()
    world.submit(message("a", topic="u"), message("b", topic="bad"))
    world.turn()
    assert not world.up
    world.settle()
    world.submit(message("unproven", topic="v"))
    world.submit(message("alone", 1, topic="u"))
    first = world.injector.poll(world.now)
    assert b"unproven" in first
    assert b"alone" not in first
    assert first.endswith(PING)
    assert world.injector.poll(world.now) == b""
    world.injector.receive(b"\xd0\x00", world.now)
    assert b"alone" in world.injector.poll(world.now)


def test_a_message_that_the_broker_has_taken_is_not_to_blame_for_a_later_death() -> None:
    world = World(ModelBroker(silent=True))
    world.submit(message("a", 2))
    for _ in range(2):  # among others, then alone: one attempt
        world.connect()
        world.turn()
        world.turn()
        world.cut()
    world.broker.silent = False
    world.connect()
    world.turn()
    world.turn()  # PUBREC has come, PUBREL has not gone
    world.cut()
    world.settle()
    assert len(world.dead) == 0
    assert world.broker.payloads() == [b"a"]


def test_an_identifier_given_up_is_not_used_again_while_the_broker_may_know_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The model broker fails if a new message comes under an identifier that it keeps for an old one."""
    monkeypatch.setattr("brokerweave.links.inflight.MAX_PACKET_ID", 20)

    def known_and_deadly(packet: Publish) -> bool:
        if poison(packet):
            broker.unreleased.add(packet.packet_id)
        return poison(packet)

    broker = ModelBroker(deadly=known_and_deadly)
    world = World(broker)
    world.submit(message("poison1", 2))
    world.settle()
    assert dead(world) == [b"poison1"]
    world.submit(*(message(str(n), 2) for n in range(50)))
    world.settle()
    assert len(broker.payloads()) == 50


def test_a_refused_message_is_tried_again_before_what_was_not_yet_sent() -> None:
    broker = ModelBroker(refused=lambda p: len(broker.arrived) == 1, window=1)
    world = World(broker, BrokerAbilities(version=5, receive_maximum=1))
    world.submit(message("a", 1), message("b", 1))
    world.settle()
    assert broker.payloads() == [b"a", b"b"]


def test_qos_0_that_the_broker_has_read_is_not_under_suspicion() -> None:
    """The answer to a later message proves it."""
    world = World()
    world.submit(message("a", topic="x"), message("b", 1, topic="y"))
    world.settle()
    world.cut()
    world.settle()
    run = world.submit(message("c", topic="x"))
    assert world.injector.poll(world.now) == run.blob


def test_a_ping_asks_for_a_proof_when_much_qos_0_was_written() -> None:
    world = World()
    world.settle()
    for _ in range(UNPROVEN // 2 - 1):
        run = world.submit(message("a"))
        assert world.injector.poll(world.now) == run.blob
    run = world.submit(message("a"))
    assert world.injector.poll(world.now) == run.blob + PING


def test_a_topic_that_comes_out_of_quarantine_has_one_attempt() -> None:
    suspects = Suspects()
    for _ in range(QUARANTINE_AFTER):
        assert suspects.verdict(b"t", 0.0) is not SuspectVerdict.QUARANTINED
        suspects.blame(b"t", 0.0)
    assert suspects.verdict(b"t", HOLD - 1) is SuspectVerdict.QUARANTINED
    assert suspects.verdict(b"t", HOLD) is SuspectVerdict.ALONE
    assert suspects.verdict(b"t", HOLD + 1) is SuspectVerdict.ALONE
    suspects.blame(b"t", HOLD + 1)
    assert suspects.verdict(b"t", HOLD + 2) is SuspectVerdict.QUARANTINED


def test_a_pubrec_that_the_broker_repeats_by_itself_spares_the_message() -> None:
    world = World()
    world.submit(message("a", 2), message("b", 2))
    world.connect()
    world.turn()
    world.write()
    world.carry(to_injector=0)
    world.cut()
    world.connect()
    world.carry()
    world.injector.receive(b"\x50\x02\x00\x02", world.now)
    world.settle()
    assert [(p.payload, p.dup) for p in world.broker.arrived] == [(b"a", False), (b"b", False), (b"a", True)]
    assert world.broker.payloads() == [b"a", b"b"]
    assert world.injector.in_flight == 0


def test_suspicion_passes_with_time_and_is_bounded() -> None:
    suspects = Suspects()
    for n in range(CAPACITY + 10):
        suspects.suspect(b"%d" % n, 0.0)
    assert len(suspects) == CAPACITY
    assert suspects.verdict(b"0", 0.0) is SuspectVerdict.TRUSTED
    assert suspects.verdict(b"500", 0.0) is SuspectVerdict.ALONE
    suspects.forget_old(HOLD)
    assert len(suspects) == 0
