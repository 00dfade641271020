"""`brokerweave pipeline` as a user meets it, as far as it goes without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from brokerweave.cli import main
from brokerweave.edgelog.layout import Position
from brokerweave.pipeline.lake.notes import LakeNotes, LogNote
from brokerweave.pipeline.spark.needs import SPARK
from tests.support.waiting import LIMIT

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERMINAL_WIDTH", "200")

    def call(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main.main(["pipeline", *map(str, arguments)])
        out, err = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        assert "Traceback" not in err
        return caught.value.code, out, err

    return call


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    notes = LakeNotes(tmp_path / "lake")
    notes.claim("parquet")
    # Nothing listens there.
    notes.write(LogNote("ab12", "a", "q", 1, Position(1, 5), Position(1, 9), True, "grpc://127.0.0.1:9"))
    return tmp_path / "lake"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "no nodes: give --nodes"),
        (["run", "--nodes", "here"], "--nodes should be grpc://HOST:PORT"),
        (["run", "--nodes", "h:1", "--trigger", "often"], "--trigger should be"),
        (["run", "--nodes", "h:1", "--format", "csv"], "--format should be one of"),
        (["run", "--nodes", "h:1", "--to", "x", "--metrics", "y"], "--metrics should be HOST:PORT"),
        (["run", "--nods", "h:1"], "No such option"),
        (["run", "missing.toml"], "cannot read missing.toml"),
        (["backfill", "--nodes", "h:1", "--to", "x", "--from", "long ago"], "--from should be a time"),
        (["compact", "--to", "nothing"], "nothing is no lake of a pipeline"),
        (["status", "--to", "nothing"], "no pipeline has written to"),
        (["status"], "no lake: give --to DIR"),
        (["abandon", "a", "--to", "nothing"], "nothing is no lake of a pipeline"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run(*arguments)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("module", SPARK)
def test_without_spark_one_line_says_what_to_install(tmp_path: Path, module: str) -> None:
    code = f"""if True:
        import importlib.abc, sys

        class Absent(importlib.abc.MetaPathFinder):
            def find_spec(self, name, path, target=None):
                if name.partition(".")[0] == "{module}":
                    raise ModuleNotFoundError(name)

        import importlib.util
        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name: None if name == "{module}" else found(name)
        sys.meta_path.insert(0, Absent())
        from brokerweave.cli.main import main
        main(["pipeline", "run", "--nodes", "127.0.0.1:9", "--to", "lake"])
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=LIMIT
    )
    said = f"brokerweave: the pipeline needs {module}: pip install 'brokerweave[spark]'\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_status_tells_what_is_known_and_that_a_node_does_not_answer(run: Run, lake: Path) -> None:
    code, out, _ = run("status", "--to", lake, "--node-timeout", "0.3")
    assert code == 0
    assert "does not run" in out
    assert "1:9" in out
    status = json.loads(run("status", "--to", lake, "--node-timeout", "0.3", "--json")[1])
    (node,) = status["nodes"]
    assert (node["node"], node["rows_behind"], node["answers"]) == ("a", None, False)
    assert status["running"] is False


def test_a_node_can_be_abandoned_and_taken_back(run: Run, lake: Path) -> None:
    code, out, _ = run("abandon", "a", "--to", lake)
    assert code == 0
    assert "abandoned at 1:9" in out
    (gone,) = json.loads(run("status", "--to", lake, "--json")[1])["abandoned"]
    assert (gone["node"], gone["rows_lost"]) == ("a", None)
    assert run("abandon", "a", "--to", lake, "--undo")[0] == 0
    assert json.loads(run("status", "--to", lake, "--node-timeout", "0.3", "--json")[1])["abandoned"] == []
    assert "known are a" in run("abandon", "b", "--to", lake)[2]


def test_help_lists_the_flags_that_scripts_rely_on(run: Run) -> None:
    out = run("run", "--help")[1]
    for flag in ("--nodes", "--to", "--checkpoint", "--trigger", "--format", "--master"):
        assert flag in out
    listed = run("--help")[1]
    for command in ("run", "backfill", "compact", "status", "abandon"):
        assert f" {command} " in listed
    assert "brokerweave[spark]" in listed
