"""The patterns have the paper's clients, wherever they sit."""

from __future__ import annotations

from collections import Counter

import pytest

from brokerweave.bench.patterns import patterns
from brokerweave.bench.scenario import PRESETS, Scenario, from_dict

ALL = patterns(0.1, PRESETS["short"], makers=("rabbitmq",))


def everybody(scenario: Scenario) -> tuple[Counter[str], Counter[str]]:
    publishers, subscribers = Counter[str](), Counter[str]()
    for group in scenario.groups:
        publishers[group.topic] += group.publishers
        subscribers[group.topic] += group.subscribers
    return publishers, subscribers


@pytest.mark.parametrize("name", ALL)
def test_every_pattern_has_five_topics_with_ten_publishers_and_ten_subscribers(name: str) -> None:
    scenario = ALL[name].scenario
    publishers, subscribers = everybody(scenario)
    for number in range(1, 6):
        assert publishers[f"topic{number}"] == subscribers[f"topic{number}"] == 10
    assert publishers["topic6"] == 1
    assert subscribers["topic6"] == (1 if name == "C apart" else len(scenario.places))
    assert scenario.sp_ratio == 10
    assert scenario.name == name
    assert from_dict(scenario.to_dict()) == scenario


@pytest.mark.parametrize("name", [name for name in ALL if name[0] in "BCD"])
def test_every_site_of_five_has_twenty_clients(name: str) -> None:
    scenario = ALL[name].scenario
    for place in scenario.places:
        groups = [g for g in scenario.groups if g.place == place.name and not g.latency]
        assert sum(g.publishers for g in groups) == sum(g.subscribers for g in groups) == 10
        assert sorted(g.publishers for g in groups) == {"B": [2] * 5, "C": [10], "D": [1, 1, 8]}[name[0]]


def test_latency_is_measured_from_one_end_of_the_row_to_every_site() -> None:
    groups = [group for group in ALL["C sf"].scenario.groups if group.latency]
    assert [group.publishers for group in groups] == [1, 0, 0, 0, 0]
    assert [group.subscribers for group in groups] == [1] * 5


@pytest.mark.parametrize("preset", PRESETS)
def test_latency_is_measured_by_as_many_messages_whatever_the_times(preset: str) -> None:
    made = patterns(0.1, PRESETS[preset], makers=("rabbitmq",))
    counts = {PRESETS[preset].measured / each.scenario.latency_interval for each in made.values()}
    assert counts == {60}


def test_the_large_server_has_ten_times_the_small_ones_share_and_all_sites_the_same() -> None:
    quotas = {name: {place.quota for place in pattern.scenario.places} for name, pattern in ALL.items()}
    assert quotas.pop("mosquitto S2") == {1.0}
    assert set(map(tuple, quotas.values())) == {(0.1,)}


def test_brokers_apart_have_nothing_before_or_between_them() -> None:
    scenario = ALL["C apart"].scenario
    assert scenario.join == "none"
    assert {place.front for place in scenario.places} == {"none"}


def test_nodes_reach_their_brokers_by_unix_sockets_but_for_two_patterns_and_haproxy_both_ways() -> None:
    ways = {name: {(p.front, p.way) for p in pattern.scenario.places} for name, pattern in ALL.items()}
    assert ways.pop("A tcp") == ways.pop("C tcp") == {("node", "tcp")}
    assert ways.pop("haproxy unix") == {("haproxy", "unix")}
    fronts = set().union(*ways.values())
    assert fronts == {("node", "unix"), ("haproxy", "tcp"), ("none", "tcp")}
    assert ALL["C tcp"].scenario.join == ALL["C sf"].scenario.join == "sf"


def test_brokers_of_others_stand_alone() -> None:
    (place,) = ALL["rabbitmq S1"].scenario.places
    assert (place.broker, place.front) == ("rabbitmq", "none")
