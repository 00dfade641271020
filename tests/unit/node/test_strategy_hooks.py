"""What a strategy may do before SUBSCRIBE reaches the broker and SUBACK the client, and with retained
messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import pytest

from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Subscribe, Subscription
from brokerweave.plugin import Hop, Route, Strategy
from tests.unit.node.network import Client, Network
from tests.unit.node.retained_sites import Sites

TIMEOUT = 5.0


class Careful(Strategy):
    """Lets nothing pass before it is told to."""

    name: ClassVar[str] = "careful"

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.calls: list[tuple[str, str, dict[str, int]]] = []
        self.proceed: list[Callable[[], None]] = []

    def route(self, topic: str, came_from: str | None) -> Route:
        return Route()

    def subscribing(self, client: str, filters: Mapping[str, int], proceed: Callable[[], None]) -> bool:
        return self._take("subscribing", client, filters, proceed)

    def granted(self, client: str, filters: Mapping[str, int], proceed: Callable[[], None]) -> bool:
        return self._take("granted", client, filters, proceed)

    def subscribed(self, filters: Mapping[str, int]) -> None:
        self.calls.append(("subscribed", "", dict(filters)))

    def _take(self, event: str, client: str, filters: Mapping[str, int], proceed: Callable[[], None]) -> bool:
        self.calls.append((event, client, dict(filters)))
        self.proceed.append(proceed)
        return False


class Hasty(Careful):
    """Goes on before it has said that it would wait."""

    def _take(self, event: str, client: str, filters: Mapping[str, int], proceed: Callable[[], None]) -> bool:
        proceed()
        return super()._take(event, client, filters, proceed)


class Failing(Careful):
    def _take(self, event: str, client: str, filters: Mapping[str, int], proceed: Callable[[], None]) -> bool:
        raise ValueError("no")


class Site:
    """A node whose strategy waits, with a client and what of it reached the broker."""

    def __init__(self, strategy: type[Careful] = Careful, **settings: object) -> None:
        self.network = Network()
        self.network.add("a", strategy=strategy, **{"barrier_timeout": TIMEOUT, **settings})
        self.core = self.network.nodes["a"].core
        self.client = Client(self.network, "a", "c")
        self.to_broker: list[bytes] = []
        self.network.nodes["a"].write_broker = lambda pair, data: self.to_broker.append(data)  # type: ignore[method-assign]

    @property
    def strategy(self) -> Careful:
        assert isinstance(self.core.strategy, Careful)
        return self.core.strategy

    def ask(self) -> bytes:
        return self.client.pair.from_client(SUBSCRIBE)


SUBSCRIBE = codec.encode(Subscribe(1, (Subscription("t", 1),)), 4)


def test_a_subscribe_goes_to_the_broker_when_the_strategy_says_so() -> None:
    site = Site()
    assert site.ask() == b""
    assert site.strategy.calls == [("subscribing", "c", {"t": 1})]
    site.strategy.proceed[0]()
    assert site.to_broker == [SUBSCRIBE]
    site.network.advance(2 * TIMEOUT)
    assert site.to_broker == [SUBSCRIBE]
    assert site.core.counters["subscribe_timeouts"] == 0


def test_it_waits_no_longer_than_the_barrier_timeout_counted() -> None:
    site = Site()
    site.ask()
    site.network.advance(TIMEOUT)
    assert site.to_broker == [SUBSCRIBE]
    assert site.core.counters["subscribe_timeouts"] == 1
    site.strategy.proceed[0]()
    assert site.to_broker == [SUBSCRIBE]


def test_a_suback_goes_to_the_client_when_the_strategy_says_so() -> None:
    site = Site()
    site.client.subscribe("t", 1)
    assert site.strategy.calls[1:] == [("subscribed", "", {"t": 1}), ("granted", "c", {"t": 1})]
    assert site.client.got() == []
    site.strategy.proceed[1]()
    assert site.client.got() == ["SubAck"]
    site.network.advance(2 * TIMEOUT)
    assert site.core.counters["barrier_timeouts"] == 0


def test_a_suback_waits_no_longer_than_the_barrier_timeout_counted() -> None:
    site = Site()
    site.client.subscribe("t", 1)
    site.network.advance(TIMEOUT)
    assert site.client.got() == ["SubAck"]
    assert site.core.counters["barrier_timeouts"] == 1


@pytest.mark.parametrize("strategy", [Hasty, Failing])
def test_a_strategy_that_goes_on_at_once_or_fails_keeps_nobody_waiting(strategy: type[Careful]) -> None:
    site = Site(strategy)
    assert site.ask() == SUBSCRIBE
    site.client.subscribe("t", 1)
    assert site.client.got() == ["SubAck"]
    assert site.core.counters["strategy_failures"] == (3 if strategy is Failing else 0)


def test_nothing_waits_where_nobody_wants_to_wait() -> None:
    site = Site(barrier_timeout=None)
    assert site.ask() == SUBSCRIBE
    site.client.subscribe("t", 1)
    assert site.client.got() == ["SubAck"]
    assert [event for event, _, _ in site.strategy.calls] == ["subscribed"]


class TestRetained:
    class Homes(Strategy):
        """Retained messages go to node `home` alone, which gives them to whom they are wanted for."""

        name: ClassVar[str] = "homes"
        retained_everywhere: ClassVar[bool] = False

        def route(self, topic: str, came_from: str | None) -> Route:
            return Route(local=True)

        def route_retained(self, topic: str, came_from: str | None) -> Route:
            away = self.context.node_id != "home" and came_from is None
            return Route((Hop("home"),) if away else (), local=True)

    @pytest.fixture
    def sites(self) -> Sites:
        sites = Sites("home", "x", "y", strategy=self.Homes)
        for name in "xy":
            sites.network.link("home", name)
        sites.rest()
        return sites

    def test_they_go_where_the_strategy_says_and_are_not_compared(self, sites: Sites) -> None:
        sites.publish("x", "a", b"1")
        sites.rest()
        sites.network.cut("home", "y")
        sites.network.link("home", "y")
        sites.rest()
        assert sites.retained() == [{"a": b"1"}, {"a": b"1"}, {}]

    def test_those_under_a_filter_are_sent_with_deletions_and_only_newer_ones_count(
        self, sites: Sites
    ) -> None:
        for topic in ("a/1", "a/2", "b"):
            sites.publish("x", topic, b"old")
        sites.rest()
        home = sites.node("home").strategy.context
        home.send_retained("y", "a/#")
        sites.rest()
        assert sites.brokers["y"].retained == {"a/1": b"old", "a/2": b"old"}
        sites.publish("x", "a/1", b"")
        sites.publish("y", "a/2", b"newer")
        sites.network.stuck.add(("y", "home"))
        sites.rest()
        home.send_retained("y", "a/#")
        sites.rest()
        assert sites.brokers["y"].retained == {"a/2": b"newer"}
        home.send_retained("y", "b")
        sites.rest()
        assert sites.brokers["y"].retained == {"a/2": b"newer", "b": b"old"}

    def test_they_are_sent_over_the_next_link_if_there_is_none(self, sites: Sites) -> None:
        sites.publish("x", "a", b"1")
        sites.rest()
        sites.network.cut("home", "y")
        sites.node("home").strategy.context.send_retained("y", "#")
        sites.node("home").strategy.context.send_retained("nobody", "#")
        sites.network.link("home", "y")
        sites.rest()
        assert sites.brokers["y"].retained == {"a": b"1"}

    def test_a_lane_that_is_busy_gets_the_rest_later(self, sites: Sites) -> None:
        for number in range(30):
            sites.publish("x", f"a/{number}", bytes(1 << 10))
        sites.rest()
        sites.node("home").neighbour_table["y"].lanes[0].outbox.memory_bytes = 16 << 10
        sites.network.stuck.add(("y", "home"))
        sites.node("home").strategy.context.send_retained("y", "a/#")
        sites.rest(1.0)
        assert "y" in sites.node("home").retained.sending
        sites.network.stuck.clear()
        sites.rest()
        assert "y" not in sites.node("home").retained.sending
        assert len(sites.brokers["y"].retained) == 30

    def test_a_strategy_hears_when_the_broker_has_what_came_so_far(self, sites: Sites) -> None:
        done: list[str] = []
        context = sites.node("home").strategy.context
        context.when_injected(lambda: done.append("nothing"))
        sites.network.advance(0.0)
        assert done == ["nothing"]
        sites.publish("x", "a", b"1")
        sites.network.advance(1.0)
        context.when_injected(lambda: done.append("a"))
        sites.network.advance(1.0)
        assert done == ["nothing"]
        sites.drain()
        sites.publish("x", "b", b"1")  # which is not waited for
        for _ in range(100):
            sites.network.advance(0.02)
        assert done == ["nothing", "a"]
