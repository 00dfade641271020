"""What patterns are compared with is measured again and again between them."""

from __future__ import annotations

from itertools import pairwise

from brokerweave.bench.patterns import patterns
from brokerweave.bench.scenario import PRESETS
from brokerweave.bench.series import BETWEEN, in_turn

ALL = list(patterns(0.1, PRESETS["short"]).values())


def test_the_single_broker_comes_first_and_last_and_never_far_from_any_other() -> None:
    turns = [(pattern.scenario.name, repeat) for pattern, repeat in in_turn(ALL)]
    singles = [place for place, (name, _) in enumerate(turns) if name == "mosquitto S1"]
    assert [turns[place][1] for place in singles] == list(range(len(singles)))
    assert (singles[0], singles[-1]) == (0, len(turns) - 1)
    assert max(after - before for before, after in pairwise(singles)) == BETWEEN + 1
    others = [name for name, repeat in turns if name != "mosquitto S1" and repeat == 0]
    assert others == [pattern.scenario.name for pattern in ALL[1:]]


def test_without_the_single_broker_nothing_is_measured_twice() -> None:
    assert [repeat for _, repeat in in_turn(ALL[3:9])] == [0] * 6
    assert [pattern for pattern, _ in in_turn(ALL[:1])] == ALL[:1]
