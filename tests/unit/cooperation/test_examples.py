"""The examples do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from examples.alarms import Alarms
from examples.json_validator import JsonValidator
from examples.strategy_hub import Hub

from brokerweave.mqtt.packets import Packet, PacketType, PingReq, Publish
from brokerweave.plugin import Hop, Reject, Route, SessionState, Side, registry
from tests.support.listening import FakeListenerContext
from tests.unit.cooperation.network import Network


class FakeSession:
    id = 1
    side = Side.CLIENT
    state = SessionState.ESTABLISHED
    client_id = "sensor"
    mqtt_version = 5


@pytest.fixture
def validator() -> JsonValidator:
    return JsonValidator(FakeListenerContext())


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

    def test_the_docs_show_it_as_it_is(self) -> None:
        project = Path(__file__).parents[3]
        shown = (project / "docs/plugins.md").read_text().partition("```python\n")[2].partition("```")[0]
        assert (project / "examples/strategy_hub.py").read_text().endswith(shown)
        assert "class Hub" in shown

    def test_it_is_found_when_spelled_out(self) -> None:
        assert registry.strategy("examples.strategy_hub:Hub") is Hub


class TestJsonValidator:
    @pytest.mark.parametrize("payload", [b"", b"{", b"{'a': 1}", b"\xff", b"[" * 100_000])
    def test_malformed_json_is_rejected(self, validator: JsonValidator, payload: bytes) -> None:
        rejected = validator.packet_arrived(FakeSession(), Publish("room/json", payload))
        assert isinstance(rejected, Reject)
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

    def test_an_option_says_which_topics(self) -> None:
        validator = JsonValidator(FakeListenerContext(suffixes="/a /b"))
        rejected = [
            validator.packet_arrived(FakeSession(), Publish(topic, b"{")) is not None
            for topic in ("x/a", "x/b", "x/json")
        ]
        assert rejected == [True, True, False]


class TestAlarms:
    def test_a_reading_gets_its_unit_and_an_alarm_if_it_is_high(self) -> None:
        context = FakeListenerContext(limit=50.0, unit="F")
        alarms = Alarms(context)
        for reading in (b"50", b"51"):
            changed = alarms.packet_arrived(
                FakeSession(), Publish("hall/temperature", reading, 2, packet_id=7)
            )
            assert changed == Publish("hall/temperature", reading + b" F", 2, packet_id=7)
        assert context.published == [Publish("alarms/hall/temperature", b"51", 1)]

    @pytest.mark.parametrize("packet", [Publish("hall/humidity", b"90"), Publish("x/temperature", b"hot")])
    def test_all_else_passes(self, packet: Publish) -> None:
        context = FakeListenerContext()
        assert Alarms(context).packet_arrived(FakeSession(), packet) is None
        assert not context.published
