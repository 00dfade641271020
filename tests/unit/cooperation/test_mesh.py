"""The strategy of the mesh: routes, holders, tables. Nodes are cores in memory, so that versions travel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from random import Random

import pytest

from brokerweave.cooperation import adverts
from brokerweave.cooperation.adverts import Digest
from brokerweave.cooperation.mesh import DIGEST_SECONDS, RECOVER_SECONDS, Mesh
from brokerweave.errors import RemoteProtocolError
from brokerweave.plugin import Hop, Route
from tests.unit.care.mesh_sites import DEAD_SECONDS, OPTIONS, Guest, Membership, kill, mesh_of, strategy
from tests.unit.node.network import Network

NAMES = "deph"


@pytest.fixture
def mesh() -> Network:
    return mesh_of(NAMES)


def reached(route: Route) -> dict[str, int]:
    """Who gets it for its own clients."""
    return {hop.neighbour: hop.qos for hop in route.hops if hop.qos >= 0}


def held(route: Route) -> dict[str, tuple[str, ...]]:
    return {hop.neighbour: hop.holds for hop in route.hops if hop.holds}


def rank(node: str, other: str) -> bytes:
    return blake2b(f"{node}\0{other}".encode(), digest_size=8).digest()


class TestRoutes:
    def test_lead_to_each_node_that_wants_a_topic_at_the_highest_qos_there(self, mesh: Network) -> None:
        Guest(mesh, "d", "one").subscribe("t/#", 0)
        Guest(mesh, "d", "two").subscribe("t/1", 2)
        Guest(mesh, "h", "three").subscribe("t/+", 1)
        Guest(mesh, "p", "four").subscribe("t/2", 1)
        mesh.settle()
        route = strategy(mesh, "p").route("t/1", None)
        assert reached(route) == {"d": 2, "h": 1}
        assert not route.local
        assert strategy(mesh, "p").route("t/2", None).local

    def test_end_after_one_hop(self, mesh: Network) -> None:
        for name in "dh":
            Guest(mesh, name, f"at-{name}").subscribe("t")
        mesh.settle()
        for came_from in "eph":
            assert strategy(mesh, "d").route("t", came_from) == Route((), local=True)
        assert strategy(mesh, "e").route("t", "d") == Route((), local=False)

    def test_name_the_holders_of_every_node_that_wants_it(self) -> None:
        mesh = mesh_of(NAMES, copies=3)
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        publisher = strategy(mesh, "p")
        route = publisher.route("t", None)
        keepers = {*held(route)} | ({"p"} if route.holds else set())
        assert keepers == {*publisher.holders("d")}
        assert len(keepers) == 2
        assert {*held(route).values()} | ({route.holds} if route.holds else set()) == {("d",)}

    def test_still_lead_to_holders_when_a_node_is_dead(self, mesh: Network) -> None:
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        kill(mesh, "d")
        mesh.advance(DEAD_SECONDS)
        route = strategy(mesh, "p").route("t", None)
        keepers = {*held(route)} | ({"p"} if route.holds else set())
        assert keepers == {*strategy(mesh, "p").holders("d")}
        assert len(keepers) == 2  # one more than while it lived

    def test_of_a_dead_node_are_given_up_after_the_window(self, mesh: Network) -> None:
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        kill(mesh, "d")
        mesh.advance(DEAD_SECONDS)
        mesh.advance(50.0)
        assert strategy(mesh, "p").route("t", None).hops
        mesh.advance(20.0)
        assert strategy(mesh, "p").route("t", None) == Route((), local=False)
        assert strategy(mesh, "p").table.nodes() == () or not strategy(mesh, "p").table.clients("d")

    def test_of_retained_messages_lead_everywhere(self, mesh: Network) -> None:
        assert reached(strategy(mesh, "p").route_retained("t", None)) == dict.fromkeys("deh", 2)
        assert strategy(mesh, "p").route_retained("t", "d") == Route((), local=True)

    def test_lead_nowhere_once_the_client_has_left(self, mesh: Network) -> None:
        client = Guest(mesh, "d", "c")
        client.subscribe("t")
        mesh.settle()
        client.pair.ended()
        mesh.settle()
        assert strategy(mesh, "p").route("t", None) == Route((), local=False)


class TestHolders:
    @pytest.mark.parametrize("copies", [1, 2, 3])
    def test_are_the_same_everywhere_and_never_the_node_itself(self, copies: int) -> None:
        mesh = mesh_of(NAMES, copies)
        for node in NAMES:
            (holders,) = {strategy(mesh, name).holders(node) for name in NAMES}
            assert len({*holders}) == copies - 1
            assert node not in holders

    def test_are_those_with_the_lowest_hash_for_the_node(self, mesh: Network) -> None:
        """All nodes of all versions have to agree: the order is part of the protocol."""
        ranked = sorted("eph", key=lambda other: rank("d", other))
        assert strategy(mesh, "p").holders("d") == (ranked[0],)

    def test_change_only_where_the_dead_one_was(self) -> None:
        mesh = mesh_of("abcdefgh", copies=3)
        asking = strategy(mesh, "a")
        before = {node: asking.holders(node) for node in "abcdefgh"}
        kill(mesh, "h")
        mesh.advance(DEAD_SECONDS)
        for node in "abcdefg":
            kept = [holder for holder in before[node] if holder != "h"]
            assert [*asking.holders(node)][: len(kept)] == kept
            assert len(asking.holders(node)) == 2

    @pytest.mark.parametrize("copies", [1, 2, 3])
    def test_are_the_same_whichever_way_the_members_came_and_went(self, copies: int) -> None:
        asking, random = strategy(mesh_of(NAMES, copies), "p"), Random(copies)
        names = [f"n{number}" for number in range(30)]
        members: set[str] = set()
        for _ in range(60):
            members ^= set(random.sample(names, random.choice((1, 1, 1, 20))))
            asking.members_changed(frozenset(members))
            for node in names:
                others = sorted((members | {"p"}) - {node}, key=partial(rank, node))
                assert asking.holders(node) == tuple(others[: copies - (node in members)])

    def test_are_as_many_as_there_are_where_members_are_few(self) -> None:
        assert strategy(mesh_of("dp", copies=4), "d").holders("d") == ("p",)


class TestDigests:
    @pytest.mark.parametrize(("neighbours", "seconds"), [(3, DIGEST_SECONDS), (1000, 500.0)])
    def test_go_out_every_minute_but_no_more_than_two_a_second(
        self, mesh: Network, neighbours: int, seconds: float
    ) -> None:
        mine = strategy(mesh, "p")
        due: list[float] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mine, "_digesting", False)
            patch.setattr(mine, "_up", {f"n{number}" for number in range(neighbours)})
            patch.setattr(mine.context, "call_later", lambda seconds, callback: due.append(seconds))
            mine._digest_later()
        assert due == [seconds]

    def test_wait_longer_where_many_links_came_up_since(self, mesh: Network) -> None:
        mine = strategy(mesh, "p")
        due: list[tuple[float, Callable[[], None]]] = []
        sent: list[str] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mine, "_digesting", False)
            patch.setattr(
                mine.context, "call_later", lambda seconds, callback: due.append((seconds, callback))
            )
            patch.setattr(mine.context, "send", lambda neighbour, packet: sent.append(neighbour))
            mine._digest_later()
            patch.setattr(mine, "_up", {f"n{number}" for number in range(1000)})
            due.pop()[1]()
            ((seconds, callback),) = due
            assert (seconds, sent) == (500.0 - DIGEST_SECONDS, [])
            callback()
        assert len(sent) == 1000


class TestTables:
    def test_name_for_a_client_the_node_that_had_it_last(self, mesh: Network) -> None:
        Guest(mesh, "d", "c").subscribe("t")
        mesh.advance(1.0)
        mesh.stuck |= {("e", "p")}
        Guest(mesh, "e", "c").subscribe("t")
        mesh.settle()
        assert strategy(mesh, "p").table.home("c") is None  # d has closed its pair, and e was not heard
        mesh.stuck.clear()
        mesh.settle()
        assert {strategy(mesh, name).table.home("c") for name in NAMES} == {"e"}

    def test_that_differ_are_pulled(self, mesh: Network) -> None:
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        mine, there = strategy(mesh, "p"), strategy(mesh, "d")
        mine.table.put("d", "c", there.table.since("c"), {"t": None, "u": 2})
        mine.packet_arrived("d", adverts.encode(Digest(there.version, there.table.digest("d"))))
        mesh.settle()
        assert mine.counters["tables_pulled"] == 1
        assert mine.table.digest("d") == there.table.digest("d")
        assert reached(mine.route("t", None)) == {"d": 1}
        assert mine.route("u", None).hops == ()

    def test_that_are_equal_or_newer_are_not_pulled(self, mesh: Network) -> None:
        Guest(mesh, "d", "c").subscribe("t")
        mesh.settle()
        mine, there = strategy(mesh, "p"), strategy(mesh, "d")
        mine.digest_seen("d", there.version, there.table.digest("d"))
        mine.digest_seen("d", there.version - 1, 4711)
        mesh.settle()
        assert mine.counters["tables_pulled"] == 0

    def test_are_pulled_once_a_second_at_most(self, mesh: Network) -> None:
        mine, there = strategy(mesh, "p"), strategy(mesh, "d")
        for _ in range(5):
            mine.digest_seen("d", there.version, 4711)
        assert mine.counters["tables_pulled"] == 1

    def test_of_a_node_whose_link_was_down_are_the_same_again_afterwards(self, mesh: Network) -> None:
        stays, goes = Guest(mesh, "d", "stays"), Guest(mesh, "d", "goes")
        for client in (stays, goes):
            client.subscribe("t")
        mesh.settle()
        mesh.cut("d", "p")
        goes.pair.ended()
        Guest(mesh, "d", "new").subscribe("u", 2)
        mesh.link("d", "p")
        mesh.settle()
        assert {*strategy(mesh, "p").table.clients("d")} == {"stays", "new"}
        assert strategy(mesh, "p").table.digest("d") == strategy(mesh, "d").table.digest("d")

    def test_are_told_as_they_are_now_to_whoever_comes(self, mesh: Network) -> None:
        """What is said to many is made once, and anew when something changed, told or not."""
        Guest(mesh, "d", "one").subscribe("t")
        mesh.settle()
        for client in ("two", "three"):
            mesh.cut("d", "p")
            Guest(mesh, "d", client).subscribe("u")
            mesh.link("d", "p")
            mesh.settle()
        assert {*strategy(mesh, "p").table.clients("d")} == {"one", "two", "three"}
        assert strategy(mesh, "p").counters["tables_pulled"] == 0

    def test_are_not_told_out_of_turn(self, mesh: Network) -> None:
        packet = adverts.encode(adverts.Advert(adverts.MORE, 1, 1, 0, ()))
        with pytest.raises(RemoteProtocolError):
            strategy(mesh, "p").packet_arrived("d", packet)


class TestTheBarrier:
    def test_stands_until_all_in_reach_have_heard(self, mesh: Network) -> None:
        mesh.stuck.add(("h", "d"))
        client = Guest(mesh, "d", "c")
        client.subscribe("t")
        mesh.settle()
        assert [type(packet).__name__ for packet in client.packets()] == ["ConnAck"]
        mesh.stuck.clear()
        mesh.settle()
        assert [type(packet).__name__ for packet in client.packets()] == ["ConnAck", "SubAck"]

    def test_is_not_held_for_a_node_that_is_gone(self, mesh: Network) -> None:
        mesh.stuck.add(("h", "d"))
        client = Guest(mesh, "d", "c")
        client.subscribe("t")
        mesh.settle()
        kill(mesh, "h")
        mesh.settle()
        assert [type(packet).__name__ for packet in client.packets()] == ["ConnAck", "SubAck"]


class TestANodeThatWasStarted:
    def test_recovers_until_it_has_the_tables_of_all(self) -> None:
        mesh = mesh_of("dp", linked=False)
        assert strategy(mesh, "d").ready()  # it has nobody to ask
        mesh = mesh_of("dp", linked=False)
        mesh.nodes["d"].core.add_neighbour("p")
        assert not strategy(mesh, "d").ready()
        mesh.link("d", "p")
        assert not strategy(mesh, "d").ready()
        mesh.settle()
        assert strategy(mesh, "d").ready()

    def test_recovers_until_it_has_found_members(self) -> None:
        mesh = mesh_of("dp", linked=False)
        starting = strategy(mesh, "d")
        mesh.nodes["d"].core.cluster.attach(Membership(lambda: len(starting.live) > 1))
        starting.members_changed(frozenset())
        assert not starting.ready()
        starting.members_changed(frozenset({"p"}))
        mesh.link("d", "p")
        assert not starting.ready()
        mesh.settle()
        assert starting.ready()

    def test_does_not_recover_for_ever(self) -> None:
        mesh = mesh_of("dp", linked=False)
        starting = strategy(mesh, "d")
        starting.members_changed(frozenset({"p"}))
        mesh.advance(RECOVER_SECONDS - 0.1)
        assert not starting.ready()
        mesh.advance(0.1)
        assert starting.ready()

    def test_takes_no_publications_before_it_has_the_tables_of_all(self) -> None:
        mesh = mesh_of("dp", linked=False)
        assert strategy(mesh, "d").takes_publications()  # it is alone by its configuration
        mesh.nodes["d"].core.add_neighbour("p")
        assert not strategy(mesh, "d").takes_publications()
        mesh.link("d", "p")
        assert not strategy(mesh, "d").takes_publications()
        mesh.settle()
        assert strategy(mesh, "d").takes_publications()

    def test_takes_publications_without_those_that_it_could_not_reach_for_long(self) -> None:
        mesh = mesh_of("dp", linked=False)
        starting = strategy(mesh, "d")
        mesh.nodes["d"].core.add_neighbour("p")
        mesh.advance(RECOVER_SECONDS - 0.1)
        assert not starting.takes_publications()
        mesh.advance(0.1)
        assert starting.takes_publications()

    def test_takes_none_while_one_in_reach_has_yet_to_tell_its_clients_however_long(self) -> None:
        mesh = mesh_of("dp", linked=False)
        mesh.link("d", "p")
        mesh.stuck.add(("p", "d"))
        mesh.advance(10 * RECOVER_SECONDS)
        assert strategy(mesh, "d").ready()
        assert not strategy(mesh, "d").takes_publications()
        mesh.stuck.clear()
        mesh.settle()
        assert strategy(mesh, "d").takes_publications()

    def test_waits_no_longer_for_a_member_that_died(self) -> None:
        mesh = mesh_of("dp", linked=False)
        starting = strategy(mesh, "d")
        starting.members_changed(frozenset({"p"}))
        assert not starting.ready()
        starting.members_changed(frozenset())
        assert starting.ready()

    def test_does_not_recover_again_when_another_joins(self, mesh: Network) -> None:
        assert strategy(mesh, "d").ready()
        mesh.nodes["d"].core.add_neighbour("new")
        assert strategy(mesh, "d").ready()


def test_a_hop_that_only_holds_has_no_qos_of_its_own(mesh: Network) -> None:
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    publisher = next(name for name in "eph" if name not in strategy(mesh, "d").holders("d"))
    (holder,) = strategy(mesh, publisher).holders("d")
    assert Hop(holder, -1, ("d",)) in strategy(mesh, publisher).route("t", None).hops
    assert isinstance(strategy(mesh, publisher), Mesh)


def test_messages_for_a_client_that_its_site_gives_up_for_another_are_kept_until_that_one_is_heard(
    mesh: Network,
) -> None:
    """p hears from d that the client went, and cannot hear e, where it is."""
    older = Guest(mesh, "d", "c")
    older.subscribe("t")
    mesh.settle()
    mesh.cut("e", "p")
    Guest(mesh, "e", "c").subscribe("t")
    mesh.settle()
    table = strategy(mesh, "p").table
    assert (table.home("c"), table.orphaned("d")) == (None, True)
    assert "d" in strategy(mesh, "p").route("t", None).holds
    mesh.link("e", "p")
    mesh.settle()
    assert (table.home("c"), table.orphaned("d")) == ("e", False)


def test_messages_for_a_client_that_went_elsewhere_while_a_link_was_down_are_kept_until_that_site_is_heard(
    mesh: Network,
) -> None:
    """p hears only that d has the client no more, and cannot hear e, where it is."""
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    mesh.cut("e", "p")
    mesh.cut("d", "p")
    Guest(mesh, "e", "c").subscribe("t")
    mesh.settle()
    mesh.link("d", "p")
    mesh.settle()
    table = strategy(mesh, "p").table
    assert (table.home("c"), table.orphaned("d")) == (None, True)
    assert "d" in strategy(mesh, "p").route("t", None).holds


def test_a_client_whose_session_ends_has_nothing_pending(mesh: Network) -> None:
    client = Guest(mesh, "d", "c")
    client.subscribe("t")
    mesh.settle()
    client.pair.ended()
    mesh.settle()
    assert strategy(mesh, "p").route("t", None) == Route((), local=False)


def test_what_a_restarted_neighbour_forgot_is_kept_until_the_window_is_over(mesh: Network) -> None:
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    kept: dict[str, int | None] = {}
    there = strategy(mesh, "p")
    there.context.keep = lambda neighbour, changes: kept.update(changes)  # type: ignore[method-assign]
    life = adverts.Advert(adverts.WHOLE, 1, 10**18, adverts.UNKNOWN, ())
    there.packet_arrived("d", adverts.encode(life))
    assert there.table.orphaned("d")
    assert kept == {'["c"]': 0}  # so that it is elsewhere, after a restart, if another site says so
    for _ in range(61):
        mesh.advance(1.0)
    assert kept == {'["c"]': None, '["c","t"]': None}
    assert not there.table.orphaned("d")


def test_a_clock_that_was_set_does_not_make_others_forget_who_was_at_a_dead_site(mesh: Network) -> None:
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    kill(mesh, "d")
    mesh.advance(DEAD_SECONDS)
    ahead = strategy(mesh, "e").context
    ahead.now = lambda: mesh.time + 500.0  # type: ignore[method-assign]
    mesh.add("n", options=OPTIONS, strategy=Mesh, cluster_timeout=5.0, barrier_timeout=1.0)
    for other in "pe":
        mesh.link("n", other)
    mesh.settle()
    mesh.advance(1.0)
    assert "d" in strategy(mesh, "n").route("t", None).holds


def test_a_node_that_is_started_hears_of_a_client_that_lost_two_sites_and_subscribed_at_the_first(
    mesh: Network,
) -> None:
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    kill(mesh, "d")
    mesh.advance(DEAD_SECONDS)
    Guest(mesh, "e", "c")
    mesh.settle()
    kill(mesh, "e")
    mesh.add("n", options=OPTIONS, strategy=Mesh, cluster_timeout=5.0, barrier_timeout=1.0)
    for other in "ph":
        mesh.link("n", other)
    mesh.settle()
    assert "c" in strategy(mesh, "n").table.clients_wanting("d", "t")
    assert "d" in strategy(mesh, "n").route("t", None).holds


def test_messages_for_a_client_that_is_lost_again_are_kept_for_a_whole_window_more(mesh: Network) -> None:
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    there = strategy(mesh, "p")
    since = there.table.clients("d")["c"].since
    forgotten = adverts.Advert(adverts.WHOLE, 1, 10**18, adverts.UNKNOWN, ())
    there.packet_arrived("d", adverts.encode(forgotten))
    mesh.advance(50.0)
    back = (adverts.Told("c", since + 1, {"t": 1}),)
    there.packet_arrived("d", adverts.encode(adverts.Advert(adverts.WHOLE, 2, 10**18, adverts.UNKNOWN, back)))
    assert there.table.home("c") == "d"
    again = adverts.Advert(adverts.WHOLE, 3, 10**18, adverts.UNKNOWN, ())
    there.packet_arrived("d", adverts.encode(again))
    mesh.advance(30.0)
    assert there.table.orphaned("d")
    mesh.advance(31.0)
    assert not there.table.orphaned("d")


def test_a_node_keeps_for_clients_of_one_that_has_not_told_them_since_its_link_is_up(mesh: Network) -> None:
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    there = strategy(mesh, "p")
    kept_here = "d" in there.route("t", None).holds  # as its holder
    there.neighbour_up("d")
    assert "d" in there.route("t", None).holds
    mesh.nodes["d"].core.strategy.packet_arrived("p", adverts.encode(adverts.Pull()))
    mesh.settle()
    assert ("d" in there.route("t", None).holds) == kept_here
    assert not all("d" in strategy(mesh, name).route("t", None).holds for name in "ep")


def test_a_node_keeps_for_clients_that_have_yet_to_say_elsewhere_what_they_want(mesh: Network) -> None:
    """Those who are to keep it may be out of reach, or not know where the client was."""
    Guest(mesh, "d", "c").subscribe("t")
    mesh.settle()
    origin = next(name for name in "eph" if name not in strategy(mesh, "d").holders("d"))
    there = strategy(mesh, origin)
    assert not there.route("t", None).holds
    elsewhere = Guest(mesh, next(name for name in "eph" if name != origin), "c")
    mesh.settle()
    assert there.route("t", None).holds == ("d",)
    elsewhere.subscribe("t")
    mesh.settle()
    assert "d" not in there.route("t", None).holds
