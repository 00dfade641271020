"""`brokerweave sim membership` as a user meets it."""

from __future__ import annotations

import json

import pytest

from brokerweave.cli import main
from brokerweave.membership.rules import Rules

SMALL = ["sim", "membership", "--nodes", "5", "--duration", "3", "--crashes", "1", "--changes", "1"]


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main.main([*SMALL, *arguments])
    assert isinstance(caught.value.code, int)
    return caught.value.code


def test_a_run_ends_with_code_0_and_says_what_was_seen(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    shown = capsys.readouterr().out
    assert "until all know a crash" in shown
    assert "declared dead in vain" in shown


def test_json_has_the_options_the_figures_and_what_the_run_took(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--preset", "local", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["options"]["preset"] == "local"
    assert shown["crash_known"]["count"] == 1
    assert shown["bytes_per_node_second"] > 0
    assert shown["cost"].keys() == {"real_seconds", "cpu_seconds", "peak_bytes"}


def test_members_that_do_not_object_end_the_run_with_code_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rules, "accused", lambda *_: None)
    assert run("--loss", "0.6", "--json") == 1
    assert json.loads(capsys.readouterr().out)["false_deaths"] > 0


@pytest.mark.parametrize(
    ("flag", "value", "hint"), [("--preset", "moon", "lan"), ("--loss", "1", "0.99"), ("--nodes", "1", "2")]
)
def test_a_mistake_is_one_line_that_says_what_is_known(
    flag: str, value: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(flag, value) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert hint in line
