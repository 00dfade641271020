"""Which retained message should have won, as far as nodes knew."""

from __future__ import annotations

from collections import Counter

from brokerweave.sim.facts import Facts, ModelPublication, Visit
from brokerweave.sim.promises import Promises
from brokerweave.sim.retained import RetainedRules
from brokerweave.sim.world import World

OLDER, NEWER = b"p:1", b"q:1"


def a_run_in_which_c_had_the_older() -> Facts:
    """`NEWER` was sent to c, and then to d."""
    facts = Facts(World("1"), Promises(), Counter(), cluster=True, cyclic=False)
    for payload, client in ((OLDER, "p"), (NEWER, "q")):
        facts.publications[payload] = ModelPublication(payload, client, 1, "c", "t", 1, True, False, 1.0)
        facts.publications[payload].sites.append("c")
    facts.publications[NEWER].sites.append("d")
    visit(facts, "c", OLDER, 2.0, None)
    return facts


def visit(facts: Facts, node: str, payload: bytes, at: float, came_from: str | None) -> None:
    facts.visits[node, payload].append(Visit(at, (node, 1, 0, 1), came_from, True))


def test_what_was_published_where_the_other_had_been_should_have_won() -> None:
    facts = a_run_in_which_c_had_the_older()
    visit(facts, "c", NEWER, 3.0, None)
    assert RetainedRules(facts).newer_than(OLDER) == NEWER


def test_what_its_publisher_sent_again_where_the_other_had_been_should_have_won() -> None:
    facts = a_run_in_which_c_had_the_older()
    visit(facts, "d", OLDER, 2.1, "c")
    visit(facts, "d", NEWER, 3.0, None)
    assert RetainedRules(facts).newer_than(OLDER) == NEWER


def test_what_came_late_to_the_site_that_its_publisher_had_lost_need_not_have_won() -> None:
    facts = a_run_in_which_c_had_the_older()
    visit(facts, "d", NEWER, 1.5, None)
    visit(facts, "c", NEWER, 3.0, "d")
    assert RetainedRules(facts).newer_than(OLDER) is None
