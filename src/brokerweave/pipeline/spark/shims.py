"""Small programs in front of others, which Spark starts instead of them.

Owns where they are kept, and the one in front of Python. Invariants: a program is there whole or not at all,
also when two drivers write it at once. Must not know: Spark's settings.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from brokerweave.pipeline.spark.planners import ADDRESS, PLANNER

ASK_PLANNER = Path(__file__).with_name("ask_planner.py")

# Spark puts its own modules first, as a zip without bytecode: each process that it starts would compile them
# anew, about 0.7 s of a core for each stream and each kind of worker.
_PYTHON = """#!/bin/sh
# Workers take pyspark from where this Python has it installed, not from Spark's zip files.
PYTHONPATH=${{PYTHONPATH#*/pyspark.zip:}}
PYTHONPATH=${{PYTHONPATH#*/py4j-*-src.zip:}}
# Spark allows its workers one thread in numpy; the processes that plan get no more, and start sooner.
OPENBLAS_NUM_THREADS=${{OPENBLAS_NUM_THREADS:-${{OMP_NUM_THREADS:-1}}}}
export PYTHONPATH OPENBLAS_NUM_THREADS
if [ "$1 $2" = "-m {planner}" ] && [ -S "${{{address}}}" ]; then
    exec {python} -I -S {ask} "$@"
fi
exec {python} "$@"
"""


def worker_python(python: str, environment: Mapping[str, str], cache: Path | None = None) -> str:
    """The program for PYSPARK_PYTHON on this machine: `python`, which must have pyspark installed."""
    text = _PYTHON.format(
        python=shlex.quote(python), planner=PLANNER, address=ADDRESS, ask=shlex.quote(str(ASK_PLANNER))
    )
    name = hashlib.sha256(text.encode()).hexdigest()[:12]  # of each Python its own
    program = (cache or cache_folder(environment)) / f"python-{name}"
    try:
        write_program(program, text)
    except OSError:
        return python
    return str(program)


def write_program(program: Path, text: str) -> None:
    if program.exists() and program.read_text() == text:
        return
    program.parent.mkdir(parents=True, exist_ok=True)
    # Two drivers may start at once: each renames a whole file.
    unfinished = program.with_name(f"{program.name}.{os.getpid()}")
    unfinished.write_text(text)
    unfinished.chmod(0o755)
    unfinished.replace(program)


def cache_folder(environment: Mapping[str, str]) -> Path:
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "brokerweave"
