"""The Parquet sink below a real streaming query whose driver and workers are killed again and again."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.pipeline.lake import rows, seen
from tests.pipeline.test_publishing import expected
from tests.support.verdicts import once_each

DEADLY_STEPS = (
    "before staged files are synced",
    "after note q.json",
    "after move batch-q-0-0.parquet",
    "written 1",
)


def run(folder: Path, deadly: str = "") -> int:
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.fragile_stream", str(folder), deadly],
        cwd=Path(__file__).parents[2],
        # Not pipes: Spark's Java holds them for a while after its driver is dead.
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=500,
        check=False,
    )
    return done.returncode


@pytest.mark.slow
def test_a_stream_is_exact_for_other_readers_after_each_kill_of_driver_and_workers(tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    for number in range(4):
        content = pa.Table.from_batches([rows(range(100 * number, 100 * number + 100), days=2)])
        pq.write_table(content, tmp_path / "input" / f"{number}.parquet")
    for step in DEADLY_STEPS:
        assert run(tmp_path, step) == -signal.SIGKILL, f"the driver never came to {step!r}"
        found = seen(tmp_path / "bronze")
        once_each(found, list(set(found)), f"a kill {step}")
    assert run(tmp_path) == 0
    assert seen(tmp_path / "bronze") == expected(range(400))
    assert not list((tmp_path / "bronze" / "_tmp").rglob("*.part"))
