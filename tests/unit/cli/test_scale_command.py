"""`brokerweave sim scale` as a user meets it."""

from __future__ import annotations

import json

import pytest

from brokerweave.cli import main
from brokerweave.cooperation.sf import SubscriptionFlooding
from brokerweave.plugin import Route


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main.main(["sim", "scale", "--nodes", "5", "--duration", "40", "--publications", "2", *arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_a_run_ends_with_code_0_and_says_what_it_cost(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    shown = capsys.readouterr().out
    assert "links crossed by each" in shown
    assert "peak memory" in shown


def test_json_has_the_options_the_phases_and_what_the_run_took(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--strategy", "pf", "--shape", "row", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["options"]["strategy"], shown["hops"]) == ("pf", 4)
    assert shown["crossings"] == 4 * shown["published"] > 0
    assert shown["cost"].keys() == {"real_seconds", "cpu_seconds", "peak_bytes", "bytes_per_node"}


def test_a_strategy_that_forgets_neighbours_ends_with_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SubscriptionFlooding, "route", lambda *_: Route((), local=True))
    assert run("--json") == 1
    assert json.loads(capsys.readouterr().out)["missed"] > 0


@pytest.mark.parametrize(
    ("flag", "value", "hint"),
    [
        ("--strategy", "xy", "sf"),
        ("--shape", "circle", "binary"),
        ("--wide", "2", "1"),
        ("--churn", "1001", "1000"),
        ("--publications", "1e9", "1000"),
        ("--filters", "1000001", "1000000"),
        ("--delay", "inf", "60"),
        ("--delay", "nan", "60"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_is_known(
    flag: str, value: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(flag, value) == 2
    error = capsys.readouterr().err
    assert hint in error
    assert len(error.strip().splitlines()) == 1


def test_fewer_different_filters_than_a_client_should_hold_are_enough() -> None:
    assert run("--wide", "1", "--filters", "10", "--holds", "2") == 0


def test_a_run_that_checked_nothing_says_so_and_ends_with_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--publications", "0") == 1
    assert "nothing was checked: no publication came at rest" in capsys.readouterr().err


def test_options_before_the_commands_name_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(["sim", "--strategy", "pf", "scale", "--nodes", "5"])
    assert caught.value.code == 2
    assert "--strategy should come after scale" in capsys.readouterr().err
