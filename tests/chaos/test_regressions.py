"""Schedules that once found a bug, or were taken for one, cut down to what it took: each must hold now.

The cases are files. `regressions/bugs` has what broke a promise, `regressions/false_alarms` what broke none
and was said to. A file tells the story in its first comment, and has the seed, the options of the run and its
actions: the time, the kind, the arguments. `regressions/mesh_runs.toml` has whole runs, by their seeds.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from brokerweave.sim.run import SimOptions, run
from brokerweave.sim.schedule import Action

FOLDER = Path(__file__).parent / "regressions"
MESH_RUNS = tomllib.loads((FOLDER / "mesh_runs.toml").read_text())


def files(kind: str) -> list[str]:
    return sorted(file.stem for file in (FOLDER / kind).glob("*.toml"))


def load(kind: str, name: str) -> tuple[int, SimOptions, list[Action]]:
    case = tomllib.loads((FOLDER / kind / f"{name}.toml").read_text())
    seed, actions = case.pop("seed"), case.pop("actions")
    return seed, SimOptions(**case), [Action(at, what, tuple(given)) for at, what, *given in actions]


@pytest.mark.parametrize("seed", MESH_RUNS)
def test_a_run_that_once_broke_the_mesh_holds(seed: str) -> None:
    problem = run(int(seed), SimOptions("mesh", 4)).problem
    assert not problem, f"{MESH_RUNS[seed]}; now: {problem}"


@pytest.mark.parametrize("name", files("bugs"))
def test_a_bug_once_found_does_not_return(name: str) -> None:
    assert run(*load("bugs", name)).problem == ""


@pytest.mark.parametrize("name", files("false_alarms"))
def test_what_breaks_no_promise_is_not_said_to(name: str) -> None:
    assert run(*load("false_alarms", name)).problem == ""
