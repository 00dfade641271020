"""The examples do what they say."""

from __future__ import annotations

import pytest
from examples.json_validator import JsonValidator
from examples.strategy_hub import Hub

from brokerweave.mqtt.packets import Packet, PacketType, PingReq, Publish
from brokerweave.plugin import Hop, Route, Session, SessionManager, SessionState, Side, registry
from tests.unit.cooperation.network import Network


class FakeSession:
    id = 1
    side = Side.CLIENT
    state = SessionState.ESTABLISHED
    client_id = "sensor"
    mqtt_version = 5


class NoSessions:
    def create_session(self, packet: Packet) -> Session:
        raise NotImplementedError

    def close_session(self, session: Session) -> None:
        raise NotImplementedError

    def send(self, session: Session, packet: Packet) -> bool:
        raise NotImplementedError

    def paired(self, session: Session) -> Session | None:
        raise NotImplementedError


@pytest.fixture
def validator() -> JsonValidator:
    sessions: SessionManager = NoSessions()
    return JsonValidator(sessions)


class TestHub:
    @pytest.fixture
    def network(self) -> Network:
        network = Network(Hub, ("hub", "x", "y", "z"))
        for a, b in (("hub", "x"), ("hub", "y"), ("hub", "z"), ("x", "y")):
            network.add(a, b)
        return network

    def test_every_publication_goes_through_the_hub_to_each_node_once(self, network: Network) -> None:
        crossed, reached = network.publish("x", "t")
        assert crossed == [("x", "hub"), ("hub", "y"), ("hub", "z")]
        assert set(reached) == {"hub", "x", "y", "z"}

    def test_a_retained_message_takes_the_same_way(self, network: Network) -> None:
        assert network.nodes["y"].route_retained("t", None) == Route((Hop("hub"),), local=True)

    def test_it_is_found_when_spelled_out(self) -> None:
        assert registry.strategy("examples.strategy_hub:Hub") is Hub


class TestJsonValidator:
    @pytest.mark.parametrize("payload", [b"", b"{", b"{'a': 1}", b"\xff", b"[" * 100_000])
    def test_malformed_json_is_rejected(self, validator: JsonValidator, payload: bytes) -> None:
        rejected = validator.packet_arrived(FakeSession(), Publish("room/json", payload))
        assert rejected is not None
        assert rejected.reason_code == 0x99
        assert "not JSON" in rejected.reason

    @pytest.mark.parametrize(
        "packet",
        [
            Publish("room/json", b'{"t": 21.5}'),
            Publish("room/json", b"", retain=True),
            Publish("room/text", b"{"),
            PingReq(),
        ],
    )
    def test_all_else_passes(self, validator: JsonValidator, packet: Packet) -> None:
        assert validator.packet_arrived(FakeSession(), packet) is None

    def test_it_asks_for_nothing_but_what_clients_publish(self) -> None:
        assert JsonValidator.packets == {(Side.CLIENT, PacketType.PUBLISH)}
