"""The eight events as the paper has them, and who does what in each group."""

from __future__ import annotations

from collections import Counter

import pytest

from brokerweave.bench.migration.load import planned, worker_plan
from brokerweave.bench.migration.scenario import (
    CENTRAL,
    EAST,
    GLOBAL,
    WEST,
    EventKind,
    eight_events,
    round_trip,
)
from brokerweave.errors import ConfigError


def test_the_events_are_those_of_the_paper() -> None:
    scenario = eight_events(10, 0, 30)
    kinds = [(event.number, event.kind) for event in scenario.events if event.number]
    assert kinds == [
        (1, EventKind.CLIENTS),
        (2, EventKind.CLIENTS),
        (3, EventKind.SITE),
        (4, EventKind.CLIENTS),
        (5, EventKind.SITE),
        (6, EventKind.SITE),
        (7, EventKind.LEAVE),
        (8, EventKind.STOP),
    ]
    regions = {event.number: {_region(scenario, name) for name in event.names} for event in scenario.events}
    assert regions == {
        0: {CENTRAL},
        1: {CENTRAL, WEST, EAST},
        2: {EAST},
        3: {WEST},
        4: {WEST},
        5: {EAST},
        6: {WEST},
        7: {CENTRAL},
        8: {EAST},
    }


def _region(scenario: object, name: str) -> str:
    everything = [*scenario.sites, *scenario.groups]  # type: ignore[attr-defined]
    return str(next(each.region for each in everything if each.name == name))


def test_a_group_has_ten_gateways_with_a_subscriber_and_seven_publishers_each() -> None:
    scenario = eight_events(10, 0, 30)
    assert scenario.publishers == 2 * 70 + 2
    gateways = [name for group in scenario.groups for name in group.gateway_names]
    assert len(set(gateways)) == len(gateways) == 23
    addresses = {name: ("h", number) for number, name in enumerate(gateways)}
    clients = planned(scenario, addresses)
    group = clients["us-group"]
    at = Counter((each.port, each.publishes) for each in group)
    assert sorted(at.values()) == [1] * 10 + [7] * 10
    numbers = [each.number for some in clients.values() for each in some]
    assert sorted(numbers) == list(range(len(numbers)))


def test_a_process_of_the_load_knows_all_publishers_of_its_topic(tmp_path: object) -> None:
    scenario = eight_events(2, 1, 30, gateways=1)
    gateways = [name for group in scenario.groups for name in group.gateway_names]
    clients = planned(scenario, dict.fromkeys(gateways, ("h", 1)))
    plan = worker_plan(scenario, clients, "global-central", tmp_path, "m", 10.0, True)  # type: ignore[arg-type]
    assert plan.topics[0] == GLOBAL
    assert len(plan.publishers[0]) == 2
    assert (plan.interval, plan.qos, plan.quiet) == (0.5, 1, 0.0)


def test_a_publisher_sends_at_least_one_message_a_second() -> None:
    with pytest.raises(ConfigError, match="at least one message a second"):
        eight_events(0.5, 1, 30)


def test_regions_are_as_far_apart_as_is_said() -> None:
    assert round_trip(EAST, WEST) == round_trip(CENTRAL, EAST) == 0.080
    assert round_trip(WEST, CENTRAL) == 0.020
    assert round_trip(EAST, EAST) == 0
