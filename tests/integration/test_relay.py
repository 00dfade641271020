"""What a client sees of a node between itself and its broker: nothing, and what a node does not let it do."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from brokerweave.lab.node import LabNode
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import (
    Connect,
    Disconnect,
    Packet,
    PingReq,
    PubAck,
    PubComp,
    Publish,
    PubRec,
    PubRel,
    SubAck,
    Subscribe,
    Subscription,
    Unsubscribe,
)
from tests.integration.conftest import Connect as Connects
from tests.support.raw import FakeBroker, RawClient
from tests.support.sites import QUICK, Network, merged, network, start_broker
from tests.support.verdicts import in_order
from tests.support.waiting import LIMIT, wait_until

PASSWORDS = {"ann": "secret", "node": "of its own"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    """Site a asks for passwords; site b takes anyone."""
    password_file: Path = tmp_path_factory.mktemp("keys") / "password"
    password_file.write_text(PASSWORDS["node"])
    own = {"node": {"broker_username": "node", "broker_password_file": str(password_file)}}
    broker = start_broker("mosquitto", passwords=PASSWORDS)
    with network([("a", "b")], brokers={"a": broker}, settings=merged(QUICK, own)) as net:
        yield net
    broker.close()


@pytest.fixture(scope="module")
def narrow() -> Iterator[Network]:
    """One site with small limits."""
    limits = {"max_packet": 65_536, "client_queue": 65_536, "max_connections": 6, "connect_timeout": 0.3}
    with network([], alone=["a"], settings={**QUICK, "limits": limits}) as net:
        yield net


def still_serves(net: Network, connect: Connects, name: str = "a") -> None:
    client = connect(net.port(name))
    client.subscribe("still/there")
    client.publish("still/there", b"yes")
    client.wait_for_payload(b"yes")
    client.close()


# Transparency

Script = list[tuple[list[Packet], int]]
"""What to send, and how many packets come back."""

SCRIPT: Script = [
    ([Subscribe(1, (Subscription("t/#", 2), Subscription("u", 1)))], 1),
    ([Publish("t/0", b"zero"), Publish("t/1", b"one", 1, packet_id=7)], 3),
    ([PubAck(1)], 0),
    ([Publish("t/2", b"two" * 3000, 2, packet_id=8)], 1),
    ([PubRel(8)], 2),
    ([PubRec(2)], 1),
    ([PubComp(2), PingReq()], 1),
    ([Publish("u", b"kept", 1, retain=True, packet_id=9)], 2),
    ([PubAck(3), Unsubscribe(10, ("t/#",)), Subscribe(11, (Subscription("u"),))], 3),
    ([Publish("u", b"", 1, retain=True, packet_id=12)], 2),
    ([Disconnect()], 0),
]


def said_by(port: int, version: int) -> list[bytes]:
    """All that the other side says to the script, byte for byte."""
    connect = Connect("the-same", version, clean_start=True, keep_alive=60)
    with RawClient(port) as client:
        client.send(connect, version=version)
        answers = [client.read_packets(1)]
        for packets, count in SCRIPT:
            client.send(*packets, version=version)
            answers.append(client.read_packets(count))
        return [*answers, client.read_to_end()]


@pytest.mark.parametrize("version", [4, 5])
def test_a_node_says_byte_for_byte_what_its_broker_says(version: int) -> None:
    with network([], alone=["a"]) as net:
        direct = said_by(net["a"].broker.port, version)
        relayed = said_by(net.port("a"), version)
    assert relayed == direct
    assert [len(answer) for answer in direct].count(0) == 3  # the script is answered: a test of something


@pytest.mark.parametrize("version", [4, 5])
def test_a_broker_gets_byte_for_byte_what_a_client_sent_however_it_is_cut(version: int) -> None:
    connect = Connect("cut-up", version, keep_alive=60)
    sent = b"".join(codec.encode(p, version) for p in [connect, *(p for step, _ in SCRIPT for p in step)])
    with (
        FakeBroker() as broker,
        network([], alone=["a"], brokers={"a": broker}) as net,
        RawClient(net.port("a")) as client,
    ):
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(sent), 7):
            client.socket.sendall(sent[start : start + 7])
        wait_until(lambda: broker.heard_from("cut-up") == sent, "every byte at the broker")


# A broker that is away, and the end of a pair


@pytest.mark.parametrize(("version", "code"), [(4, 0x03), (5, 0x88)])
def test_while_the_broker_is_away_clients_are_told_so_and_when_it_is_back_they_are_served(
    version: int, code: int, connect: Connects
) -> None:
    with network([], alone=["a"]) as net:
        broker = net["a"].broker
        assert not isinstance(broker, FakeBroker)
        broker.stop(kill=True)
        with RawClient(net.port("a")) as client:
            client.send(Connect("early", version), version=version)
            refusal = codec.decode(client.read_to_end(), version)
        assert getattr(refusal, "reason_code", None) == code
        assert net.node("a").status()["counters"]["broker_unreachable"] == 1
        broker.start()
        still_serves(net, connect)


def test_a_node_starts_before_its_broker_does(connect: Connects) -> None:
    with network([], alone=["later"]) as net:
        broker = net["later"].broker
        assert not isinstance(broker, FakeBroker)
        broker.stop()
        with LabNode("a", broker.port, settings=QUICK) as node:
            assert not node.status()["node"]["broker"]["reachable"]
            broker.start()
            node.wait_for_links(0)
            client = connect(node.port)
            client.subscribe("t")
            client.publish("t", b"1")
            client.wait_for_payload(b"1")


def test_a_client_that_dies_takes_its_broker_session_along(guarded: Network, connect: Connects) -> None:
    login = ("ann", "secret")
    witness = connect(guarded["a"].broker.port, login=login)
    witness.subscribe("last/words")
    client = connect(guarded.port("a"), login=login, will=("last/words", b"gone", 0, False))
    client.cut()
    witness.wait_for_payload(b"gone")  # only the end of the broker session makes the broker say so
    guarded.node("a").wait_for(lambda status: status["sessions"]["open"] == 0, "the end of the pair")


def test_a_broker_that_dies_takes_its_clients_along_and_no_node(connect: Connects) -> None:
    with network([], alone=["a"]) as net:
        broker = net["a"].broker
        assert not isinstance(broker, FakeBroker)
        client = connect(net.port("a"))
        broker.stop(kill=True)
        assert client.ended.wait(LIMIT)
        net.node("a").wait_for(lambda status: status["sessions"]["open"] == 0, "the end of the pair")
        broker.start()
        still_serves(net, connect)


# Admission


def test_nothing_of_a_client_with_a_wrong_password_reaches_a_link(
    guarded: Network, connect: Connects
) -> None:
    far = connect(guarded.port("b"))
    far.subscribe("#", 1)
    guarded.settle()
    before = guarded.crossed()
    with RawClient(guarded.port("a")) as stranger:
        early = [Publish("t", b"forged", qos, packet_id=qos) for qos in (0, 1, 2)]
        kept = Publish("t", b"forged", retain=True)
        stranger.send(Connect("stranger", username="ann", password=b"guess"), *early, kept)
        assert stranger.read_packets(1) == b"\x20\x02\x00\x05"
        stranger.read_to_end()
    honest = connect(guarded.port("a"), login=("ann", "secret"))
    honest.publish("t", b"true", qos=1)
    far.wait_for_payload(b"true")
    in_order(far.payloads(), [b"true"])
    assert guarded.crossed() - before == {("a", "b"): 1}
    assert guarded.node("a").status()["counters"]["refused_publications"] == 4


def test_what_is_sent_before_connack_is_forwarded_once_the_client_is_accepted(
    guarded: Network, connect: Connects
) -> None:
    far = connect(guarded.port("b"))
    far.subscribe("hasty/#", 1)
    guarded.settle()
    with RawClient(guarded.port("a")) as client:
        early = [Publish("hasty/t", b"%d" % n, 1, packet_id=n) for n in (1, 2, 3)]
        client.send(Connect("hasty", username="ann", password=b"secret"), *early)
        far.wait_for(lambda received: len(received) >= 3)
    in_order(far.payloads(), [b"1", b"2", b"3"])


def test_a_will_of_a_refused_client_goes_nowhere(guarded: Network, connect: Connects) -> None:
    far = connect(guarded.port("b"))
    far.subscribe("will/#", 1)
    guarded.settle()
    before = guarded.crossed()
    will = ("will/of/stranger", b"forged", 1, False)
    refused = connect(guarded.port("a"), login=("ann", "guess"), will=will, expect_refusal=True)
    assert refused.code == 0x87  # as paho calls 3.1.1's code 5, not authorized
    connect(guarded.port("a"), login=("ann", "secret")).publish("will/end", b"end", qos=1)
    far.wait_for_payload(b"end")
    in_order(far.payloads(), [b"end"])
    assert guarded.crossed() - before == {("a", "b"): 1}


def test_a_filter_that_the_broker_refuses_is_asked_of_nobody(connect: Connects) -> None:
    def deny(packet: Packet) -> Packet | None:
        if not isinstance(packet, Subscribe):
            return None
        codes = tuple(0x80 if each.topic_filter == "secret" else each.qos for each in packet.subscriptions)
        return SubAck(packet.packet_id, codes)

    with FakeBroker(deny) as broker, network([("a", "b")], brokers={"a": broker}) as net:
        client = connect(net.port("a"))
        assert client.subscribe("secret", 1) == 0x80
        assert client.subscribe("public", 1) == 1
        net.settle()
        assert net.node("a").status()["filters"]["local"] == 1
        assert net.node("b").link("a")["filters_from"] == 1
        publisher = connect(net.port("b"))
        publisher.publish("secret", b"1", qos=1)
        publisher.publish("public", b"2", qos=1)
        wait_until(lambda: net.crossed() == {("b", "a"): 1, ("a", "b"): 0}, "only what was granted")


# Limits


def test_a_subscriber_that_stops_reading_costs_bounded_memory_and_slows_nobody(
    narrow: Network, connect: Connects
) -> None:
    node = psutil.Process(narrow.node("a").pid)
    with RawClient(narrow.port("a"), receive_buffer=4096) as stuck:
        stuck.send(Connect("stuck"), Subscribe(1, (Subscription("flood"),)))
        stuck.read_packets(2)
        reader, publisher = connect(narrow.port("a")), connect(narrow.port("a"))
        reader.subscribe("flood", 1)
        payload = bytes(16_384)
        publisher.publish_all("flood", [payload] * 50, qos=1)
        reader.wait_for(lambda received: len(received) == 50)
        before = node.memory_info().rss
        for turn in range(2, 41):
            publisher.publish_all("flood", [payload] * 50, qos=1)
            reader.wait_for(lambda received, turn=turn: len(received) == 50 * turn)  # type: ignore[misc]
        assert narrow.node("a").status()["counters"]["client_pauses"] >= 1
        assert node.memory_info().rss - before < 8 << 20  # of 32 MiB that the stuck one did not read


def test_a_packet_larger_than_the_limit_ends_only_its_sender(narrow: Network, connect: Connects) -> None:
    bystander = connect(narrow.port("a"))
    bystander.subscribe("t")
    with RawClient(narrow.port("a")) as client:
        client.send(Connect("large", version=5), version=5)
        client.read_packets(1)
        # Its length alone is enough: a node does not wait for what it will not take.
        client.socket.sendall(b"\x30\xff\xff\x7f")
        assert client.read_to_end()[:3] == b"\xe0\x01\x95"
    bystander.publish("t", b"1")
    bystander.wait_for_payload(b"1")


def test_one_client_more_than_allowed_is_refused_until_another_leaves(
    narrow: Network, connect: Connects
) -> None:
    clients = [connect(narrow.port("a")) for _ in range(6)]
    with RawClient(narrow.port("a")) as one_more:
        assert one_more.read_to_end() == b""
    clients[0].close()
    narrow.node("a").wait_for(lambda status: status["sessions"]["open"] == 5, "a free place")
    still_serves(narrow, connect)


def test_a_connection_that_says_nothing_is_closed(narrow: Network, connect: Connects) -> None:
    before = narrow.node("a").status()["counters"].get("connect_timeouts", 0)
    with RawClient(narrow.port("a")) as silent, RawClient(narrow.port("a")) as halting:
        halting.socket.sendall(b"\x10\x20\x00\x04MQ")
        assert silent.read_to_end() == b""
        assert halting.read_to_end() == b""
    assert narrow.node("a").status()["counters"]["connect_timeouts"] == before + 2
    still_serves(narrow, connect)


# Garbage

GARBAGE = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 9,
    bytes(range(256)) * 40,
    b"\xff" * 5000,
    b"\x10\xff\xff\xff\xff\xff",
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=["http", "bytes", "ones", "length"])
def test_garbage_on_either_port_ends_only_its_connection(
    guarded: Network, connect: Connects, garbage: bytes
) -> None:
    far, near = connect(guarded.port("b")), connect(guarded.port("a"), login=("ann", "secret"))
    far.subscribe("through/garbage", 1)
    guarded.settle()
    node = guarded.node("a")
    for port in (node.port, node.link_port):
        with RawClient(port) as client:
            client.socket.sendall(garbage)
            client.read_to_end()
    with RawClient(node.port) as client:
        client.send(Connect("sound-first", username="ann", password=b"secret"))
        client.read_packets(1)
        client.socket.sendall(garbage)
        client.read_to_end()
    near.publish("through/garbage", b"1", qos=1)
    far.wait_for_payload(b"1")
    assert not near.ended.is_set()


@pytest.mark.parametrize("garbage", GARBAGE, ids=["http", "bytes", "ones", "length"])
def test_garbage_from_a_broker_ends_only_that_pair(connect: Connects, garbage: bytes) -> None:
    def answer(packet: Packet) -> bytes | None:
        asked = isinstance(packet, Publish) and packet.topic == "garbage/please"
        return garbage if asked else None

    with FakeBroker(answer) as broker, network([], alone=["a"], brokers={"a": broker}) as net:
        bystander, victim = connect(net.port("a")), connect(net.port("a"))
        victim.publish_unwatched("garbage/please", b"", 0)  # it may be gone before paho looks
        assert victim.ended.wait(LIMIT)
        bystander.publish("t", b"1", qos=2)
        assert not bystander.ended.is_set()
