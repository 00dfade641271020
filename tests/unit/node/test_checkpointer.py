"""Killing a node at every single write, and what it finds afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from brokerweave.cooperation.sf import SubscriptionFlooding
from brokerweave.mqtt.packets import Publish
from brokerweave.plugin import NOT_YET, Route, Strategy
from tests.support.descriptors import closed_as_by_a_kill
from tests.unit.node.crash_world import Killer, World


@pytest.fixture
def killer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Killer]:
    with closed_as_by_a_kill(), monkeypatch.context() as patch:
        yield Killer(patch)


def messages(*payloads: str, qos: int = 2) -> tuple[Publish, ...]:
    return tuple(Publish("t", p.encode(), qos, packet_id=1) for p in payloads)


def scenario(world: World) -> list[Callable[[], None]]:
    """Everything that is written down: runs, sessions, filters, handshakes, positions, checkpoints."""
    b, c = world.peers["b"], world.peers["c"]
    return [
        world.want,
        world.subscribe,
        lambda: b.publish(*messages("b1", "b2", "b3")),
        lambda: world.site.settle(),
        lambda: c.publish(*messages("c1")),
        lambda: world.publish(7, b"l1"),
        lambda: void(world.site.inject()),
        lambda: b.publish(*messages("b4")),
        lambda: void(world.site.exchange(b)),
        lambda: world.release(7),
        lambda: world.site.checkpoint(),
        lambda: world.publish(8, b"l2"),
        lambda: world.release(8),
        lambda: void(world.site.inject()),
        lambda: b.publish(*messages("b5"), *messages("b6")),
        lambda: void(world.site.exchange(b)),
        lambda: void(world.site.inject()),
        lambda: world.site.checkpoint(),
        lambda: world.publish(7, b"l3"),
        lambda: world.release(7),
        lambda: world.site.settle(),
    ]


def void(_: object) -> None: ...


class Undecided(SubscriptionFlooding):
    """Does not know where anything goes for a while; then sends a plan with it."""

    name = "undecided"
    decided = False

    def route(self, topic: str, came_from: str | None) -> Route:
        if not self.decided:
            return NOT_YET
        route = super().route(topic, came_from)
        return replace(
            route, hops=tuple(replace(hop, plan=b"for " + hop.neighbour.encode()) for hop in route.hops)
        )

    def decide(self) -> None:
        Undecided.decided = True  # a decision outlives the node
        self.context.routes_changed()


def undecided(world: World) -> list[Callable[[], None]]:
    """Some of the same, while nothing goes anywhere."""
    b, c = world.peers["b"], world.peers["c"]

    def decide() -> None:
        strategy = world.site.core.strategy
        assert isinstance(strategy, Undecided)
        strategy.decide()
        world.site.core.deferral.ask()

    return [
        world.want,
        world.subscribe,
        lambda: b.publish(*messages("b1", "b2")),
        lambda: world.publish(7, b"l1"),
        lambda: world.site.settle(),
        lambda: world.site.checkpoint(),
        lambda: world.release(7),
        lambda: world.publish(7, b"l2"),
        lambda: c.publish(*messages("c1")),
        lambda: world.site.settle(),
        lambda: world.release(7),
        decide,
        lambda: b.publish(*messages("b3")),
        lambda: world.publish(9, b"l3"),
        lambda: world.site.settle(),
        lambda: world.site.checkpoint(),
        lambda: world.release(9),
    ]


def live(
    folder: Path,
    killer: Killer,
    kills: list[int],
    strategy: type[Strategy] = SubscriptionFlooding,
    actions: Callable[[World], list[Callable[[], None]]] = scenario,
) -> tuple[World, int]:
    """The scenario, killed at the given write, then at the given write after that, ...; changes counted."""
    world = World(folder, killer, strategy)
    killer.arm()
    world.start()
    killer.arm(*kills)
    for action in actions(world):
        world.run(action)
        world.site.core.waiting.check()
    changes = killer.changes
    killer.arm()
    world.site.core.deferral.ask()
    world.site.settle()
    world.check()
    world.site.storage.close()
    return world, changes


@pytest.mark.parametrize("whole", [False, True], ids=["in the middle", "right after"])
def test_killed_at_any_write_a_node_loses_nothing_and_doubles_nothing(
    tmp_path: Path, killer: Killer, whole: bool
) -> None:
    killer.whole = whole
    _, changes = live(tmp_path / "whole", killer, [])
    assert changes > 50
    for at in range(1, changes + 1):
        world, _ = live(tmp_path / str(at), killer, [at])
        assert world.kills == 1, at


@pytest.mark.thorough
@pytest.mark.parametrize("whole", [False, True], ids=["in the middle", "right after"])
def test_killed_at_any_write_what_waits_for_its_route_and_its_plans_are_there_again(
    tmp_path: Path, killer: Killer, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lived(name: str, kills: list[int]) -> tuple[World, int]:
        monkeypatch.setattr(Undecided, "decided", False)
        return live(tmp_path / name, killer, kills, Undecided, undecided)

    killer.whole = whole
    _, changes = lived("whole", [])
    assert changes > 30
    for kills in [[at] for at in range(1, changes + 1)] + [[at, 3] for at in range(1, changes - 3, 3)]:
        world, _ = lived("-".join(map(str, kills)), kills)
        assert world.kills == len(kills), kills
        assert {name: peer.plans for name, peer in world.peers.items()} == {"b": {b"for b"}, "c": {b"for c"}}
        assert not world.site.core.waiting, kills


@pytest.mark.thorough
@pytest.mark.parametrize("second", range(1, 12))
def test_killed_again_while_it_recovers_it_still_does(tmp_path: Path, killer: Killer, second: int) -> None:
    _, changes = live(tmp_path / "whole", killer, [])
    for at in range(1, changes + 1, 3):
        world, _ = live(tmp_path / str(at), killer, [at, second])
        assert world.kills == 2 or at > changes - second


def test_while_the_disk_takes_nothing_everything_is_relayed_and_it_is_said(
    tmp_path: Path, killer: Killer
) -> None:
    world = World(tmp_path, killer)
    world.start()
    world.want()
    world.subscribe()
    actions = scenario(world)
    for action in actions[:5]:
        action()
    killer.full = True
    for action in actions[5:]:
        action()
    world.site.settle()
    assert world.site.checkpointer.wal.failures > 0
    assert world.site.checkpointer.failures == 2
    assert world.site.storage.failures > 0
    assert sum("write-ahead log cannot be written" in warning for warning in world.site.warnings) == 1
    killer.full = False
    world.site.warnings.clear()
    world.check()


def test_once_the_disk_works_again_a_checkpoint_makes_up_for_what_it_missed(
    tmp_path: Path, killer: Killer
) -> None:
    world = World(tmp_path, killer)
    world.start()
    world.want()
    killer.full = True
    world.subscribe()
    world.publish(7, b"published while full")
    killer.full = False
    world.site.checkpoint()
    killer.arm(1)
    world.run(lambda: world.release(7))
    world.site.settle()
    world.check()
    assert world.kills == 1


def test_what_does_not_fit_into_memory_is_pending_on_disk_after_a_kill(
    tmp_path: Path, killer: Killer
) -> None:
    world = World(tmp_path, killer)
    world.start()
    world.want()
    world.subscribe()
    b, c = world.peers["b"], world.peers["c"]
    owing = world.site.core.neighbour_table["c"].lanes[0].outbox
    owing.memory_bytes = 2_000
    for number in range(20):
        b.publish(*messages(f"b{number}"))
        world.site.exchange(b)
    assert owing.backlog_runs == 20
    assert c.got == []
    killer.arm(1)
    world.run(lambda: world.publish(9, b"the last"))
    world.run(lambda: world.release(9))
    world.site.settle()
    world.check()
    assert c.got == [*b.sent, b"the last"]
    world.site.storage.close()


def test_what_was_dropped_for_want_of_room_does_not_come_back_after_a_kill(
    tmp_path: Path, killer: Killer
) -> None:
    world = World(tmp_path, killer)
    world.start()
    world.want()
    b, c = world.peers["b"], world.peers["c"]
    owing = world.site.core.neighbour_table["c"].lanes[0].outbox
    owing.memory_bytes = owing.disk_bytes = 1_000
    for number in range(20):
        b.publish(*messages(f"b{number}"))
        world.site.exchange(b)
    dropped = owing.dropped["disk"]
    assert 0 < dropped < 20
    killer.arm(1)
    world.run(lambda: world.publish(9, b"killed here"))
    world.site.settle()
    assert c.got == [*b.sent[:-dropped], b"killed here"]
    world.site.storage.close()


def test_a_state_that_is_damaged_leaves_what_is_pending(tmp_path: Path, killer: Killer) -> None:
    world = World(tmp_path, killer)
    world.start()
    world.want()
    world.subscribe()
    b, c = world.peers["b"], world.peers["c"]
    b.publish(*messages("owed"))
    world.site.exchange(b)
    (tmp_path / "state.json").write_text('{"sessions": 5}')
    killer.arm(1)
    world.run(lambda: world.publish(9, b"killed here"))
    world.site.settle()
    assert c.got == [b"owed", b"killed here"]
    assert (tmp_path / "state.damaged").exists()
