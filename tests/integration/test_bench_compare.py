"""`brokerweave bench compare` with real brokers and nodes, and a strategy that is not ours."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.integration.test_bench_command import command

HUB = "examples.strategy_hub:Hub"
ROOT = Path(__file__).parents[2]


def test_strategies_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))))
    flags = ("--nodes", "2", "--rate", "40", "--seconds", "1", "--to", "run", "--json")
    child = command(tmp_path, "compare", "--strategy", "sf", "--strategy", HUB, *flags)
    output, errors = child.communicate(timeout=240)
    assert child.returncode == 0, errors
    sf, hub = json.loads(output)["strategies"]
    assert (sf["name"], hub["name"]) == ("sf", "hub")
    for each in (sf, hub):
        assert each["out_per_s"] > 0
        assert each["latency_ms"] > 0
        assert each["memory"] > 0
        assert each["lost"] == 0
    assert sf["control_bytes"] > hub["control_bytes"]
    assert "Compared" in (tmp_path / "run" / "report.md").read_text()


def test_an_unknown_strategy_is_one_line_that_names_the_nearest(tmp_path: Path) -> None:
    child = command(tmp_path, "compare", "--strategy", "sff")
    _, errors = child.communicate(timeout=60)
    assert child.returncode == 2
    assert "did you mean 'sf'" in errors
    assert len(errors.strip().splitlines()) == 1
