"""`brokerweave pipeline telemetry` as a user meets it, without Spark."""

from __future__ import annotations

import pytest
import typer
from typer.testing import CliRunner

from brokerweave.cli import telemetry_command
from brokerweave.errors import ConfigError


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command("other")(lambda: None)  # with one command alone, its name would not be needed
    telemetry_command.register(made)
    return made


@pytest.mark.parametrize("flags", [[], ["--nodes", "127.0.0.1:1", "--from", "lake"]])
def test_where_to_read_from_has_to_be_said_once(app: typer.Typer, flags: list[str]) -> None:
    result = CliRunner().invoke(app, ["telemetry", *flags])
    assert isinstance(result.exception, ConfigError)
    assert "--nodes" in str(result.exception)


def test_nodes_stand_above_their_total_and_average(capsys: pytest.CaptureFixture[str]) -> None:
    node = {"node": "a", "strategy": "sf", "messages_in": 12345, "cpu": 0.25, "bytes_in_rate": 1500.0}
    node |= {"latency": 0.0123, "roles": '{"shadow":5}'}
    together = {"messages_in": 12345.0, "memory_bytes": 2.5e9, "cpu": None}
    telemetry_command.show([node], [{"cluster": "total", **together}, {"cluster": "average", **together}])
    shown = capsys.readouterr().out
    lines = [line.split()[0] for line in shown.splitlines() if line.split()]
    assert lines.index("a") < lines.index("total") < lines.index("average")
    for text in ("12,345", "0.25", "1.5 KB", "2.50 GB", "12.3 ms", '{"shadow":5}'):
        assert text in shown
