"""The demo in a short form, as a user without a terminal sees it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from brokerweave import lab
from tests.support.verdicts import keeps

BROKERS = ["--broker", "amqtt", "--broker", "mosquitto", "--broker", "amqtt"]
SHORT = ["--seconds", "6", "--no-pipeline", "--no-mesh", *BROKERS]
START_SECONDS = 30.0
END_SECONDS = 60.0


@pytest.fixture(autouse=True)
def _brokers() -> None:
    for name in ("mosquitto", "amqtt"):
        if reason := lab.BROKERS[name].missing():
            pytest.skip(reason)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short name: a socket's path has some hundred characters at most, and pytest's folders are deep."""
    with tempfile.TemporaryDirectory(prefix="bw-") as name:
        yield Path(name)


@pytest.fixture
def demo(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A running demo whose temporary files go to `folder`."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "brokerweave", "demo", *SHORT],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)},
    )
    with process:
        yield process
        process.kill()


def count(name: str, output: str) -> int:
    found = re.search(rf"^ ?{name}\D*?([\d,]+) *$", output, re.MULTILINE)
    assert found, f"no line {name!r} in:\n{output}"
    return int(found[1].replace(",", ""))


def test_the_demo_kills_a_node_and_loses_nothing(demo: subprocess.Popen[str], folder: Path) -> None:
    output, _ = demo.communicate(timeout=END_SECONDS)
    assert demo.returncode == 0, output
    assert "node b killed" in output
    assert "node b is back" in output
    published = count("published, acknowledged to the sensor", output)
    assert published > 100
    assert count("delivered", output) == 3 * published
    keeps((count("lost", output), count("doubled", output)) == (0, 0), output)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after", ["starting", "sensors start"])
def test_a_demo_that_is_stopped_leaves_nothing_behind(
    demo: subprocess.Popen[str], folder: Path, number: signal.Signals, after: str
) -> None:
    assert demo.stdout is not None
    deadline = time.monotonic() + START_SECONDS
    while after not in demo.stdout.readline():
        assert time.monotonic() < deadline
    demo.send_signal(number)
    output, _ = demo.communicate(timeout=END_SECONDS)
    assert demo.returncode == 130
    assert "Traceback" not in output
    # Every child's configuration lies in its own folder there, and is named on its command line.
    left = [p.info["cmdline"] for p in psutil.process_iter(["cmdline"])]
    assert [line for line in left if any(str(folder) in word for word in line or ())] == []
    assert list(folder.iterdir()) == []
