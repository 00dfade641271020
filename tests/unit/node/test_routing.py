"""Routes that change by topic, that bring a plan, that are not known yet, and that lead back."""

from __future__ import annotations

from typing import Any, TypeVar

import pytest

from brokerweave.links.run import Run
from brokerweave.links.wire import MAX_PLAN
from brokerweave.mqtt import codec
from brokerweave.mqtt.packets import Publish
from brokerweave.node.router import PLANS
from brokerweave.plugin import Hop, Route, Strategy
from tests.unit.node.network import Client, Network
from tests.unit.node.routing_strategies import Asking, Chain, Relaying, Rendezvous


def joined(*edges: str, **settings: Any) -> Network:
    network = Network()
    network.add(*sorted({name for edge in edges for name in edge}), **settings)
    for edge in edges:
        network.link(edge[0], edge[1])
    network.settle()
    return network


def payloads(network: Network, node: str) -> list[bytes]:
    return [publish.payload for publish in network.nodes[node].injected_publishes()]


S = TypeVar("S", bound=Strategy)


def strategy_of(network: Network, node: str, kind: type[S]) -> S:
    strategy = network.nodes[node].core.strategy
    assert isinstance(strategy, kind)
    return strategy


def test_topics_are_counted_once_each_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    router = joined("ab").nodes["a"].core.router
    monkeypatch.setattr("brokerweave.node.router.MOST_TOPICS_COUNTED", 3)
    for topic in (b"s", b"t", b"$SYS/x", b"no/+"):
        router.cache(None).lookup(topic, False)
        router.cache("b").lookup(topic, False)
    assert router.topics == 2
    for number in range(10):
        router.cache(None).lookup(b"%d" % number, False)
    assert router.topics == 3


class TestInvalidation:
    class Counting(Strategy):
        name = "counting"
        asked: list[str]

        def route(self, topic: str, came_from: str | None) -> Route:
            self.asked = [*getattr(self, "asked", []), topic]
            return Route()

    def test_only_the_topics_that_are_named_are_asked_about_again(self) -> None:
        network = joined("ab", strategy=self.Counting)
        core, strategy = network.nodes["a"].core, strategy_of(network, "a", self.Counting)
        for cache in (core.router.cache(None), core.router.cache("b"), core.router.guarded("u", bool, 10)):
            cache.lookup(b"s", False), cache.lookup(b"t", False)
        strategy.asked.clear()
        core.routes_changed(["t"])
        for cache in (core.router.cache(None), core.router.cache("b"), core.router.guarded("u", bool, 10)):
            cache.lookup(b"s", False), cache.lookup(b"t", False)
        assert strategy.asked == ["t"] * 3
        core.routes_changed()
        core.router.cache(None).lookup(b"s", False)
        assert strategy.asked[-1] == "s"

    def test_a_topics_lane_is_known_without_asking(self) -> None:
        network = joined("ab", strategy=self.Counting, lanes=3)
        core = network.nodes["a"].core
        lanes = {topic: core.lane_of(topic) for topic in map(str, range(20))}
        assert not hasattr(core.strategy, "asked")
        assert set(lanes.values()) == {0, 1, 2}


class TestPlans:
    @pytest.mark.parametrize("qos", [0, 1, 2])
    @pytest.mark.parametrize("retain", [False, True])
    def test_the_rest_of_the_way_travels_with_a_message(self, qos: int, retain: bool) -> None:
        row = joined("ab", "bc", "cd", strategy=Chain)
        Client(row, "a", "publisher").publish("to/b/c/d", qos, b"1", retain)
        row.settle()
        assert [payloads(row, node) for node in "abcd"] == [[], [b"1"], [b"1"], [b"1"]]
        assert [strategy_of(row, node, Chain).followed for node in "bcd"] == [[b"c/d"], [b"d"], []]

    def test_who_has_a_retained_message_by_a_repair_passes_it_on_all_the_same(self) -> None:
        row = joined("ab", "bc", strategy=Chain)
        row.stuck.add(("a", "b"))
        Client(row, "a", "publisher").publish("to/b/c", 1, b"1", True)
        entry = row.nodes["a"].core.retained.index.get("to/b/c")
        assert entry is not None
        frame = codec.encode(Publish("to/b/c", b"1", 1, True, packet_id=1), 4)
        repair = Run("a", 0, 0, 1, 4, 1, 2, 0.0, frame, stamp=entry.stamp, repair=True)
        row.nodes["b"].core.retained.taken(repair)
        row.stuck.clear()
        row.settle()
        assert [payloads(row, node) for node in "bc"] == [[], [b"1"]]

    def test_a_retained_message_that_a_full_lane_dropped_is_sent_later_also_to_those_behind(self) -> None:
        class Bypassed(Chain):
            name = "bypassed"
            retained_everywhere = False

            def bypass(self, topic: str, relay: str, plan: bytes) -> Route:
                return Route(self._along(plan.decode().split("/")).hops)

        network = joined("ab", "bc", "ac", "ad", strategy=Bypassed)
        network.stuck.add(("a", "b"))
        box = network.nodes["a"].core.neighbour_table["b"].lanes[0].outbox
        box.memory_bytes = 1_500
        publisher = Client(network, "a", "publisher")
        publisher.publish("to/b", 1, bytes(1_000))
        publisher.publish("to/b/c/d", 1, b"1" * 500, True)
        assert box.dropped
        network.advance(1.0)
        assert [payloads(network, node) for node in "bcd"] == [[], [b"1" * 500], [b"1" * 500]]
        network.stuck.clear()
        for _ in range(4):  # it arrives, is acknowledged, there is room, the next arrives
            network.advance(1.0)
        assert payloads(network, "b") == [bytes(1_000), b"1" * 500]

    def test_each_hop_of_one_route_may_have_another_plan(self) -> None:
        class Fork(Chain):
            name = "fork"

            def route(self, topic: str, came_from: str | None) -> Route:
                if came_from is None:
                    return Route((Hop("b", plan=b"c"), Hop("d", qos=0, plan=b"e"), Hop("f")))
                return Route(local=True)

        network = joined("ab", "bc", "ad", "de", "af", strategy=Fork)
        Client(network, "a", "publisher").publish("t", 1, b"1")
        network.settle()
        assert [payloads(network, node) for node in "bcdef"] == [[b"1"]] * 5
        followed = [strategy_of(network, node, Fork).followed for node in "bcdef"]
        assert followed == [[b"c"], [], [b"e"], [], []]

    def test_an_acknowledgement_waits_for_all_nodes_along_it(self) -> None:
        row = joined("ab", "bc", "cd", strategy=Chain, cluster_timeout=5.0)
        row.stuck.add(("c", "d"))
        publisher = Client(row, "a", "publisher")
        publisher.publish("to/b/c/d", 1)
        row.settle()
        assert publisher.got() == []
        row.stuck.clear()
        row.settle()
        assert publisher.got() == ["PubAck"]

    def test_the_routes_of_many_plans_are_kept_within_bounds(self) -> None:
        row = joined("ab", "bc", strategy=Chain)
        router, chain = row.nodes["b"].core.router, strategy_of(row, "b", Chain)
        for number in [*range(PLANS), 0, PLANS]:
            router.cache("a", b"%d" % number).lookup(b"t", False)
        assert len(chain.followed) == PLANS + 1
        router.cache("a", b"0").lookup(b"t", False)  # used after all others but one
        assert len(chain.followed) == PLANS + 1
        router.cache("a", b"1").lookup(b"t", False)  # used before all others
        assert len(chain.followed) == PLANS + 2
        for number in range(PLANS):
            router.cache("a", number.to_bytes(2) + bytes(MAX_PLAN - 2))
        assert sum(len(plan) for _, plan in router._planned) == router._planned_bytes <= 16 << 20
        router.forget("a")
        assert router._planned_bytes == 0

    def test_a_plan_that_is_too_long_is_the_strategys_fault(self) -> None:
        class Wordy(Chain):
            name = "wordy"

            def route(self, topic: str, came_from: str | None) -> Route:
                return Route((Hop("b", plan=bytes(MAX_PLAN + 1)),))

        row = joined("ab", strategy=Wordy)
        Client(row, "a", "publisher").publish("t")
        row.settle()
        assert payloads(row, "b") == []
        assert "a plan longer than" in row.nodes["a"].warnings[0]


class TestNotYet:
    def test_what_is_published_waits_in_order_and_what_comes_later_goes_behind_it(self) -> None:
        row = joined("ab", "bc", strategy=Asking)
        row.stuck.add(("b", "a"))
        strategy_of(row, "c", Asking).known.add("t")
        publisher = Client(row, "a", "publisher")
        for number, (qos, retain) in enumerate([(1, False), (0, False), (0, True), (2, True), (0, False)]):
            publisher.publish("t", qos, b"%d" % number, retain)
        row.settle()
        core = row.nodes["a"].core
        core.waiting.check()
        assert payloads(row, "b") == []
        assert core.waiting.runs == 5
        row.stuck.clear()
        core.strategy.packet_arrived("b", Publish("tell", b"t"))
        publisher.publish("t", 1, b"5")  # the strategy knows already, but those before have not gone yet
        assert core.waiting.runs == 6
        row.settle()
        publisher.publish("t", 1, b"6")
        row.settle()
        assert [payloads(row, node) for node in "bc"] == [[b"%d" % number for number in range(7)]] * 2
        assert strategy_of(row, "a", Asking).asked == ["t"]
        assert not core.waiting
        assert core.waiting.bytes == 0

    def test_what_waits_is_measured_before_it_is_asked_about_again(self) -> None:
        """A strategy that decides by size knows that of a topic's first publication."""

        class Sizing(Asking):
            name = "sizing"
            measures = True
            sizes: list[float]

            def route(self, topic: str, came_from: str | None) -> Route:
                self.sizes = [*getattr(self, "sizes", []), self.context.usage(topic).payload]
                return super().route(topic, came_from)

        row = joined("ab", strategy=Sizing)
        Client(row, "a", "p").publish("t", 1, b"x" * 500)
        row.settle()
        before, *after = strategy_of(row, "a", Sizing).sizes
        assert before == 0.0
        assert after
        assert min(after) > 500

    def test_other_topics_do_not_wait(self) -> None:
        row = joined("ab", strategy=Asking)
        row.stuck.add(("b", "a"))
        strategy_of(row, "a", Asking).known.add("known")
        publisher = Client(row, "a", "publisher")
        blob = b"".join(codec.encode(Publish(t, t.encode()), 4) for t in ("t", "known", "t", "known"))
        publisher.pair.from_client(blob)
        row.settle()
        assert payloads(row, "b") == [b"known", b"known"]
        row.stuck.clear()
        row.settle()
        assert payloads(row, "b") == [b"t", b"t"]

    def test_what_comes_over_a_link_waits_as_well(self) -> None:
        row = joined("ab", "ac", "cd", strategy=Relaying)
        for retain in (False, True):
            Client(row, "d", f"publisher {retain}").publish("t", 1, b"%d" % retain, retain)
        row.stuck.add(("b", "a"))
        row.settle()
        core = row.nodes["a"].core
        assert core.waiting.runs == 0, "c has nobody to ask"
        assert row.nodes["c"].core.waiting.runs == 2
        row.nodes["c"].core.strategy.packet_arrived("a", Publish("tell", b"t"))
        row.settle()
        assert payloads(row, "c") == [b"0", b"1"]
        assert core.waiting.runs == 2
        assert payloads(row, "a") == []
        row.stuck.clear()
        row.settle()
        assert [payloads(row, node) for node in "ab"] == [[b"0", b"1"]] * 2

    @pytest.mark.parametrize("kind", [Asking, Relaying])
    def test_an_acknowledgement_waits_for_the_route_and_all_behind_it(self, kind: type[Strategy]) -> None:
        row = joined("ab", "ac", "cd", strategy=kind, cluster_timeout=5.0)
        strategy_of(row, "c", Asking).known.add("t")
        strategy_of(row, "d", Asking).known.add("t")
        row.stuck.add(("b", "a"))
        publisher = Client(row, "d" if kind is Relaying else "a", "publisher")
        publisher.publish("t", 2)
        row.settle()
        assert publisher.got() == []
        row.stuck.clear()
        row.settle()
        assert publisher.got() == ["PubRec"]
        assert all(len(node.core.confirmations) == 0 for node in row.nodes.values())
        assert payloads(row, "b") == [b""]

    def test_who_waited_too_long_for_a_route_is_refused_and_not_acknowledged(self) -> None:
        row = joined("ab", strategy=Asking, cluster_timeout=5.0)
        row.stuck.add(("b", "a"))
        publisher = Client(row, "a", "publisher")
        publisher.publish("t", 1, b"1")
        row.advance(5.1)
        assert publisher.got() == []
        assert row.nodes["a"].hung_up == [publisher.pair]
        assert row.nodes["a"].core.counters["refused_waiting"] == 1
        row.stuck.clear()
        row.settle()
        assert payloads(row, "b") == [b"1"]
        assert publisher.got() == []

    @pytest.mark.parametrize("delivery", [{}, {"cluster_timeout": 5.0}], ids=["local", "cluster"])
    @pytest.mark.parametrize("qos", [1, 2])
    def test_beyond_the_bound_clients_are_refused_before_the_broker_answers_them(
        self, delivery: dict[str, float], qos: int
    ) -> None:
        row = joined("ab", strategy=Asking, waiting=3_000, **delivery)
        row.stuck.add(("b", "a"))
        first, second = Client(row, "a", "first"), Client(row, "a", "second", clean_start=False)
        first.publish("t", 1, bytes(2_000))
        first.publish("t", 0, b"a qos 0 that has no room")
        publish = codec.encode(Publish("t", b"2", qos, packet_id=7), 4)
        assert second.pair.from_client(publish) == b""
        assert second.pair.error is not None
        core = row.nodes["a"].core
        assert (core.counters["dropped_waiting"], core.counters["refused_waiting"]) == (1, 1)
        core.waiting.check()
        second.end()
        row.stuck.clear()
        row.settle()
        again = Client(row, "a", "second", clean_start=False)
        again.publish("t", qos, b"2")
        row.settle()
        assert payloads(row, "b") == [bytes(2_000), b"2"]

    def test_beyond_the_bound_what_comes_over_a_link_is_dropped_and_counted(self) -> None:
        row = joined("ab", "bc", strategy=Relaying, waiting=0, cluster_timeout=5.0)
        row.nodes["b"].core.strategy.route = lambda *_: Route(known=False)  # type: ignore[method-assign]
        publisher = Client(row, "a", "publisher")
        publisher.publish("t", 1)
        row.settle()
        assert publisher.got() == ["PubAck"]
        counters = row.nodes["b"].core.counters
        assert (counters["dropped_waiting"], counters["cluster_drops"]) == (1, 1)

    def test_where_nobody_wants_it_in_the_end_it_goes_nowhere(self) -> None:
        row = joined("ab", strategy=Asking)
        row.stuck.add(("b", "a"))
        Client(row, "a", "publisher").publish("t", 1)
        core = row.nodes["a"].core
        core.strategy.route = lambda *_: Route()  # type: ignore[method-assign]
        core.routes_changed(["another"])
        row.settle()
        assert core.waiting.runs == 1
        core.routes_changed(["t"])
        row.settle()
        assert core.waiting.runs == 0
        assert payloads(row, "b") == []


class TestReturning:
    @pytest.mark.parametrize("retain", [False, True])
    def test_a_message_goes_to_all_through_its_origin_and_to_nobody_twice(self, retain: bool) -> None:
        star = joined("ab", "ac", "ad", strategy=Rendezvous)
        Client(star, "a", "publisher").publish("t", 1, b"1", retain)
        star.settle()
        assert [payloads(star, node) for node in "abcd"] == [[], [b"1"], [b"1"], [b"1"]]
        assert star.nodes["a"].core.counters["returned_to_origin"] == 0

    def test_the_second_time_it_returns_it_is_dropped(self) -> None:
        star = joined("ab", "ac", strategy=Rendezvous)
        Client(star, "a", "publisher").publish("t", 1, b"1")
        star.settle()
        [run] = star.nodes["c"].core.injectors[0].outbox.kept()
        lane = star.nodes["a"].core.neighbour_table["b"].lanes[0]
        star.nodes["a"].core.arrivals.batch_arrived("b", 0, lane.taken + 1, [run])
        star.settle()
        assert payloads(star, "c") == [b"1"]

    def test_an_acknowledgement_waits_for_those_behind_the_origin(self) -> None:
        star = joined("ab", "ac", strategy=Rendezvous, cluster_timeout=5.0)
        star.stuck.add(("a", "c"))
        publisher = Client(star, "a", "publisher")
        publisher.publish("t", 1)
        star.settle()
        assert publisher.got() == []
        star.stuck.clear()
        star.settle()
        assert publisher.got() == ["PubAck"]
        assert all(len(node.core.confirmations) == 0 for node in star.nodes.values())

    def test_without_its_word_a_strategy_may_not_route_back(self) -> None:
        class Silent(Rendezvous):
            name = "silent"
            returns = False

        star = joined("ab", "ac", strategy=Silent)
        Client(star, "a", "publisher").publish("t", 1)
        star.settle()
        assert "routes back to a" in star.nodes["b"].warnings[0]
        assert payloads(star, "c") == []
