"""Finding Java, and the shim in front of a Java that lacks a module."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from brokerweave.errors import ConfigError
from brokerweave.pipeline.spark import java


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("no such thing", None),
    ],
)
def test_the_major_version_is_read(told: str, version: int | None) -> None:
    assert java.parse_version(told) == version


def test_a_system_java_that_is_new_enough_is_used_as_it_is(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "java", """echo 'openjdk version "21.0.1"' >&2""")
    assert java.java_environment({"PATH": str(tmp_path / "bin")}) == {}
    assert java.java_environment({"PATH": "", "JAVA_HOME": str(tmp_path)}) == {}


def test_a_java_that_is_too_old_gives_way_to_the_bundled_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin" / "java", """echo 'openjdk version "11.0.1"' >&2""")
    monkeypatch.setattr(java, "bundled_java", lambda: tmp_path / "real")
    found = java.java_environment({"PATH": str(tmp_path / "bin")}, tmp_path / "cache")
    assert found == {"JAVA_HOME": str(tmp_path / "cache" / "java")}


@pytest.mark.parametrize(
    ("script", "seen"),
    [
        ("""echo 'openjdk version "11.0.1"' >&2""", "java is Java 11"),
        ("exit 1", "java is no Java"),
        (None, "there is no java"),
    ],
)
def test_no_java_is_one_line_that_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, seen: str
) -> None:
    monkeypatch.setattr(java, "bundled_java", lambda: None)
    if script is not None:
        program(tmp_path / "java", script)
    with pytest.raises(ConfigError, match=rf"needs Java 17 or newer, and .*{seen}: install one") as caught:
        java.java_environment({"PATH": str(tmp_path)})
    assert "\n" not in str(caught.value)


def test_the_shim_passes_everything_on_but_the_module(tmp_path: Path) -> None:
    real = program(tmp_path / "a folder" / "java", """for each; do printf '<%s>' "$each"; done""")
    home = java.write_shim(tmp_path / "cache", real)
    given = [
        "-Xmx1g",
        "--add-modules=jdk.incubator.vector",
        "-Dname=two words",
        "",
        "--add-modules=other",
        "$x",
    ]
    told = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout
    assert told == "<-Xmx1g><-Dname=two words><><--add-modules=other><$x>"


def test_the_shim_is_written_once_and_again_when_java_moved(tmp_path: Path) -> None:
    home = java.write_shim(tmp_path, tmp_path / "one")
    before = (home / "bin" / "java").stat().st_ino
    java.write_shim(tmp_path, tmp_path / "one")
    assert (home / "bin" / "java").stat().st_ino == before
    java.write_shim(tmp_path, tmp_path / "two")
    assert str(tmp_path / "two") in (home / "bin" / "java").read_text()
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]
