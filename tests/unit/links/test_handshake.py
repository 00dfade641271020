from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from brokerweave.errors import RemoteProtocolError
from brokerweave.links.handshake import (
    UNAVAILABLE,
    Acceptor,
    Dialer,
    HandshakeRefused,
    Hello,
    NodeIdentity,
)
from brokerweave.links.lane import Resume
from brokerweave.mqtt.packets import Auth, ConnAck, Connect, Disconnect, Packet
from brokerweave.mqtt.properties import Property, get_bytes

A = NodeIdentity("a", 7, "sf", 2, b"the key")
B = NodeIdentity("b", 8, "sf", 2, b"the key")
FROM_A = Resume(11, 1, 22, 5)
FROM_B = Resume(22, 3, 11, 0)

Change = Callable[[Packet], Packet]


def random_bytes() -> Callable[[int], bytes]:
    numbers = count(1)
    return lambda size: next(numbers).to_bytes(size, "big")


def dial(me: NodeIdentity = A, lane: int = 1, expected: str = "b") -> Dialer:
    return Dialer(me, lane, FROM_A, expected, random_bytes())


class Listening:
    """An acceptor that remembers whom it admitted."""

    def __init__(self, me: NodeIdentity = B, refusal: HandshakeRefused | None = None) -> None:
        self.admitted: list[Hello] = []
        self.refusal = refusal
        self.side = Acceptor(me, self.admit, random_bytes())

    def admit(self, hello: Hello) -> Resume:
        if self.refusal is not None:
            raise self.refusal
        self.admitted.append(hello)
        return FROM_B


def converse(
    dialer: Dialer, listening: Listening, change: Change = lambda packet: packet
) -> tuple[Hello | str | None, Hello | str | None]:
    """Pass packets to and fro, each through `change`; what both sides ended with: a hello or a reason."""
    outcome: list[Hello | str | None] = [None, None]
    sides = (dialer, listening.side)
    packet = dialer.start()
    turn = 1
    for _ in range(8):
        if packet is None:
            break
        try:
            packet, peer = sides[turn].receive(change(packet))
            if peer is not None:
                outcome[turn] = peer
        except HandshakeRefused as refused:
            outcome[turn] = refused.reason
            packet = refused.answer
            if isinstance(outcome[1 - turn], Hello):
                break
        turn = 1 - turn
    return outcome[0], outcome[1]


def hello(me: NodeIdentity, resume: Resume) -> Hello:
    return Hello(me.node_id, me.epoch, me.strategy, 1, me.lanes, resume)


@pytest.mark.parametrize("key", [b"the key", None])
def test_both_sides_learn_who_the_other_is_and_where_to_go_on(key: bytes | None) -> None:
    listening = Listening(replace(B, key=key))
    assert converse(dial(replace(A, key=key)), listening) == (hello(B, FROM_B), hello(A, FROM_A))
    assert listening.admitted == [hello(A, FROM_A)]


def strangers() -> list[tuple[NodeIdentity, NodeIdentity, str]]:
    return [
        (replace(A, key=b"other"), B, "different keys"),
        (replace(A, key=None), B, "asks for a key"),
        (A, replace(B, key=None), "has no key"),
        (replace(A, strategy="pf"), B, "different strategies"),
        (replace(A, lanes=3), B, "3 sessions"),
        (replace(A, cycles=True), B, "'none' and 'stand-by'"),
        (A, replace(B, node_id="c"), "expected node b, but node c answered"),
        (A, replace(B, node_id="a"), "connected to itself"),
    ]


@pytest.mark.parametrize(("dialing", "listening", "reason"), strangers())
def test_each_mismatch_is_one_line_at_both_ends_and_admits_nobody(
    dialing: NodeIdentity, listening: NodeIdentity, reason: str
) -> None:
    acceptor = Listening(listening)
    for said in converse(dial(dialing), acceptor):
        assert isinstance(said, str)
        assert reason in said
        assert "\n" not in said
    assert acceptor.admitted == []


def test_without_keys_the_dialer_alone_notices_a_wrong_node() -> None:
    said, _ = converse(dial(replace(A, key=None)), Listening(replace(B, key=None, node_id="c")))
    assert said == "expected node b, but node c answered: check the neighbour's id and address"


def test_another_wire_version_is_refused_with_both_numbers() -> None:
    def older(packet: Packet) -> Packet:
        if not isinstance(packet, Connect):
            return packet
        properties = tuple(
            (Property.USER_PROPERTY, ("wire", "0")) if value == ("wire", "1") else (name, value)
            for name, value in packet.properties
        )
        return replace(packet, properties=properties)

    for said in converse(dial(), Listening(), older):
        assert isinstance(said, str)
        assert "wire versions 1 and 0" in said


def test_a_refusal_to_admit_reaches_the_dialer_and_says_whether_to_retry() -> None:
    dialer = dial()
    listening = Listening(refusal=HandshakeRefused("not a neighbour yet", UNAVAILABLE))
    challenge, _ = listening.side.receive(_must(dialer.start()))
    proof, _ = dialer.receive(_must(challenge))
    with pytest.raises(HandshakeRefused) as at_acceptor:
        listening.side.receive(_must(proof))
    with pytest.raises(HandshakeRefused, match="not a neighbour yet") as at_dialer:
        dialer.receive(_must(at_acceptor.value.answer))
    assert at_dialer.value.transient
    assert not HandshakeRefused("wrong key", 0x87).transient


def _must(packet: Packet | None) -> Packet:
    assert packet is not None
    return packet


def user_fields() -> list[tuple[str, str]]:
    return [
        ("node", "x"),
        ("epoch", "9"),
        ("strategy", "pf"),
        ("lane", "0"),
        ("lanes", "3"),
        ("resume", "11,1,22,6"),
    ]


@pytest.mark.parametrize("kind", [Connect, Auth, ConnAck])
@pytest.mark.parametrize(("name", "value"), user_fields())
def test_nothing_said_can_be_changed_on_the_way(kind: type[Packet], name: str, value: str) -> None:
    changed = False

    def change(packet: Packet) -> Packet:
        nonlocal changed
        if not isinstance(packet, kind) or not isinstance(packet, Connect | Auth | ConnAck):
            return packet
        properties = tuple(
            (known, (name, value) if isinstance(old, tuple) and old[0] == name else old)
            for known, old in packet.properties
        )
        changed = changed or properties != packet.properties
        return replace(packet, properties=properties)

    try:
        at_dialer, _ = converse(dial(), Listening(), change)
    except RemoteProtocolError:
        return
    assert not changed or not isinstance(at_dialer, Hello)


@pytest.mark.parametrize("position", [0, 31, 32, 63])
def test_no_bit_of_a_nonce_or_a_proof_can_be_changed(position: int) -> None:
    def change(packet: Packet) -> Packet:
        if not isinstance(packet, Auth):
            return packet
        data = bytearray(get_bytes(packet.properties, Property.AUTHENTICATION_DATA))
        data[position % len(data)] ^= 1
        return Auth(0x18, (*packet.properties[:-1], (Property.AUTHENTICATION_DATA, bytes(data))))

    listening = Listening()
    at_dialer, _ = converse(dial(), listening, change)
    assert isinstance(at_dialer, str)
    assert listening.admitted == []


def test_a_proof_cannot_be_reflected_to_the_one_who_made_it() -> None:
    listening = Listening()
    connect = _must(dial(replace(A, key=b"not known")).start())
    challenge, _ = listening.side.receive(connect)
    assert isinstance(challenge, Auth)
    data = get_bytes(challenge.properties, Property.AUTHENTICATION_DATA)
    with pytest.raises(HandshakeRefused, match="different keys"):
        listening.side.receive(Auth(0x18, ((Property.AUTHENTICATION_DATA, data[32:]),)))
    assert listening.admitted == []


def test_a_proof_cannot_be_replayed_on_another_connection() -> None:
    seen: list[Packet] = []

    def remember(packet: Packet) -> Packet:
        seen.append(packet)
        return packet

    converse(dial(), Listening(), remember)
    connect, _, proof = seen[:3]
    used_nonces = random_bytes()
    used_nonces(32)
    other = Acceptor(B, lambda hello: FROM_B, used_nonces)
    other.receive(connect)
    with pytest.raises(HandshakeRefused):
        other.receive(proof)


def test_a_welcome_without_a_proof_is_not_believed() -> None:
    dialer = dial()
    dialer.start()
    with pytest.raises(HandshakeRefused, match="no key"):
        dialer.receive(ConnAck())


def test_an_mqtt_client_at_the_link_port_is_refused() -> None:
    with pytest.raises(HandshakeRefused, match="MQTT client"):
        Listening().side.receive(Connect("sensor", version=4))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epoch", "-1"),
        ("epoch", "9" * 30),
        ("lane", "x"),
        ("lane", "2"),
        ("resume", "1,2"),
        ("strategy", ""),
        ("cycles", "maybe"),
    ],
)
def test_an_impossible_field_is_the_peers_fault(name: str, value: str) -> None:
    connect = dial(replace(A, key=None)).start()
    assert isinstance(connect, Connect)
    properties = tuple(
        (known, (name, value) if isinstance(old, tuple) and old[0] == name else old)
        for known, old in connect.properties
    )
    with pytest.raises(RemoteProtocolError):
        Listening(replace(B, key=None)).side.receive(replace(connect, properties=properties))


@pytest.mark.parametrize("node_id", ["..", ".", "../../home", "a/b", "a\\b", "x" * 65, "n\u00f6rd", "a b"])
def test_a_peer_whose_id_could_not_be_configured_is_not_admitted(node_id: str) -> None:
    """An id names a folder of the node that takes the call."""
    listening = Listening(replace(B, key=None))
    connect = dial(NodeIdentity(node_id, 7, "sf", 2)).start()
    assert connect is not None
    with pytest.raises(RemoteProtocolError):
        listening.side.receive(connect)
    assert listening.admitted == []


def test_a_peers_reason_is_made_fit_for_a_log() -> None:
    dialer = dial()
    with pytest.raises(HandshakeRefused) as refused:
        dialer.receive(ConnAck(0x87, properties=((Property.REASON_STRING, "no\nroot logged in\x1b[2J"),)))
    assert refused.value.reason == "node b refused: no?root logged in?[2J"


def test_packets_out_of_place_are_the_peers_fault() -> None:
    connect = _must(dial().start())
    listening = Listening()
    listening.side.receive(connect)
    with pytest.raises(RemoteProtocolError):
        listening.side.receive(connect)
    with pytest.raises(RemoteProtocolError):
        Listening().side.receive(Auth(0x18))
    with pytest.raises(RemoteProtocolError):
        dial().receive(Connect("x", version=5))


def test_a_dialer_that_leaves_tells_why() -> None:
    listening = Listening()
    listening.side.receive(_must(dial().start()))
    with pytest.raises(HandshakeRefused, match="wrong key"):
        listening.side.receive(Disconnect(0x87, ((Property.REASON_STRING, "wrong key"),)))
