"""`brokerweave bench` as a user calls it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from brokerweave.bench.sink import SinkBroker
from tests.support.waiting import wait_until

SCENARIO = """
interval = 0.02
times = {warm_up = 0.3, measured = MEASURED, cool_down = 0.2}
[[place]]
name = "a"
[[clients]]
place = "a"
topic = "t1"
publishers = 2
subscribers = 3
"""


def command(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    # A temporary folder of its own: no other benchmark on this machine makes it wait.
    return subprocess.Popen(
        [sys.executable, "-m", "brokerweave", "bench", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
    )


def written(folder: Path, measured: str) -> str:
    path = folder / "mine.toml"
    path.write_text(SCENARIO.replace("MEASURED", measured))
    return str(path)


def test_load_starts_the_broker_and_prints_what_came_of_it(tmp_path: Path) -> None:
    child = command(tmp_path, "load", written(tmp_path, "1"), "--json")
    output, errors = child.communicate(timeout=60)
    assert child.returncode == 0, errors
    result = json.loads(output)
    assert result["counters"]["sent"] == pytest.approx(100, abs=20)
    assert result["counters"]["lost"] == 0
    assert (tmp_path / result["folder"] / "run.json").exists()


def test_limit_prints_the_two_figures_that_scripts_rely_on(tmp_path: Path) -> None:
    with SinkBroker(400) as sink:
        place = f"{sink.host}:{sink.port}"
        numbers = (
            "--topics",
            "2",
            "--publishers",
            "5",
            "--subscribers",
            "2",
            "--start",
            "20",
            "--preset",
            "0.4+1+0.1",
        )
        child = command(tmp_path, "limit", "--broker", place, *numbers, "--json")
        output, errors = child.communicate(timeout=110)
    assert child.returncode == 0, errors
    result = json.loads(output)
    assert result["ingress_per_second"] == pytest.approx(400, rel=0.25)  # with other tests beside it
    assert result["egress_per_second"] == pytest.approx(2 * result["ingress_per_second"], rel=0.05)


def test_sigterm_ends_it_and_everything_that_it_started(tmp_path: Path) -> None:
    child = command(tmp_path, "load", written(tmp_path, "60"), "--to", str(tmp_path / "run"))
    begun = tmp_path / "run" / "measurements" / "0001" / "receives-0.arrow.part"
    wait_until(begun.exists, "the load", 30)
    children = _children(child.pid)
    assert len(children) >= 3
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=20)
    assert child.returncode == 143
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in children):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not (begun.parent / "measurement.json").exists()


def _children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_mistake_is_one_line_and_code_2(tmp_path: Path) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(SCENARIO.replace("MEASURED", "1").replace("interval", "intervall"))
    child = command(tmp_path, "load", str(path))
    _, errors = child.communicate(timeout=30)
    assert child.returncode == 2
    assert "did you mean 'interval'?" in errors
    assert errors.count("\n") == 1
