"""The program in front of Python that keeps Spark's zip files off a worker's path."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from brokerweave.pipeline.spark.shims import worker_python

SHOW = "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:])"


def path_seen(program: str, path: str) -> str:
    told = subprocess.run(
        [program, "-S", "-c", SHOW, "an argument"], env={"PYTHONPATH": path}, capture_output=True, check=True
    )
    return told.stdout.decode().strip()


def test_a_worker_sees_its_own_path_without_sparks_zip_files(tmp_path: Path) -> None:
    program = worker_python(sys.executable, {}, tmp_path)
    assert program != sys.executable
    sparks = "/spark/python/lib/pyspark.zip:/spark/python/lib/py4j-0.10-src.zip"
    assert path_seen(program, f"{sparks}:/spark/jars/core.jar:/mine") == (
        "/spark/jars/core.jar:/mine ['an argument']"
    )
    assert path_seen(program, "/mine:/other") == "/mine:/other ['an argument']"


def test_each_python_has_its_own_program_and_one_that_is_there_is_kept(tmp_path: Path) -> None:
    one = worker_python("/a/python", {}, tmp_path)
    written = Path(one).stat().st_mtime_ns
    assert worker_python("/a/python", {}, tmp_path) == one
    assert Path(one).stat().st_mtime_ns == written
    assert worker_python("/b/python", {"XDG_CACHE_HOME": "/nowhere"}, tmp_path) != one


def test_where_nothing_can_be_written_python_itself_is_started(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert worker_python("/a/python", {}, tmp_path / "file" / "cache") == "/a/python"
