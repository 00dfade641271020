"""Building without a C compiler: the install goes on, and the modules run uncompiled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_without_a_compiler_the_build_succeeds_and_leaves_the_modules_out(tmp_path: Path) -> None:
    pytest.importorskip("Cython", reason="only what builds needs Cython")
    build = [sys.executable, "setup.py", "build_ext", "--build-lib", "lib", "--build-temp", "temp"]
    tree = tmp_path / "src" / "brokerweave"
    tree.mkdir(parents=True)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tree / "__init__.py").touch()
    types = list((ROOT / "src" / "brokerweave").glob("*/*.pxd"))
    assert types
    for path in [*types, *(each.with_suffix(".py") for each in types)]:
        package = tree / path.parent.name
        package.mkdir(exist_ok=True)
        (package / "__init__.py").touch()
        (package / path.name).write_bytes(path.read_bytes())
    environment = {**os.environ, "CC": "false"}
    done = subprocess.run(build, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert "building extension" in done.stderr + done.stdout
    assert not list(tmp_path.rglob("*.so"))
