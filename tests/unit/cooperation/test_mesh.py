"""Mesh: who is told what a site wants, and where what a site's clients miss is kept."""

from __future__ import annotations

import heapq
import itertools
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerweave.cooperation.mesh.interest import TOPIC, Life
from brokerweave.cooperation.mesh.strategy import GRACE_SECONDS, RECOVER_SECONDS, Mesh
from brokerweave.mqtt.packets import Packet, PingReq, Publish
from brokerweave.plugin import Cut, Hop, RemoteProtocolError, Route
from brokerweave.plugin.sites import SiteEvents
from tests.unit.cooperation.network import FakeContext, Network

WINDOW = 60.0


@dataclass
class Timer:
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


class TimedContext(FakeContext):
    def __init__(self, network: Network, node_id: str) -> None:
        super().__init__(network, node_id)
        assert isinstance(network, Sites)
        self._sites = network

    def now(self) -> float:
        return self._sites.time

    steady = now

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        due = self._sites.time + seconds
        heapq.heappush(self._sites.timers, (due, next(self._sites.numbers), timer))
        return timer


@dataclass
class Heard(SiteEvents):
    """What a strategy tells its node."""

    events: list[tuple[str, str]] = field(default_factory=list)

    def told(self, neighbour: str) -> None:
        self.events.append(("told", neighbour))

    def forgotten(self, neighbour: str) -> None:
        self.events.append(("forgotten", neighbour))

    def heard(self, neighbour: str, version: int, cut: Cut) -> None:
        self.events.append(("heard", neighbour))

    def died(self, node: str) -> None:
        self.events.append(("died", node))


class Sites(Network):
    """Sites in memory whose time moves when a test says so."""

    context = TimedContext
    nodes: dict[str, Mesh]  # type: ignore[assignment]

    def __init__(self, names: str, *, linked: bool = True) -> None:
        self.time = 1000.0
        self.timers: list[tuple[float, int, Timer]] = []
        self.numbers = itertools.count()
        self.sent: list[tuple[str, str, Packet]] = []
        super().__init__(Mesh, names, Random(1))
        self.heard = {name: Heard() for name in names}
        for name, node in self.nodes.items():
            node.events = self.heard[name]
        if linked:
            for a, b in itertools.combinations(names, 2):
                self.add(a, b)
            self.rest()

    def rest(self) -> None:
        """Deliver all, and whatever is due."""
        self.wait(0.0)

    def wait(self, seconds: float) -> None:
        until = self.time + seconds
        self.settle()
        while self.timers and self.timers[0][0] <= until:
            self.time, _, timer = heapq.heappop(self.timers)
            if not timer.cancelled:
                timer.callback()
            self.settle()
        self.time = until

    def settle(self) -> list[tuple[str, str, Packet]]:
        self.sent += super().settle()
        return self.sent

    def told(self) -> list[tuple[str, str, Mapping[str, int | None]]]:
        """Who told whom of which filters since the last call."""
        sent, self.sent = self.sent, []
        said = [(a, b, json.loads(packet.payload)) for a, b, packet in sent if isinstance(packet, Publish)]
        return [(a, b, each[3]) for a, b, each in said if each[0] in ("all", "wants")]

    def restart(self, name: str) -> Mesh:
        """Its links fail, and come back in another life."""
        others = [other for other in self.contexts[name].known if (name, other) in self.queues]
        for other in others:
            self.down(name, other)
        self.wait(0.1)
        self.contexts[name] = TimedContext(self, name)
        self.contexts[name].known = others[:]
        self.nodes[name] = Mesh(self.contexts[name])
        self.nodes[name].events = self.heard[name]
        for other in others:
            self.up(name, other)
        self.rest()
        return self.nodes[name]

    def kill(self, name: str) -> None:
        """For good, and everybody knows."""
        for other in self.contexts[name].known:
            self.down(name, other)
        self.wait(GRACE_SECONDS)


# What sites want


def test_a_neighbour_is_told_everything_when_its_link_is_up() -> None:
    sites = Sites("ab", linked=False)
    sites.nodes["a"].subscribed({"x": 1, "y/#": 2})
    sites.rest()
    sites.add("a", "b")
    sites.rest()
    assert sorted(sites.told()) == [("a", "b", {"x": 1, "y/#": 2}), ("b", "a", {})]
    assert sites.nodes["b"].route("x", None) == Route((Hop("a", 1),))
    assert sites.nodes["b"].route("y/z", None) == Route((Hop("a", 2),))
    assert sites.nodes["b"].route("z", None) == Route()


def test_after_that_it_is_told_what_changes() -> None:
    sites = Sites("abc")
    sites.nodes["a"].subscribed({"x": 1})
    sites.rest()
    sites.told()
    sites.nodes["a"].subscribed({"y": 1})
    sites.nodes["a"].subscribed({"y": 2})
    sites.nodes["a"].unsubscribed(["x"])
    sites.rest()
    assert sorted(sites.told()) == [("a", other, {"y": 2, "x": None}) for other in "bc"]
    assert sites.nodes["b"].route("x", None) == Route()
    assert sites.nodes["b"].route("y", None) == Route((Hop("a", 2),))


def test_what_does_not_change_is_not_told() -> None:
    sites = Sites("ab")
    sites.nodes["a"].subscribed({"x": 2})
    sites.rest()
    sites.told()
    sites.nodes["a"].want({"x": 1})
    sites.nodes["a"].want({"x": None})
    sites.rest()
    assert sites.told() == []


def test_a_link_that_comes_back_tells_everything_again_and_forgets_what_is_wanted_no_more() -> None:
    sites = Sites("ab")
    sites.nodes["a"].subscribed({"x": 1, "y": 1})
    sites.rest()
    sites.down("a", "b")
    sites.nodes["a"].unsubscribed(["x"])
    sites.rest()
    assert sites.nodes["b"].route("x", None) == Route((Hop("a", 1),))
    sites.up("a", "b")
    sites.rest()
    assert sites.nodes["b"].route("x", None) == Route()
    assert sites.nodes["b"].route("y", None) == Route((Hop("a", 1),))


def test_many_filters_are_told_in_several_packets() -> None:
    sites = Sites("ab")
    filters = {f"{number:0100d}": 1 for number in range(1000)}
    sites.told()
    sites.nodes["a"].subscribed(filters)
    sites.rest()
    pages = [page for _, _, page in sites.told()]
    assert len(pages) > 2
    assert {each: qos for page in pages for each, qos in page.items()} == filters
    assert sites.heard["a"].events.count(("heard", "b")) == 2  # at first, and when the last page had come


def test_what_only_records_want_goes_to_a_site_and_not_to_its_broker() -> None:
    sites = Sites("ab")
    sites.nodes["a"].want({"x": 1})
    sites.nodes["a"].subscribed({"y": 1})
    sites.rest()
    assert sites.nodes["b"].route("x", None) == Route((Hop("a", 1),))
    assert sites.nodes["a"].route("x", "b") == Route((), local=False)
    assert sites.nodes["a"].route("y", "b") == Route((), local=True)


def test_what_came_over_a_link_goes_no_further() -> None:
    sites = Sites("abc")
    for name in "abc":
        sites.nodes[name].subscribed({"x": 1})
    sites.rest()
    assert sites.nodes["a"].route("x", "b") == Route((), local=True)
    assert sites.nodes["a"].route_retained("x", "b") == Route((), local=True)
    assert sites.nodes["a"].route_retained("z", None) == Route((Hop("b", 2), Hop("c", 2)))


# Who keeps copies


def test_a_publication_goes_to_the_sites_that_want_it_and_to_their_holders() -> None:
    sites = Sites("abcd")
    sites.nodes["b"].subscribed({"x": 1})
    sites.nodes["b"].hold_at(("c",))
    sites.nodes["d"].subscribed({"x": 2})
    sites.nodes["d"].hold_at(("b", "a"))
    sites.rest()
    hops = (Hop("b", 1, ("d",)), Hop("c", -1, ("b",)), Hop("d", 2))
    assert sites.nodes["a"].route("x", None) == Route(hops, holds=("d",))
    assert sites.nodes["a"].route("y", None) == Route()


def test_for_its_own_clients_a_site_keeps_what_they_publish_and_so_do_its_holders() -> None:
    sites = Sites("abc")
    sites.nodes["a"].subscribed({"x": 1})
    sites.nodes["a"].hold_at(("b",))
    assert sites.nodes["a"].route("x", None) == Route((Hop("b", -1, ("a",)),), local=True, holds=("a",))


def test_who_is_not_linked_gets_nothing() -> None:
    sites = Sites("abc")
    sites.nodes["b"].subscribed({"x": 1})
    sites.nodes["b"].hold_at(("c",))
    sites.rest()
    sites.remove("a", "c")
    assert sites.nodes["a"].route("x", None) == Route((Hop("b", 1),))


def test_each_site_ranks_others_its_own_way_and_always_the_same() -> None:
    sites = Sites("abcdef")
    ranks = {name: sites.nodes[name].rank("ABCDEFGH") for name in "abcdef"}
    assert {frozenset(rank) for rank in ranks.values()} == {frozenset("ABCDEFGH")}
    assert len(set(ranks.values())) > 1
    assert sites.nodes["a"].rank("HGFEDCBA") == ranks["a"]


# Lives that end


def restarted() -> tuple[Sites, Life]:
    """b wanted x, and c keeps copies of its records. b was started again, and wants nothing."""
    sites = Sites("abc")
    sites.nodes["b"].subscribed({"x": 1})
    sites.nodes["b"].hold_at(("c",))
    sites.rest()
    before = sites.nodes["b"].life
    assert sites.restart("b").life > before
    return sites, ("b", before)


def test_what_an_ended_life_wanted_goes_to_its_holders() -> None:
    sites, _ = restarted()
    assert sites.nodes["a"].route("x", None) == Route((Hop("c", -1, ("b",)),))
    assert sites.nodes["a"].route("y", None) == Route()


def test_what_an_ended_life_wanted_goes_nowhere_once_its_clients_are_adopted() -> None:
    sites, life = restarted()
    sites.nodes["c"].adopted(frozenset((life,)))
    sites.nodes["c"].want({"x": 1})
    sites.rest()
    assert sites.nodes["a"].route("x", None) == Route((Hop("c", 1),))
    sites.nodes["c"].want({"x": None})
    sites.rest()
    assert sites.nodes["a"].route("x", None) == Route()


def test_what_an_ended_life_wanted_goes_nowhere_once_the_window_is_over() -> None:
    sites, _ = restarted()
    sites.wait(WINDOW - 1.0)
    assert sites.nodes["a"].route("x", None) == Route((Hop("c", -1, ("b",)),))
    sites.wait(1.0)
    assert sites.nodes["a"].route("x", None) == Route()


def test_an_ended_life_that_was_adopted_before_is_not_kept_for() -> None:
    sites = Sites("abc")
    sites.nodes["b"].subscribed({"x": 1})
    sites.nodes["b"].hold_at(("c",))
    sites.rest()
    sites.nodes["c"].adopted(frozenset((("b", sites.nodes["b"].life),)))
    sites.rest()
    sites.restart("b")
    assert sites.nodes["a"].route("x", None) == Route()


def test_an_ended_life_without_holders_is_forgotten() -> None:
    sites = Sites("ab")
    sites.nodes["b"].subscribed({"x": 1})
    sites.rest()
    sites.restart("b")
    assert sites.nodes["a"].route("x", None) == Route()


def test_what_a_dead_site_wanted_goes_to_its_holders_until_the_window_is_over() -> None:
    sites = Sites("abc")
    sites.nodes["b"].subscribed({"x": 1})
    sites.nodes["b"].hold_at(("c",))
    sites.rest()
    sites.kill("b")
    sites.contexts["a"].known.remove("b")
    assert sites.heard["a"].events[-1] == ("died", "b")
    assert sites.nodes["a"].live == {"a", "c"}
    assert sites.nodes["a"].route("x", None) == Route((Hop("c", -1, ("b",)),))
    assert sites.nodes["a"].needs("b")
    sites.wait(WINDOW)
    assert sites.nodes["a"].route("x", None) == Route()
    assert not sites.nodes["a"].needs("b")


def test_what_a_dead_site_wanted_is_forgotten_when_its_clients_are_adopted() -> None:
    sites = Sites("abc")
    sites.nodes["b"].subscribed({"x": 1})
    sites.nodes["b"].hold_at(("c",))
    sites.rest()
    sites.kill("b")
    sites.nodes["c"].adopted(frozenset((("b", sites.nodes["b"].life),)))
    sites.rest()
    assert not sites.nodes["a"].needs("b")
    assert sites.nodes["a"].route("x", None) == Route()


def test_a_link_that_fails_for_a_moment_kills_nobody() -> None:
    sites = Sites("ab")
    sites.down("a", "b")
    sites.wait(GRACE_SECONDS / 2)
    sites.up("a", "b")
    sites.wait(GRACE_SECONDS)
    assert ("died", "b") not in sites.heard["a"].events
    assert sites.nodes["a"].live == {"a", "b"}


def test_where_there_is_membership_it_says_who_lives() -> None:
    sites = Sites("ab")
    sites.nodes["a"].members_changed(frozenset("ab"))
    sites.down("a", "b")
    sites.wait(GRACE_SECONDS)
    assert sites.nodes["a"].live == {"a", "b"}
    sites.nodes["a"].members_changed(frozenset("a"))
    assert sites.nodes["a"].live == {"a"}
    assert sites.heard["a"].events[-1] == ("died", "b")


def test_a_site_whose_link_is_up_lives_though_membership_has_yet_to_find_it() -> None:
    sites = Sites("abc")
    sites.nodes["a"].members_changed(frozenset("abc"))
    sites.down("a", "b")
    sites.nodes["a"].members_changed(frozenset("ac"))
    assert sites.nodes["a"].live == {"a", "c"}
    sites.up("a", "b")
    sites.rest()
    assert sites.nodes["a"].live == {"a", "b", "c"}


# Who has heard


def forgets(sites: Sites, forgetful: str, name: str) -> None:
    """One site takes another for dead long enough to forget it, and it comes back."""
    sites.down(forgetful, name)
    sites.wait(GRACE_SECONDS + WINDOW)
    assert not sites.nodes[forgetful].needs(name)
    sites.up(forgetful, name)
    sites.rest()


def forgotten(sites: Sites, name: str) -> list[str]:
    return [who for what, who in sites.heard[name].events if what == "forgotten"]


def test_a_site_hears_that_a_neighbour_has_forgotten_it() -> None:
    sites = Sites("ab")
    assert forgotten(sites, "a") == []
    forgets(sites, "b", "a")
    assert forgotten(sites, "a") == ["b"]
    assert sites.nodes["a"].all_told()


def test_a_neighbour_that_was_started_again_has_forgotten_nobody() -> None:
    sites = Sites("ab")
    sites.restart("b")
    assert forgotten(sites, "a") == []
    assert forgotten(sites, "b") == []


def test_a_link_that_was_down_for_a_moment_makes_nobody_forget() -> None:
    sites = Sites("ab")
    sites.down("a", "b")
    sites.up("a", "b")
    sites.rest()
    assert forgotten(sites, "a") == forgotten(sites, "b") == []


def test_a_site_that_was_started_again_is_told_and_heard_anew() -> None:
    sites = Sites("ab")
    sites.heard["a"].events.clear()
    sites.restart("b")
    assert sorted(sites.heard["a"].events) == [("heard", "b"), ("told", "b")]
    assert sites.nodes["a"].life_of("b") == sites.nodes["b"].life


def test_a_new_site_takes_publications_when_it_has_told_and_heard_all() -> None:
    sites = Sites("ab", linked=False)
    sites.contexts["a"].known.append("b")
    sites.contexts["b"].known.append("a")
    a = sites.nodes["a"]
    assert (a.ready(), a.takes_publications(), a.linked()) == (False, False, ())
    sites.up("a", "b")
    assert not a.takes_publications()
    sites.rest()
    assert (a.ready(), a.takes_publications(), a.linked()) == (True, True, ("b",))


def test_who_is_out_of_reach_since_the_start_is_waited_for_in_vain_for_a_while() -> None:
    sites = Sites("ab", linked=False)
    sites.contexts["a"].known.append("b")
    a = sites.nodes["a"]
    sites.wait(RECOVER_SECONDS - 1.0)
    assert not a.takes_publications()
    sites.wait(1.0)
    assert a.ready()
    assert a.takes_publications()


def test_who_is_in_reach_is_waited_for_before_publications_are_taken() -> None:
    sites = Sites("ab", linked=False)
    sites.contexts["a"].known.append("b")
    a = sites.nodes["a"]
    a.neighbour_up("b")
    sites.wait(RECOVER_SECONDS)
    assert a.ready()
    assert not a.takes_publications()


# Garbage


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[",
        b"\xff",
        b"1",
        b'["never heard of"]',
        b'["heard", 1]',
        b'["wants", 1, 1, {"x": 3}, [], [], []]',
        b'["wants", 1, 1, {"": 1}, [], [], []]',
        b'["wants", 1, 1, {"x": "1"}, [], [], []]',
        b'["wants", 1, 1, {}, 1, [], []]',
        b'["wants", 1, 1, {}, [], [1], []]',
        b'["wants", 1, 1, {}, [], [], ["x"]]',
        b'["all", 1, 1, {}]',
    ],
)
def test_what_cannot_be_read_is_refused(payload: bytes) -> None:
    sites = Sites("ab")
    with pytest.raises(RemoteProtocolError):
        sites.nodes["a"].packet_arrived("b", Publish(TOPIC, payload))


def test_other_packets_are_refused() -> None:
    sites = Sites("ab")
    for packet in (PingReq(), Publish("x", b"[]")):
        with pytest.raises(RemoteProtocolError):
            sites.nodes["a"].packet_arrived("b", packet)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@given(
    st.sampled_from((["heard", 1, 1, [1], [1]], ["all", 1, 1, {"x": 1}, ["c"], [["c", 1]], [1, 1]])),
    st.data(),
)
def test_anything_in_the_place_of_something_raises_nothing_else(said: list[Any], data: st.DataObject) -> None:
    sites = Sites("ab")
    said = list(said)
    said[data.draw(st.integers(0, len(said) - 1))] = data.draw(json_values)
    with suppress(RemoteProtocolError):
        sites.nodes["a"].packet_arrived("b", Publish(TOPIC, json.dumps(said).encode()))
