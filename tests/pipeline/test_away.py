"""One of three sites is away from the pipeline for a while, under load.

Its clients notice nothing, the others' rows keep flowing, it drains faster than rows arrive, and in the end
gold is what a batch over all of bronze would make. How much faster is printed, not judged: that is the
machine's.
"""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import psutil
import pytest

from brokerweave.pipeline.jobs import checkpoints, partials
from tests.pipeline import lakes
from tests.pipeline.fire import PATIENCE, Driver, Pulse, recording_sites
from tests.support.proxy import Proxy
from tests.support.waiting import wait_until

RATE = 2_000
"""Messages a second at the site that is away."""
OTHERS = 300
MEBIBYTE = 1 << 20

FROM_BRONZE = """
    SELECT time_bucket(INTERVAL 60 SECONDS, received) AS start, site, topic, count(*), sum(t), min(t), max(t)
    FROM (SELECT *, CAST(json_extract(decode(payload), '$.t') AS DOUBLE) AS t FROM rows)
    GROUP BY ALL ORDER BY ALL
"""


def reading(number: int) -> bytes:
    return json.dumps({"n": number, "t": number % 97 / 4}).encode()


def largest_batch(folder: Path) -> tuple[int, float]:
    """Rows and seconds of a stream's largest batch, by what Spark wrote when it was planned and committed."""
    found = [(0, 1.0)]
    for number in range(1, checkpoints.last_batch(folder)):
        before, after = (checkpoints.planned(folder, each) for each in (number - 1, number))
        rows = sum(mark.position.sequence - before[log].position.sequence for log, mark in after.items())
        begun, ended = ((folder / name / str(number)).stat().st_mtime for name in ("offsets", "commits"))
        found.append((rows, ended - begun))
    return max(found)


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("away", [20.0, pytest.param(600.0, marks=pytest.mark.slow)])
def test_a_site_that_is_away_under_load_loses_nothing_and_holds_nobody_up(
    tmp_path: Path, away: float
) -> None:
    with contextlib.ExitStack() as stack:
        kinds = {"a": "mosquitto", "b": "mosquitto", "c": "mosquitto"}
        sites = stack.enter_context(recording_sites(kinds))
        between = stack.enter_context(Proxy(int(sites["c"].address.rpartition(":")[2])))
        addresses = [sites["a"].address, sites["b"].address, f"grpc://127.0.0.1:{between.port}"]
        options = ["--node-timeout", "3"]
        driver = Driver(tmp_path / "lake", tmp_path / "check", addresses, options)
        stack.enter_context(driver)
        driver.start("2 seconds")
        rates = {"a": OTHERS, "b": OTHERS, "c": RATE}
        pulses = {name: Pulse(site.node.port, name, rates[name], reading) for name, site in sites.items()}
        driver.wait_for_more(["a", "b", "c"])
        node = psutil.Process(sites["c"].node.pid)

        between.stall()
        memory, until = node.memory_info().rss, time.monotonic() + away
        for _ in range(3):
            driver.wait_for_more(["a", "b"])
        wait_until(lambda: time.monotonic() > until, "the end of the absence", away + 1)
        grown = node.memory_info().rss - memory
        held = driver.held()["c"]
        assert pulses["c"].trouble == ""
        between.resume()

        wait_until(
            lambda: driver.held()["c"].sequence >= held.sequence + int(0.9 * away * RATE),
            "the rows of the absence",
            PATIENCE,
        )
        for pulse in pulses.values():
            pulse.finish()
            assert pulse.trouble == ""
        assert grown < 32 * MEBIBYTE
        total = sum(pulse.sent for pulse in pulses.values())

        def gold() -> int:
            with contextlib.suppress(FileNotFoundError):
                parts = partials.read(driver.lake / "gold")
                return sum(row["count"] for row in parts.to_pylist() if row["field"] == partials.MESSAGES)
            return 0

        wait_until(lambda: gold() >= total, f"{total} messages in gold", PATIENCE)
        assert driver.terminate() == 0, driver.said()
        rows, seconds = largest_batch(tmp_path / "check" / "bronze" / "c")
        print(f"{rows} rows in {seconds} s, {rows / seconds:.0f} a second; {grown / MEBIBYTE:.1f} MiB more")
        assert rows / seconds > RATE
        assert lakes.query(driver.lake, "bronze", "SELECT count(*) FROM rows") == [(total,)]
        merged = [row for row in partials.read(driver.lake / "gold").to_pylist() if row["field"] == "t"]
        keys = ("window_start", "site", "topic", "count", "sum", "min", "max")
        made = sorted(tuple(row[key] for key in keys) for row in merged)
        again = lakes.query(driver.lake, "bronze", FROM_BRONZE)
        assert [row[1:] for row in made] == [pytest.approx(row[1:]) for row in again]
        assert [row[0].timestamp() for row in made] == [row[0].timestamp() for row in again]
