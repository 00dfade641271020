"""Killing a node at every single write, and what it finds afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from brokerweave.mqtt.packets import Publish
from tests.unit.runtime.crash_world import Killer, World


@pytest.fixture
def killer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Killer]:
    with monkeypatch.context() as patch:
        yield Killer(patch)


def messages(*payloads: str, qos: int = 2) -> tuple[Publish, ...]:
    return tuple(Publish("t", p.encode(), qos, packet_id=1) for p in payloads)


def scenario(world: World) -> list[Callable[[], None]]:
    """Everything that is written down: runs, sessions, filters, handshakes, positions, checkpoints."""
    b, c = world.peers["b"], world.peers["c"]
    return [
        lambda: world.subscribe("wanted/#"),
        lambda: b.publish(*messages("b1", "b2", "b3")),
        lambda: world.site.settle(),
        lambda: c.publish(*messages("c1")),
        lambda: world.publish(7, b"l1"),
        lambda: world.site.inject(),
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


def live(folder: Path, killer: Killer, kills: list[int]) -> tuple[World, int]:
    """The scenario, killed at the given write, then at the given write after that, ...; changes counted."""
    world = World(folder, killer)
    killer.arm()
    world.start()
    killer.arm(*kills)
    for action in scenario(world):
        world.run(action)
    changes = killer.changes
    killer.arm()
    world.site.settle()
    world.check()
    world.site.storage.close()
    return world, changes


def test_killed_at_any_write_a_node_loses_nothing_and_doubles_nothing(tmp_path: Path, killer: Killer) -> None:
    _, changes = live(tmp_path / "whole", killer, [])
    assert changes > 50
    for at in range(1, changes + 1):
        world, _ = live(tmp_path / str(at), killer, [at])
        assert world.kills == 1, at


@pytest.mark.parametrize("second", range(1, 12))
def test_killed_again_while_it_recovers_it_still_does(tmp_path: Path, killer: Killer, second: int) -> None:
    _, changes = live(tmp_path / "whole", killer, [])
    for at in range(1, changes + 1, 3):
        world, _ = live(tmp_path / str(at), killer, [at, second])
        assert world.kills == 2 or at > changes - second
