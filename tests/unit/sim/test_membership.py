from __future__ import annotations

from typing import Any

import pytest

from brokerweave.errors import ConfigError
from brokerweave.membership.presets import LAN, MOST_DATAGRAM
from brokerweave.sim.membership import MembershipOptions, MembershipResult, MembershipRun, percentile
from brokerweave.sim.membership_node import MemberNode


def run(**options: Any) -> MembershipResult:
    return MembershipRun(MembershipOptions(**options)).run()


def acquainted(**options: Any) -> MembershipRun:
    scene = MembershipRun(MembershipOptions(**{"nodes": 12, "loss": 0.05, **options}))
    scene.acquaint()
    scene.let_pass(2.0)
    return scene


def views(nodes: list[MemberNode]) -> set[int]:
    """How many members each of these nodes sees."""
    return {node.swim.here for node in nodes}


def test_the_same_options_give_the_same_run() -> None:
    options = {"nodes": 8, "duration": 5.0, "crashes": 1, "changes": 1}
    assert run(**options, seed=3) == run(**options, seed=3)
    assert run(**options, seed=3) != run(**options, seed=4)


def test_a_crash_is_known_everywhere_within_three_seconds_on_a_lossy_lan() -> None:
    """The full proof, with 100 nodes and hundreds of crashes, is in tests/chaos."""
    result = run(nodes=40, loss=0.05, duration=5.0, crashes=12, changes=5)
    assert result.crash_known["never"] == 0
    assert result.crash_known["worst"] <= 3.0
    assert result.return_known["never"] == result.change_known["never"] == 0
    assert result.change_known["worst"] <= 1.0
    assert result.false_deaths == 0
    assert result.largest_datagram <= MOST_DATAGRAM


def test_nobody_is_held_for_dead_though_datagrams_are_lost() -> None:
    assert run(nodes=30, loss=0.05, duration=60.0, crashes=0, changes=0).false_deaths == 0


def test_doubled_datagrams_are_refused_as_replays_and_nothing_else_is() -> None:
    refused = run(nodes=10, doubled=0.2, duration=10.0, crashes=0, changes=0).refused
    assert refused.pop("replayed") > 100
    assert set(refused.values()) == {0}


def test_a_member_that_is_paused_for_less_than_a_suspicion_is_not_declared_dead() -> None:
    scene = acquainted()
    scene.nodes[3].host.freeze()
    scene.let_pass(LAN.suspicion_times(12)[0] * 0.7)
    scene.nodes[3].host.thaw()
    scene.let_pass(10.0)
    assert scene.result.false_deaths == 0
    assert views(scene.nodes) == {12}


def test_a_member_that_was_paused_for_long_declares_nobody_dead_and_is_back_at_once() -> None:
    scene = acquainted()
    slow = scene.nodes[3]
    slow.host.freeze()
    scene.let_pass(20.0)
    others = [node for node in scene.nodes if node is not slow]
    assert views(others) == {11}
    deaths = scene.result.false_deaths
    assert deaths == 11
    slow.host.thaw()
    scene.let_pass(3.0)
    assert views(scene.nodes) == {12}
    assert scene.result.false_deaths == deaths


def test_a_member_that_stutters_does_not_accuse_the_others() -> None:
    """Lifeguard: it stands still 0.15 s in every 0.2 s for a minute."""
    scene = acquainted(loss=0.0)
    slow = scene.nodes[0]
    for _ in range(300):
        slow.host.freeze()
        scene.let_pass(0.15)
        slow.host.thaw()
        scene.let_pass(0.05)
    assert scene.result.false_deaths == 0


def test_two_halves_go_on_and_are_one_again_after_the_split() -> None:
    scene = acquainted()
    left, right = scene.nodes[:6], scene.nodes[6:]
    scene.network.split({node.address: 1 for node in left})
    scene.let_pass(30.0)
    assert views(left) == views(right) == {6}
    scene.network.split({})
    scene.let_pass(3 * LAN.reconnect_interval)
    assert views(scene.nodes) == {12}


def test_two_deaths_at_once_are_both_known() -> None:
    scene = acquainted()
    for node in scene.nodes[:2]:
        node.crash()
    scene.let_pass(5.0)
    assert views(scene.nodes[2:]) == {10}


def test_a_good_bye_is_known_at_once_and_is_no_death() -> None:
    scene = acquainted()
    leaver = scene.nodes[5]
    leaver.act(leaver.swim.leave)
    scene.let_pass(1.0)
    assert leaver.swim.departed
    leaver.crash()
    scene.let_pass(10.0)
    others = [node for node in scene.nodes if node is not leaver]
    members = [node.swim.member(leaver.id) for node in others]
    assert {member.state.name for member in members if member} == {"LEFT"}
    assert scene.result.false_deaths == 0


def test_a_seed_that_restarts_alone_is_found_by_the_others() -> None:
    scene = acquainted()
    scene.nodes[0].crash()
    scene.let_pass(8.0)
    scene.nodes[0].start()
    scene.let_pass(5 * LAN.reconnect_interval)
    assert views(scene.nodes) == {12}


def test_a_cluster_grows_from_one_seed() -> None:
    scene = MembershipRun(MembershipOptions(nodes=12, loss=0.05))
    for node in scene.nodes:
        node.start()
        node.act(lambda now, node=node: node.swim.join([scene.nodes[0].address], now))  # type: ignore[misc]
    scene.let_pass(5.0)
    assert views(scene.nodes) == {12}
    assert scene.result.false_deaths == 0


@pytest.mark.parametrize("wrong", [{"preset": "moon"}, {"nodes": 1}, {"loss": 1.0}])
def test_options_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        MembershipRun(MembershipOptions(**wrong))


def test_the_percentile_is_a_value_that_was_seen() -> None:
    assert percentile([float(n) for n in range(1, 201)], 0.99) == 198.0
    assert percentile([3.0], 0.99) == 3.0
    assert percentile([], 0.5) is None
