"""Plug-ins that raise: whoever did not cause it goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from brokerweave.errors import RemoteProtocolError
from brokerweave.mqtt.packets import Packet, Publish
from brokerweave.node.counters import Counters
from brokerweave.node.plugins import GuardedStrategy, Plugins
from brokerweave.plugin import Listener, Route, Strategy
from tests.unit.node.network import Client, Network


class NoSessions:
    """A session manager for listeners that call none of it."""


class Clumsy(Listener):
    name: ClassVar[str] = "clumsy"

    def node_stopping(self) -> None:
        raise ZeroDivisionError("clumsy")


class Careful(Listener):
    name: ClassVar[str] = "careful"
    heard = 0

    def node_stopping(self) -> None:
        self.heard += 1


class Broken(Strategy):
    """Knows where everything goes, and raises whenever it hears of anything."""

    name: ClassVar[str] = "broken"

    def route(self, topic: str, came_from: str | None) -> Route:
        return Route(local=True)

    def _raise(self, *_: Any, **__: Any) -> None:
        raise KeyError("broken")

    subscribed = unsubscribed = neighbour_recalled = neighbour_up = neighbour_down = _raise
    neighbour_removed = _raise

    def packet_arrived(self, neighbour: str, packet: Packet) -> None:
        if packet == Publish("nonsense"):
            raise RemoteProtocolError("nonsense")
        raise KeyError("broken")

    def describe(self, neighbour: str) -> dict[str, int]:
        raise KeyError("broken")

    def ready(self) -> bool:
        raise KeyError("broken")


def test_a_listener_that_raises_keeps_no_other_from_hearing_and_is_reported_once() -> None:
    counters, said = Counters(), list[str]()
    careful = Careful(NoSessions())  # type: ignore[arg-type]
    plugins = Plugins((Clumsy(NoSessions()), careful), counters, said.append)  # type: ignore[arg-type]
    for _ in range(3):
        plugins.tell(lambda listener: listener.node_stopping())
    assert careful.heard == counters["listener_failures"] == 3
    assert len(said) == 1
    assert said[0].startswith("listener clumsy failed in node_stopping:")


def test_each_kind_of_failure_is_reported() -> None:
    said: list[str] = []
    plugins = Plugins((), Counters(), said.append)
    plugin = Clumsy(NoSessions())  # type: ignore[arg-type]
    for error in (ValueError("1"), ValueError("2"), KeyError("3")):
        plugins.failed(plugin, error)
    assert len(said) == 2


CALLS: list[Callable[[Strategy], object]] = [
    lambda s: s.subscribed({"t": 1}),
    lambda s: s.unsubscribed(["t"]),
    lambda s: s.neighbour_recalled("b", {}),
    lambda s: s.neighbour_up("b"),
    lambda s: s.neighbour_down("b"),
    lambda s: s.neighbour_removed("b"),
    lambda s: s.packet_arrived("b", Publish("t")),
    lambda s: s.describe("b"),
    lambda s: s.ready(),
]


@pytest.mark.parametrize("call", CALLS)
def test_what_a_strategy_raises_ends_with_the_call(call: Callable[[Strategy], object]) -> None:
    failures: list[Exception] = []
    strategy = Broken(None)  # type: ignore[arg-type]
    call(GuardedStrategy(strategy, lambda plugin, error: failures.append(error)))
    assert [type(error) for error in failures] == [KeyError]


def test_a_strategy_may_say_that_its_neighbour_sent_nonsense() -> None:
    guarded = GuardedStrategy(Broken(None), lambda plugin, error: None)  # type: ignore[arg-type]
    with pytest.raises(RemoteProtocolError):
        guarded.packet_arrived("b", Publish("nonsense"))


def test_clients_and_links_live_on_beside_a_strategy_that_raises() -> None:
    network = Network()
    network.add("a", "b", strategy=Broken)
    network.link("a", "b")
    network.settle()
    client = Client(network, "a", "c")
    client.subscribe("t", 1)
    network.settle()
    assert client.got() == ["SubAck"]
    assert network.nodes["a"].core.neighbour_table["b"].up
    assert network.nodes["a"].core.counters["strategy_failures"] == 2
    network.cut("a", "b")
    assert network.nodes["a"].core.counters["strategy_failures"] == 3
