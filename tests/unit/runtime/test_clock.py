"""The node's time of day beside a machine's clock that is set while it runs."""

from __future__ import annotations

import time

import pytest

from brokerweave.runtime.clock import Clock


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    times = {"wall": 1_000_000.0, "steady": 50.0}
    monkeypatch.setattr(time, "time", lambda: times["wall"])
    monkeypatch.setattr(time, "monotonic", lambda: times["steady"])
    return times


def test_time_runs_with_the_steady_clock_until_a_step_is_followed(machine: dict[str, float]) -> None:
    clock = Clock()
    machine["steady"] += 2.0
    machine["wall"] += 3602.0
    assert clock.now() == 1_000_002.0
    assert clock.follow() == 3600.0
    assert clock.now() == 1_003_602.0


def test_a_clock_that_was_set_back_is_followed_and_said(
    machine: dict[str, float], caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    machine["wall"] -= 60.0
    clock.follow()
    assert clock.now() == machine["wall"]
    assert "changed by -60.0 s" in caplog.text


def test_the_difference_of_two_readings_is_no_step(machine: dict[str, float]) -> None:
    clock = Clock()
    machine["wall"] += 0.001
    assert clock.follow() == 0.0
    assert clock.now() == 1_000_000.0
