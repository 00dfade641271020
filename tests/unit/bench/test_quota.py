"""What is written into a CPU group."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from brokerweave.bench import quota
from brokerweave.bench.quota import Quotas, settings_for


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1, 0.15, 0.5, 1.0, 2.0])
def test_a_group_gets_its_share_and_the_kernel_its_least_quota(share: float) -> None:
    settings = settings_for(share)
    quota, period = settings["cpu.cfs_quota_us"], settings["cpu.cfs_period_us"]
    assert quota / period == pytest.approx(share, rel=0.01)
    assert quota >= 1000
    assert 10_000 <= period <= 1_000_000


def test_from_a_tenth_of_a_core_on_the_period_is_short() -> None:
    assert settings_for(0.1)["cpu.cfs_period_us"] == 10_000


def test_groups_that_a_killed_benchmark_left_are_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "group_of", lambda: tmp_path)
    dead, alive = (tmp_path / f"brokerweave-bench-{pid}" for pid in (2**30, os.getppid()))
    (dead / f"brokerweave-bench-{2**30 + 1}").mkdir(parents=True)
    alive.mkdir()
    Quotas().go_first()
    assert not dead.exists()
    assert alive.exists()
