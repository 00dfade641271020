"""The demo with its pipeline: gold has what the sensors sent, and the lake is where it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from brokerweave import lab
from brokerweave.demo.lake import DemoPipeline
from brokerweave.errors import ConfigError
from tests.pipeline import lakes

BROKERS = ["--broker", "amqtt", "--broker", "mosquitto", "--broker", "amqtt"]


@pytest.mark.timeout(400)
def test_the_demo_ends_with_the_gold_table_of_what_its_sensors_sent(tmp_path: Path) -> None:
    for name in ("mosquitto", "amqtt"):
        if reason := lab.BROKERS[name].missing():
            pytest.skip(reason)
    lake = tmp_path / "lake"
    command = [sys.executable, "-m", "brokerweave", "demo", "--plain", "--seconds", "6", "--lake", str(lake)]
    done = subprocess.run([*command, *BROKERS], capture_output=True, text=True, timeout=380)
    assert done.returncode == 0, done.stdout + done.stderr
    published = re.search(r"acknowledged to the sensor +([\d,]+)", done.stdout)
    assert published is not None
    sensors = re.findall(r"^ ?[abc] +plant/[abc]/sensor/s[12] +(\d+) ", done.stdout, re.MULTILINE)
    assert len(sensors) == 6
    assert sum(map(int, sensors)) == int(published[1].replace(",", ""))
    assert f"The lake is in {lake}" in done.stdout
    rows = lakes.query(lake, "silver", "SELECT count(*) FROM rows")
    assert rows == [(sum(map(int, sensors)),)]


def test_a_folder_that_is_no_lake_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("...")
    with pytest.raises(ConfigError, match="no lake"):
        DemoPipeline(tmp_path / "letters").check()
