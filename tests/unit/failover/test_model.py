"""A client's home is killed at every step, in a mesh with delays drawn from a seed."""

import pytest

from tests.unit.failover.model import check, play


def test_without_a_kill_everything_arrives_once() -> None:
    for seed in range(20):
        world = play(seed)
        check(world)
        assert sorted(world.client.got) == sorted(world.published) == sorted(world.acknowledged)


@pytest.mark.parametrize("others", [(), ("e",)], ids=["nobody else", "others where it comes back"])
@pytest.mark.parametrize("seed", range(3))
def test_a_home_may_be_killed_at_any_step(seed: int, others: tuple[str, ...]) -> None:
    steps = play(seed, others=others).steps
    for step in range(1, steps):
        world = play(seed, kills={step: "d"}, others=others)
        check(world)
