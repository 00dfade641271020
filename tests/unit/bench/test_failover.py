"""What is killed in a failover's scenario, when, and what its clients need for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from brokerweave.bench.failover import SHORT, failover, series
from brokerweave.bench.scenario import Kill, from_dict
from brokerweave.errors import ConfigError

ONE, TWO = series((1, 2), 20, "mesh", 0.2, SHORT)


def test_one_and_two_of_four_are_killed_at_the_same_moment() -> None:
    assert [kill.place for kill in ONE.kills] == ["site4"]
    assert [kill.place for kill in TWO.kills] == ["site4", "site3"]
    assert {kill.at for kill in TWO.kills} == {TWO.times.measured / 3}
    assert ONE.name != TWO.name


def test_the_rate_is_that_of_pairs_and_all_is_acknowledged() -> None:
    assert ONE.rate == pytest.approx(1000)
    assert (ONE.qos, ONE.subscriber_qos) == (2, 2)
    assert from_dict(ONE.to_dict()) == ONE


def test_a_run_without_a_kill_is_possible_to_compare_with() -> None:
    assert failover(0, 20, "mesh", 0.2, SHORT).kills == ()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kills": (Kill("nowhere", 1),)}, "no place"),
        ({"kills": (Kill("site1", 99),)}, "within the measured"),
        ({"kills": tuple(Kill(f"site{n}", 1) for n in (1, 2, 3, 4))}, "one place must stay"),
        ({"subscriber_qos": 0}, "above 0"),
    ],
)
def test_a_kill_that_makes_no_sense_is_refused(change: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        replace(ONE, **change)  # type: ignore[arg-type]


def test_one_broker_alone_has_nothing_to_fail_over_to() -> None:
    with pytest.raises(ConfigError, match="one broker alone has no other to fail over to"):
        failover(1, 20, "none", 0.2, SHORT)
