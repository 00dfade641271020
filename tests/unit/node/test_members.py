"""Members of the cluster as neighbours in the mesh."""

from __future__ import annotations

import pytest

from brokerweave.membership.members import Address, Member, MemberState
from brokerweave.membership.meta import Meta
from brokerweave.node.members import MemberWatcher
from tests.unit.care.mesh_sites import care, kill, mesh_of, strategy
from tests.unit.node.network import Network


class Host:
    def __init__(self) -> None:
        self.said: list[tuple[str, object]] = []

    def dial_member(self, node: str, address: Address) -> None:
        self.said.append(("dial", (node, address)))

    def hang_up_member(self, node: str) -> None:
        self.said.append(("hang up", node))

    def is_configured(self, node: str) -> bool:
        return False

    def announce(self, data: bytes) -> None:
        self.said.append(("tell", data))

    def searching(self) -> bool:
        return False

    def round_trips(self) -> dict[str, float]:
        return {}


def member(name: str, port: int = 1, state: MemberState = MemberState.ALIVE, meta: bytes = b"") -> Member:
    return Member(name, state, 1, 1, ("x", 1), ("x", port), meta, None)


class Bench:
    def __init__(self, reachable: bool = True) -> None:
        self.network: Network = mesh_of("m", linked=False)
        self.mesh = strategy(self.network, "m")
        self.host = Host()
        self.core = self.network.nodes["m"].core
        self.links = MemberWatcher(self.core, self.host, reachable)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_of_two_members_the_one_whose_id_comes_first_dials(bench: Bench) -> None:
    bench.links.member_joined(member("a"))
    bench.links.member_joined(member("z"))
    assert bench.host.said == [("dial", ("z", ("x", 1)))]
    assert set(bench.core.neighbours()) == {"a", "z"}
    assert bench.mesh.live == {"m", "a", "z"}


def test_who_cannot_be_dialed_dials() -> None:
    bench = Bench(reachable=False)
    bench.links.member_joined(member("a"))
    assert bench.host.said == [("dial", ("a", ("x", 1)))]


def test_a_member_that_moved_is_dialed_where_it_is(bench: Bench) -> None:
    bench.links.member_joined(member("z"))
    bench.links.member_changed(member("z"))
    bench.links.member_changed(member("z", port=2))
    assert bench.host.said[1:] == [("hang up", "z"), ("dial", ("z", ("x", 2)))]


def test_a_dead_member_stays_a_neighbour_and_is_not_live(bench: Bench) -> None:
    bench.links.member_joined(member("z"))
    bench.links.member_died(member("z", state=MemberState.DEAD))
    assert bench.mesh.live == {"m"}
    assert bench.core.neighbours() == ("z",)
    assert bench.host.said[-1] == ("hang up", "z")
    bench.network.advance(10.0)
    assert bench.core.neighbours() == ("z",)


def test_the_link_of_a_dead_member_that_dialed_is_closed_too(bench: Bench) -> None:
    bench.links.member_joined(member("a"))
    bench.links.member_died(member("a", state=MemberState.DEAD))
    assert bench.host.said == [("hang up", "a")]


def test_one_that_left_is_removed_when_nothing_is_pending_for_it(bench: Bench) -> None:
    bench.links.member_joined(member("z"))
    bench.links.member_left(member("z", state=MemberState.LEFT))
    bench.network.advance(1.5)
    assert bench.core.neighbours() == ()


def test_one_whose_clients_are_waited_for_is_not_removed() -> None:
    network = mesh_of("mz", copies=1)  # nobody adopts them
    core, window = network.nodes["m"].core, care(network, "m").window
    links = MemberWatcher(core, Host(), True)
    links.member_joined(member("z"))
    kill(network, "z")
    links.member_left(member("z", state=MemberState.LEFT))
    network.advance(window - 1.0)
    assert core.neighbours() == ("z",)
    network.advance(2.5)
    assert core.neighbours() == ()


def test_this_node_itself_is_no_neighbour(bench: Bench) -> None:
    bench.links.member_joined(member("m"))
    assert bench.core.neighbours() == ()


def test_all_members_hear_once_of_many_announcements_and_that_is_the_last(bench: Bench) -> None:
    for number in range(5):
        bench.core.cluster.announce(b"%d" % number)
    bench.network.advance(0.6)
    assert bench.host.said == [("tell", b"4")]


def test_what_a_member_announces_reaches_the_strategy_whatever_else_it_says_of_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[str, bytes]] = []
    monkeypatch.setattr(bench.mesh, "member_announced", lambda name, data: heard.append((name, data)))
    told = Meta(("x", 1883), ("x", 80), b"its table").encode()
    bench.links.member_joined(member("z", meta=Meta(("x", 1883), ("x", 80)).encode()))
    assert heard == []
    bench.links.member_changed(member("z", meta=told))
    assert heard == [("z", b"its table")]
