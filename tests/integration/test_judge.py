"""The broker is the judge: of a bad packet a client hears through a node what Mosquitto itself says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Connect, PacketType, PingReq, PingResp, Publish, Will
from brokerweave.mqtt.properties import Property
from tests.integration.conftest import Connect as Connects
from tests.support.raw import RawClient
from tests.support.sites import Network, network
from tests.support.waiting import wait_until
from tests.unit.mqtt.packet_cases import BAD_CASES
from tests.unit.session.test_unread import BROKEN, UNREADABLE

FROM_CLIENTS = frozenset(PacketType) - {
    PacketType.CONNACK,
    PacketType.SUBACK,
    PacketType.UNSUBACK,
    PacketType.PINGRESP,
}
PINGRESP = codec.encode(PingResp(), 4)
AFTER_CONNECT = {
    **{
        f"{case.name} ({case.version})": (case.version, case.frame)
        for case in BAD_CASES
        if case.version and case.frame[:1] and case.frame[0] >> 4 in FROM_CLIENTS - {PacketType.CONNECT}
    },
    **{f"{name} (again)": (5, frame) for name, frame in UNREADABLE.items()},
    "a second CONNECT (4)": (4, codec.encode(Connect("judged"), 4)),
    "a length of five bytes (4)": (4, BROKEN),
    "a length of five bytes (5)": (5, BROKEN),
    # Nobody subscribes to this topic in other tests, at whose end Mosquitto may still know their clients.
    "payload format 0xED": (5, b"\x32\x0d\x00\x06format\x00\x01\x02\x01\xed"),
}
INSTEAD_OF_CONNECT = {
    **{case.name: case.frame for case in BAD_CASES if case.frame[:1] == b"\x10"},
    "an unknown protocol number": b"\x10\x0d\x00\x04MQTT\x06\x02\x00\x3c\x00\x01c",
    "an unknown protocol name": b"\x10\x0d\x00\x04MQTU\x04\x02\x00\x3c\x00\x01c",
    "CONNECT with a reserved flag": b"\x10\x0d\x00\x04MQTT\x04\x03\x00\x3c\x00\x01c",
    "PUBLISH": codec.encode(Publish("a"), 4),
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 9,
    "a length of five bytes": b"\x10" + BROKEN[1:],
}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def net() -> Iterator[Network]:
    with network([("a", "b")]) as net:
        yield net


def heard(port: int, *sent: bytes) -> list[bytes]:
    """What comes back, packet by packet: up to the answer to a ping, or b"" for the end of the connection."""
    packets: list[bytes] = []
    with RawClient(port) as client:
        for data in sent[:-1]:
            client.socket.sendall(data)
            packets.append(client.read_packets(1))
        client.socket.sendall(sent[-1] + codec.encode(PingReq(), 4))
        while packets[-1:] not in ([PINGRESP], [b""]):
            try:
                packets.append(client.read_packets(1))
            except ConnectionError:
                packets.append(b"")
    return packets


def agree(net: Network, *sent: bytes) -> list[bytes]:
    """What a client hears through the node, which is what it hears from the broker."""
    straight = heard(net.sites["a"].broker.port, *sent)
    through = heard(net.port("a"), *sent)
    assert through == straight
    return through


@pytest.mark.parametrize(("version", "frame"), AFTER_CONNECT.values(), ids=AFTER_CONNECT.keys())
def test_of_a_bad_packet_a_client_hears_what_the_broker_says(
    net: Network, version: int, frame: bytes
) -> None:
    agree(net, codec.encode(Connect(f"judged-{next(_numbers)}", version), version), frame)


@pytest.mark.parametrize("frame", INSTEAD_OF_CONNECT.values(), ids=INSTEAD_OF_CONNECT.keys())
def test_of_a_bad_connect_a_client_hears_what_the_broker_says(net: Network, frame: bytes) -> None:
    agree(net, frame)


def test_what_the_broker_takes_reaches_other_sites(net: Network, connect: Connects) -> None:
    """Nobody says that a payload's format is 0 or 1; Mosquitto takes any."""
    far = connect(net.port("b"))
    far.subscribe("odd/#", 1)
    net.settle()
    odd = Publish("odd/format", b"x", 2, packet_id=1, properties=((Property.PAYLOAD_FORMAT_INDICATOR, 0xED),))
    answers = agree(net, codec.encode(Connect("odd", 5), 5), codec.encode(odd, 5))
    assert answers[-1] == PINGRESP
    far.wait_for_payload(b"x")


def test_a_will_is_due_everywhere_when_the_broker_closes_on_a_bad_packet(
    net: Network, connect: Connects
) -> None:
    far = connect(net.port("b"))
    far.subscribe("wills/#", 1)
    net.settle()
    node = net.node("a")
    before = node.status()["counters"].get("unread_packets", 0)
    doomed = codec.encode(Connect("doomed", 5, will=Will("wills/doomed", b"gone", 1)), 5)
    assert heard(node.port, doomed, UNREADABLE["PUBLISH of QoS 3"])[-1] == b""
    far.wait_for_payload(b"gone")
    assert node.status()["counters"]["unread_packets"] == before + 1
    wait_until(lambda: node.status()["sessions"]["open"] == 0, "the session to be over")
