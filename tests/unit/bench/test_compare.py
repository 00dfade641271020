"""What `bench compare` runs, and how it says what came of it."""

from __future__ import annotations

import pytest

from brokerweave.bench.compare import HEAD, Compared, rows_of, scenario, series
from brokerweave.bench.scenario import from_dict
from brokerweave.cli.bench_commands import with_options
from brokerweave.errors import ConfigError
from brokerweave.lab.wiring import called, links
from brokerweave.plugin import NetworkShape

HUB = "examples.strategy_hub:Hub"


def test_only_the_strategy_differs() -> None:
    sf, hub = series(("sf", HUB), 3, 90.0, 1.0, "mosquitto")
    assert (sf.name, hub.name, hub.join) == ("sf", "hub", HUB)
    assert (sf.places, sf.groups, sf.interval) == (hub.places, hub.groups, hub.interval)
    assert sf.rate == pytest.approx(90.0)


def test_every_topic_is_heard_at_home_and_at_another_site() -> None:
    made = scenario("pf", 3, 60.0, 1.0, "mosquitto")
    for number in range(1, 4):
        heard = {
            group.place for group in made.groups if group.topic == f"topic{number}" and group.subscribers
        }
        assert heard == {f"site{number}", f"site{number % 3 + 1}"}


def test_an_option_goes_to_the_strategy_that_has_it() -> None:
    made = series(("sf", HUB), 3, 90.0, 1.0, "mosquitto")
    sf, hub = with_options(made, ["hub.centre=site2"])
    assert (sf.options, hub.options) == ({}, {"centre": "site2"})
    assert from_dict(hub.to_dict()) == hub


@pytest.mark.parametrize("text", ["hbu.centre=a", "mesh.copies=2", "hub.center=a", "hub.centre=3", "hub"])
def test_an_option_that_nothing_measured_has_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        with_options(series(("sf", HUB), 3, 90.0, 1.0, "mosquitto"), [text])


@pytest.mark.parametrize("options", [{"center": "a"}, {"centre": 3}, "centre"])
def test_options_in_a_file_are_checked_as_flags_are(options: object) -> None:
    described = scenario(HUB, 3, 60.0, 1.0, "mosquitto").to_dict()
    with pytest.raises(ConfigError, match="options"):
        from_dict(described | {"options": options})


@pytest.mark.parametrize("strategies", [("sf", "sf"), ("sf", "bridges"), ("sg",)])
def test_what_cannot_be_compared_is_refused(strategies: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        series(strategies, 3, 60.0, 1.0, "mosquitto")


def test_ratios_are_to_the_first_and_nothing_is_divided_by_none() -> None:
    first = Compared("pf", 200.0, 4.0, 8.0, 0, 1 << 20, 0)
    second = Compared("sf", 100.0, 2.0, 12.0, 900, 2 << 20, 1)
    shown = rows_of([first, second])
    assert shown[0] == ["pf", "200", "4", "8", "0", "1", "0"]
    assert shown[1] == ["sf", "100 (x 0.50)", "2 (x 0.50)", "12 (x 1.50)", "900", "2 (x 2.00)", "1"]
    assert len(shown[0]) == len(HEAD)


@pytest.mark.parametrize(
    ("wiring", "dialed", "counts"),
    [
        (NetworkShape.TREE, [(), ("a",), ("b",), ("c",)], [1, 2, 2, 1]),
        (NetworkShape.STAR, [(), ("a",), ("a",), ("a",)], [3, 1, 1, 1]),
        (NetworkShape.FULL, [(), ("a",), ("a", "b"), ("a", "b", "c")], [3, 3, 3, 3]),
    ],
)
def test_nodes_are_linked_as_the_strategy_needs(
    wiring: NetworkShape, dialed: list[tuple[str, ...]], counts: list[int]
) -> None:
    assert [called(wiring, "abc"[:number]) for number in range(4)] == dialed
    assert [links(wiring, number, 4) for number in range(4)] == counts
