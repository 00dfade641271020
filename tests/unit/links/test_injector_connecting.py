"""How an injector begins and ends a connection: versions, sessions, refusals, keep-alive."""

import pytest

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.dead_letters import DeadLetters
from brokerweave.links.injector import BrokerAbilities, Injector, InjectorState
from brokerweave.links.outbox import Outbox
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import ConnAck, Connect, Disconnect, PingReq, SubAck
from brokerweave.mqtt.properties import Property, get_int
from tests.unit.links.model_broker import ModelBroker, World, message

V5 = BrokerAbilities(version=5)


def answer(world: World, packet: ConnAck | Disconnect | SubAck, version: int = 4) -> None:
    world.injector.receive(codec.encode(packet, version), world.now)


def test_the_connect_carries_name_password_and_keep_alive() -> None:
    injector = Injector(
        "n1", BrokerAbilities(), Outbox(1), DeadLetters(), username="u", password=b"p", keep_alive=12
    )
    packet = codec.decode(injector.connected(0.0), 0)
    assert packet == Connect("n1", 4, clean_start=False, keep_alive=12, username="u", password=b"p")


def test_nothing_is_published_before_the_broker_accepts() -> None:
    world = World()
    world.submit(message("a"))
    world.connect()
    assert world.injector.poll(world.now) == b""
    world.settle()
    assert world.broker.payloads() == [b"a"]


def test_a_broker_without_persistent_sessions_is_asked_for_none() -> None:
    world = World(abilities=BrokerAbilities(version=5, persistent_sessions=False))
    world.settle()
    world.cut()
    world.settle()
    assert [(c.clean_start, c.properties) for c in world.broker.connects] == [(True, ()), (True, ())]


def test_an_mqtt_5_session_starts_over_once_and_is_then_continued() -> None:
    world = World(abilities=V5)
    world.settle()
    world.cut()
    world.settle()
    assert [c.clean_start for c in world.broker.connects] == [True, False]
    assert get_int(world.broker.connects[0].properties, Property.SESSION_EXPIRY_INTERVAL) == 3600


def test_a_session_left_by_an_earlier_start_is_dropped_before_anything_is_published() -> None:
    """Its identifiers are unknown: the broker would take new messages for repetitions."""
    broker = ModelBroker(has_session=True, unreleased={1})
    world = World(broker)
    world.submit(message("a", 2))
    world.settle()
    assert broker.payloads() == [b"a"]
    assert [c.clean_start for c in broker.connects] == [False, True, False]


def test_a_session_that_was_not_asked_for_is_not_believed() -> None:
    for abilities in (V5, BrokerAbilities(persistent_sessions=False)):
        world = World(abilities=abilities)
        world.connect()
        answer(world, ConnAck(0, session_present=True), abilities.version)
        assert world.injector.state is InjectorState.READY


def test_a_refusal_is_told_in_one_line() -> None:
    world = World()
    world.connect()
    answer(world, ConnAck(0x05))
    assert world.injector.state is InjectorState.REFUSED
    assert world.injector.reason == "the broker refused the connection: not authorized"
    assert world.injector.wants_reconnect
    world.cut()
    assert world.injector.state is InjectorState.REFUSED


def test_a_3_1_1_broker_that_refuses_mqtt_5_is_asked_again_in_3_1_1() -> None:
    world = World(ModelBroker(versions=(4,)), V5)
    world.submit(message("a", 1))
    world.settle()
    assert [c.version for c in world.broker.connects] == [5, 4]
    assert world.broker.payloads() == [b"a"]
    assert world.injector.limits.version == 4


def test_the_mqtt_5_code_for_an_unsupported_version_leads_to_3_1_1_too() -> None:
    world = World(abilities=V5)
    world.connect()
    answer(world, ConnAck(0x84), 5)
    world.cut()
    world.settle()
    assert world.broker.connects[-1].version == 4


def test_a_broker_that_just_closes_on_mqtt_5_is_asked_in_3_1_1_and_then_again_in_5() -> None:
    world = World(abilities=V5)
    asked = []
    for _ in range(3):
        packet = codec.decode(world.injector.connected(world.now), 0)
        assert isinstance(packet, Connect)
        asked.append(packet.version)
        world.injector.disconnected(world.now)
    assert asked == [5, 4, 5]


def test_a_broker_known_to_speak_mqtt_5_may_close_early_without_losing_it() -> None:
    world = World(abilities=V5)
    world.settle()
    world.cut()
    world.connect()
    world.cut()
    world.settle()
    assert world.broker.connects[-1].version == 5


def test_connack_properties_override_what_was_known() -> None:
    properties = (
        (Property.RECEIVE_MAXIMUM, 3),
        (Property.MAXIMUM_QOS, 1),
        (Property.RETAIN_AVAILABLE, 0),
        (Property.MAXIMUM_PACKET_SIZE, 500),
        (Property.SERVER_KEEP_ALIVE, 4),
        (Property.ASSIGNED_CLIENT_IDENTIFIER, "given"),
    )
    world = World(ModelBroker(properties=properties), V5)
    world.settle()
    limits = world.injector.limits
    assert (limits.receive_maximum, limits.max_qos, limits.retain, limits.maximum_packet) == (
        3,
        1,
        False,
        500,
    )
    assert world.injector.client_id == "given"
    world.now += 2
    world.injector.tick(world.now)
    assert world.injector.poll(world.now) == codec.encode(PingReq(), 5)


def test_a_quiet_connection_is_kept_alive() -> None:
    world = World()
    world.settle()
    world.now += 14.9
    world.injector.tick(world.now)
    assert world.injector.poll(world.now) == b""
    world.pass_time(600)
    assert world.injector.state is InjectorState.READY
    assert not world.injector.wants_reconnect


def test_a_broker_that_answers_no_ping_is_given_up() -> None:
    world = World()
    world.settle()
    world.broker.silent = True
    world.pass_time(120)
    assert world.injector.wants_reconnect
    assert world.injector.reason == "the broker does not answer PINGREQ"


def test_a_broker_that_does_not_answer_connect_is_given_up() -> None:
    world = World()
    world.injector.connected(world.now)
    world.injector.tick(world.now + 29)
    assert not world.injector.wants_reconnect
    world.injector.tick(world.now + 30)
    assert world.injector.wants_reconnect


def test_a_message_that_is_never_acknowledged_asks_for_a_new_connection() -> None:
    world = World(ModelBroker(mute=lambda _: True))
    world.submit(message("a", 1))
    world.connect()
    world.turn()
    world.turn()
    world.pass_time(28)
    assert not world.injector.wants_reconnect
    world.pass_time(10)
    assert world.injector.reason == "the broker does not acknowledge a message"
    assert world.injector.wants_reconnect


@pytest.mark.parametrize(
    "data",
    [b"\x00\x00", b"\x40\x02\x00\x00", b"\x70\x01\x00", b"\x40\xff\xff\xff\xff\x01", b"\x90\x03\x00\x01\x00"],
)
def test_bytes_that_are_no_answer_raise(data: bytes) -> None:
    world = World()
    world.settle()
    with pytest.raises(RemoteProtocolError):
        world.injector.receive(data, world.now)
    assert world.injector.wants_reconnect


def test_a_first_packet_other_than_connack_raises() -> None:
    world = World()
    world.connect()
    with pytest.raises(RemoteProtocolError):
        world.injector.receive(b"\xd0\x00", world.now)


def test_an_answer_of_the_wrong_qos_raises() -> None:
    world = World(ModelBroker(mute=lambda _: True))
    world.submit(message("a", 1))
    world.connect()
    world.turn()
    world.turn()
    with pytest.raises(RemoteProtocolError):
        world.injector.receive(b"\x50\x02\x00\x01", world.now)


def test_closing_says_goodbye_and_blames_nobody() -> None:
    world = World(ModelBroker(mute=lambda _: True))
    world.submit(message("a", 1))
    world.connect()
    world.turn()
    world.turn()
    assert codec.decode(world.injector.close(), 4) == Disconnect()
    world.cut()
    assert not world.injector.careful
    assert world.injector.reason == "closed by this node"


def test_a_broker_that_says_it_shuts_down_makes_nobody_suspect() -> None:
    for code, careful in ((0x8B, False), (0x90, True)):
        world = World(ModelBroker(mute=lambda _: True), V5)
        world.submit(message("a", 1))
        world.connect()
        world.turn()
        world.turn()
        answer(world, Disconnect(code), 5)
        assert world.injector.wants_reconnect
        world.cut()
        assert world.injector.careful is careful
