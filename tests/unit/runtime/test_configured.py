"""Neighbours that the configuration or a command names; links and core write down what they hear."""

from __future__ import annotations

from typing import cast

import pytest

from brokerweave.config import Address
from brokerweave.errors import ConfigError
from brokerweave.node.core import NodeCore
from brokerweave.runtime.configured import Configured
from brokerweave.runtime.neighbours import NodeLinks

HERE, THERE = Address("b.example", 1884), Address("b.example", 1885)


class Table(set[str]):
    def ids(self) -> list[str]:
        return sorted(self)


class Core:
    node_id = "a"

    def __init__(self) -> None:
        self.neighbour_table = Table()

    def add_neighbour(self, neighbour: str) -> None:
        self.neighbour_table.add(neighbour)

    def remove_neighbour(self, neighbour: str) -> None:
        self.neighbour_table.remove(neighbour)


class Dialing:
    def __init__(self) -> None:
        self.heard: list[tuple[str, object]] = []

    def dial(self, neighbour: str, address: Address) -> None:
        self.heard.append((neighbour, address))

    def hang_up(self, neighbour: str, *, removed: bool) -> None:
        self.heard.append((neighbour, "removed" if removed else "hung up"))


class Site:
    def __init__(self) -> None:
        self.core, self.links = Core(), Dialing()
        self.configured = Configured(cast(NodeCore, self.core), cast(NodeLinks, self.links))
        self.commands = self.configured.commands(self.core.neighbour_table.ids)


@pytest.fixture
def site() -> Site:
    made = Site()
    made.configured.add("b", HERE)
    return made


def test_who_is_named_is_a_neighbour_and_dialed(site: Site) -> None:
    assert site.core.neighbour_table == {"b"}
    assert site.links.heard == [("b", HERE)]


def test_who_is_named_no_more_is_removed_and_a_new_address_is_dialed(site: Site) -> None:
    site.configured.add("c", HERE)
    site.links.heard.clear()
    site.configured.change({"b": HERE, "c": HERE}, {"b": THERE})
    assert site.core.neighbour_table == {"b"}
    assert site.links.heard == [("c", "removed"), ("b", "hung up"), ("b", THERE)]


def test_what_did_not_change_stays_connected(site: Site) -> None:
    site.links.heard.clear()
    site.configured.change({"b": HERE}, {"b": HERE})
    assert site.links.heard == []


def test_who_removed_this_node_is_removed_though_it_was_forgotten_already(site: Site) -> None:
    site.core.neighbour_table.clear()
    site.configured.left("b")
    assert site.links.heard[-1] == ("b", "removed")


def test_commands_add_and_remove_and_answer_with_the_neighbours(site: Site) -> None:
    added = site.commands["add_neighbour"]({"id": "c", "address": str(THERE)})
    assert added == {"neighbours": ["b", "c"]}
    assert site.links.heard[-1] == ("c", THERE)
    assert site.commands["remove_neighbour"]({"id": "b"}) == {"neighbours": ["c"]}


@pytest.mark.parametrize(
    ("command", "request_", "reason"),
    [
        ("add_neighbour", {"id": "a", "address": "x:1"}, "this node itself"),
        ("add_neighbour", {"id": "b", "address": "x:1"}, "a neighbour already"),
        ("add_neighbour", {"id": "c", "address": "nowhere"}, "id and address should be"),
        ("remove_neighbour", {"id": "z"}, "known are b"),
    ],
)
def test_a_command_that_makes_no_sense_says_why_and_changes_nothing(
    site: Site, command: str, request_: dict[str, object], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        site.commands[command](request_)
    assert site.core.neighbour_table == {"b"}
    assert site.links.heard == [("b", HERE)]
