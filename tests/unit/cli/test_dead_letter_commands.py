"""`dead-letters`: what is asked of the node, and how letters are shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from brokerweave.cli import main
from brokerweave.cli.dead_letter_commands import letter_lines
from brokerweave.runtime import admin_client

LETTER: dict[str, Any] = {
    "id": 3,
    "when": 1.7e9,
    "topic": "a\x1b[2J.b",
    "qos": 1,
    "size": 30,
    "reason": "the broker closed the connection",
}
ANSWER = {"letters": [LETTER], "retried": 2, "kept": [5, 6], "dropped": 4, **LETTER}


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[Mapping[str, object] | None, int]:
    asked: list[Mapping[str, object]] = []

    def ask(path: Path, request: Mapping[str, object]) -> dict[str, Any]:
        asked.append(request)
        return ANSWER

    monkeypatch.setattr(admin_client, "ask", ask)
    with pytest.raises(SystemExit) as caught:
        main.main(["dead-letters", *arguments, "--socket", "a.sock"])
    assert isinstance(caught.value.code, int)
    return (asked[0] if asked else None), caught.value.code


@pytest.mark.parametrize(
    ("arguments", "request_", "words"),
    [
        (["ls"], {"do": "dead_letters"}, ["3", "closed the connection", "a\\x1b[2J.b"]),
        (["show", "3"], {"do": "show_dead_letter", "id": 3}, ["not kept"]),
        (["retry", "3"], {"do": "retry_dead_letters", "id": 3}, ["retried 2", "5, 6"]),
        (["retry", "all"], {"do": "retry_dead_letters", "id": "all"}, ["retried 2"]),
        (["drop", "3"], {"do": "drop_dead_letters", "id": 3}, ["dropped 4"]),
        (["drop", "all"], {"do": "drop_dead_letters", "id": "all"}, ["dropped 4"]),
    ],
)
def test_each_command_asks_its_question_and_says_what_came_of_it(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    request_: dict[str, object],
    words: list[str],
) -> None:
    assert run(monkeypatch, *arguments) == (request_, 0)
    shown = capsys.readouterr().out
    assert [word for word in words if word not in shown] == []
    assert "\x1b" not in shown


@pytest.mark.parametrize("arguments", [["show", "x"], ["retry", "x"], ["drop", "-"], ["retry"], []])
def test_a_letter_that_has_no_number_is_bad_usage(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    assert run(monkeypatch, *arguments) == (None, 2)


def test_a_payload_is_shown_with_how_much_of_it_there_is() -> None:
    lines = letter_lines({**LETTER, "payload_size": 3, "payload": {"hex": "ff00ff"}})
    assert lines[-2:] == ["payload  3 bytes, as hex:", "ff00ff"]
    lines = letter_lines({**LETTER, "payload_size": 5000, "payload": {"text": "ü"}})
    assert lines[-2:] == ["payload  5000 bytes, the first 2, as text:", "ü"]
