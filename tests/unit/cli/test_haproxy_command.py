"""`brokerweave haproxy`: where the nodes come from, and which flags go together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from brokerweave.cli import main
from brokerweave.runtime import admin_client

LISTEN = ["haproxy", "--listen", "127.0.0.1:1883"]
ROWS = [
    {"id": "a", "clients": "127.0.0.1:2001", "health": "127.0.0.1:3001"},
    {"id": "b", "clients": "127.0.0.1:2002", "health": None},
]


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main.main([*LISTEN, *arguments])
    return int(ended.value.code or 0)


def servers(text: str) -> list[str]:
    return [line.split()[1] for line in text.splitlines() if line.startswith("    server ")]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    requests: list[dict[str, object]] = []

    def ask(path: Path, request: dict[str, object]) -> dict[str, Any]:
        requests.append(request)
        return {"servers": ROWS}

    monkeypatch.setattr(admin_client, "ask", ask)
    return requests


def node_file(folder: Path, name: str, port: int) -> str:
    path = folder / f"{name}.toml"
    keys = f'id = "{name}"\nlisten = "127.0.0.1:{port}"\nbroker = "127.0.0.1:1884"\n'
    path.write_text(f'[node]\n{keys}health = "127.0.0.1:{port + 1}"\n')
    return str(path)


def test_flags_alone_ask_nobody(asked: list[dict[str, object]], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--server", "x=127.0.0.1:5,127.0.0.1:6") == 0
    assert servers(capsys.readouterr().out) == ["x"]
    assert asked == []


def test_files_of_nodes_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(node_file(tmp_path, "a", 2000), node_file(tmp_path, "b", 2010)) == 0
    assert servers(capsys.readouterr().out) == ["a", "b"]


def test_a_members_missing_health_port_is_an_error_that_a_flag_mends(
    asked: list[dict[str, object]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run("--socket", str(tmp_path / "socket")) == 2
    assert "node b has no health port" in capsys.readouterr().err
    assert run("--socket", str(tmp_path / "socket"), "--server", "b=127.0.0.1:5,127.0.0.1:6") == 0
    assert servers(capsys.readouterr().out) == ["a", "b"]
    assert asked == [{"do": "servers"}] * 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--watch"], "--watch needs --out"),
        (["--reload-pid", "1"], "need --watch"),
        (["--watch", "--out", "x", "--reload-pid", "1", "--reload-command", "true"], "only one of"),
        (["--id", "a", "a.toml"], "not both"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    assert said in capsys.readouterr().err


def test_an_address_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["haproxy", "--listen", "1883"])
    assert ended.value.code == 2
    assert "--listen should be HOST:PORT" in capsys.readouterr().err
