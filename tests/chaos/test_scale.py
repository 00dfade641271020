"""Ten thousand nodes, and a mesh of a thousand: that all is delivered, and that it fits. How long it took is
printed, not judged."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

GIGABYTE = 10**9


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_nodes_finish_ten_minutes_and_miss_nothing() -> None:
    command = [sys.executable, "-m", "brokerweave", "sim", "scale", "--nodes", "10000", "--strategy", "sf"]
    done = subprocess.run([*command, "--json"], stdout=subprocess.PIPE, text=True, timeout=1700, check=True)
    found = json.loads(done.stdout)
    print(found["cost"])
    assert found["options"]["duration"] == 600.0
    assert found["checked"] > 0
    assert (found["missed"], found["doubled"]) == (0, 0)
    assert found["probe_known"] == 10_000
    assert found["probe"]["filters_sent"] == 9_999
    assert found["cost"]["peak_bytes"] < 8 * GIGABYTE


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_mesh_of_a_thousand_nodes_finishes_ten_minutes_and_misses_nothing() -> None:
    command = [sys.executable, "-m", "brokerweave", "sim", "scale", "--nodes", "1000", "--strategy", "mesh"]
    command += ["--churn", "0.5", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=1700, check=True)
    found = json.loads(done.stdout)
    print(found["cost"])
    assert found["options"]["duration"] == 600.0
    assert found["checked"] > 0
    assert (found["missed"], found["doubled"]) == (0, 0)
    assert found["probe_known"] == 1000
    assert found["probe"]["filters_sent"] == 999
    assert found["cost"]["peak_bytes"] < 8 * GIGABYTE
