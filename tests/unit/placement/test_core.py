from __future__ import annotations

from itertools import pairwise

import pytest

from brokerweave.errors import ConfigError
from brokerweave.placement.core import CoreSettings
from brokerweave.placement.history import MoveOutcome
from tests.unit.placement.networks import SmallNetwork, emma

EVER = 1e9


def two_sites(clients: int = 10, **settings: float) -> SmallNetwork:
    net = SmallNetwork(settings=CoreSettings(gateway_timeout=EVER, **settings))  # type: ignore[arg-type]
    net.sites("a", "b").gateway("g", "a", clients)
    net.measured("g", a=1, b=20)
    return net


def causes(net: SmallNetwork) -> set[str]:
    return {decision.cause for decision in net.core.history.last(1000, net.now)}


def test_the_clients_of_a_site_that_is_gone_move_at_once() -> None:
    net = two_sites(100, per_second=1.0)
    net.tick(1)
    net.core.site_gone("a")
    net.tick()
    assert (net.count("b"), net.now, causes(net)) == (100, 1.0, {"site gone"})
    net.tick(15)
    assert "a" not in net.core.graph.sites, "nobody is there any more"


def test_a_site_that_is_gone_and_nobody_can_replace_keeps_its_clients_until_one_comes() -> None:
    net = SmallNetwork().sites("a")
    net.gateway("g", "a")
    net.core.site_gone("a")
    net.tick(1)
    assert net.core.counters["nowhere"] > 0
    net.sites("b").tick(15)
    assert net.where() == {"g-0": "b"}


def test_a_drained_site_is_emptied_at_its_pace_and_gets_nobody() -> None:
    net = two_sites(20)
    net.core.drain("a", 2.0, net.now)
    net.tick(1.1)
    assert net.count("a") in (17, 18)
    assert net.core.place("g", "new", net.now) == ["b"]
    net.tick(10)
    assert (net.count("a"), net.core.drained("a"), causes(net)) == (0, True, {"draining"})
    times = [decision.at for decision in reversed(list(net.core.history.last(99, net.now)))]
    assert all(later - sooner > 0.4 for sooner, later in pairwise(times[1:]))


def test_an_evacuated_site_is_emptied_at_once() -> None:
    net = two_sites(200, per_second=1.0, at_once=1)
    net.core.evacuate("a")
    net.tick()
    assert (net.count("a"), causes(net)) == (0, {"evacuated"})


def test_a_site_that_is_resumed_takes_clients_again() -> None:
    net = two_sites(20)
    net.core.drain("a", 1.0, net.now)
    net.tick(3)
    net.core.resume("a")
    net.tick(3)
    assert 15 < net.count("a") < 20
    assert not net.core.drained("a")
    assert net.core.place("g", "new", net.now)[0] == "a"


def test_a_site_that_changes_its_address_goes_on_draining() -> None:
    net = two_sites(5)
    net.core.drain("a", 1.0, net.now)
    net.sites("a").tick(10)
    assert net.count("a") == 0


def test_a_pinned_client_goes_where_it_is_pinned_and_stays_there() -> None:
    net = two_sites(2)
    net.core.pin("g-0", "b")
    net.pass_time(120, g={"a": 1, "b": 90})
    assert net.where() == {"g-0": "b", "g-1": "a"}
    net.core.pin("g-0", None)
    net.pass_time(400, g={"a": 1, "b": 90})
    assert net.where() == {"g-0": "a", "g-1": "a"}


def test_a_client_that_is_pinned_before_it_comes_is_placed_there() -> None:
    net = two_sites()
    net.core.pin("late", "b")
    assert net.core.place("g", "late", net.now) == ["b", "a"]
    net.core.client_at("g", "late", "a")
    net.tick()
    assert net.where()["late"] == "b"


def test_a_pin_does_not_keep_a_client_at_a_site_that_is_emptied() -> None:
    net = two_sites(1)
    net.core.pin("g-0", "a")
    net.core.evacuate("a")
    net.tick()
    assert net.where() == {"g-0": "b"}
    net.core.resume("a")
    net.tick()
    assert net.where() == {"g-0": "a"}


def test_a_client_that_somebody_moves_goes_at_once_even_to_a_draining_site() -> None:
    net = two_sites(1)
    net.core.drain("b", 1.0, net.now)
    net.core.move("g-0", "b", net.now)
    net.answer()
    assert net.where() == {"g-0": "b"}


def test_what_cannot_be_done_is_said() -> None:
    net = two_sites(1)
    net.gateway("h", "a", follows="c0")
    with pytest.raises(ConfigError, match="unknown site 'x'; known are a, b"):
        net.core.drain("x", 1.0, 0.0)
    with pytest.raises(ConfigError, match="no gateway has a client 'nobody'"):
        net.core.move("nobody", "b", 0.0)
    with pytest.raises(ConfigError, match="g-0 is at a already"):
        net.core.move("g-0", "a", 0.0)
    with pytest.raises(ConfigError, match="h-0 is moved by controller c0: ask there"):
        net.core.move("h-0", "b", 0.0)


def test_a_gateway_that_follows_another_controller_gets_no_orders() -> None:
    net = SmallNetwork().sites("a", "b")
    for gateway, follows in (("g", "c1"), ("h", "c0"), ("i", "")):
        net.gateway(gateway, "a", follows=follows)
    net.core.site_gone("a")
    net.tick()
    assert net.where() == {"g-0": "b", "h-0": "a", "i-0": "b"}


def test_a_plan_says_what_would_be_done_and_does_nothing() -> None:
    net = two_sites(3)
    net.core.evacuate("a")
    plan = net.core.plan(net.now)
    assert [(wish.move.client, wish.move.target, wish.cause) for wish in plan] == [
        (f"g-{number}", "b", "evacuated") for number in range(3)
    ]
    assert net.sent == []
    assert net.count("a") == 3


def test_an_order_is_repeated_until_it_is_answered_and_has_one_outcome() -> None:
    net = two_sites(1)
    net.obey = False
    net.core.move("g-0", "b", 0.0)
    net.tick(5)
    assert [order.number for order in net.sent] == [1, 1, 1]
    net.obey = True
    net.answer()
    net.answer()
    net.core.orders.finished("g", 1, MoveOutcome.FAILED, "late", net.now)
    net.tick(10)
    assert len(net.sent) == 3
    assert net.core.orders.counters["done"] == 1
    assert net.core.orders.counters["failed"] == 0


def test_an_order_that_nobody_answers_expires() -> None:
    net = two_sites(1, order_timeout=10.0)
    net.obey = False
    net.core.move("g-0", "b", 0.0)
    net.tick(11)
    (decision,) = net.core.history.last(1, net.now)
    assert (decision.outcome, decision.note) == (MoveOutcome.EXPIRED, "the gateway did not answer")
    assert net.where() == {"g-0": "a"}


def test_a_move_that_is_refused_leaves_the_client_and_is_tried_again_with_the_next_round() -> None:
    net = two_sites(1)
    net.obey = False
    net.core.evacuate("a")
    net.tick()
    net.obey = True
    net.answer(MoveOutcome.REFUSED, "0x87 at b")
    net.obey = False
    net.tick(14)
    assert len(net.sent) == 1
    net.tick(2)
    assert len({order.number for order in net.sent}) == 2


def test_no_more_moves_are_under_way_than_are_allowed() -> None:
    net = two_sites(30, at_once=4, per_second=100.0)
    net.obey = False
    net.core.drain("a", 100.0, 0.0)
    net.tick(1)
    assert len({order.number for order in net.sent}) == 4


def test_clients_that_come_together_are_spread_though_nobody_has_counted_them_yet() -> None:
    net = SmallNetwork().sites("a", "b")
    net.core.gateway_heard("g", "", 0.0)
    net.measured("g", a=10, b=10)
    first = [net.core.place("g", f"x{number}", 0.1)[0] for number in range(100)]
    assert first.count("a") == first.count("b") == 50


def test_ten_thousand_clients_are_moved_and_answered_in_time_that_grows_with_their_number() -> None:
    """No absolute time: each answer looks at one order, not at all of them."""
    net = two_sites(10_000)
    net.core.evacuate("a")
    net.tick()
    assert net.count("b") == 10_000
    assert net.core.orders.next_due() == float("inf")


def test_the_fastest_pace_does_not_make_the_controller_spin() -> None:
    net = two_sites(100, at_once=1, per_second=100_000.0)
    net.obey = False
    net.core.drain("a", 100_000.0, 0.0)
    net.tick()
    assert net.core.next_due() - net.now >= 0.019


def test_a_client_that_leaves_while_it_moves_ends_its_order() -> None:
    net = two_sites(1)
    net.obey = False
    net.core.move("g-0", "b", 0.0)
    net.core.client_gone("g", "g-0", 0.0)
    assert len(net.core.orders) == 0
    net.tick(5)
    assert len(net.sent) == 1


def test_loads_count_moves_under_way_as_done() -> None:
    net = SmallNetwork(emma()).sites("a", "b")
    for number in range(10):
        net.gateway(f"g{number}", "a")
        net.measured(f"g{number}", a=1, b=1)
    net.obey = False
    net.tick(16)
    ordered = len({order.number for order in net.sent})
    net.tick(13)
    assert len({order.number for order in net.sent}) == ordered, "the second round finds them balanced"


def test_a_silent_gateway_is_forgotten_with_its_clients_and_orders() -> None:
    net = SmallNetwork(settings=CoreSettings(gateway_timeout=20.0)).sites("a", "b")
    net.gateway("g", "a", 3)
    net.obey = False
    net.core.move("g-0", "b", 0.0)
    net.tick(31)
    assert net.where() == {}
    assert len(net.core.orders) == 0


def test_the_history_is_bounded_in_time() -> None:
    net = SmallNetwork(settings=CoreSettings(gateway_timeout=EVER, history=100.0)).sites("a", "b")
    net.gateway("g", "a")
    for _ in range(10):
        for site in "ba":
            net.core.move("g-0", site, net.now)
            net.answer()
            net.tick(20)
    assert len(net.core.history) == 6
    assert len(list(net.core.history.last(3, net.now))) == 3
    assert list(net.core.history.last(3, net.now + 200)) == []
