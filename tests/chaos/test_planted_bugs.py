"""The simulator bites: every planted bug is found within 300 seeds."""

from __future__ import annotations

import re

import pytest

from brokerweave.sim.run import SimOptions, run
from tests.chaos.planted_bugs import PLANTED

SEEDS = 300
FOUND_AT = {
    "window_accepts_everything": 31,
    "lane_forgets_what_arrived": 20,
    "qos2_ids_are_not_remembered": 30,
    "sf_does_not_ask_for_what_a_withdrawn_filter_covered": 14,
    "the_first_confirmation_counts_for_all": 170,
    "outbox_lets_new_runs_overtake_those_on_disk": 16,
    "the_end_of_a_connection_ends_the_session_of_its_heir": 26,
    "a_mark_is_answered_before_those_behind_have_heard": 143,
    "qos2_ids_are_not_in_the_write_ahead_log": 38,
    "stamps_do_not_pass_those_of_other_nodes": 90,
}
"""The first seed that finds a bug, where that is late: tried before all others, to save time."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTED[name](monkeypatch)
    for seed in (FOUND_AT.get(name, 1), *range(1, SEEDS + 1)):
        options = SimOptions(strategy="pf" if seed % 4 == 0 else "sf", nodes=3 + seed % 3)
        problem = run(seed, options).problem
        if problem:
            assert not re.search(r"Error[:(]", problem), "the patch itself is broken"
            return
    pytest.fail(f"{name} was not found in {SEEDS} seeds")
