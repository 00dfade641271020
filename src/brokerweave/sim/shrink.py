"""Shortens a failing schedule to what is needed to fail.

Owns delta debugging over a schedule's actions: it leaves out ever smaller pieces, as long as the rest still
fails. Invariant: the result fails in the same way, as far as the error text can tell. Must not know: what an
action does.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from brokerweave.sim.run import SeedOutcome, SimOptions, run
from brokerweave.sim.schedule import Action

_DETAIL = re.compile(r"b'[^']*'|\d+|\{[^}]*\}|\([^)]*\)|\b[a-z](-\d+)?\b")


def kind_of(problem: str) -> str:
    """A problem without names and numbers: the same again is the same bug, most likely."""
    return _DETAIL.sub("_", problem)


def shrink(failed: SeedOutcome, options: SimOptions, attempts: int = 400) -> SeedOutcome:
    """The failure again, with as few actions as `attempts` runs could find."""
    best = failed
    wanted = kind_of(failed.problem)

    def fails(actions: list[Action]) -> SeedOutcome | None:
        outcome = run(failed.seed, options, actions)
        return outcome if outcome.problem and kind_of(outcome.problem) == wanted else None

    before = [action for action in failed.actions if action.at <= failed.at]
    best = fails(before) or best
    return _reduce(best, fails, attempts)


def _reduce(
    best: SeedOutcome, fails: Callable[[list[Action]], SeedOutcome | None], attempts: int
) -> SeedOutcome:
    size = max(len(best.actions) // 2, 1)
    while attempts > 0:
        at, found = 0, False
        while at < len(best.actions) and attempts > 0:
            attempts -= 1
            smaller = fails(best.actions[:at] + best.actions[at + size :])
            if smaller is None:
                at += size
            else:
                best, found = smaller, True
        if size == 1 and not found:
            break
        size = max(size // 2, 1)
    return best
