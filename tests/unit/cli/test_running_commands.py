"""`status` and `neighbours`: which node is asked, what is asked, and how the answer is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from brokerweave.cli import main
from brokerweave.cli.status_view import duration, members_view, neighbours_view, status_view
from brokerweave.errors import BrokerweaveError, ConfigError, Unavailable
from brokerweave.runtime import admin_client

STATUS: dict[str, Any] = {
    "node": {
        "id": "a",
        "state": "running",
        "uptime": 75.2,
        "version": "0.1.0",
        "strategy": "sf",
        "epoch": 3,
        "broker": {"address": "127.0.0.1:1884", "reachable": False, "abilities": {}},
    },
    "sessions": {"open": 12, "accepted": 1300, "refused": 2, "remembered": 5},
    "links": [
        {
            "neighbour": "b",
            "state": "down",
            "lanes_up": 1,
            "lanes": 2,
            "backlog_messages": 4321,
            "backlog_bytes": 99,
            "oldest_seconds": 61,
            "sent": 5,
            "received": 6,
            "filters_from": 7,
            "filters_to": 8,
        }
    ],
    "injectors": [{"lane": 0, "state": "waiting", "reason": "refused", "injected": 17}],
    "filters": {"local": 2},
    "counters": {"duplicates_suppressed": 21, "never_happened": 0},
    "drops": {"outbox_full": 31},
    "warnings": ["no data_dir"],
}


def text_of(*parts: Any) -> str:
    console = Console(width=160, markup=False, highlight=False)
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    return captured.get()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, Mapping[str, object]]]:
    """What would have been sent to a node, which answers with STATUS."""
    requests: list[tuple[Path, Mapping[str, object]]] = []

    def ask(path: Path, request: Mapping[str, object]) -> dict[str, Any]:
        requests.append((path, request))
        return STATUS

    monkeypatch.setattr(admin_client, "ask", ask)
    return requests


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        (["status"], {"do": "status"}),
        (["neighbours", "list"], {"do": "neighbours"}),
        (["members"], {"do": "members"}),
        (["neighbours", "add", "b=[::1]:7"], {"do": "add_neighbour", "id": "b", "address": "[::1]:7"}),
        (["neighbours", "remove", "b"], {"do": "remove_neighbour", "id": "b"}),
    ],
)
def test_each_command_asks_its_question_of_the_socket_that_was_named(
    asked: list[tuple[Path, Mapping[str, object]]], arguments: list[str], request_: dict[str, object]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main([*arguments, "--socket", "a.sock"])
    assert caught.value.code == 0
    assert asked == [(Path("a.sock"), request_)]


def test_members_of_a_node_without_membership_are_said_to_be_none(
    asked: list[tuple[Path, Mapping[str, object]]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(["members", "--socket", "a.sock"])
    assert caught.value.code == 0
    assert "it has no [membership]" in capsys.readouterr().out


def test_json_prints_the_answer_as_it_came(
    asked: list[tuple[Path, Mapping[str, object]]], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main.main(["status", "--json", "--socket", "a.sock"])
    assert json.loads(capsys.readouterr().out) == STATUS


def test_status_shows_what_an_operator_looks_for() -> None:
    shown = text_of(*status_view(STATUS))
    wanted = [
        "node a",
        "running",
        "up 1 min 15 s",
        "not reachable",
        "open 12",
        "1 of 2",
        "4,321",
        "1 min 1 s",
    ]
    wanted += [
        "waiting: refused",
        "17",
        "duplicates suppressed",
        "21",
        "outbox full",
        "31",
        "warning: no data_dir",
    ]
    assert [word for word in wanted if word not in shown] == []
    assert "never happened" not in shown


@pytest.mark.parametrize("key", sorted(STATUS))
def test_status_of_a_node_that_sends_less_is_still_shown(key: str) -> None:
    for less in ({k: v for k, v in STATUS.items() if k != key}, {**STATUS, key: None}, {**STATUS, key: {}}):
        assert "sessions" in text_of(*status_view(less))


def test_members_are_shown_with_state_incarnation_and_round_trip() -> None:
    row = {"member": "b", "state": "suspect", "incarnation": 4, "round_trip_ms": 0.25, "address": "h:7946"}
    shown = text_of(members_view({"members": [row]}), *status_view({**STATUS, "members": [row]}))
    assert [shown.count(word) for word in ("suspect", "0.25", "h:7946")] == [2, 2, 2]


def test_neighbours_are_shown_with_address_and_state() -> None:
    shown = text_of(
        neighbours_view(
            {
                "neighbours": [
                    {"neighbour": "b", "address": "h:1", "state": "up", "role": "active"},
                    {"neighbour": "c"},
                ]
            }
        )
    )
    rows = [line.split() for line in shown.splitlines()]
    assert ["b", "h:1", "up", "active"] in rows
    assert ["c", "-", "-", "-"] in rows


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.26, "0.3 s"),
        (59.9, "59 s"),
        (60, "1 min 0 s"),
        (3725, "1 h 2 min"),
        (90_000, "1 d 1 h"),
        (None, "-"),
        (True, "-"),
    ],
)
def test_a_duration_reads_as_people_say_it(seconds: object, words: str) -> None:
    assert duration(seconds) == words


def test_a_good_answer_is_its_result() -> None:
    assert admin_client.understand(b'{"ok": true, "result": {"x": 1}}\n', Path("s")) == {"x": 1}


def test_a_refusal_is_an_error_in_the_nodes_words() -> None:
    with pytest.raises(BrokerweaveError, match="no such neighbour"):
        admin_client.understand(b'{"ok": false, "error": "no such neighbour"}\n', Path("s"))


@pytest.mark.parametrize("answer", [b"", b"{", b"[]", b"3", b'{"ok": true}', b'{"ok": false}', b"\xff"])
def test_an_answer_that_makes_no_sense_is_no_node(answer: bytes) -> None:
    with pytest.raises(Unavailable, match="is not brokerweave"):
        admin_client.understand(answer, Path("s"))


def sockets(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    paths = tuple(Path(f"{name}.sock") for name in names)
    monkeypatch.setattr(admin_client, "running_sockets", lambda: paths)


def test_the_only_node_that_answers_is_meant_when_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    sockets(monkeypatch, "a", "dead")
    assert admin_client.find(None, None, None, alive=lambda path: path.stem != "dead") == Path("a.sock")


def test_several_nodes_must_be_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    sockets(monkeypatch, "a", "b")
    with pytest.raises(ConfigError, match=r"2 nodes run here \(a, b\)"):
        admin_client.find(None, None, None, alive=lambda path: True)


def test_no_running_node_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    sockets(monkeypatch)
    with pytest.raises(Unavailable, match="no node of this user runs here"):
        admin_client.find(None, None, None)


def test_a_node_is_found_by_its_id_or_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    file = tmp_path / "a.toml"
    file.write_text('[node]\nid = "a"\nlisten = "h:1"\nbroker = "h:2"\nadmin_socket = "x.sock"\n')
    assert admin_client.find(None, "b", None) == tmp_path / "brokerweave" / "b.sock"
    assert admin_client.find(None, None, file) == tmp_path / "x.sock"
