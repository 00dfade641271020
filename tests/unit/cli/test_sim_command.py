"""`brokerweave sim` as a user meets it."""

from __future__ import annotations

import json

import pytest

from brokerweave.cli import main
from brokerweave.sim.schedule import FAULTS, SPLIT
from tests.chaos.planted_bugs import sf_forgets_a_neighbour_that_is_down


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main.main(["sim", *arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_seeds_that_hold_end_with_code_0_and_a_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--seeds", "2", "--nodes", "2", "--faults", "none", "--duration", "5", "--processes", "1") == 0
    assert "2 of 2 seeds hold" in capsys.readouterr().out


def test_a_seed_that_fails_ends_with_code_1_its_shortest_schedule_and_a_trace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sf_forgets_a_neighbour_that_is_down(monkeypatch)
    assert run("--seeds", "8", "--nodes", "3", "--cycles", "none", "--processes", "1", "--json") == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["failed"]
    assert shown["shortest"]["seed"] == shown["failed"][0]["seed"]
    assert shown["shortest"]["schedule"]
    assert shown["shortest"]["trace"]


@pytest.mark.parametrize(
    ("flag", "value", "hint"),
    [
        ("--strategy", "xy", "sf"),
        ("--faults", "kill,earthquake", "partition"),
        ("--nodes", "1", "2"),
        ("--cycles", "some", "stand-by"),
        ("--set", "mesh.windw=1", "did you mean 'window'"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_is_known(
    flag: str, value: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(flag, value) == 2
    error = capsys.readouterr().err
    assert hint in error
    assert len(error.strip().splitlines()) == 1


def test_help_names_every_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    words = set(capsys.readouterr().out.replace(",", " ").replace(";", " ").split())
    assert {*FAULTS, SPLIT} <= words
