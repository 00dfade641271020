"""A client's home is killed at every step, in a mesh with delays drawn from a seed."""

from random import Random

import pytest

from tests.unit.care.model import check, play


def test_without_a_kill_everything_arrives_once() -> None:
    for seed in range(10):
        world = play(seed)
        check(world)
        assert sorted(world.client.got) == sorted(world.published) == sorted(world.acknowledged)


@pytest.mark.parametrize("others", [(), ("e",)], ids=["alone", "others"])
def test_a_home_may_be_killed_at_any_step(others: tuple[str, ...]) -> None:
    """With and without other clients who want the same where it comes back."""
    steps = play(1, others=others).steps
    for step in range(1, steps):
        check(play(1, kills={step: "d"}, others=others))


@pytest.mark.parametrize("part", range(4))
def test_with_three_copies_two_nodes_may_be_killed(part: int) -> None:
    """The home and one more: a publisher's node, a holder, the next home, in any order."""
    random = Random(part)
    moves = 0
    for _ in range(60):
        seed, others = random.randrange(1 << 30), random.choice(((), ("e",), ("e", "f")))
        first = random.randrange(1, 300)
        second = first + random.choice((1, 20, 100, 200))
        victims = random.choice(("de", "de", "dp", "dx", "dy", "df", "xd", "pd", "ed"))
        kills = dict(zip((first, second), victims, strict=True))
        world = play(seed, copies=3, kills=kills, others=others)
        try:
            check(world)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, kills {kills}, others {others}: {error}") from None
        moves += world.client.connection
    assert moves > 60
